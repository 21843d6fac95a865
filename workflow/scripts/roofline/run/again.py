"""What the next run measures again: records in which a check failed by what may be over by then, such as load."""

from collections.abc import Collection
from pathlib import Path

from roofline.analysis.table import Acceptance
from roofline.records.base import CorruptRecord, read

FORCED = {"--forcerun", "-R"}


def options(results: Path, arguments: list[str], asked: Collection[str]) -> list[str]:
    """Snakemake's, for the records that the last run's checks name and that this one asks for (`asked`, cells); none
    where the user forces some already."""
    if FORCED.intersection(arguments):
        return []
    try:
        checks = read(Acceptance, results / "acceptance.json").checks
    except (OSError, CorruptRecord):
        return []
    named = dict.fromkeys(path for check in checks if check.result == "fail" for path in check.records)
    wanted = [path for path in named if path.removesuffix(".json") in asked]
    there = [str(results / path) for path in wanted if (results / path).is_file()]
    return ["--forcerun", *there] if there else []
