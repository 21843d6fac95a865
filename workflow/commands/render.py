"""Draw an archive's plot and write its interpretation again from its records, on any machine; nothing is measured.

    python workflow/commands/render.py [ARCHIVE]      (without one, the newest in results/archive/)

What it makes lies in results/rendered/, apart from this machine's own results.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.derived import derive
from roofline.records import DecodeAttnRecord
from roofline.records.base import read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import write_text
from roofline.records.memory import BandwidthRecord
from roofline.records.roofline import Roofline
from roofline.report import attention_figure, load_figure, sweep_figure
from roofline.report.figures import draw, save
from roofline.run.archive import ENDING, RENDERED, Refused, newest, opened
from roofline.run.manifest import RESULTS, read_results


def render(archive: Path, folder: Path) -> list[str]:
    """Make roofline.json, its pictures, verification and interpretation.md in a folder; returns what to say.

    Raises Refused for an archive that does not agree with its manifest.
    """
    with opened(archive) as (root, manifest, problems):
        if problems:
            raise Refused(f"{archive}: refused, {problems[0]} (`make verify` tells all)")
        found = read_results(root, [output.path for output in manifest.outputs])
        hashes = {output.path: output.sha256 for output in manifest.outputs}
        derived = derive(root, found, manifest.config["operations"], hashes)
        archived = read(Roofline, root / RESULTS / "roofline.json")
    roofline = derived.roofline
    for name, content in derived.files().items():
        (write_text if isinstance(content, str) else write)(content, folder / name)
    dpi = manifest.config["plot"]["dpi"]
    draw(roofline.model_dump(mode="json"), [folder / "roofline.png", folder / "roofline.svg"], dpi)
    bandwidths, peaks = ([record for _, record in found.of_kind(kind)] for kind in (BandwidthRecord, PeakFlopsRecord))
    attention = [record for _, record in found.of_kind(DecodeAttnRecord)]
    save(attention_figure.draw(roofline, attention), [folder / "attention.png"], dpi)
    save(sweep_figure.draw(bandwidths), [folder / "sweep.png"], dpi)
    save(load_figure.draw(peaks), [folder / "load.png"], dpi)
    same = "equals" if roofline == archived else "differs from"
    return [
        f"{folder}/: roofline.json, roofline.png, roofline.svg, attention.png, sweep.png, load.png, "
        "interpretation.md, verification.json, verification.md",
        f"roofline.json, made again from {len(manifest.outputs)} files, {same} the archived one",
    ]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        archive = Path(sys.argv[1]) if sys.argv[1:] else newest(Path())
        print("\n".join(render(archive, RENDERED / archive.name.removesuffix(ENDING))))
    except (Refused, OSError) as error:
        sys.exit(str(error))
