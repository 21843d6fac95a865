"""A ceiling among known cards of its model (reference/cards), each by the median of its runs: rank and spreads."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from roofline.core.grouping import group_by
from roofline.core.repeatability import relative_spread
from roofline.records.cards import CardRun, card_id, comparable_values
from roofline.records.device_record import DeviceRecord
from roofline.table.rows import Spreads, Standing

FEWEST_CARDS = 5  # other cards: with fewer there is no rank
TIED = 0.01  # a fraction: closer cards share a place, unless enough cards show how far the runs of a card differ
FEWEST_REPEATED = 3  # cards with two runs or more, which are enough


class KnownRuns(NamedTuple):
    """Known runs that a run may be compared with; it is not among them itself."""

    of_this_card: list[CardRun]
    of_others: list[CardRun]


NO_RUNS = KnownRuns([], [])


def select_comparable_runs(device: DeviceRecord, runs: Sequence[CardRun], effort: str | None) -> KnownRuns:
    """Return the known runs with the same effort and power limit; none for a MIG slice.

    They have the values alone that are measured by the method of this device.
    """
    hardware, own_id = device.hardware, card_id(device.uuid)
    if hardware.get("mig_slice"):
        return NO_RUNS
    conditions = (effort, hardware.get("power_limit_w"))
    alike = [run for run in runs if (run.effort, run.power_limit_w) == conditions]
    by_values = [run.model_copy(update={"values": comparable_values(run, device.method)}) for run in alike]
    known = [run for run in by_values if run.values]
    return KnownRuns(
        [run for run in known if run.card_id == own_id and run.queried_at != device.queried_at],
        [run for run in known if run.card_id != own_id],
    )


def rank_among_cards(ceiling: str, value: float, runs: Iterable[CardRun]) -> Standing | None:
    """Return the rank of a ceiling's value among these runs of other cards; None if none of them has the ceiling.

    `value` is in TFLOPS or GB/s, as the known values of the ceiling are.
    """
    values_by_card = _values_by_card(ceiling, runs)
    if not values_by_card:
        return None
    medians = sorted(median(values) for values in values_by_card.values())
    ranks = {}
    if len(medians) >= FEWEST_CARDS:
        repeated = [values for values in values_by_card.values() if len(values) > 1]
        widest = max((max(values) / min(values) for values in repeated), default=1.0)
        tied = widest if len(repeated) >= FEWEST_REPEATED else max(1 + TIED, widest)
        ranks["rank"] = 1 + sum(card > value * tied for card in medians)
        ranks["rank_at_worst"] = 1 + sum(card >= value / tied for card in medians)
    # Of an even number of cards the lower one of the middle: where there are two kinds of cards, no card has the mean.
    middle = medians[(len(medians) - 1) // 2]
    return Standing(others=len(medians), median=middle, lowest=medians[0], highest=medians[-1], **ranks)


def find_spreads(ceiling: str, value: float, known: KnownRuns) -> Spreads:
    """Return how far a ceiling's value differs between runs of one card, and between cards.

    The runs are of this card, or where it has one run alone, of the other card whose runs differ most.
    """
    own_values = [value, *(run.values[ceiling] for run in known.of_this_card if ceiling in run.values)]
    values_by_card = _values_by_card(ceiling, known.of_others)
    of_this_card = len(own_values) > 1
    repeated = [own_values] if of_this_card else [values for values in values_by_card.values() if len(values) > 1]
    widest = max(repeated, key=lambda values: max(values) / min(values), default=[])
    medians = [median(own_values), *map(median, values_by_card.values())]
    return Spreads(
        between_runs=relative_spread(widest),
        runs_of=("this card" if of_this_card else "other cards") if widest else None,
        run_count=len(widest),
        between_cards=relative_spread(medians),
        card_count=len(medians),
    )


def _values_by_card(ceiling: str, runs: Iterable[CardRun]) -> dict[str, list[float]]:
    runs_by_card = group_by((run for run in runs if ceiling in run.values), lambda run: run.card_id)
    return {card: [run.values[ceiling] for run in of_card] for card, of_card in runs_by_card.items()}
