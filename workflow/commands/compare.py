"""Compare two runs, or two sides of several runs each, figure by figure.

    python workflow/commands/compare.py A B [--force]
    python workflow/commands/compare.py --run CHECKOUT [targets and options of snakemake]

A and B are archives or results folders; several of one side stand in one argument, separated by blanks. --force also
compares other models of card. Neither measures nor needs a GPU. With --run this checkout (A) and another (B) are run
here in turns, A B B A, in folders of their own below results/checkouts/.

Writes results/comparison/: comparison.md, comparison.json and comparison.png. Ends with status 1 where something is
SLOWER (of one card and another: by more than cards of their model differ), and with 2 where the sides cannot be
measured, read or compared.
"""

import argparse
import shlex
import sys
from functools import partial
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis.comparison import compare
from roofline.analysis.known_variation import stored
from roofline.analysis.pairing import Incomparable
from roofline.records.base import CorruptRecord, write
from roofline.records.comparison import ComparedQuantity, Comparison
from roofline.records.files import write_text
from roofline.report import comparison_figure, comparison_page, figure_style
from roofline.run import plan, settings
from roofline.run.alternated import alternate
from roofline.run.archive import Refused
from roofline.run.folder import Failed
from roofline.run.jobs import exit_with, print_what_can_be_printed
from roofline.run.runs import read_runs

WHERE = Path("results", "comparison")
SLOWER, REFUSED, INTERRUPTED = 1, 2, 130
DPI = 144


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        usage="compare.py A B [--force], or compare.py --run CHECKOUT [targets and options of snakemake]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--force", action="store_true")
    try:
        if arguments[:1] == ["--run"]:
            if plan.DRY.intersection(arguments):
                raise Refused("a comparison of checkouts has no dry run: make plan in either says what it measures")
            if not arguments[1:]:
                raise Refused("--run: no checkout is named")
            comparison = compare(*alternate(Path(arguments[1]), arguments[2:]))
        else:
            told = parser.parse_args(arguments)
            sides = [paths(text, side) for text, side in ((told.a, "A"), (told.b, "B"))]
            folders = [path for side in sides for path in side if path.is_dir()]
            comparison = compare(*map(read_runs, sides), told.force, partial(stored, folders=folders))
        if not (found := WHERE.parent).is_dir() and found.exists():
            raise Refused(f"{found} is no folder, and {WHERE}/ is needed there: move it away")
        write_all(comparison, WHERE)
    except settings.Faults as faults:
        print("\n".join(faults.lines), file=sys.stderr)
        return REFUSED
    except (Refused, Incomparable, Failed, CorruptRecord, OSError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("stopped: nothing was compared")
        return INTERRUPTED
    print(comparison_page.screen(comparison))
    print(f"{WHERE}/: comparison.md, comparison.json, comparison.png")
    return SLOWER if any(verdict(one) == "SLOWER" for one in comparison.quantities) else 0


def verdict(one: ComparedQuantity) -> str:
    """That the exit status follows: of one card beside another, whether they differ by more than their model's do."""
    return one.of_model.verdict if one.of_model else one.verdict


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
