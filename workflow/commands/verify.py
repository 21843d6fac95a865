"""Hold a run against its own manifest, on any machine: checksums, seals, nothing missing; then draw it again from its
records, into results/rendered/. Nothing is measured, and no code of the archive is run.

python workflow/commands/verify.py [ARCHIVE]      (a folder too; without one, the newest in results/archive/)
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.results import Results, read_results
from roofline.records.base import CorruptRecord, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import RESULTS, write_text
from roofline.records.manifest import Manifest
from roofline.records.memory import BandwidthRecord
from roofline.run import pictures
from roofline.run.archive import ENDING, RENDERED, Refused, failed, linked, newest, opened
from roofline.run.derived import derive
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.manifest import hashes


def verify(archive: Path) -> int:
    """Print a line a problem, or where the run is drawn; returns the exit status. Raises Refused, CorruptRecord and
    OSError."""
    with (linked if archive.is_dir() else opened)(archive) as (root, manifest, problems):
        if problems:
            print("\n".join([*problems, f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {archive}"]))
            return 1
        found, fails = read_results(root / RESULTS, [root / one.path for one in manifest.outputs]), failed(root)
    print(f"ok: {len(manifest.outputs)} files agree with the manifest")
    folder = RENDERED / archive.resolve().name.removesuffix(ENDING)
    shutil.rmtree(folder, ignore_errors=True)
    write_derived(found, manifest, folder)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    print("\n".join([f"drawn again from the records: {folder}/ ({names})", *fails]))
    return 0


def write_derived(found: Results, manifest: Manifest, folder: Path) -> None:
    """Words, numbers and pictures that follow from records."""
    files = derive(found, manifest.asked, hashes(manifest.outputs))
    for name, content in files.items():
        (write_text if isinstance(content, str) else write)(content, folder / name)
    roofline, names = files["roofline.json"], {Path(output.path).name for output in manifest.outputs}
    bandwidths, peaks = ([record for _, record in found.of_kind(kind)] for kind in (BandwidthRecord, PeakFlopsRecord))
    pictures.draw(
        folder,
        roofline,
        peaks,
        bandwidths,
        operators={info.picture: info.name for info in roofline.operator_info.values()},
        dpi=manifest.config["plot"]["dpi"],
        instructions="instruction_roofline.png" in names,
    )


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        sys.exit(verify(Path(sys.argv[1]) if sys.argv[1:] else newest(Path())))
    except (Refused, CorruptRecord, OSError) as error:
        sys.exit(str(error))
