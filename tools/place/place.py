"""make place: a program that Nsight Compute or the profiler of PyTorch recorded, under ceilings measured of the card.

    python tools/place/place.py [REPORT] [--trace TRACE] [--card CARD]

REPORT is a .ncu-rep file, TRACE a trace of torch.profiler; without either, how to collect them is printed. CARD is a
run on the same model of card (results, an archive, a folder of reference/), by default results/. No GPU is needed.
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
sys.path.append(str(Path(sys.prefix, "tools", "place")))  # where envs/install.sh puts its packages
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

import ncu_counts
import place_page
import place_picture
import placing
import trace_events
import trace_page
import trace_rows

from roofline.api import RESULTS, Run, UserError, exit_with, figure_style, ncu, open_run, wrap_for_terminal, write_text

PLACED, NAME = RESULTS / "placed", "placement"
REFERENCE = "reference/nvidia-h200"
SCREEN_ROWS, SCREEN_SENTENCES = 20, 3
DPI = 160
SCHEMA_VERSION, IDLE = 2, "idle"  # of placement.json; the regime of gaps
Placement = placing.Profile | trace_rows.Section


def main(arguments: list[str]) -> int:
    """Run the command and return its status. Raises UserError and OSError."""
    parser = argparse.ArgumentParser(prog="make place", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("report", nargs="?", metavar="REPORT", help="a .ncu-rep file")
    parser.add_argument(
        "--trace", metavar="TRACE", help="of torch.profiler, .json or .json.gz, and others that it takes shapes from"
    )
    parser.add_argument("--card", default=str(RESULTS), metavar="CARD", help="a run on the same model of card")
    options = parser.parse_args(arguments)
    if options.trace:
        print(place_trace_file(options.trace, options.card))
    elif options.report:
        print(place_report_file(options.report, options.card))
    else:
        print(explain_collecting(options.card))
    return 0


def place_report_file(report: str, card: str) -> str:
    """Place a report of Nsight Compute: write page, picture and table, and return what the screen shows.

    Raises UserError and OSError.
    """
    counts = ncu.read_report(Path(report), ncu_counts.read_counts)
    run = read_card(card)
    profile = placing.place_report(counts, run)
    page = place_page.format_page(profile, card, f"{NAME}.png")
    outputs = write_placement([profile], [f"{NAME}.png"], page, run)
    notes = place_page.profile_notes(profile, card)
    for kernel in profile.kernels[:SCREEN_SENTENCES]:
        notes.append(place_page.kernel_sentence(kernel, profile.multiprocessors))
    return "\n\n".join([format_screen(notes, profile.kernels), *place_page.missing_command(profile), outputs])


def place_trace_file(traces: str, card: str) -> str:
    """Place a trace of torch.profiler: write page, pictures and table, and return what the screen shows.

    `traces` is a path, or several with spaces between: kernels of CUDA graphs in the first have the shapes that they
    have in the others. Raises UserError and OSError.
    """
    paths = [traces] if Path(traces).exists() else traces.split() or [traces]
    ranks, *others = [trace_events.read_trace(Path(path)) for path in paths]
    trace_events.require_shapes([trace for file in (ranks, *others) for trace in file])
    run = read_card(card)
    try:
        sections = trace_rows.place_trace(ranks, run, [file[0] for file in others])
    except (*trace_events.MISSHAPED, LookupError, ArithmeticError) as error:
        raise UserError(f"{paths[0]}: events are not as torch.profiler writes them: {error}") from None
    pictures = [f"{NAME}.png", *(f"{NAME}_{place}.png" for place in range(1, len(sections)))]
    page = trace_page.format_page(sections, card, pictures)
    outputs = write_placement(sections, pictures, page, run)
    screens = [format_screen(trace_page.step_notes(section), section.kernels) for section in sections]
    return "\n\n".join([*screens, outputs])


def write_placement(sections: Sequence[Placement], pictures: list[str], page: str, run: Run) -> str:
    """Write sections as JSON, a page, and a picture of each into results/placed/.

    Return the last line of the screen, which names them.
    """
    table = {"schema_version": SCHEMA_VERSION, "sections": [list_fields(section) for section in sections]}
    write_text(json.dumps(table, indent=1) + "\n", PLACED / f"{NAME}.json")
    write_text(page, PLACED / f"{NAME}.md")
    for section, picture in zip(sections, pictures, strict=True):
        figure_style.save(place_picture.draw_kernels(section, run.roofline.ceilings), [PLACED / picture], DPI)
    return f"Written: {PLACED}/{NAME}.md, {', '.join(pictures)}, {NAME}.json"


def list_fields(section: Placement) -> dict[str, Any]:
    """Return a section as placement.json holds it: the gaps of a trace are seconds of its step, and not kernels."""
    fields = asdict(section)
    return fields | {"kernels": [kernel for kernel in fields["kernels"] if kernel["regime"] != IDLE]}


def read_card(name: str) -> Run:
    """Return a run that has the ceilings of a GPU. Raises UserError."""
    if name == str(RESULTS) and not (RESULTS / "roofline.json").exists():
        raise UserError("no results here yet: run make first, or name a card, such as CARD=reference/nvidia-h200")
    run = open_run(name)
    if not placing.measured_gpus(run):
        raise UserError(f"{name}: no GPU was measured there; name a run with one, such as CARD=reference/nvidia-h200")
    return run


def explain_collecting(card: str) -> str:
    """Return how to collect and place a trace and a report.

    The metrics are those of the card in the run `card`, or of a reference if this folder has no results. Raises
    UserError.
    """
    try:
        run = read_card(card)
    except UserError:
        if card != str(RESULTS):
            raise
        card, run = REFERENCE, read_card(REFERENCE)
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    collect = readme.split("```python\n")[1].split("\n```")[0]
    device = next(iter(placing.measured_gpus(run).values()))
    command = ncu_counts.collect_command(tuple(map(int, device.hardware["compute_capability"].split("."))))
    with_card = "" if card == str(RESULTS) else f" CARD={card}"
    template = place_page.TEMPLATES.get_template("collecting.j2")
    return template.render(collect=collect, device=device, command=command, with_card=with_card)


def format_screen(notes: Iterable[str], kernels: Sequence[placing.Placed]) -> str:
    """Return what the screen shows of a report, or of one GPU of a trace: notes, and the start of the table."""
    return "\n\n".join([*map(wrap_for_terminal, notes), str(place_page.build_table(kernels[:SCREEN_ROWS]))])


if __name__ == "__main__":
    exit_with(main)
