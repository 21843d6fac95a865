"""Hold a run against its own manifest, on any machine: checksums, seals, nothing missing; then draw it again from its
records, into results/rendered/. Nothing is measured, and no code of the archive is run.

python workflow/commands/verify.py [ARCHIVE]      (a folder too; without one, the newest in results/archive/)
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.terms import UserError
from roofline.records.files import RESULTS
from roofline.records.manifest_record import Manifest
from roofline.report.report_model import Source
from roofline.report.words import format_failures
from roofline.run import pictures
from roofline.run.archive import ENDING, RENDERED, newest, opened
from roofline.run.derived import write_derived
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.make_manifest import describe_amendments, hashes
from roofline.table.rows import Roofline
from roofline.table.run_records import Results, read_results


def verify(run: Path) -> int:
    """Print a line a problem, or where the run is drawn; returns the exit status. Raises UserError and
    OSError."""
    with opened(run) as (root, manifest, problems):
        if problems:
            print("\n".join([*problems, f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {run}"]))
            return 1
        found = read_results(root / RESULTS, [root / one.path for one in manifest.outputs])
    print("\n".join([f"ok: {len(manifest.outputs)} results agree with the manifest", *describe_amendments(manifest)]))
    folder = RENDERED / run.resolve().name.removesuffix(ENDING)
    shutil.rmtree(folder, ignore_errors=True)
    roofline = draw(found, manifest, folder)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    print(
        "\n".join([f"drawn again from the records: {folder}/ ({names})", *format_failures(roofline.doubting_failures)])
    )
    return 0


def draw(found: Results, manifest: Manifest, folder: Path) -> Roofline:
    """Words, numbers and pictures that follow from records. Returns the table."""
    roofline = write_derived(
        found,
        manifest.asked,
        hashes(manifest.outputs),
        folder,
        Source(manifest.sources.commit, manifest.sources.url),
    )
    pictures.draw(folder, roofline, manifest.config["plot"]["dpi"])
    return roofline


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        sys.exit(verify(Path(sys.argv[1]) if sys.argv[1:] else newest(Path())))
    except (UserError, OSError) as error:
        sys.exit(str(error))
