"""The rank of a card among the known cards of its model, ceiling by ceiling."""

from collections.abc import Mapping, Sequence

from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core.statistics import median
from roofline.records.cards import METHOD, CardRun, Cards, card_id
from roofline.records.device import DeviceRecord

Ceiling = ComputeCeiling | MemoryCeiling


def ranked(
    ceilings: Sequence[Ceiling], devices: Mapping[str, DeviceRecord], known: Mapping[str, Cards], effort: str | None
) -> list[Ceiling]:
    """The same ceilings, with their ranks. A known card counts once, by the median of its runs."""
    others = {name: comparable(devices[name], one.runs, effort) for name, one in known.items() if name in devices}
    return [_ranked(one, others.get(one.device, [])) for one in ceilings]


def comparable(device: DeviceRecord, runs: Sequence[CardRun], effort: str | None) -> list[CardRun]:
    """Runs of other cards with this method, effort and power limit."""
    hardware, mine = device.hardware, card_id(device.uuid)
    if hardware.get("mig_slice"):
        return []
    alike = (METHOD, effort, hardware.get("power_limit_w"))
    return [one for one in runs if one.card_id != mine and (one.method, one.effort, one.power_limit_w) == alike]


def _ranked(ceiling: Ceiling, others: Sequence[CardRun]) -> Ceiling:
    by_card: dict[str, list[float]] = {}
    for run in others:
        if value := run.values.get(ceiling.name):
            by_card.setdefault(run.card_id, []).append(value)
    if not by_card:
        return ceiling
    burst = ceiling.gb_per_s if isinstance(ceiling, MemoryCeiling) else ceiling.burst_tflops or ceiling.tflops
    faster = sum(median(values) > burst for values in by_card.values())
    return ceiling.model_copy(update={"rank": 1 + faster, "known_cards": 1 + len(by_card)})
