"""The error of ln(B / A): of one card beside another by the spread between runs, of a model's cards by theirs too."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofline.analysis.known_variation import FAMILY_DF, MOST_DF, Stored, wider
from roofline.core.equivalence import standard_error
from roofline.core.run_spread import Spread, of_most, pooled, within

THESE_CARDS = "these cards"
FEWEST_DF = 2  # of the runs given, or of a spread between cards: fewer degrees of freedom tell too little

Cards = dict[str, list[float]]  # a quantity's values on one side, by card


class Error(NamedTuple):
    """Of ln(B / A), and where it is from."""

    se: float
    df: float
    runs: Spread | None  # of one card; not known where each of several cards has one run
    cards: Spread | None
    source: str


def cards_of(values: Iterable[tuple[str, float]]) -> Cards:
    """Values by their cards."""
    found: Cards = {}
    for card, value in values:
        found.setdefault(card, []).append(value)
    return found


def given(a: Cards, b: Cards) -> Spread | None:
    """Between the runs given."""
    return within([*a.values(), *b.values()])


def between_runs(a: Cards, b: Cards, known: Stored | None, family: Spread | None) -> tuple[Spread, str] | None:
    """A figure's spread between runs of one card, and where it is from; None where it is not known.

    Of the runs given, where they leave FEWEST_DF degrees of freedom, pooled with the wider of what is stored and of the
    family's own among the runs given: three runs now and then agree by chance, and stored ones are of another host.
    """
    mine, before = given(a, b), known and known.runs
    if not mine or mine.df < FEWEST_DF:
        return (before, known.source) if before else mine and (mine, "these runs")
    family = family and of_most(family, FAMILY_DF)
    beside = wider(before, family)
    both = pooled(filter(None, (mine, beside and of_most(beside, FAMILY_DF))))
    source = f"these runs, {known.source}" if before and beside is before else "these runs"
    return of_most(both, MOST_DF), source


def of_runs(a: Cards, b: Cards, runs: Spread, source: str) -> Error:
    """Whether these very cards differ."""
    return Error(*standard_error((runs, sum(_factors(a, b)))), runs, None, source)


def of_cards(a: Cards, b: Cards, runs: Spread | None, source: str, known: Stored | None) -> Error | None:
    """Whether A's cards and B's differ by more than cards of one model do. None where no spread is known.

    With several cards a side each card is one observation; a stored spread between two cards alone tells nothing.
    """
    cards = within([[mean(runs) for runs in side.values()] for side in (a, b)])
    both = 1 / len(a) + 1 / len(b)
    if cards and cards.df >= FEWEST_DF:
        return Error(*standard_error((cards, both)), runs, cards, THESE_CARDS)
    if runs is None:
        return None
    stored = known.cards if known and known.cards and known.cards.df >= FEWEST_DF else None
    parts = [(runs, sum(_factors(a, b)))] + ([(stored, both)] if stored else [])
    return Error(*standard_error(*parts), runs, stored, source)


def _factors(*sides: Cards) -> list[float]:
    return [sum(1 / len(runs) for runs in side.values()) / len(side) ** 2 for side in sides]


def middle(cards: Cards) -> float:
    return mean([mean(runs) for runs in cards.values()])


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def change(a: Cards, b: Cards, higher_is_better: bool) -> float:
    """ln(B / A) of the performance: of a time, turned round."""
    return math.log(middle(b) / middle(a)) * (1 if higher_is_better else -1)
