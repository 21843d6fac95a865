"""make compare: two lists of runs, figure by figure.

A and B are lists of archives, results folders or folders of reference/. --force also compares other models of card. The
exit status is 1 if a figure of one model is SLOWER, and 2 if the lists cannot be read or compared.
"""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

import compare_page
import t_test
from compare_picture import draw_changes
from pairing import ComparedPair, device_differences, pair_devices, run_differences
from two_models import draw_roofs

from roofline.api import RESULTS, Run, UserError, exit_with, figure_style, open_run, write_text

FOLDER = RESULTS / "comparison"
SLOWER, REFUSED, DPI = 1, 2, 144
SCHEMA_VERSION = 1  # of comparison.json


def main(arguments: list[str]) -> int:
    """Run the command and return its status. Raises UserError and OSError."""
    parser = argparse.ArgumentParser(prog="make compare", description=(__doc__ or "").split("\n\n")[-1])
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args(arguments)
    a_runs, b_runs = open_runs(options.a, "A"), open_runs(options.b, "B")
    comparison = compare_runs(a_runs, b_runs, options.force)
    table = {"schema_version": SCHEMA_VERSION} | asdict(comparison)
    write_text(json.dumps(table, indent=1, allow_nan=False) + "\n", FOLDER / "comparison.json")
    write_text(compare_page.format_page(comparison), FOLDER / "comparison.md")
    pairs, _ = pair_devices(a_runs, b_runs, options.force)
    main_pairs = [pair for pair in pairs if pair.a[0].record.device_kind == "gpu"] or pairs
    only_other_models = all(pair.other_models for pair in main_pairs)
    picture = draw_roofs(main_pairs[0]) if only_other_models else draw_changes(comparison)
    figure_style.save(picture, [FOLDER / "comparison.png"], DPI)
    print(f"{compare_page.format_screen(comparison)}\n{FOLDER}/: comparison.md, comparison.json, comparison.png")
    return SLOWER if any(figure.verdict == "SLOWER" for figure in comparison.judged) else 0


def open_runs(text: str, side: str) -> list[Run]:
    """Open the runs of paths that are separated by blanks, each run once.

    A path that holds blanks is quoted, or is the only one. Raises UserError.
    """
    words = [text] if text and Path(text).exists() else shlex.split(text)  # "" would be this folder
    if not words:
        raise UserError(f"{side}: no run is named; give an archive or a results folder, as in {side}=one.tar.gz")
    paths = [Path(match) for word in words for match in sorted(glob(word)) or [word]]  # no shell expands A=results/*
    return list({run.fingerprint: run for run in map(open_run, paths)}.values())


def compare_runs(a_runs: Sequence[Run], b_runs: Sequence[Run], force: bool = False) -> t_test.Comparison:
    """Compare two lists of runs. `force` also compares other models of card.

    Raises UserError if no device of A is like one of B, or a run is in both lists.
    """
    a_prints, b_prints = {run.fingerprint for run in a_runs}, {run.fingerprint for run in b_runs}
    identical = a_prints == b_prints
    if not identical and (common := a_prints & b_prints):
        source = next(run.source for run in b_runs if run.fingerprint in common)
        raise UserError(f"{source}: in both lists; leave it out of one")
    pairs, left_out = pair_devices(a_runs, b_runs, force)
    differences = []
    if not identical:
        for pair in pairs:
            lines = device_differences(pair.a, pair.b)
            differences += [f"{pair.name}, {line}" for line in lines] if len(pairs) > 1 else lines
        differences += run_differences(a_runs, b_runs)
    a_lines, b_lines = ([_line(run) for run in side] for side in (a_runs, b_runs))
    cards, figures = {pair.name: _cards(pair) for pair in pairs}, t_test.judge_pairs(pairs, identical)
    models = [pair.name for pair in pairs if pair.other_models]
    return t_test.Comparison(identical, a_lines, b_lines, cards, models, differences, left_out, figures)


def _line(run: Run) -> str:
    when = min(record.queried_at for record in run.devices.values())[:16].replace("T", " ")
    return f"{run.source} ({when} UTC, commit {(run.commit or 'unknown')[:8]})"


def _cards(pair: ComparedPair) -> str:
    if pair.same_card:
        return "the same device on both sides"
    a_count, b_count = (len({device.card for device in side}) for side in (pair.a, pair.b))
    return f"different devices ({a_count} in A, {b_count} in B), so the variation between cards is part of the error"


if __name__ == "__main__":
    exit_with(main, REFUSED)
