"""Compare two runs, or two sides of several runs each, figure by figure.

    python workflow/commands/compare.py A B [--force]

A and B are archives or results folders; several of one side stand in one argument, separated by blanks. --force also
compares other models of card. Neither measures nor needs a GPU.

Writes results/comparison/: comparison.md, comparison.json and comparison.png. Ends with status 1 where something is
SLOWER, and with 2 where the sides cannot be read or compared.
"""

import argparse
import shlex
import sys
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.comparison import compare
from roofline.analysis.pairing import Incomparable
from roofline.records.base import CorruptRecord, write
from roofline.records.comparison import Comparison
from roofline.records.files import write_text
from roofline.report import comparison_figure, comparison_page, figure_style
from roofline.run.archive import Refused
from roofline.run.jobs import exit_with, print_what_can_be_printed
from roofline.run.runs import read_runs

WHERE = Path("results", "comparison")
SLOWER, REFUSED, INTERRUPTED = 1, 2, 130
DPI = 144


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--force", action="store_true")
    try:
        told = parser.parse_args(arguments)
        sides = [paths(text, side) for text, side in ((told.a, "A"), (told.b, "B"))]
        comparison = compare(*map(read_runs, sides), told.force)
        if not (found := WHERE.parent).is_dir() and found.exists():
            raise Refused(f"{found} is no folder, and {WHERE}/ is needed there: move it away")
        write_all(comparison, WHERE)
    except (Refused, Incomparable, CorruptRecord, OSError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("stopped: nothing was compared")
        return INTERRUPTED
    print(comparison_page.screen(comparison))
    print(f"{WHERE}/: comparison.md, comparison.json, comparison.png")
    return SLOWER if any(one.verdict == "SLOWER" for one in comparison.quantities) else 0


def paths(text: str, side: str) -> list[Path]:
    """Of one side; a path may have blanks, quoted as for a shell. Raises Refused without any."""
    try:
        found = [text] if text and Path(text).exists() else shlex.split(text)  # "" would be this folder
    except ValueError as error:
        raise Refused(f"{side}: {text!r} is no list of paths ({error})") from None
    if not found:
        raise Refused(f"{side}: no run is named; give an archive or a results folder, as in {side}=one.tar.gz")
    named = [Path(match) for one in found for match in sorted(glob(one)) or [one]]  # no shell expands A=results/*
    for path in named:
        if named.count(path) > 1:
            raise Refused(f"{side}: {path} is listed twice, and a run counts once")
    return named


def write_all(comparison: Comparison, folder: Path) -> None:
    write(comparison, folder / "comparison.json")
    write_text(comparison_page.markdown(comparison), folder / "comparison.md")
    figure_style.save(comparison_figure.draw(comparison), [folder / "comparison.png"], DPI)


if __name__ == "__main__":
    print_what_can_be_printed()
    exit_with(main, REFUSED)
