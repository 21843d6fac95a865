"""make compare: two lists of runs, figure by figure.

A and B are lists of archives, results folders or folders of reference/. --force also compares other models of card. The
exit status is 1 if a figure is SLOWER, and 2 if the lists cannot be read or compared.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

import compare_page
import compare_picture
import t_test
from pairing import ComparedPair, differences, differences_of_runs, paired

from roofline.api import RESULTS, Run, UserError, exit_with, figure_style, open_run, write_text

WHERE = RESULTS / "comparison"
SLOWER, REFUSED, DPI = 1, 2, 144


@dataclass(frozen=True)
class Comparison:
    """results/comparison/comparison.json"""

    identical: bool  # both lists hold the same runs
    a: list[str]  # a line per run
    b: list[str]
    pairs: dict[str, str]  # whether one card is on both sides, in words, by the names of the pairs
    differences: list[str]  # apart from the figures
    left_out: list[str]  # devices, with the reason
    figures: list[t_test.Compared]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make compare", description=(__doc__ or "").split("\n\n")[-1])
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--force", action="store_true")
    given = parser.parse_args(arguments)
    try:
        comparison = compare(runs(given.a, "A"), runs(given.b, "B"), given.force)
        write_text(json.dumps(asdict(comparison), indent=1, allow_nan=False) + "\n", WHERE / "comparison.json")
        write_text(compare_page.page(comparison), WHERE / "comparison.md")
        figure_style.save(compare_picture.draw(comparison), [WHERE / "comparison.png"], DPI)
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    print(f"{compare_page.screen(comparison)}\n{WHERE}/: comparison.md, comparison.json, comparison.png")
    return SLOWER if any(one.verdict == "SLOWER" for one in comparison.figures) else 0


def runs(text: str, side: str) -> list[Run]:
    """Of a list of paths, each run once. Raises UserError."""
    return list({run.fingerprint: run for run in map(open_run, paths(text, side))}.values())


def paths(text: str, side: str) -> list[Path]:
    """Paths separated by blanks; a path that holds blanks is quoted, or is the only one. Raises UserError."""
    found = [text] if text and Path(text).exists() else shlex.split(text)  # "" would be this folder
    if not found:
        raise UserError(f"{side}: no run is named; give an archive or a results folder, as in {side}=one.tar.gz")
    return [Path(match) for one in found for match in sorted(glob(one)) or [one]]  # no shell expands A=results/*


def compare(a: Sequence[Run], b: Sequence[Run], force: bool = False) -> Comparison:
    """Raises UserError if no device of A is like one of B, or a run is in both lists."""
    prints = [{run.fingerprint for run in side} for side in (a, b)]
    identical, both = prints[0] == prints[1], prints[0] & prints[1]
    if both and not identical:
        source = next(run.source for run in b if run.fingerprint in both)
        raise UserError(f"{source}: in both lists; leave it out of one")
    pairs, left_out = paired(a, b, force)
    lines = [f"{one.name}, {line}" if pairs[1:] else line for one in pairs for line in differences(one.a, one.b)]
    described = [[_line(run) for run in side] for side in (a, b)]
    differing = [] if identical else [*lines, *differences_of_runs(a, b)]
    figures = t_test.compare(pairs, identical)
    return Comparison(identical, *described, {one.name: _cards(one) for one in pairs}, differing, left_out, figures)


def _line(run: Run) -> str:
    when = min(record.queried_at for record in run.devices.values())[:16].replace("T", " ")
    return f"{run.source} ({when} UTC, commit {(run.commit or 'unknown')[:8]})"


def _cards(pair: ComparedPair) -> str:
    a, b = (len({one.card for one in side}) for side in (pair.a, pair.b))
    other = f"different devices ({a} in A, {b} in B), so the variation between cards is part of the error"
    return "the same device on both sides" if pair.same_card else other


if __name__ == "__main__":
    exit_with(main, REFUSED)
