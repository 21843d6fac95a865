"""Fleets of simulated cards, drawn with the stored spreads of an H200: which slow cards are named, and how often a
sound one is."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from roofline.analysis.comparison import MARGINS
from roofline.analysis.distribution import BETWEEN_CARDS, OF_CARD
from roofline.analysis.fleet import spreads, total
from roofline.analysis.quantities import Quantity
from roofline.core import outliers
from roofline.core.formatting import percent
from roofline.core.run_spread import Spread
from roofline.report.markdown import table
from roofline.run.runs import read_run
from roofline.simulations.comparison import REFERENCE, TAILS, WHAT

CARD, SEED = "NVIDIA H200", 11
FLEETS = {8: 200, 64: 200, 1000: 20}  # simulated ones by their number of cards
POWER_FLEETS = {8: 200, 64: 100, 1000: 10}
DEVIATIONS, SHARES = (3, 4, 5, 6, 8), (0.01, 0.02, 0.03, 0.05, 0.10)
CORRELATED = 0.9
FAULT_SD, PRACTICAL = 6, 1.5  # a fault is so many standard deviations of its figure, or margins where that is more
Drawn = Callable[[tuple[int, ...]], np.ndarray]


class Model(NamedTuple):
    """What fleets are drawn with: arrays over the figures."""

    figures: list[Quantity]
    cards: np.ndarray  # standard deviations of ln(value) between cards
    runs: np.ndarray  # and between runs of one
    margins: np.ndarray
    known: list[Spread]

    @property
    def sd(self) -> np.ndarray:
        return np.hypot(self.cards, self.runs)

    def of_kinds(self, *kinds: str) -> np.ndarray:
        return np.array([one.kind in kinds for one in self.figures])


class Fault(NamedTuple):
    words: str
    cards: slice
    kinds: tuple[str, ...]
    share: float | None = None  # None: by FAULT_SD and PRACTICAL


FAULTS = (
    Fault("three cards slow in memory", slice(0, 3), ("memory",)),
    Fault("two cards slow under sustained load", slice(3, 5), ("sustained",)),
    Fault("one card with half its PCIe bandwidth", slice(5, 6), ("link",), 0.5),
)


@cache
def model() -> Model:
    run = read_run(REFERENCE)
    found = [one for one in run.of_device("gpu0").values() if one.kind in OF_CARD]
    found = [one for one in found if not one.key.startswith(BETWEEN_CARDS)]
    before = spreads(CARD, found)
    cards, runs = (np.array([getattr(before[one.key], what).sd for one in found]) for what in ("cards", "runs"))
    margins = np.array([MARGINS[one.kind] for one in found])
    return Model(found, cards, runs, margins, [total(before[one.key]) for one in found])


def normal(chance: np.random.Generator) -> Drawn:
    return chance.standard_normal


def heavy(chance: np.random.Generator) -> Drawn:
    """Student's t of TAILS degrees of freedom, of unit variance."""
    return lambda shape: chance.standard_t(TAILS, shape) * math.sqrt((TAILS - 2) / TAILS)


NORMAL = "normal"
ERRORS = {
    NORMAL: (normal, 0.0),
    f"normal, a card's figures correlated by {CORRELATED:g}": (normal, CORRELATED),
    f"heavy tails (t, {TAILS} degrees of freedom)": (heavy, 0.0),
}


def draw(cards: int, drawn: Drawn, slow: np.ndarray | float = 0.0, common: float = 0.0) -> np.ndarray:
    """Logarithms of two runs of every card, of shape (2, cards, figures); `slow` is added to all runs. `common` is the
    correlation of a card's figures."""
    told = model()
    of_card = math.sqrt(1 - common) * drawn((cards, len(told.figures))) + math.sqrt(common) * drawn((cards, 1))
    return of_card * told.cards + drawn((2, *of_card.shape)) * told.runs + slow


def known(chance: np.random.Generator) -> list[Spread]:
    """The stored spreads as other cards would have given them."""
    return [one._replace(sd=one.sd * math.sqrt(chance.chisquare(one.df) / one.df)) for one in model().known]


def named(runs: np.ndarray, before: Sequence[Spread]) -> tuple[set[int], set[int]]:
    """Cards that are flagged by one run of each, and those that are confirmed once the flagged ones were measured
    again."""
    screen = outliers.screen(runs[0], model().margins, before)
    once = {card for card, _ in outliers.verdicts(screen, runs[:1])}
    again = runs.copy()
    again[1, [card for card in range(runs.shape[1]) if card not in once]] = np.nan
    told = outliers.verdicts(screen, again)
    return once, {card for (card, _), status in told.items() if status == "confirmed"}


def size(fault: Fault) -> np.ndarray:
    """The share by which each figure is slower."""
    told = model()
    one = np.maximum(-np.expm1(-FAULT_SD * told.sd), PRACTICAL * told.margins) if fault.share is None else fault.share
    return np.where(told.of_kinds(*fault.kinds), one, 0.0)


class Found(NamedTuple):
    by_fault: list[tuple[float, float]]  # the share of faulty cards named: by one run, and confirmed
    whole: tuple[float, float]  # the share of fleets in which all six were
    others: tuple[float, float]  # sound cards named, in a fleet


@cache
def faults(cards: int = 64) -> Found:
    chance, before = np.random.default_rng(SEED), model()
    slow = np.zeros((cards, len(before.figures)))
    for fault in FAULTS:
        slow[fault.cards] = np.log1p(-size(fault))
    faulty = set(range(FAULTS[-1].cards.stop))
    found = [named(draw(cards, normal(chance), slow), known(chance)) for _ in range(FLEETS[cards])]

    def of_both(figure: Callable[[set[int]], float]) -> tuple[float, float]:
        return tuple(sum(figure(pair[way]) for pair in found) / len(found) for way in (0, 1))

    each = [set(range(fault.cards.start, fault.cards.stop)) for fault in FAULTS]
    return Found(
        [of_both(lambda some, mine=mine: len(some & mine) / len(mine)) for mine in each],
        of_both(lambda some: faulty <= some),
        of_both(lambda some: len(some - faulty)),
    )


@cache
def clean(cards: int, errors: str) -> tuple[int, int]:
    """In how many of FLEETS without any fault somebody is named: by one run, and confirmed. `errors` is of ERRORS."""
    drawn_by, common = ERRORS[errors]
    chance = np.random.default_rng([SEED, cards, list(ERRORS).index(errors)])
    found = [named(draw(cards, drawn_by(chance), common=common), known(chance)) for _ in range(FLEETS[cards])]
    return sum(bool(once) for once, _ in found), sum(bool(confirmed) for _, confirmed in found)


@cache
def power(cards: int, deviations: float | None, share: float = 0.0) -> np.ndarray:
    """How often a card that is slow in one figure alone is flagged for it, by figure: slower by so many standard
    deviations, or else by that share."""
    told, chance = model(), np.random.default_rng([SEED, cards, round(1000 * (deviations or share))])
    slower = -deviations * told.sd if deviations else math.log1p(-share)
    count = np.zeros(len(told.figures))
    for _ in range(POWER_FLEETS[cards]):
        logs = draw(cards, normal(chance))[0]
        logs[0] += slower
        screen = outliers.screen(logs, told.margins, known(chance))
        count += screen.low(logs[:1], outliers.DISCOVERIES / logs.size)[0]
    return count / POWER_FLEETS[cards]


# ---------------------------------------------------------------- tables


def faults_table() -> str:
    found = faults()
    rows = [
        [fault.words, _range(size(fault)), percent(once), percent(twice)]
        for fault, (once, twice) in zip(FAULTS, found.by_fault, strict=True)
    ]
    rows.append(["all six of a fleet", "", *map(percent, found.whole)])
    rows.append(["sound cards of a fleet", "", *(f"{count:.2f} cards" for count in found.others)])
    return table(["fault", "slower by", "flagged by one run", "confirmed by a second"], rows, left=2)


def clean_table() -> str:
    rows = [
        [str(cards), errors, *(f"{count} of {number}" for count in clean(cards, errors))]
        for cards, number in FLEETS.items()
        for errors in ERRORS
    ]
    return table(["cards", "errors", "fleets that flag a card", "fleets that confirm one"], rows, left=2)


def deviations_table() -> str:
    """Of the figures whose spread decides, and not the margin."""
    mine = by_spread()
    rows = [[str(cards), *(percent(float(power(cards, one)[mine].mean())) for one in DEVIATIONS)] for cards in FLEETS]
    return table(["cards", *(f"{one} sd" for one in DEVIATIONS)], rows, left=1)


def by_spread() -> np.ndarray:
    return FAULT_SD * model().sd > PRACTICAL * model().margins


def shares_table() -> str:
    """Of fleets of 64."""
    told = model()
    rows = []
    for kind in dict.fromkeys(one.kind for one in told.figures):
        mine = told.of_kinds(kind)
        found = [percent(float(power(64, None, share)[mine].mean())) for share in SHARES]
        rows.append([f"`{kind}`", WHAT[kind], percent(MARGINS[kind]), _range(told.sd[mine]), *found])
    return table(["kind", "what", "margin", "standard deviation", *map(percent, SHARES)], rows, left=2)


def _range(shares: Iterable[float]) -> str:
    some = [float(one) for one in shares if one]
    low, high = percent(min(some)), percent(max(some))
    return low if low == high else f"{low} to {high}"
