"""What is stored of how far runs and cards of one model lie apart, by quantity."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roofline.analysis.distribution import known
from roofline.analysis.quantities import Quantity
from roofline.core.run_spread import Spread, of_most, pooled

FAMILY_DF = 8  # degrees of freedom that a family's spread counts for beside a figure's own
MOST_DF = 8  # of both together: they are of other days, hosts and code


class Stored(NamedTuple):
    runs: Spread | None  # between runs of one card
    cards: Spread | None  # between cards, beyond that
    source: str


def stored(card: str) -> dict[str, Stored]:
    """By the quantities' keys, from reference/{card}/distribution.json. Raises CorruptRecord."""
    found = known(card)
    return {
        one.key: Stored(
            _known(one.run_spread, one.run_spread_df), _known(one.card_spread, one.card_spread_df), "distribution.json"
        )
        for one in (found.quantities if found else [])
    }


def by_family(known: Mapping[str, Spread | None], figures: Iterable[Quantity]) -> dict[str, Spread]:
    """Known spreads pooled over the figures that vary alike, without those that have modes."""
    found: dict[str, list[Spread]] = {}
    for one in figures:
        if (spread := known.get(one.key)) and not one.modal:
            found.setdefault(one.family, []).append(spread)
    return {family: pooled(spreads) for family, spreads in found.items()}


def shrunk(known: Mapping[str, Stored], figures: Iterable[Quantity]) -> dict[str, Stored]:
    """For every figure its own spread between runs pooled with its family's, or the family's where it has none.

    One that is known from a few runs is now and then far too small by chance, and saw nothing of what happens in one
    run of twenty: so its family's counts as FAMILY_DF further degrees of freedom (Smyth, Statistical Applications in
    Genetics and Molecular Biology 3, 2004). That between cards is never below its family's: between two or three cards
    it is often 0, since what runs explain is taken from it.
    """
    figures = list(figures)
    runs = by_family({key: one.runs for key, one in known.items()}, figures)
    cards = by_family({key: one.cards for key, one in known.items()}, figures)
    source = next((one.source for one in known.values()), "")
    found = {}
    for one in figures:
        own = known.get(one.key, Stored(None, None, source))
        family = runs.get(one.family)
        both = pooled(filter(None, (own.runs, family and of_most(family, FAMILY_DF))))
        found[one.key] = Stored(both and of_most(both, MOST_DF), wider(own.cards, cards.get(one.family)), own.source)
    return found


def wider(*spreads: Spread | None) -> Spread | None:
    return max(filter(None, spreads), key=lambda one: one.sd, default=None)


def _known(sd: float | None, df: float) -> Spread | None:
    return Spread(sd, df) if sd is not None and df else None
