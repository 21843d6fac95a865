"""Whether two groups of runs differ, by how much, and what could have been found: on natural logarithms of a ratio."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from roofline.core import student_t
from roofline.core.run_spread import Spread

ERROR = 0.05  # of one comparison: of calling anything faster or slower where nothing changed; of an interval
POWER = 0.90  # with which the smallest change is found

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR"]


class Difference(NamedTuple):
    """ln(B / A) of a performance, so positive where B is faster, with its standard error."""

    estimate: float
    se: float
    df: float

    @property
    def p_value(self) -> float:
        """Of no difference, two-sided."""
        if not self.se:
            return 0.0 if self.estimate else 1.0
        return student_t.two_sided(self.estimate / self.se, self.df)

    @property
    def interval(self) -> tuple[float, float]:
        half = student_t.quantile(ERROR / 2, self.df) * self.se
        return self.estimate - half, self.estimate + half


def standard_error(*parts: tuple[Spread, float]) -> tuple[float, float]:
    """Of a sum of independent errors, each a spread and the factor of its variance; with its degrees of freedom.

    Satterthwaite, Biometrics Bulletin 2, 1946; of one part, its own.
    """
    variances = [(factor * spread.sd**2, spread.df) for spread, factor in parts]
    whole = sum(variance for variance, _ in variances)
    weight = sum(variance**2 / df for variance, df in variances)
    return math.sqrt(whole), whole**2 / weight if weight else min(df for _, df in variances)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for their number, so that any of them is under 5 % by chance in 5 % of all comparisons at most.

    Holm, Scandinavian Journal of Statistics 6, 1979; whatever the dependence among them.
    """
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def verdict(difference: Difference, adjusted: float, margin: float, least: float) -> Verdict:
    """SAME where the 95 % interval lies within the margin on both sides; else FASTER or SLOWER where no difference is
    ruled out, by the adjusted p value, and the estimate is beyond `least`; else UNCLEAR."""
    low, high = difference.interval
    if -margin <= low and high <= margin:
        return "SAME"
    if adjusted <= ERROR and abs(difference.estimate) > least:
        return "FASTER" if difference.estimate > 0 else "SLOWER"
    return "UNCLEAR"


def smallest_change(se: float, df: float, tests: int, least: float) -> float:
    """The smallest slowing that is called SLOWER with a probability of 90 %, as a share: 0.03 for 3 %.

    The usual approximation by central t: as much beyond the threshold as the estimate is below its mean in one of ten.
    """
    threshold = max(least, student_t.quantile(ERROR / 2 / max(1, tests), df) * se)
    return -math.expm1(-(threshold + student_t.quantile(1 - POWER, df) * se))
