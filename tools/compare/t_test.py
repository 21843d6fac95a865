"""Whether figures of two lists of runs differ: Student's t test of ln(B / A), corrected by Holm for their number."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple

from known_variation import Spread, load_variations, pool_spreads, spread_within
from pairing import ComparedPair, DeviceOfRun

from roofline.api import Quantity, group_by

ERROR = 0.05  # of a comparison: of calling any figure SLOWER or FASTER though nothing changed; of an interval
POWER = 0.90  # with which the smallest change is found
STEPS, REACH, PRECISE = 300, 12, 1e-9  # of Student's t, by integration
FEWEST_DF = 2  # of a variation: with less, nothing is tested
MARGIN = 0.02  # a relative change that does not matter: SAME if the whole interval is within it
MARGINS = {"memory": 0.01, "sustained": 0.03, "gpu_time": 0.03, "cpu_time": 0.05, "pageable": 0.10}  # by kind
TIMES, FAMILIES = ("gpu_time", "cpu_time"), 2
Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR"]
ByCard = list[list[float]]  # the values of each card
Sample = tuple[DeviceOfRun, Quantity]  # a figure of a device in one run


class Difference(NamedTuple):
    """ln(B / A) of a figure, with its standard error."""

    estimate: float
    se: float
    df: float

    @property
    def p_value(self) -> float:
        """The two-sided p-value of no difference."""
        if not self.se:
            return 0.0 if self.estimate else 1.0
        return 2 * upper_tail(abs(self.estimate) / self.se, self.df)

    @property
    def interval(self) -> tuple[float, float]:
        half = quantile(ERROR / 2, self.df) * self.se
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True)
class ComparedQuantity:
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


FigureToJudge = tuple[ComparedQuantity, Difference | None]  # None: it is not tested


@dataclass(frozen=True)
class Comparison:
    """The content of results/comparison/comparison.json."""

    identical: bool  # both lists hold the same runs
    a: list[str]  # a line per run
    b: list[str]
    pairs: dict[str, str]  # whether one card is on both sides, in words, by the names of the pairs
    models: list[str]  # names of the pairs of two models of card: asked of them is how many times as fast B is
    differences: list[str]  # apart from the figures
    left_out: list[str]  # devices and ceilings, with the reason
    figures: list[ComparedQuantity]

    @property
    def judged(self) -> list[ComparedQuantity]:
        """The figures whose verdicts count: those of pairs of one model."""
        return [figure for figure in self.figures if figure.device not in self.models]

    def figures_of(self, name: str) -> list[ComparedQuantity]:
        """Return the figures of the pair of this name."""
        return [figure for figure in self.figures if figure.device == name]


def judge_pairs(pairs: Iterable[ComparedPair], identical: bool = False) -> list[ComparedQuantity]:
    """Return every figure that both sides of a pair have; those of `identical` lists are SAME without a test."""
    figures = [figure for pair in pairs for figure in _figures(pair)]
    if identical:
        return [replace(figure, verdict="SAME", reason=None) for figure, _ in figures]
    # Corrected apart, so that hundreds of times do not hide a change of a ceiling.
    families = group_by(figures, lambda pair: pair[0].kind in TIMES)
    return _judge_family(families.get(False, [])) + _judge_family(families.get(True, []))


def _judge_family(figures: Sequence[FigureToJudge]) -> list[ComparedQuantity]:
    """Return figures with their verdicts, corrected for the number that is tested."""
    tested = [difference for _, difference in figures if difference]
    adjusted = iter(adjust_by_holm([FAMILIES * difference.p_value for difference in tested]))
    return [
        _judge(figure, difference, next(adjusted), FAMILIES * len(tested)) if difference else figure
        for figure, difference in figures
    ]


def _figures(pair: ComparedPair) -> list[FigureToJudge]:
    of_a = {key: figure for device in reversed(pair.a) for key, figure in device.figures.items()}
    common = [figure for key, figure in of_a.items() if any(key in device.figures for device in pair.b)]
    records = [device.record for device in (*pair.a, *pair.b)]
    models, dates = dict.fromkeys(record.name for record in records), {record.queried_at for record in records}
    runs, cards = load_variations(models, common, dates)
    return [_figure(pair, figure, runs[figure.key], cards[figure.key]) for figure in common]


def _figure(pair: ComparedPair, quantity: Quantity, runs: Spread | None, cards: Spread | None) -> FigureToJudge:
    """Return a figure before the correction, UNCLEAR as yet, and its difference if it is tested.

    `runs` and `cards` are its variations: between runs of one card, and between cards beyond that. Doubtful values
    count only where a side has no others.
    """
    a_samples, b_samples = _samples(pair.a, quantity.key), _samples(pair.b, quantity.key)
    a, b = _by_card(a_samples), _by_card(b_samples)
    figures = [figure for _, figure in (*a_samples, *b_samples)]
    reasons = [*(figure.doubt for figure in figures), _other_operands(a_samples, b_samples)]
    if any(figure.modal for figure in figures):
        reasons.append("launch-bound: the host sets the pace, and each process settles at another level")
    error = _error(a, b, runs, cards, pair.same_card)
    if not error:
        groups = "runs" if pair.same_card else "cards of this model"
        reasons.append(f"the variation between {groups} is unknown; lists of two or more per side would show it")
    reason = next(filter(None, reasons), None)
    ratio = _mean(b) / _mean(a)
    facts = {name: getattr(quantity, name) for name in ("key", "name", "kind", "unit", "higher_is_better")}
    facts |= {"device": pair.name, "a": list(chain.from_iterable(a)), "b": list(chain.from_iterable(b))}
    figure = ComparedQuantity(**facts, margin=MARGINS.get(quantity.kind, MARGIN), ratio=ratio, reason=reason)
    return figure, (None if reason else Difference(math.log(ratio), *error))


def _samples(devices: Iterable[DeviceOfRun], key: str) -> list[Sample]:
    """Return the samples of a figure without a doubt, or all of them if there are none."""
    samples = [(device, device.figures[key]) for device in devices if key in device.figures]
    return [(device, figure) for device, figure in samples if not figure.doubt] or samples


def _by_card(samples: Iterable[Sample]) -> ByCard:
    groups = group_by(samples, lambda sample: sample[0].card)
    return [[figure.value for _, figure in of_card] for of_card in groups.values()]


def _other_operands(a: Iterable[Sample], b: Iterable[Sample]) -> str | None:
    """Return a reason not to judge figures that were measured with different operands; None if they are the same."""
    a_inputs, b_inputs = {figure.inputs for _, figure in a}, {figure.inputs for _, figure in b}
    return "other operands" if a_inputs != b_inputs and None not in a_inputs | b_inputs else None


def _mean(side: ByCard) -> float:
    """Return the geometric mean over cards of that over their runs."""
    return math.exp(sum(sum(map(math.log, values)) / len(values) for values in side) / len(side))


# ---------------------------------------------------------------- statistics


def _error(a: ByCard, b: ByCard, runs: Spread | None, cards: Spread | None, same_card: bool) -> Spread | None:
    """Return the standard error of ln(B / A) and its degrees of freedom; None if too little is known.

    It is that of a sum of independent errors (Satterthwaite 1946): a part is a spread and the factor of its variance.
    For other cards without a stored variation it follows from the means of the cards inside the lists.
    """
    runs_factor = sum(sum(1 / len(values) for values in side) / len(side) ** 2 for side in (a, b))
    cards_factor = 1 / len(a) + 1 / len(b)
    parts = [(pool_spreads([runs, spread_within([*a, *b])]), runs_factor)]
    if not same_card and cards and cards.df >= FEWEST_DF:
        parts.append((cards, cards_factor))  # without runs, it holds both
    elif not same_card:
        card_means = [[_mean([values]) for values in side] for side in (a, b)]
        parts = [(spread_within(card_means), cards_factor)]
    variances = [(factor * spread.sd**2, spread.df) for spread, factor in parts if spread]
    fewest_df = min((df for _, df in variances), default=0)
    if fewest_df < FEWEST_DF:
        return None
    total = sum(variance for variance, _ in variances)
    weight = sum(variance**2 / df for variance, df in variances)
    return Spread(math.sqrt(total), total**2 / weight if weight else fewest_df)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values: any is below 5 % by chance in 5 % of comparisons at most (Holm 1979)."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def decide(difference: Difference, adjusted: float, margin: float) -> Verdict:
    """Return the verdict on a difference of a performance, from its interval and its adjusted p-value."""
    low, high = difference.interval
    if -margin <= low and high <= margin:
        return "SAME"
    if adjusted <= ERROR:
        return "FASTER" if difference.estimate > 0 else "SLOWER"
    return "UNCLEAR"


def smallest_change(se: float, df: float, tests: int, margin: float) -> float:
    """Return the smallest slowing that is called SLOWER with a probability of 90 %, as a share, approximately."""
    threshold = max(margin - quantile(ERROR / 2, df) * se, quantile(ERROR / 2 / tests, df) * se)
    return -math.expm1(-(threshold + quantile(1 - POWER, df) * se))


def _judge(figure: ComparedQuantity, difference: Difference, p_value: float, tests: int) -> ComparedQuantity:
    low, high = map(math.exp, difference.interval)
    sign = 1 if figure.higher_is_better else -1
    verdict = decide(difference._replace(estimate=sign * difference.estimate), p_value, figure.margin)
    smallest = smallest_change(difference.se, difference.df, tests, figure.margin)
    return replace(figure, ci95=(low, high), p_value=p_value, verdict=verdict, smallest_change=smallest)


def upper_tail(t: float, df: float) -> float:
    """Return P(T > t) of Student's t for t >= 0 and df >= 2, by Simpson's rule.

    The integral is over the angle whose tangent is t / sqrt(df).
    """
    start = math.atan(t / math.sqrt(df))
    step = min(math.pi / 2 - start, REACH / math.sqrt(df)) / STEPS
    density = [max(0.0, math.cos(start + step * place)) ** (df - 1) for place in range(STEPS + 1)]
    area = step / 3 * (density[0] + density[-1] + 4 * sum(density[1::2]) + 2 * sum(density[2:-1:2]))
    return area * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)


@cache
def quantile(tail: float, df: float) -> float:
    """Return the t that is exceeded with this probability, 0 < tail <= 1/2."""
    low, high = 0.0, 1.0
    while upper_tail(high, df) > tail:
        high *= 2
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, df) > tail else (low, middle)
    return high
