"""Standard errors of sums."""

import math

from roofline.core.run_spread import Spread


def standard_error(*parts: tuple[Spread, float]) -> tuple[float, float]:
    """Of a sum of independent errors, each a spread and the factor of its variance; with its degrees of freedom.

    Satterthwaite, Biometrics Bulletin 2, 1946; of one part, its own.
    """
    variances = [(factor * spread.sd**2, spread.df) for spread, factor in parts]
    whole = sum(variance for variance, _ in variances)
    weight = sum(variance**2 / df for variance, df in variances)
    return math.sqrt(whole), whole**2 / weight if weight else min(df for _, df in variances)
