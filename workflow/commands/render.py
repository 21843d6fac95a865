"""Draw an archive's plot and write its interpretation again from its records, on any machine; nothing is measured.

    python workflow/commands/render.py [ARCHIVE]      (without one, the newest in results/archive/)

What it makes lies in results/rendered/, apart from this machine's own results.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from collect import collect

from roofline.archive import ENDING, RENDERED, Refused, newest, opened
from roofline.figures import draw
from roofline.interpretation import interpret
from roofline.provenance import RESULTS, Manifest, read_results
from roofline.records import BandwidthRecord, DecodeAttnRecord, PeakFlopsRecord, Roofline, read, write, write_text


def render(archive: Path, folder: Path) -> list[str]:
    """Make roofline.json, roofline.png, roofline.svg and interpretation.md in a folder; returns what to say.

    Raises Refused for an archive that does not agree with its manifest.
    """
    with opened(archive) as (root, manifest, problems):
        if problems:
            raise Refused(f"{archive}: refused, {problems[0]} (`make verify` tells all)")
        roofline, text = place_again(root, manifest)
        archived = read(Roofline, root / RESULTS / "roofline.json")
    write(roofline, folder / "roofline.json")
    draw(
        roofline.model_dump(mode="json"),
        [folder / "roofline.png", folder / "roofline.svg"],
        manifest.config["plot"]["dpi"],
    )
    write_text(text, folder / "interpretation.md")
    same = "equals" if roofline == archived else "differs from"
    return [
        f"{folder}/: roofline.json, roofline.png, roofline.svg, interpretation.md",
        f"roofline.json, made again from {len(manifest.outputs)} files, {same} the archived one",
    ]


def place_again(root: Path, manifest: Manifest) -> tuple[Roofline, str]:
    """The roofline and its interpretation, from the records alone, in the order of the manifest."""
    found = read_results(root, [output.path for output in manifest.outputs])
    of_kind = {kind: found.of_kind(kind) for kind in (PeakFlopsRecord, BandwidthRecord, DecodeAttnRecord)}
    roofline = collect(
        [root / path for path, _ in found.devices.values()],
        *([root / path for path, _ in measured] for measured in of_kind.values()),
        manifest.config["operations"],
        root / RESULTS,
    )
    devices = {device: record for device, (_, record) in found.devices.items()}
    return roofline, interpret(roofline, devices, *([record for _, record in some] for some in of_kind.values()))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        archive = Path(sys.argv[1]) if sys.argv[1:] else newest(Path())
        print("\n".join(render(archive, RENDERED / archive.name.removesuffix(ENDING))))
    except (Refused, OSError) as error:
        sys.exit(str(error))
