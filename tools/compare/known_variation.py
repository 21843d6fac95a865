"""How much figures vary between runs of one card and between cards of one model, from reference/cards/."""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from statistics import fmean, stdev, variance
from typing import NamedTuple

from roofline.api import CardRun, Quantity, cards, group_by

KIND_DF = 4  # that the variation of a kind counts for at most: figures of one kind do not vary alike


class Spread(NamedTuple):
    """A variation with its degrees of freedom."""

    sd: float  # the standard deviation of ln(value)
    df: float


Spreads = dict[str, Spread | None]  # by the key of the quantity; None where it is unknown
Variations = tuple[Spreads, Spreads]  # between runs of one card, and between cards beyond that


def load_variations(models: Iterable[str], quantities: Sequence[Quantity], dates: Collection[str]) -> Variations:
    """Return the variations of quantities; the widest of several models of card.

    Runs of the dates `dates` do not count.
    """
    runs, cards = zip(*(_variations_of_model(model, quantities, dates) for model in models), strict=True)
    return _widest(runs), _widest(cards)


def _widest(of_models: Sequence[Spreads]) -> Spreads:
    return {key: max(filter(None, (spreads[key] for spreads in of_models)), default=None) for key in of_models[0]}


def _variations_of_model(model: str, quantities: Sequence[Quantity], dates: Collection[str]) -> Variations:
    """Return the variations of one model of card.

    Within cards all runs count together; between cards only runs by one method are compared.
    """
    stored = cards(model)
    runs = [run for run in stored.runs if run.queried_at not in dates] if stored else []
    runs_by_method = group_by(runs, lambda run: run.method)
    within, between = {}, {}
    for quantity in quantities:
        by_method = [_values_by_card(of_method, quantity.key) for of_method in runs_by_method.values()]
        within[quantity.key] = spread_within(chain.from_iterable(by_method))
        between[quantity.key] = pool_spreads(map(spread_between, by_method))
    return _moderate(within, quantities), _moderate(between, quantities)


def _values_by_card(runs: Iterable[CardRun], key: str) -> list[list[float]]:
    """Return the values of a quantity, in a list for each card that has any."""
    measured = [run for run in runs if key in run.values]
    return [[run.values[key] for run in of_card] for of_card in group_by(measured, lambda run: run.card_id).values()]


def _moderate(spreads: Spreads, quantities: Sequence[Quantity]) -> Spreads:
    """Return spreads pooled with those of their kind, which count as KIND_DF further degrees of freedom at most.

    The spread of few runs or cards may be far too small by chance (Smyth, Statistical Applications in Genetics and
    Molecular Biology 3, 2004).
    """
    moderated = {}
    for of_kind in group_by(quantities, lambda quantity: quantity.kind).values():
        # Each process of a launch-bound figure has its own level.
        pooled = pool_spreads(spreads[quantity.key] for quantity in of_kind if not quantity.modal)
        common = pooled and Spread(pooled.sd, min(pooled.df, KIND_DF))
        moderated |= {quantity.key: pool_spreads([spreads[quantity.key], common]) for quantity in of_kind}
    return moderated


# ---------------------------------------------------------------- spreads of groups of positive values


def spread_within(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread of ln(value) pooled over groups, as runs of one card; None if no group has two values."""
    logs = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    return pool_spreads(Spread(stdev(group), len(group) - 1) for group in logs)


def spread_between(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Return the spread of the means of groups beyond what the spread within them explains; None for one group.

    By the method of moments (Searle, Casella and McCulloch, Variance Components, section 3.6). If no group has two
    values, all counts as between.
    """
    if len(groups) < 2:
        return None
    means = [fmean(map(math.log, group)) for group in groups]
    inside = spread_within(groups)
    explained = inside.sd**2 * math.fsum(1 / len(group) for group in groups) / len(groups) if inside else 0.0
    return Spread(math.sqrt(max(0.0, variance(means) - explained)), len(groups) - 1)


def pool_spreads(spreads: Iterable[Spread | None]) -> Spread | None:
    """Return one spread of several, each weighted by its degrees of freedom; None if there is none."""
    spreads = [spread for spread in spreads if spread]
    df = sum(spread.df for spread in spreads)
    return Spread(math.sqrt(math.fsum(spread.df * spread.sd**2 for spread in spreads) / df), df) if df else None
