"""What is stored of how far runs and cards of one model lie apart, by quantity."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from roofline.analysis.distribution import REFERENCE, reference_of
from roofline.analysis.quantities import Quantity, sustained_key
from roofline.analysis.spread import CeilingSpread, SpreadRecord
from roofline.core.run_spread import Spread, of_most, pooled, within
from roofline.records.base import read
from roofline.records.distribution import Distribution

FAMILY_DF = 8  # degrees of freedom that a family's spread counts for beside a figure's own
MOST_DF = 8  # of both together: they are of other days, hosts and code


class Stored(NamedTuple):
    runs: Spread | None  # between runs of one card
    cards: Spread | None  # between cards, beyond that
    source: str


def stored(card: str, folders: Iterable[Path] = ()) -> dict[str, Stored]:
    """By the quantities' keys, from reference/{card}/distribution.json and from the spread.json that results folders
    may have; where several know one, by most runs. Raises CorruptRecord."""
    known: dict[str, Stored] = {}
    for folder in (reference_of(card), *folders):
        for key, one in [*_distribution(folder, card).items(), *_spread(folder, card).items()]:
            have = known.get(key)
            more = have is None or (one.runs and (have.runs is None or one.runs.df > have.runs.df))
            if more:
                known[key] = one._replace(cards=one.cards or (have and have.cards))
    return known


def typical(figures: Iterable[Quantity]) -> dict[str, float]:
    """The spread between runs by family, pooled over the cards of reference/."""
    figures, found = list(figures), {}
    for folder in sorted(path for path in REFERENCE.iterdir() if path.is_dir()):
        for record in _read(Distribution, folder / "distribution.json"):
            known = {key: one.runs for key, one in stored(record.card).items()}
            for family, spread in by_family(known, figures).items():
                found.setdefault(family, []).append(spread)
    return {family: pooled(spreads).sd for family, spreads in found.items()}


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


def _distribution(folder: Path, card: str) -> dict[str, Stored]:
    return {
        one.key: Stored(
            _known(one.run_spread, one.run_spread_df), _known(one.card_spread, one.card_spread_df), "distribution.json"
        )
        for record in _read(Distribution, folder / "distribution.json")
        if record.card == card
        for one in record.quantities
    }


def _spread(folder: Path, card: str) -> dict[str, Stored]:
    return {
        _key(one): Stored(within([[run for run in one.runs if run]]), None, "spread.json")
        for record in _read(SpreadRecord, folder / "spread.json")
        for one in record.ceilings
        if record.devices.get(one.device) == card and (one.figure != "ceiling" or one.unit == "GB/s")
    }


def _key(ceiling: CeilingSpread) -> str:
    """A compute ceiling is compared by its burst and its sustained rate, not by the higher of both."""
    return sustained_key(ceiling.name) if ceiling.figure == "sustained" else ceiling.name


def _known(sd: float | None, df: float) -> Spread | None:
    return Spread(sd, df) if sd is not None and df else None


def _read(kind: type, path: Path) -> list:
    """The record, where there is one. Raises CorruptRecord."""
    return [read(kind, path)] if path.is_file() else []
