"""Student's t distribution, of any positive number of degrees of freedom.

Python's standard library has none, and SciPy would be a dependency of 35 MB for two functions.
"""

import math
from functools import cache

_STEPS = 300  # of the continued fraction, which needs some sqrt(df) of them
_TINY = 1e-300


def upper_tail(t: float, df: float) -> float:
    """P(T > t)."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t))
    return tail if t >= 0 else 1 - tail


def two_sided(t: float, df: float) -> float:
    """P(|T| > |t|)."""
    return min(1.0, 2 * upper_tail(abs(t), df))


@cache
def quantile(tail: float, df: float) -> float:
    """The t that is exceeded with this probability, 0 < tail <= 1/2."""
    low, high = 0.0, 1.0
    while upper_tail(high, df) > tail:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, df) > tail else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), regularised, with rest = 1 - x in full: the continued fraction of DLMF 8.17.22, Lentz's method."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _STEPS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + step * d)
            c = _apart(1 + step / c)
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
