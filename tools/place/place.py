"""make place: a program that Nsight Compute or the profiler of PyTorch recorded, under ceilings measured of the card.

    python tools/place/place.py [REPORT] [--trace TRACE] [--card CARD]

REPORT is a .ncu-rep file, TRACE a trace of torch.profiler; without either, how to collect both is printed. CARD is a run
on the same model of card (a results folder, an archive, a folder of reference/), by default results/. No GPU is needed.
"""

import argparse
import json
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
REFERENCE = Path("reference/nvidia-h200")
SHOWN, TOLD = 20, 3  # rows and sentences on the screen
DPI = 160
COLLECT = """\
import time, torch
from torch.profiler import profile, schedule

def timed(steps):  # call it once before, to warm up
    torch.cuda.synchronize(); start = time.perf_counter()
    for _ in range(steps): step()  # a training step or a decode step of yours
    torch.cuda.synchronize(); return (time.perf_counter() - start) / steps

timed(3); seconds = timed(10)
with profile(record_shapes=True, schedule=schedule(wait=0, warmup=1, active=5)) as profiler:
    for _ in range(6): profiler.add_metadata_json("step_s", str(seconds)); step(); profiler.step()
profiler.export_chrome_trace("my.json.gz")"""


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    try:
        if not given.report and not given.trace:
            print(how_to(given.card))
            return 0
        if given.trace:
            print(placed_trace(Path(given.trace), given.card))
            return 0
        report = ncu.read(Path(given.report), ncu_counts.counts)
        run = read_card(given.card)
        profile = placing.place(report, run)
        ceilings = [one for one in run.roofline.ceilings if one.device == profile.device]
        write_text(json.dumps(asdict(profile), indent=1) + "\n", PLACED / f"{NAME}.json")
        write_text(place_page.page(profile, given.card, f"{NAME}.png"), PLACED / f"{NAME}.md")
        figure_style.save(place_picture.draw(profile, ceilings), [PLACED / f"{NAME}.png"], DPI)
    except (UserError, OSError) as error:
        print(error)
        return 1
    print(shown(profile, given.card))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make place", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("report", nargs="?", metavar="REPORT", help="a .ncu-rep file")
    parser.add_argument("--trace", metavar="TRACE", help="a Chrome trace of torch.profiler, .json or .json.gz")
    parser.add_argument("--card", default=str(RESULTS), metavar="CARD", help="a run on the same model of card")
    return parser.parse_args(arguments)


def placed_trace(path: Path, card: str) -> str:
    """Writes page, pictures and table of each GPU; returns what the screen shows. Raises UserError and OSError."""
    run = read_card(card)
    found = trace_rows.sections(trace_events.read(path), run)
    pictures = [f"{NAME}.png" if len(found) == 1 else f"{NAME}_gpu{one.gpu}.png" for one in found]
    write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", PLACED / f"{NAME}.json")
    write_text(trace_page.page(found, card, pictures), PLACED / f"{NAME}.md")
    for section, picture in zip(found, pictures, strict=True):
        ceilings = [one for one in run.roofline.ceilings if one.device == section.device]
        figure_style.save(place_picture.draw(section, ceilings), [PLACED / picture], DPI)
    parts = []
    for one in found:
        parts += [wrapped(text) for text in (trace_page.verdict(one), *trace_page.notes(one))]
        parts += [str(trace_page.table(one, SHOWN))]
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
    """How to collect a trace or a report and place it, for the card that is named, or that of this folder; without either for the reference's."""
    try:
        run = read_card(card)
    except UserError:
        if card != str(RESULTS):
            raise
        card = str(REFERENCE)
        run = read_card(card)
    device = run.devices[placing.gpus(run)[0]]
    capability = device.hardware["compute_capability"]
    with_card = "" if card == str(RESULTS) else f" CARD={card}"
    return (
        f"Collect a trace of a PyTorch program:\n\n{COLLECT}\n\n"
        f"Then place it, on any machine:\n\nmake place TRACE=my.json.gz{with_card}\n\n"
        f"Where hardware counters may be read, collect a report, with your program in place of `python my.py` (metrics are named for compute capability "
        f"{capability}, that of {device.name}; CARD=a run names another card):\n\n"
        f"{ncu_counts.command(tuple(map(int, capability.split('.'))))}\n\n"
        f"Then place it, on any machine:\n\nmake place REPORT=my.ncu-rep{with_card}"
    )


def shown(profile: placing.Profile, source: str) -> str:
    """On the screen: the start of everything."""
    lines = place_page.words(profile, source)
    lines += [place_page.sentence(one, profile.multiprocessors) for one in profile.kernels[:TOLD]]
    parts = [*map(wrapped, lines), str(place_page.table(profile.kernels[:SHOWN]))]
    parts += [command] if (command := place_page.wanted(profile)) else []
    return "\n\n".join([*parts, f"Written: {PLACED}/{NAME}.md, {NAME}.png, {NAME}.json"])


def wrapped(text: str) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    exit_with(main, 1)
