"""make place: the kernels of a program that Nsight Compute profiled, under ceilings that were measured of the card.

    python workflow/commands/place.py [REPORT] [--card CARD]

REPORT is a .ncu-rep file; without it, the ncu command that collects one is printed. CARD is a run on the same model of
card (a results folder, or a folder or an archive with one); without it, this folder's results. No GPU is needed.
"""

import argparse
import shutil
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis import placing
from roofline.analysis.quantities import Run
from roofline.analysis.table import PlacedProfile
from roofline.measure.nsight_compute import BadReport
from roofline.measure.profile_report import read_profile, require_card
from roofline.records.base import write
from roofline.records.files import write_text
from roofline.report import placing as words
from roofline.report import placing_figure
from roofline.report.figure_style import save
from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run

PLACED, NAME = RESULTS / "placed", "placement"
REFERENCE = Path("reference/nvidia-h200")
SHOWN, TOLD = 20, 3  # rows and sentences on the screen
DPI = 160


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    try:
        if not given.report:
            print(how_to(given.card))
            return 0
        record = read_profile(Path(given.report), Path(given.report).stem)
        run = read_card(given.card)
        device = require_card(record, {name: run.devices[name].name for name in gpus(run)})
    except (BadReport, Refused) as error:
        print(error)
        return 1
    profile = placing.place(record, device, run.roofline.ceilings, run.roofline.calls)
    card = f"{record.device_name} (ceilings: {given.card})"
    page = words.page(profile, card, record.multiprocessors, f"{NAME}.png")
    write(profile, PLACED / f"{NAME}.json")
    write_text(page, PLACED / f"{NAME}.md")
    save(placing_figure.draw(profile, run.roofline.ceilings, record.device_name), [PLACED / f"{NAME}.png"], DPI)
    print(shown(profile, card, record.multiprocessors))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make place", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("report", nargs="?", metavar="REPORT", help="a .ncu-rep file")
    parser.add_argument("--card", default=str(RESULTS), metavar="CARD", help="a run on the same model of card")
    return parser.parse_args(arguments)


def read_card(name: str) -> Run:
    """A run with a GPU's ceilings. Raises Refused."""
    if name == str(RESULTS) and not RESULTS.exists():
        raise Refused("no results here yet: run make first, or name a card, such as CARD=reference/nvidia-h200")
    run = read_run(name)
    if not gpus(run):
        raise Refused(f"{name}: no GPU was measured there; name a run with one, such as CARD=reference/nvidia-h200")
    return run


def gpus(run: Run) -> list[str]:
    measured = {one.device for one in run.roofline.ceilings}
    return [name for name, one in run.devices.items() if one.device_kind == "gpu" and name in measured]


def how_to(card: str) -> str:
    """The two commands, for the card that is named, or this folder's; without either for the reference's."""
    try:
        run = read_card(card)
    except Refused:
        if card != str(RESULTS):
            raise
        card = str(REFERENCE)
        run = read_card(card)
    device = run.devices[gpus(run)[0]]
    capability = device.hardware["compute_capability"]
    with_card = "" if card == str(RESULTS) else f" CARD={card}"
    return (
        f"Collect a report, with your program in place of `python my.py` (metrics are named for compute capability "
        f"{capability}, that of {device.name}; CARD=a run names another card):\n\n"
        f"{words.command(capability)}\n\n"
        f"Then place it, on any machine:\n\nmake place REPORT=my.ncu-rep{with_card}"
    )


def shown(profile: PlacedProfile, card: str, multiprocessors: int) -> str:
    """On the screen: the start of everything."""
    told = words.words(profile, card)
    told += [words.sentence(one, multiprocessors) for one in profile.kernels[:TOLD]]
    parts = [*map(wrapped, told), str(words.table(profile.kernels[:SHOWN]))]
    parts += [command] if (command := words.wanted(profile)) else []
    return "\n\n".join([*parts, f"Written: {PLACED}/{NAME}.md, {NAME}.png, {NAME}.json"])


def wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print_what_can_be_printed()
    sys.exit(main(sys.argv[1:]))
