"""The rank of a card among the known cards of its model, ceiling by ceiling."""

from collections.abc import Sequence

from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core.statistics import median
from roofline.records.cards import METHOD, CardRun, card_id
from roofline.records.device import DeviceRecord

Ceiling = ComputeCeiling | MemoryCeiling


def comparable(device: DeviceRecord, runs: Sequence[CardRun], effort: str | None) -> list[CardRun]:
    """Runs of other cards with this method, effort and power limit."""
    hardware, mine = device.hardware, card_id(device.uuid)
    if hardware.get("mig_slice"):
        return []
    alike = (METHOD, effort, hardware.get("power_limit_w"))
    return [one for one in runs if one.card_id != mine and (one.method, one.effort, one.power_limit_w) == alike]


def ranked(ceiling: Ceiling, others: Sequence[CardRun]) -> Ceiling:
    """The same ceiling with its rank. A known card counts once, by the median of its runs."""
    by_card: dict[str, list[float]] = {}
    for run in others:
        if value := run.values.get(ceiling.name):
            by_card.setdefault(run.card_id, []).append(value)
    if not by_card:
        return ceiling
    burst = ceiling.gb_per_s if isinstance(ceiling, MemoryCeiling) else ceiling.burst_tflops or ceiling.tflops
    faster = sum(median(values) > burst for values in by_card.values())
    return ceiling.model_copy(update={"rank": 1 + faster, "known_cards": 1 + len(by_card)})
