"""The one table of a run, from its records: ceilings, cells, predictions beside measurements, checks."""

from collections.abc import Mapping

from roofline.analysis import checks
from roofline.analysis.collect import Asked, collect
from roofline.analysis.results import Results
from roofline.analysis.standing import standings
from roofline.analysis.table import Roofline
from roofline.analysis.verification import verify


def load(found: Results, asked: Asked | None = None, sha256: Mapping[str, str] | None = None) -> Roofline:
    """`sha256` has the hash of every record, by which seals are checked; without it nothing is said of predictions."""
    asked = asked or Asked()
    collected = collect(found, asked)
    table = collected.roofline if sha256 is None else verify(collected, found, sha256)
    table.checks = checks.of_run(table, found, standings(found, table, asked.effort))
    return table
