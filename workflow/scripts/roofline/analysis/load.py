"""The one table of a run, from its records: ceilings, cells, predictions beside measurements, checks."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from roofline.analysis.checks import judge
from roofline.analysis.collect import Asked, collect
from roofline.analysis.quantities import Quantity, quantities, sound
from roofline.analysis.ranks import comparable, ranked
from roofline.analysis.results import Results, read_results
from roofline.analysis.table import Roofline
from roofline.analysis.verification import verify
from roofline.records.check import CheckResult
from roofline.records.device import DeviceRecord


def load(found: Results, asked: Asked | None = None, sha256: Mapping[str, str] | None = None) -> Roofline:
    """`sha256` has the hash of every record, by which seals are checked; without it nothing is said of predictions."""
    asked = asked or Asked()
    collected = collect(found, asked)
    table = collected.roofline if sha256 is None else verify(collected, found, sha256)
    table.checks = judge.of_run(table, found, asked)
    devices, figures = found.device_records(), quantities(table)
    rankable = {(one.device, one.key) for name in devices for one in sound(figures, table, name)}
    others = {name: comparable(devices[name], one.runs, asked.effort) for name, one in found.known_cards.items()}
    table.ceilings = [
        ranked(one, others.get(one.device, [])) if (one.device, one.name) in rankable else one for one in table.ceilings
    ]
    return table


class CardFacts(NamedTuple):
    """What records say of one device, without a whole run."""

    record: DeviceRecord
    figures: list[Quantity]  # that are sound
    checks: list[CheckResult]


def card_facts(results: Path, later: Mapping[str, Mapping]) -> dict[str, CardFacts]:
    """Of each device with records below a results folder; `later` has hardware facts that were read after them.

    Raises CorruptRecord and OSError.
    """
    found = read_results(results, sorted(results.rglob("*.json")))
    table, facts = load(found), {}
    for name, record in found.device_records().items():
        record = record.model_copy(update={"hardware": record.hardware | later.get(name, {})})
        known = judge.Evidence(record, table, {path: one for path, one in found.measured if one.device == name})
        judged = judge.judge(known, judge.OF_MACHINE)
        facts[name] = CardFacts(record, sound(quantities(table), table, name), judged)
    return facts
