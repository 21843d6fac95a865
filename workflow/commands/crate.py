"""Make a run crate of an archive for WorkflowHub and Zenodo: results/archive/NAME.crate.zip.

    python workflow/commands/crate.py [ARCHIVE]      (without one, the newest in results/archive/)

The metadata are those in the archive; one that was made before archives had any gets them from its manifest.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.records.files import file_sha256
from roofline.run import crate
from roofline.run.archive import ARCHIVES, Refused, newest, opened
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.runs import PACK


def make(archive: Path, folder: Path) -> list[str]:
    """Write the zip into a folder; returns what to say. Raises Refused."""
    with opened(archive) as (root, manifest, problems):
        if root.name.endswith(PACK):
            raise Refused(f"{archive}: no crate, it holds records alone; name the archive that they are from")
        if problems:
            raise Refused(f"{archive}: no crate, {problems[0]} (`make verify` lists all)")
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        spaced = next((path for path in paths if " " in path), None)
        if spaced:
            raise Refused(f"{archive}: no crate, {spaced!r} has a space in its name, which WorkflowHub refuses")
        try:
            text, lines = crate.of_folder(root, manifest, paths, {})
        except crate.NoCrate as reason:
            raise Refused(f"{archive}: no crate, {reason}") from None
        if crate.METADATA in paths:  # it knows the author too
            text = (root / crate.METADATA).read_bytes()
        target = crate.write_zip(root, paths, text, folder / f"{root.name}.crate.zip", manifest.created_at)
    if not any("agent" in entity for entity in json.loads(text)["@graph"]):
        lines.append("it names nobody who ran it: the archive was made without author.name in its config")
    return [*lines, str(target), f"{target.stat().st_size / 1e6:.1f} MB, SHA-256 {file_sha256(target)}"]


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        print("\n".join(make(Path(sys.argv[1]) if sys.argv[1:] else newest(Path()), ARCHIVES)))
    except (Refused, OSError) as error:
        sys.exit(str(error))
