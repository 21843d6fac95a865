"""The rank of a ceiling among known cards of its model (reference/cards), each by the median of its runs."""

from collections.abc import Iterable, Sequence

from roofline.core.statistics import median
from roofline.records.cards import CardRun, card_id, comparable_values
from roofline.records.device_record import DeviceRecord
from roofline.table.rows import Standing

FEWEST_CARDS = 5  # other cards: with fewer there is no rank
TIED = 0.01  # closer cards share a place; more if the runs of one card differ by more


def select_comparable_runs(device: DeviceRecord, runs: Sequence[CardRun], effort: str | None) -> list[CardRun]:
    """Return the runs of other cards with the same effort and power limit; [] for a MIG slice.

    They have the values alone that are measured by the method of this device.
    """
    hardware, own_id = device.hardware, card_id(device.uuid)
    if hardware.get("mig_slice"):
        return []
    conditions = (effort, hardware.get("power_limit_w"))
    other_cards = [run for run in runs if run.card_id != own_id and (run.effort, run.power_limit_w) == conditions]
    by_values = [run.model_copy(update={"values": comparable_values(run, device.method)}) for run in other_cards]
    return [run for run in by_values if run.values]


def rank_among_cards(ceiling: str, value: float, runs: Iterable[CardRun]) -> Standing | None:
    """Return the rank of a ceiling's value among these runs of other cards; None if none of them has the ceiling.

    `value` is in TFLOPS or GB/s, as the known values of the ceiling are.
    """
    values_by_card: dict[str, list[float]] = {}
    for run in runs:
        if run.values.get(ceiling):
            values_by_card.setdefault(run.card_id, []).append(run.values[ceiling])
    if not values_by_card:
        return None
    medians = sorted(median(values) for values in values_by_card.values())
    ranks = {}
    if len(medians) >= FEWEST_CARDS:
        spreads = [max(values) / min(values) - 1 for values in values_by_card.values()]
        tied = 1 + max(TIED, *spreads)
        ranks["rank"] = 1 + sum(card > value * tied for card in medians)
        ranks["rank_at_worst"] = 1 + sum(card >= value / tied for card in medians)
    return Standing(others=len(medians), median=median(medians), lowest=medians[0], highest=medians[-1], **ranks)
