"""Whether figures of two lists of runs differ: Student's t test of ln(B / A), corrected by Holm for their number."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

from known_variation import Spread, Variation, pooled, variations, within
from pairing import ComparedPair

ERROR = 0.05  # of a comparison: of calling any figure SLOWER or FASTER though nothing changed; of an interval
POWER = 0.90  # with which the smallest change is found
STEPS, REACH, PRECISE = 300, 12, 1e-9  # of Student's t, by integration
FEWEST_DF = 2  # of a variation: with less, nothing is tested
MARGIN = 0.02  # a relative change that does not matter: SAME if the whole interval is within it
MARGINS = {"memory": 0.01, "sustained": 0.03, "gpu_time": 0.03, "cpu_time": 0.05, "pageable": 0.10}  # by kind
TIMES, FAMILIES = ("gpu_time", "cpu_time"), 2
Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR"]
ByCard = dict[str, list[float]]
OF_FIGURE = ("key", "name", "kind", "unit", "higher_is_better")


class Difference(NamedTuple):
    """ln(B / A) of a performance, positive if B is faster, with its standard error."""

    estimate: float
    se: float
    df: float

    @property
    def p_value(self) -> float:
        """Of no difference, two-sided."""
        if not self.se:
            return 0.0 if self.estimate else 1.0
        return 2 * upper_tail(abs(self.estimate) / self.se, self.df)

    @property
    def interval(self) -> tuple[float, float]:
        half = quantile(ERROR / 2, self.df) * self.se
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True)
class Compared:
    """One figure of both lists."""

    device: str  # the name of the pair
    key: str
    name: str
    kind: str
    unit: str
    higher_is_better: bool
    a: list[float]  # of each run that counts
    b: list[float]
    margin: float
    ratio: float  # B / A of the figure itself
    reason: str | None  # why it is not judged
    ci95: tuple[float, float] | None = None
    p_value: float | None = None  # adjusted
    verdict: Verdict = "UNCLEAR"
    smallest_change: float | None = None  # the slowing that nine of ten such comparisons call SLOWER


def compare(pairs: Iterable[ComparedPair], identical: bool = False) -> list[Compared]:
    """Every figure that both sides of a pair have; `identical` lists are SAME without a test."""
    found = [one for pair in pairs for one in _figures(pair)]
    if identical:
        return [replace(one, verdict="SAME", reason=None) for one, _ in found]
    concluded = []
    for of_times in (False, True):  # corrected apart, so that hundreds of times do not hide a change of a ceiling
        family = [one for one in found if (one[0].kind in TIMES) is of_times]
        tested = [difference for _, difference in family if difference]
        adjusted = iter(holm([FAMILIES * one.p_value for one in tested]))
        concluded += [_concluded(*one, next(adjusted), FAMILIES * len(tested)) if one[1] else one[0] for one in family]
    return concluded


def _figures(pair: ComparedPair) -> list[tuple[Compared, Difference | None]]:
    first = {key: figure for one in reversed(pair.a) for key, figure in one.figures.items()}
    common = [figure for key, figure in first.items() if any(key in one.figures for one in pair.b)]
    devices = [one.record for one in (*pair.a, *pair.b)]
    known = variations(dict.fromkeys(one.name for one in devices), common, {one.queried_at for one in devices})
    return [_figure(pair, one, known[one.key]) for one in common]


def _figure(pair: ComparedPair, first, known: Variation) -> tuple[Compared, Difference | None]:
    """A figure before the correction, UNCLEAR as yet, and its difference if it is tested."""
    sides = [[(one, one.figures[first.key]) for one in side if first.key in one.figures] for side in pair[1:]]
    sound = [[both for both in side if not both[1].doubt] for side in sides]
    reasons = [side[0][1].doubt for side, kept in zip(sides, sound, strict=True) if not kept]
    sides = [kept or side for kept, side in zip(sound, sides, strict=True)]
    inputs = [{figure.inputs for _, figure in side} for side in sides]
    if inputs[0] != inputs[1] and None not in inputs[0] | inputs[1]:
        reasons.append("other operands")
    if any(figure.modal for side in sides for _, figure in side):
        reasons.append("launch-bound: the host sets the pace, and each process settles at another level")
    a, b = ({one.card: [f.value for other, f in side if other.card == one.card] for one, _ in side} for side in sides)
    runs = pooled([known.runs, within([*a.values(), *b.values()])])
    cards = known.cards if known.cards and known.cards.df >= FEWEST_DF and not pair.same_card else None
    error = _error(a, b, runs, cards, pair.same_card)
    if not error:
        what = "runs" if pair.same_card else "cards of this model"
        reasons.append(f"the variation between {what} is unknown; lists of two or more per side would show it")
    ratio = _mean(b) / _mean(a)
    figure = Compared(
        device=pair.name,
        **{name: getattr(first, name) for name in OF_FIGURE},
        **{name: [value for values in side.values() for value in values] for name, side in (("a", a), ("b", b))},
        margin=MARGINS.get(first.kind, MARGIN),
        ratio=ratio,
        reason=next(iter(reasons), None),
    )
    return figure, None if reasons else Difference(math.log(ratio) * (1 if first.higher_is_better else -1), *error)


def _mean(side: ByCard) -> float:
    """The geometric mean over cards of that over their runs."""
    return math.exp(sum(sum(map(math.log, values)) / len(values) for values in side.values()) / len(side))


# ---------------------------------------------------------------- statistics


def _error(a: ByCard, b: ByCard, runs, cards, same_card: bool) -> tuple[float, float] | None:
    """The standard error of ln(B / A) and its degrees of freedom; None if too little is known.

    Of other cards, without a stored variation, from the means of the cards inside the lists.
    """
    of_runs = sum(sum(1 / len(values) for values in side.values()) / len(side) ** 2 for side in (a, b))
    of_cards = 1 / len(a) + 1 / len(b)
    if same_card or cards:
        parts = [(runs, of_runs), (cards, of_cards)]  # without runs, that between cards holds both
    else:
        parts = [(within([[_mean({"": values}) for values in side.values()] for side in (a, b)]), of_cards)]
    parts = [(spread, factor) for spread, factor in parts if spread]
    if not parts or min(spread.df for spread, _ in parts) < FEWEST_DF:
        return None
    return standard_error(*parts)


def standard_error(*parts: tuple[Spread, float]) -> tuple[float, float]:
    """Of a sum of independent errors, each a spread and the factor of its variance (Satterthwaite 1946)."""
    variances = [(factor * spread.sd**2, spread.df) for spread, factor in parts]
    whole = sum(variance for variance, _ in variances)
    weight = sum(variance**2 / df for variance, df in variances)
    return math.sqrt(whole), whole**2 / weight if weight else min(df for _, df in variances)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted, so that any is under 5 % by chance in 5 % of comparisons at most (Holm 1979)."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def verdict(difference: Difference, adjusted: float, margin: float) -> Verdict:
    low, high = difference.interval
    if -margin <= low and high <= margin:
        return "SAME"
    if adjusted <= ERROR:
        return "FASTER" if difference.estimate > 0 else "SLOWER"
    return "UNCLEAR"


def smallest_change(se: float, df: float, tests: int, margin: float) -> float:
    """The smallest slowing that is called SLOWER with a probability of 90 %, as a share, approximately."""
    threshold = max(margin - quantile(ERROR / 2, df) * se, quantile(ERROR / 2 / tests, df) * se)
    return -math.expm1(-(threshold + quantile(1 - POWER, df) * se))


def _concluded(figure: Compared, one: Difference, p_value: float, tests: int) -> Compared:
    ci95 = tuple(sorted(math.exp(end if figure.higher_is_better else -end) for end in one.interval))
    found, least = verdict(one, p_value, figure.margin), smallest_change(one.se, one.df, tests, figure.margin)
    return replace(figure, ci95=ci95, p_value=p_value, verdict=found, smallest_change=least)


def upper_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t for t >= 0 and df >= 2: Simpson's rule over the angle whose tangent is t / sqrt(df)."""
    start = math.atan(t / math.sqrt(df))
    step = min(math.pi / 2 - start, REACH / math.sqrt(df)) / STEPS
    density = [max(0.0, math.cos(start + step * place)) ** (df - 1) for place in range(STEPS + 1)]
    area = step / 3 * (density[0] + density[-1] + 4 * sum(density[1::2]) + 2 * sum(density[2:-1:2]))
    return area * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)


@cache
def quantile(tail: float, df: float) -> float:
    """The t that is exceeded with this probability, 0 < tail <= 1/2."""
    low, high = 0.0, 1.0
    while upper_tail(high, df) > tail:
        high *= 2
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, df) > tail else (low, middle)
    return high
