"""Hold an archive against its own manifest, on any machine: checksums, seals, nothing missing, nothing added.

python workflow/commands/verify.py [ARCHIVE]      (without one, the newest in results/archive/)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.run.archive import Refused, failed, newest, opened
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.runs import PACK, read_run


def verify(archive: Path) -> int:
    """Print a line a problem, or that there is none; returns the exit status. Raises Refused."""
    with opened(archive) as (root, manifest, problems):
        if root.name.endswith(PACK):
            problems = [problem for problem in problems if ": missing" not in problem]
            if not problems:
                read_run(archive)  # nothing that comparisons need is missing
                there = sum(path.is_file() for path in root.rglob("*"))
                print(f"ok: {there} files agree with the manifest; records alone, for make compare")
                return 0
        for problem in problems:
            print(problem)
        if problems:
            print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {archive}")
            return 1
        print("\n".join([f"ok: {len(manifest.outputs)} files agree with the manifest", *failed(root)]))
        return 0


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        sys.exit(verify(Path(sys.argv[1]) if sys.argv[1:] else newest(Path())))
    except Refused as error:
        sys.exit(str(error))
