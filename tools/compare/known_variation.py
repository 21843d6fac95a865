"""How much figures vary between runs of one card and between cards of one model, from reference/cards/."""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from roofline.api import Quantity, cards

KIND_DF = 4  # that the variation of a kind counts for at most: figures of one kind do not vary alike


class Spread(NamedTuple):
    """A variation with its degrees of freedom."""

    sd: float  # the standard deviation of ln(value)
    df: float


class Variation(NamedTuple):
    """The variation of one figure; a part is None where it is unknown."""

    runs: Spread | None  # between runs of one card
    cards: Spread | None  # between cards, beyond that


Variations = dict[str, Variation]  # by the key of the quantity


def load_variations(models: Iterable[str], quantities: Sequence[Quantity], dates: Collection[str] = ()) -> Variations:
    """Return the variation of each quantity by its key; the widest of several models of card.

    Runs of the dates `dates` do not count.
    """
    of_models = [_variations_of_model(model, quantities, dates) for model in models]
    widest = {}
    for quantity in quantities:
        runs, cards = zip(*(variations[quantity.key] for variations in of_models), strict=True)
        widest[quantity.key] = Variation(max(filter(None, runs), default=None), max(filter(None, cards), default=None))
    return widest


def _variations_of_model(model: str, quantities: Sequence[Quantity], dates: Collection[str]) -> Variations:
    """Return the variations of one model of card.

    Within cards all runs count together; between cards only runs by one method are compared.
    """
    groups = _values_of_runs(model, dates)
    raw = {}
    for quantity in quantities:
        by_method = [list(by_card.values()) for by_card in groups.get(quantity.key, {}).values()]
        between_cards = pool_spreads(spread_between(cards) for cards in by_method)
        raw[quantity.key] = Variation(spread_within(chain.from_iterable(by_method)), between_cards)
    kinds = {}
    for kind in {quantity.kind for quantity in quantities}:
        # Each process of a launch-bound figure has its own level.
        of_kind = [raw[quantity.key] for quantity in quantities if quantity.kind == kind and not quantity.modal]
        runs, cards = [variation.runs for variation in of_kind], [variation.cards for variation in of_kind]
        kinds[kind] = Variation(pool_spreads(runs), pool_spreads(cards))
    return {quantity.key: _moderate(raw[quantity.key], kinds[quantity.kind]) for quantity in quantities}


def _values_of_runs(model: str, dates: Collection[str]) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Return the values of all runs of a model, by key, method and card."""
    stored = cards(model)
    groups: dict[str, dict[int, dict[str, list[float]]]] = {}
    runs = [run for run in stored.runs if run.queried_at not in dates] if stored else []
    for run in runs:
        for key, value in run.values.items():
            by_card = groups.setdefault(key, {}).setdefault(run.method, {})
            by_card.setdefault(run.card_id, []).append(value)
    return groups


def _moderate(variation: Variation, of_kind: Variation) -> Variation:
    """Return spreads pooled with those of their kind, which count as KIND_DF further degrees of freedom at most.

    The spread of few runs or cards may be far too small by chance (Smyth, Statistical Applications in Genetics and
    Molecular Biology 3, 2004).
    """
    runs, cards = (spread and Spread(spread.sd, min(spread.df, KIND_DF)) for spread in of_kind)
    return Variation(pool_spreads([variation.runs, runs]), pool_spreads([variation.cards, cards]))


# ---------------------------------------------------------------- spreads of groups of positive values


def spread_within(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread of ln(value) pooled over groups, as runs of one card; None if no group has two values."""
    logs = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    return pool_spreads(Spread(math.sqrt(_squares(group) / (len(group) - 1)), len(group) - 1) for group in logs)


def spread_between(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Return the spread of the means of groups beyond what the spread within them explains; None for one group.

    By the method of moments (Searle, Casella and McCulloch, Variance Components, section 3.6). If no group has two
    values, all counts as between.
    """
    if len(groups) < 2:
        return None
    means = [math.fsum(map(math.log, group)) / len(group) for group in groups]
    inside, df = spread_within(groups), len(groups) - 1
    explained = inside.sd**2 * math.fsum(1 / len(group) for group in groups) / len(groups) if inside else 0.0
    return Spread(math.sqrt(max(0.0, _squares(means) / df - explained)), df)


def pool_spreads(spreads: Iterable[Spread | None]) -> Spread | None:
    """Return one spread of several, each weighted by its degrees of freedom; None if there is none."""
    spreads = [spread for spread in spreads if spread]
    df = sum(spread.df for spread in spreads)
    return Spread(math.sqrt(math.fsum(spread.df * spread.sd**2 for spread in spreads) / df), df) if df else None


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
