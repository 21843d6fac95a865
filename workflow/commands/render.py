"""Draw an archive's plots and write its words again from its records, on any machine; nothing is measured.

    python workflow/commands/render.py [ARCHIVE]      (without one, the newest in results/archive/)

What it makes lies in results/rendered/, apart from this machine's own results. No code of the archive is run.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.results import Results, read_results, read_table
from roofline.analysis.table import Roofline
from roofline.records.base import write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import write_text
from roofline.records.manifest import Manifest
from roofline.records.memory import BandwidthRecord
from roofline.run import pictures
from roofline.run.archive import ENDING, RENDERED, Refused, failed, newest, opened
from roofline.run.derived import derive, same, same_figures
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.manifest import hashes
from roofline.run.paths import RESULTS
from roofline.run.runs import PACK


def render(archive: Path, folder: Path) -> list[str]:
    """Make everything that follows from an archive's records in a folder; returns what to say.

    Raises Refused for an archive that does not agree with its manifest.
    """
    with opened(archive) as (root, manifest, problems):
        if root.name.endswith(PACK):
            raise Refused(f"{archive}: nothing to render, it holds records alone; name the archive that they are from")
        if problems:
            raise Refused(f"{archive}: refused, {problems[0]} (`make verify` lists all)")
        found = read_results(root / RESULTS, [root / output.path for output in manifest.outputs])
        archived, fails = read_table(root / RESULTS / "roofline.json"), failed(root)
    made = write_derived(found, manifest, folder)
    relation = "equals" if same(made, archived) else "has the figures of"
    relation = relation if same_figures(made, archived) else "differs from"
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    return [
        f"{folder}/: {names}",
        f"roofline.json, made again from {len(manifest.outputs)} files, {relation} the archived one",
        *fails,
    ]


def write_derived(found: Results, manifest: Manifest, folder: Path) -> Roofline:
    """Words, numbers and pictures that follow from records."""
    files = derive(found, manifest.asked, hashes(manifest.outputs))
    for name, content in files.items():
        (write_text if isinstance(content, str) else write)(content, folder / name)
    roofline, dpi = files["roofline.json"], manifest.config["plot"]["dpi"]
    bandwidths, peaks = ([record for _, record in found.of_kind(kind)] for kind in (BandwidthRecord, PeakFlopsRecord))
    operators = {info.picture: info.name for info in roofline.operator_info.values()}
    names = {Path(output.path).name for output in manifest.outputs}
    drawn = {what: f"{what}.png" in names for what in ("instruction_roofline", "models")}
    pictures.draw(
        folder,
        roofline,
        peaks,
        bandwidths,
        operators,
        dpi,
        instructions=drawn["instruction_roofline"],
        models=drawn["models"],
    )
    return roofline


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        archive = Path(sys.argv[1]) if sys.argv[1:] else newest(Path())
        print("\n".join(render(archive, RENDERED / archive.name.removesuffix(ENDING))))
    except (Refused, OSError) as error:
        sys.exit(str(error))
