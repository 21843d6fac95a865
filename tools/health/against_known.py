"""The ceilings of a card against every other known card of its model."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from verdict import ANOTHER, Row, row

from roofline.api import METHOD, Cards, card_id, counted, number, percent

FEWEST = 5  # other cards: fewer tell nothing of what is usual
NOTE, FAIL = 0.03, 0.08  # below their median
PAGEABLE = "pageable"  # the kind of copies that the host sets the pace of
NEAR = f"no ceiling {100 * FAIL:.0f} % or more below the median of other cards of its model"


class Ceiling(NamedTuple):
    """Of a card, with one value per other card; the rank is among all of them and this one."""

    key: str
    name: str
    value: float
    unit: str
    cards: int
    rank: int | None = None
    median: float | None = None
    lowest: float | None = None
    highest: float | None = None

    @property
    def below(self) -> float | None:
        return None if self.median is None else 1 - self.value / self.median

    @property
    def words(self) -> str:
        words = f"{self.name} {number(self.value)} {self.unit}"
        if self.median is None:
            return words
        known = f"median {number(self.median)}, {number(self.lowest)} to {number(self.highest)}"
        return f"{words}, rank {self.rank} of {self.cards + 1} known cards ({known})"


def ceilings(device, figures: Iterable, effort: str, known: Cards | None) -> list[Ceiling]:
    """Those of a device record. Other cards count with runs of the same method, power limit and effort."""
    limit, mine, runs = device.hardware.get("power_limit_w"), card_id(device.uuid), known.runs if known else []
    runs = [one for one in runs if one.card_id != mine and one.method == METHOD and one.power_limit_w == limit]
    runs = [one for one in runs if one.effort in (None, effort)]
    found = []
    for figure in (one for one in figures if one.kind != PAGEABLE and one.higher_is_better):  # not times
        by_card: dict[str, list[float]] = {}
        for one in runs:
            if figure.key in one.values:
                by_card.setdefault(one.card_id, []).append(one.values[figure.key])
        others = sorted(median(values) for values in by_card.values())
        ceiling = Ceiling(figure.key, figure.name, figure.value, figure.unit, len(others))
        if len(others) >= FEWEST:
            rank = 1 + sum(one > figure.value for one in others)
            ceiling = ceiling._replace(rank=rank, median=median(others), lowest=others[0], highest=others[-1])
        found.append(ceiling)
    return found


def near(found: Iterable[Ceiling]) -> Row:
    judged = [one for one in found if one.below is not None]
    if not judged:
        most = max((one.cards for one in found), default=0)
        return row(NEAR, "not known", f"{counted(most, 'other card')} known at this power limit, {FEWEST} are needed")
    lowest = max(judged, key=lambda one: one.below)
    low = [one for one in judged if one.below > NOTE]
    failed = [one for one in low if one.below >= FAIL]
    words = ", ".join(f"{one.name} is {percent(one.below)} below the median of {one.cards}" for one in failed or low)
    result = "fail" if failed else "note" if low else "pass"
    action = f"{ANOTHER}, or for h2d and d2h another host" if failed else "run again: cards vary by about as much"
    reason = words or f"{counted(len(judged), 'ceiling')} within {100 * NOTE:.0f} % of the median"
    return row(NEAR, result, reason, lowest.below, FAIL, action)
