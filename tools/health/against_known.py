"""The ceilings of a card against every other known card of its model."""

from collections.abc import Iterable
from typing import NamedTuple

from verdict import ANOTHER, HealthRow

from roofline.api import (
    CARD_QUANTITY_KINDS,
    Cards,
    Roofline,
    count_words,
    number,
    percent,
    rank_among_cards,
    select_comparable_runs,
)

Figure = tuple[str, float, str]  # its key in reference/cards, value and unit
NOTE, FAIL = 0.03, 0.08  # below their median
NEAR = f"no ceiling {100 * FAIL:.0f} % or more below the median of other cards of its model"


class Ceiling(NamedTuple):
    """With its rank among the known cards and this one, and the median and range of the others."""

    key: str
    value: float
    unit: str
    others: int
    rank: int | None = None
    rank_at_worst: int | None = None
    median: float | None = None
    lowest: float | None = None
    highest: float | None = None

    @property
    def below(self) -> float:
        return 1 - self.value / self.median

    def __str__(self) -> str:
        words = f"{self.key} {number(self.value)} {self.unit}"
        if self.median is None:
            return words
        known = f"median {number(self.median)}, {number(self.lowest)} to {number(self.highest)}"
        rank = " to ".join(map(str, sorted({self.rank, self.rank_at_worst})))
        return f"{words}, rank {rank} of {self.others + 1} known cards ({known})"


def ceilings(device, figures: Iterable, effort: str, cards: Cards | None) -> list[Ceiling]:
    """Those of a device record, next to runs of other cards that were measured alike."""
    return ranked(
        device, [(one.key, one.value, one.unit) for one in figures if one.kind in CARD_QUANTITY_KINDS], effort, cards
    )


def watts(roofline: Roofline, device: str) -> list[Figure]:
    """Of the idle card and of its sustained loads, as far as the energy counter gave them."""
    found = [("idle/power_w", roofline.devices[device].idle_power_w)]
    loads = [one for one in roofline.ceilings if one.device == device and one.energy and not one.energy.reason]
    found += [(f"{one.name}/power_w", one.energy.power_w) for one in loads]
    return [(key, value, "W") for key, value in found if value]


def ranked(device, figures: Iterable[Figure], effort: str, cards: Cards | None) -> list[Ceiling]:
    """The highest has rank 1."""
    runs = select_comparable_runs(device, cards.runs, effort) if cards else []
    found = []
    for key, value, unit in figures:
        at = rank_among_cards(key, value, runs)
        known = (at.rank, at.rank_at_worst, at.median, at.lowest, at.highest) if at and at.rank else ()
        found.append(Ceiling(key, value, unit, at.others if at else 0, *known))
    return found


def near(found: Iterable[Ceiling]) -> HealthRow:
    judged = [one for one in found if one.median is not None]
    if not judged:
        most = max((one.others for one in found), default=0)
        return HealthRow(
            NEAR,
            "not_applicable",
            f"{count_words(most, 'card')} known by this method, effort and power limit: too few for a rank",
        )
    failed = [one for one in judged if one.below >= FAIL]
    low = failed or [one for one in judged if one.below > NOTE]
    if not low:
        return HealthRow(
            NEAR, "pass", f"{count_words(len(judged), 'ceiling')} within {100 * NOTE:.0f} % of the median or above"
        )
    reason = ", ".join(f"{one.key} is {percent(one.below)} below the median of {one.others}" for one in low)
    action = f"{ANOTHER}, or for h2d and d2h another host" if failed else "run again: cards vary by about as much"
    return HealthRow(NEAR, "fail" if failed else "note", reason, action)
