"""How far runs lie apart, of one card and of several: standard deviations of natural logarithms, so relative ones."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """A standard deviation of ln(value), and the degrees of freedom that it was estimated with."""

    sd: float
    df: float


def within(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Pooled over groups of positive values, each of which had one cause: runs of one card, say.

    None where no group has two values.
    """
    logs = [[math.log(value) for value in group] for group in groups if len(group) > 1]
    return pooled(Spread(math.sqrt(_squares(group) / (len(group) - 1)), len(group) - 1) for group in logs)


def between(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Of the groups' means beyond what the spread within them explains; None for fewer than two groups.

    The component of variance between groups by the method of moments (Searle, Casella and McCulloch, Variance
    Components, section 3.6), of unweighted means; 0 where the means lie no further apart than runs do. Without a group
    of two values, what is between the groups and within them cannot be told apart, and counts as between.
    """
    groups = [group for group in groups if group]
    if len(groups) < 2:
        return None
    means = [math.fsum(math.log(value) for value in group) / len(group) for group in groups]
    runs, df = within(groups), len(groups) - 1
    explained = runs.sd**2 * math.fsum(1 / len(group) for group in groups) / len(groups) if runs else 0.0
    return Spread(math.sqrt(max(0.0, _squares(means) / df - explained)), df)


def pooled(spreads: Iterable[Spread]) -> Spread | None:
    """One spread of several, each by its degrees of freedom; None of none."""
    spreads = list(spreads)
    df = sum(one.df for one in spreads)
    return Spread(math.sqrt(math.fsum(one.df * one.sd**2 for one in spreads) / df), df) if df else None


def of_most(spread: Spread, df: float) -> Spread:
    """With so many degrees of freedom at most."""
    return spread._replace(df=min(spread.df, df))


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
