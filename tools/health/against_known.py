"""The ceilings of a card against every other known card of its model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from verdict import ANOTHER, HealthRow

import roofline.api as api

Figure = tuple[str, float, str]  # its key in reference/cards, value and unit
NOTE, FAIL = 0.03, 0.08  # below their median
POWER_CAP = "sw_power_cap"  # as NVML names it
NEAR = f"no ceiling {100 * FAIL:.0f} % or more below the median of other cards of its model"


class RankedQuantity(NamedTuple):
    """A figure with its rank among the known cards and this one, and the median and range of the others."""

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
        words = f"{self.key} {api.number(self.value)} {self.unit}"
        if self.median is None:
            return words
        spread = f"median {api.number(self.median)}, {api.number(self.lowest)} to {api.number(self.highest)}"
        rank = " to ".join(map(str, sorted({self.rank, self.rank_at_worst})))
        return f"{words}, rank {rank} of {self.others + 1} known cards ({spread})"


def rank_ceilings(quantities: Iterable[api.Quantity], runs: Sequence[api.CardRun]) -> list[RankedQuantity]:
    """Return the quantities that the card alone sets, ranked among comparable runs of other cards."""
    ceilings = [quantity for quantity in quantities if quantity.kind in api.CARD_QUANTITY_KINDS]
    return rank_figures([(ceiling.key, ceiling.value, ceiling.unit) for ceiling in ceilings], runs)


def measured_energy(roofline: api.Roofline, device: str) -> dict[str, Any]:
    """Return the energy of the sustained loads of a card, as far as its energy counter gave it, by ceiling."""
    rows = [ceiling for ceiling in roofline.ceilings if ceiling.device == device]
    return {row.name: row.energy for row in rows if row.energy and not row.energy.reason}


def power_figures(roofline: api.Roofline, device: str) -> list[Figure]:
    """Return the power of the idle card and of its sustained loads, as far as the energy counter gave them."""
    power_w = {"idle/power_w": roofline.devices[device].idle_power_w}
    power_w |= {f"{name}/power_w": energy.power_w for name, energy in measured_energy(roofline, device).items()}
    return [(key, value, "W") for key, value in power_w.items() if value]


def rank_figures(figures: Iterable[Figure], runs: Sequence[api.CardRun]) -> list[RankedQuantity]:
    """Return figures with their ranks among comparable runs of other cards; the highest has rank 1."""
    ranked = []
    for key, value, unit in figures:
        standing = api.rank_among_cards(key, value, runs)
        known = standing.model_dump() if standing and standing.rank else {"others": standing.others if standing else 0}
        ranked.append(RankedQuantity(key, value, unit, **known))
    return ranked


def describe_limits(roofline: api.Roofline, device: str) -> dict[str, str]:
    """Return what NVML reports to have held back each ceiling, by its name, but for the power cap, at which other cards
    are too."""
    rows = [ceiling for ceiling in roofline.ceilings if ceiling.device == device]
    return {row.name: api.throttle_reasons_text(sorted({*row.throttle_reasons} - {POWER_CAP})) for row in rows}


def check_near(ceilings: Sequence[RankedQuantity], limits: Mapping[str, str]) -> HealthRow:
    """Return the check of ceilings against the median of other cards: NOTE below it is a note, FAIL a failure.

    `limits` has what held back a ceiling, by its name; "" and a missing name explain nothing.
    """
    ranked = [ceiling for ceiling in ceilings if ceiling.median is not None]
    if not ranked:
        cards = api.count_words(max((ceiling.others for ceiling in ceilings), default=0), "card")
        reason = f"{cards} known by this method, effort and power limit: too few for a rank"
        return HealthRow(NEAR, "not_applicable", reason)
    failed = [ceiling for ceiling in ranked if ceiling.below >= FAIL]
    low = failed or [ceiling for ceiling in ranked if ceiling.below > NOTE]
    if not low:
        reason = f"{api.count_words(len(ranked), 'ceiling')} within {100 * NOTE:.0f} % of the median or above"
        return HealthRow(NEAR, "pass", reason)
    lines = [f"{row.key} is {api.percent(row.below)} below the median of {row.others}" for row in low]
    reasons = [limits.get(row.key.partition("/")[0]) or "not explained" for row in low]
    reason = ", ".join(f"{line} ({why})" for line, why in zip(lines, reasons, strict=True))
    if failed:
        return HealthRow(NEAR, "fail", reason, f"{ANOTHER}, or for h2d and d2h another host")
    return HealthRow(NEAR, "note", reason, "run again: cards vary by about as much")
