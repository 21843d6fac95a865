"""The one table of a run, from its records: ceilings, cells, predictions beside measurements, checks."""

from collections.abc import Mapping

from roofline.analysis import checks
from roofline.analysis.collect import Asked, collect
from roofline.analysis.ranks import ranked
from roofline.analysis.results import Results
from roofline.analysis.table import Roofline
from roofline.analysis.verification import verify


def load(found: Results, asked: Asked | None = None, sha256: Mapping[str, str] | None = None) -> Roofline:
    """`sha256` has the hash of every record, by which seals are checked; without it nothing is said of predictions."""
    asked = asked or Asked()
    collected = collect(found, asked)
    table = collected.roofline if sha256 is None else verify(collected, found, sha256)
    table.ceilings = ranked(table.ceilings, found.device_records(), found.known_cards, asked.effort)
    table.checks = checks.of_run(table, found)
    return table
