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


def load_variations(
    models: Iterable[str], quantities: Sequence[Quantity], dates: Collection[str] = ()
) -> dict[str, Variation]:
    """Return the variation of each quantity by its key; the widest of several models of card.

    Runs of the dates `dates` do not count.
    """
    of_models = [_variations_of_model(model, quantities, dates) for model in models]
    widest = {}
    for quantity in quantities:
        variations = [variations[quantity.key] for variations in of_models]
        widest[quantity.key] = Variation(
            runs=max(filter(None, (variation.runs for variation in variations)), default=None),
            cards=max(filter(None, (variation.cards for variation in variations)), default=None),
        )
    return widest


def _variations_of_model(model: str, quantities: Sequence[Quantity], dates: Collection[str]) -> dict[str, Variation]:
    """Return the variations of one model of card.

    Within cards all runs count together; between cards only runs by one method are compared.
    """
    groups = _values_of_runs(model, dates)
    raw = {}
    for quantity in quantities:
        by_method = [list(by_card.values()) for by_card in groups.get(quantity.key, {}).values()]
        between_cards = pool_spreads(spread_between(cards) for cards in by_method)
        raw[quantity.key] = Variation(spread_within(chain.from_iterable(by_method)), between_cards)
    by_kind: dict[str, list[Variation]] = {quantity.kind: [] for quantity in quantities}
    for quantity in quantities:
        if not quantity.modal:  # each process of a launch-bound figure has its own level
            by_kind[quantity.kind].append(raw[quantity.key])
    moderated = {}
    for quantity in quantities:
        variation, of_kind = raw[quantity.key], by_kind[quantity.kind]
        moderated[quantity.key] = Variation(
            runs=_moderate(variation.runs, [of_figure.runs for of_figure in of_kind]),
            cards=_moderate(variation.cards, [of_figure.cards for of_figure in of_kind]),
        )
    return moderated


def _values_of_runs(model: str, dates: Collection[str]) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Return the values of all runs of a model, by key, method and card."""
    stored = cards(model)
    groups: dict[str, dict[int, dict[str, list[float]]]] = {}
    for run in stored.runs if stored else []:
        if run.queried_at in dates:
            continue
        for key, value in run.values.items():
            by_card = groups.setdefault(key, {}).setdefault(run.method, {})
            by_card.setdefault(run.card_id, []).append(value)
    return groups


def _moderate(spread: Spread | None, spreads_of_kind: Iterable[Spread | None]) -> Spread | None:
    """Return a spread pooled with that of its kind, which counts as KIND_DF further degrees of freedom at most.

    The spread of few runs or cards may be far too small by chance (Smyth, Statistical Applications in Genetics and
    Molecular Biology 3, 2004).
    """
    of_kind = pool_spreads(spreads_of_kind)
    if of_kind is None:
        return pool_spreads([spread])
    return pool_spreads([spread, Spread(of_kind.sd, min(of_kind.df, KIND_DF))])


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
