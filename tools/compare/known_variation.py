"""How much figures vary between runs of one card and between cards of one model, from reference/cards/."""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from roofline.api import cards

KIND_DF = 4  # that the variation of a kind counts for at most: figures of one kind do not vary alike


class Spread(NamedTuple):
    sd: float  # the standard deviation of ln(value)
    df: float


class Variation(NamedTuple):
    runs: Spread | None  # between runs of one card
    cards: Spread | None  # between cards, beyond that


def variations(models: Iterable[str], figures: Sequence, dates: Collection[str] = ()) -> dict[str, Variation]:
    """Of each figure (a Quantity), by its key; of several models the wider one. Runs of these dates do not count."""
    found = [_of_model(model, figures, dates) for model in models]
    parts = {one.key: zip(*(variation[one.key] for variation in found), strict=True) for one in figures}
    return {key: Variation(*(max(filter(None, some), default=None) for some in both)) for key, both in parts.items()}


def _of_model(model: str, figures: Sequence, dates: Collection[str]) -> dict[str, Variation]:
    """Of runs by one method each: within all of them together, between cards by each method."""
    known = cards(model)
    groups: dict[str, dict[int, dict[str, list[float]]]] = {}
    for run in known.runs if known else []:
        for key, value in run.values.items() if run.queried_at not in dates else ():
            of_method = groups.setdefault(key, {}).setdefault(run.method, {})
            of_method.setdefault(run.card_id, []).append(value)
    own = {}
    for one in figures:
        values = [list(of_card.values()) for of_card in groups.get(one.key, {}).values()]
        own[one.key] = Variation(within(chain(*values)), pooled(map(between, values)))
    kinds: dict[str, list[Variation]] = {one.kind: [Variation(None, None)] for one in figures}
    for one in figures:
        kinds[one.kind] += [own[one.key]] * (not one.modal)  # each process of a launch-bound figure has its own level
    parts = {one.key: zip(own[one.key], zip(*kinds[one.kind], strict=True), strict=True) for one in figures}
    return {key: Variation(*(_moderated(*part) for part in both)) for key, both in parts.items()}


def _moderated(own: Spread | None, kind: Iterable[Spread | None]) -> Spread | None:
    """Of few runs or cards a variation may be far too small by chance, so that of the kind counts as KIND_DF further
    degrees of freedom (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004)."""
    of_kind = pooled(kind)
    return pooled([own, of_kind and Spread(of_kind.sd, min(of_kind.df, KIND_DF))])


# ---------------------------------------------------------------- spreads of groups of positive values


def within(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Pooled over groups, as runs of one card; None if no group has two values."""
    logs = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    return pooled(Spread(math.sqrt(_squares(group) / (len(group) - 1)), len(group) - 1) for group in logs)


def between(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Of the means of groups beyond what the spread within them explains, by the method of moments (Searle, Casella and
    McCulloch, Variance Components, section 3.6). If no group has two values, all counts as between."""
    if len(groups) < 2:
        return None
    means = [math.fsum(map(math.log, group)) / len(group) for group in groups]
    inside, df = within(groups), len(groups) - 1
    explained = inside.sd**2 * math.fsum(1 / len(group) for group in groups) / len(groups) if inside else 0.0
    return Spread(math.sqrt(max(0.0, _squares(means) / df - explained)), df)


def pooled(spreads: Iterable[Spread | None]) -> Spread | None:
    """One spread of several, each by its degrees of freedom; None of none."""
    spreads = [one for one in spreads if one]
    df = sum(one.df for one in spreads)
    return Spread(math.sqrt(math.fsum(one.df * one.sd**2 for one in spreads) / df), df) if df else None


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
