"""What the next run measures again: records in which a check failed by what may be over by then, such as load."""

from collections.abc import Callable, Collection
from pathlib import Path

from roofline.analysis.table import Acceptance
from roofline.core.formatting import listed
from roofline.records.base import CorruptRecord, read

LEFT_ALONE = {"--forcerun", "-R", "--directory", "-d"}


def options(results: Path, arguments: list[str], asked: Callable[[], Collection[str]]) -> list[str]:
    """Snakemake's, for the records that the last run's checks name and that are among the cells that this one asks
    for; none where the user forces some already, or runs in another folder."""
    if LEFT_ALONE.intersection(arguments):
        return []
    try:
        checks = read(Acceptance, results / "acceptance.json").checks
    except (OSError, CorruptRecord):
        return []
    named = dict.fromkeys(path for check in checks if check.result == "fail" for path in check.records)
    there = [path for path in named if (results / path).is_file()]
    wanted = asked() if there else ()
    again = [str(results / path) for path in there if path.removesuffix(".json") in wanted]
    return ["--forcerun", *again] if again else []


def told(again: list[str]) -> list[str]:
    """Of these options, in a line; nothing where there are none."""
    return [f"Measuring again, because a check failed: {listed(again[1:])}, and what depends on it"] if again else []
