"""make place: a program that Nsight Compute or the profiler of PyTorch recorded, under ceilings measured of the card.

    python tools/place/place.py [REPORT] [--trace TRACE] [--card CARD]

REPORT is a .ncu-rep file, TRACE a trace of torch.profiler; without either, how to collect them is printed. CARD is a
run on the same model of card (results, an archive, a folder of reference/), by default results/. No GPU is needed.
"""

import argparse
import json
import re
import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
sys.path.append(str(Path(sys.prefix, "tools", "place")))  # where envs/install.sh puts its packages

import ncu_counts
import place_page
import place_picture
import placing
import trace_events
import trace_page
import trace_rows

from roofline.api import RESULTS, Run, UserError, exit_with, figure_style, ncu, open_run, write_text

PLACED, NAME = RESULTS / "placed", "placement"
REFERENCE = "reference/nvidia-h200"
SHOWN, TOLD = 20, 3  # rows and sentences on the screen
DPI = 160
COLLECT = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.MULTILINE)  # in the README


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    try:
        wanted = given.report or given.trace
        print(placed(given.report, given.trace, given.card) if wanted else how_to(given.card))
    except (UserError, OSError) as error:
        print(error)
        return 1
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make place", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("report", nargs="?", metavar="REPORT", help="a .ncu-rep file")
    parser.add_argument("--trace", metavar="TRACE", help="a Chrome trace of torch.profiler, .json or .json.gz")
    parser.add_argument("--card", default=str(RESULTS), metavar="CARD", help="a run on the same model of card")
    return parser.parse_args(arguments)


def placed(report: str | None, trace: str | None, card: str) -> str:
    """Writes page, pictures and table; returns what the screen shows. Raises UserError and OSError."""
    if trace:
        events, run = trace_events.read(Path(trace)), read_card(card)
        found = trace_rows.sections(events, run)
    else:
        counts, run = ncu.read_report(Path(report), ncu_counts.counts), read_card(card)
        found = [placing.place(counts, run)]
    pictures = [f"{NAME}.png", *(f"{NAME}_{place}.png" for place in range(1, len(found)))]
    rows = [asdict(one) for one in found]
    write_text(json.dumps(rows if trace else rows[0], indent=1) + "\n", PLACED / f"{NAME}.json")
    page = trace_page.page(found, card, pictures) if trace else place_page.page(found[0], card, pictures[0])
    write_text(page, PLACED / f"{NAME}.md")
    for one, picture in zip(found, pictures, strict=True):
        ceilings = [ceiling for ceiling in run.roofline.ceilings if ceiling.device == one.device]
        figure_style.save(place_picture.draw(one, ceilings), [PLACED / picture], DPI)
    parts = [part for one in found for part in (shown_trace(one) if trace else shown(one, card))]
    return "\n\n".join([*parts, f"Written: {PLACED}/{NAME}.md, {', '.join(pictures)}, {NAME}.json"])


def read_card(name: str) -> Run:
    """A run with the ceilings of a GPU. Raises UserError."""
    if name == str(RESULTS) and not (RESULTS / "roofline.json").exists():
        raise UserError("no results here yet: run make first, or name a card, such as CARD=reference/nvidia-h200")
    run = open_run(name)
    if not placing.gpus(run):
        raise UserError(f"{name}: no GPU was measured there; name a run with one, such as CARD=reference/nvidia-h200")
    return run


def how_to(card: str) -> str:
    """How to collect and place a trace and a report, for the card that is named, that of this folder, or another."""
    try:
        run = read_card(card)
    except UserError:
        if card != str(RESULTS):
            raise
        card, run = REFERENCE, read_card(REFERENCE)
    collect = COLLECT.search(Path(__file__).with_name("README.md").read_text(encoding="utf-8"))[1]
    device = run.devices[placing.gpus(run)[0]]
    capability = device.hardware["compute_capability"]
    with_card = "" if card == str(RESULTS) else f" CARD={card}"
    return (
        f"Collect a trace of a PyTorch program:\n\n{collect}\n\n"
        f"Then place it, on any machine:\n\nmake place TRACE=my.json.gz{with_card}\n\n"
        f"Or collect a report of counters, with your program in place of `python my.py` (metrics are named for "
        f"compute capability {capability}, that of {device.name}; CARD=a run names another card):\n\n"
        f"{ncu_counts.command(tuple(map(int, capability.split('.'))))}\n\n"
        f"Then place it, on any machine:\n\nmake place REPORT=my.ncu-rep{with_card}"
    )


def shown(profile: placing.Profile, source: str) -> list[str]:
    """On the screen: the start of everything."""
    lines = place_page.words(profile, source)
    lines += [place_page.sentence(one, profile.multiprocessors) for one in profile.kernels[:TOLD]]
    return [*map(wrapped, lines), str(place_page.table(profile.kernels[:SHOWN])), *place_page.wanted(profile)]


def shown_trace(section: trace_rows.Section) -> list[str]:
    lines = map(wrapped, [trace_page.verdict(section), *trace_page.notes(section)])
    return [*lines, str(place_page.table(section.kernels[:SHOWN]))]


def wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    exit_with(main, 1)
