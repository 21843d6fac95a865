"""The rank of a ceiling among known cards of its model (reference/cards), each by the median of its runs."""

from collections.abc import Iterable, Sequence

from roofline.core.statistics import median
from roofline.records.cards import CardRun, card_id
from roofline.records.device_record import DeviceRecord
from roofline.table.rows import Standing

FEWEST = 5  # other cards: with fewer there is no rank
TIED = 0.01  # between runs of one card, unless known runs differ by more: closer cards share a place


def select_comparable_runs(device: DeviceRecord, runs: Sequence[CardRun], effort: str | None) -> list[CardRun]:
    """Runs of other cards with the same method, effort and power limit."""
    hardware, mine = device.hardware, card_id(device.uuid)
    if hardware.get("mig_slice"):
        return []
    alike = (device.method, effort, hardware.get("power_limit_w"))
    return [one for one in runs if one.card_id != mine and (one.method, one.effort, one.power_limit_w) == alike]


def rank_among_cards(ceiling: str, value: float, runs: Iterable[CardRun]) -> Standing | None:
    """Of a ceiling among these runs of other cards; None if none of them has it."""
    of_card: dict[str, list[float]] = {}
    for run in runs:
        if found := run.values.get(ceiling):
            of_card.setdefault(run.card_id, []).append(found)
    if not of_card:
        return None
    others = sorted(map(median, of_card.values()))
    ranks: dict[str, int] = {}
    if len(others) >= FEWEST:
        tied = 1 + max(TIED, *(max(values) / min(values) - 1 for values in of_card.values()))
        ranks["rank"] = 1 + sum(other > value * tied for other in others)
        ranks["rank_at_worst"] = 1 + sum(other >= value / tied for other in others)
    return Standing(others=len(others), median=median(others), lowest=others[0], highest=others[-1], **ranks)
