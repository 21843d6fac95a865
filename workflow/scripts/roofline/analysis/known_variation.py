"""What is stored of how far runs and cards of one model lie apart, by quantity."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from roofline.analysis.distribution import REFERENCE, reference_of
from roofline.analysis.quantities import sustained_key
from roofline.analysis.spread import CeilingSpread, SpreadRecord
from roofline.core.run_spread import Spread, pooled, within
from roofline.records.base import read
from roofline.records.distribution import Distribution

MOST_DF = 4  # of a stored spread, however many runs it is from: it is of other days, hosts and code


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


def typical(kinds: Mapping[str, str]) -> dict[str, float]:
    """The spread between runs by kind, pooled over the cards of reference/; `kinds` are those of known keys."""
    found: dict[str, list[Spread]] = {}
    for folder in sorted(path for path in REFERENCE.iterdir() if path.is_dir()):
        for record in _read(Distribution, folder / "distribution.json"):
            for kind, spread in of_kinds(stored(record.card), kinds).items():
                found.setdefault(kind, []).append(spread)
    return {kind: pooled(spreads).sd for kind, spreads in found.items()}


def of_kinds(known: Mapping[str, Stored], kinds: Mapping[str, str]) -> dict[str, Spread]:
    """The spread between runs of all quantities of a kind together."""
    return _by_kind({key: one.runs for key, one in known.items()}, kinds)


def _by_kind(known: Mapping[str, Spread | None], kinds: Mapping[str, str]) -> dict[str, Spread]:
    found: dict[str, list[Spread]] = {}
    for key, spread in known.items():
        if spread and key in kinds:
            found.setdefault(kinds[key], []).append(spread)
    return {kind: pooled(spreads) for kind, spreads in found.items()}


def at_least_its_kinds(known: Mapping[str, Stored], kinds: Mapping[str, str]) -> dict[str, Stored]:
    """No spread between runs, or between cards, below that of its kind; that between runs with MOST_DF at most.

    One that is known from a few runs is now and then far too small by chance, and saw nothing of what happens in one
    run of twenty. That between two or three cards is often 0: what runs explain is taken from it.
    """
    runs, cards = of_kinds(known, kinds), _by_kind({key: one.cards for key, one in known.items()}, kinds)

    def raised(key: str, spread: Spread | None, whole: Mapping[str, Spread]) -> Spread | None:
        return spread._replace(sd=max(spread.sd, whole[kinds[key]].sd)) if spread and key in kinds else spread

    def between_runs(key: str, one: Stored) -> Spread | None:
        spread = raised(key, one.runs, runs)
        return spread and spread._replace(df=min(spread.df, MOST_DF))

    return {
        key: one._replace(runs=between_runs(key, one), cards=raised(key, one.cards, cards))
        for key, one in known.items()
    }


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
