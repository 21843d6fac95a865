"""Memory levels in a sweep over working-set sizes: plateaus of the bandwidth, and the knees at their ends."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from roofline.core.statistics import median
from roofline.core.terms import KNEE_SHARE

SweepPoints = Sequence[tuple[float, float]]

SMALLEST_JUMP = 1.15  # between two levels; less may be a plateau that sags
SHORTEST_OCTAVES = 0.75  # of working-set size that a plateau spans: less is a step of a transition
PLATEAU_SLOPES = (0.0, -0.02)  # of a plateau, in relative bandwidth per octave of size
STEEP_SLOPE = -0.03  # per octave: what falls by more, beyond what noise explains, is still falling and no plateau
MATCH_FACTOR = 2.0  # a knee this many times away from a capacity is not that level's
NOISE_RANGE = (0.01, 0.04)  # the smallest and the largest that a point's scatter is taken for, relative

# Prices in units of half a squared residual over the noise, as a log-likelihood counts them: 0.5 for a usual point.
LEVEL_PRICE = 9.0  # about log(points) for each of a plateau's two edges, as the BIC has it
LOOSE_PRICE = 8.0  # of a point between two plateaus: nearer than 4 times the noise, it belongs to one
OUTLIER_PRICE = 10.0  # the most that a point costs its plateau
START_PRICE = 2.0  # of a point before the first plateau and below it
SLOPE_PRICE = 1.0  # of each step of SLOPES: flat unless the points say otherwise


class SweepLevel(NamedTuple):
    """One plateau. The figure is its points' median; knee_bytes is the knee at its end, None for the last level."""

    gb_per_s: float
    first_bytes: float
    last_bytes: float
    knee_bytes: float | None


class _FittedPlateau(NamedTuple):
    first: int  # index of its first point
    last: int
    start: float  # the fitted logarithm of the bandwidth there
    end: float
    price: float


def find_levels(points: SweepPoints) -> list[SweepLevel]:
    """The plateaus of (bytes of the working set, GB/s), fastest first; empty where nothing is flat.

    Segmented least squares in logarithms of size and bandwidth, solved by dynamic programming (Bellman and Roth, Curve
    Fitting by Segmented Straight Lines, JASA 64, 1969). A plateau is a line through the median of its points that falls
    by 0 to 2 % an octave, spans SHORTEST_OCTAVES and ends with points that fit. It costs LEVEL_PRICE; its points cost
    half their squared residual over the noise, up to OUTLIER_PRICE; points of a transition cost LOOSE_PRICE, before the
    first plateau START_PRICE. Each level starts lower than the last one ended by SMALLEST_JUMP. Levels within 15 % of
    each other, or seen by a single point, are not separated.
    """
    x = [math.log2(size) for size, _ in points]
    y = [math.log(bandwidth) for _, bandwidth in points]
    chosen = _choose_cheapest_row(y, _list_plateaus(x, y, _estimate_noise(y)))
    figures = [median([bandwidth for _, bandwidth in points[p.first : p.last + 1]]) for p in chosen]
    levels = []
    for number, plateau in enumerate(chosen):
        last = number + 1 == len(chosen)
        knee = None if last else find_knee(points[plateau.first :], figures[number])
        levels.append(SweepLevel(figures[number], points[plateau.first][0], points[plateau.last][0], knee))
    return levels


def find_knee(points: SweepPoints, plateau_gb_per_s: float) -> float | None:
    """The working set, in bytes, at which the bandwidth falls by a tenth below a plateau in GB/s: its capacity.

    Between the two points it is interpolated in logarithms. If scatter makes several crossings, the one with the fewest
    points on the wrong sides counts, the last among equals; None if there is none.
    """
    fallen = KNEE_SHARE * plateau_gb_per_s
    knee, fewest = None, math.inf
    wrong = sum(bandwidth >= fallen for _, bandwidth in points)  # with the knee before the first point
    for (size, bandwidth), (next_size, next_bandwidth) in itertools.pairwise(points):
        wrong += -1 if bandwidth >= fallen else 1
        if bandwidth >= fallen > next_bandwidth and wrong <= fewest:
            share = math.log(bandwidth / fallen) / math.log(bandwidth / next_bandwidth)
            knee, fewest = size * (next_size / size) ** share, wrong
    return knee


def _estimate_noise(y: list[float]) -> float:
    """The relative scatter of a point: the median second difference, as of normal noise; steps hardly touch it."""
    bends = [abs(y[i] - (y[i - 1] + y[i + 1]) / 2) for i in range(1, len(y) - 1)]
    scatter = 1.4826 * median(bends) / math.sqrt(1.5) if bends else 0.0
    return min(max(scatter, NOISE_RANGE[0]), NOISE_RANGE[1])


def _list_plateaus(x: list[float], y: list[float], noise: float) -> list[_FittedPlateau]:
    """Every run of points that is cheaper as a plateau than loose, in the order of their first points."""
    found = []
    for first in range(len(x)):
        for last in range(first + 1, len(x)):
            if x[last] - x[first] < SHORTEST_OCTAVES:
                continue
            best = min(
                (_fit_plateau(x, y, first, last, step, noise) for step in range(len(PLATEAU_SLOPES))),
                key=lambda p: p.price,
            )
            if best.price < LOOSE_PRICE * (last - first + 1):
                found.append(best)
    return found


def _fit_plateau(x: list[float], y: list[float], first: int, last: int, step: int, noise: float) -> _FittedPlateau:
    """The plateau of the points first to last with one of SLOPES; its height is the median, which outliers spare.

    It ends with points that fit: the slope of a finely swept transition would else pass for a plateau with outliers.
    """
    heights = [y[i] - PLATEAU_SLOPES[step] * (x[i] - x[first]) for i in range(first, last + 1)]
    start = median(heights)
    misfits = [(height - start) ** 2 / (2 * noise**2) for height in heights]
    price = LEVEL_PRICE + SLOPE_PRICE * step + sum(min(misfit, OUTLIER_PRICE) for misfit in misfits)
    if max(misfits[0], misfits[-1]) > LOOSE_PRICE or _is_falling(x[first : last + 1], y[first : last + 1], noise):
        price = math.inf
    return _FittedPlateau(first, last, start, start + PLATEAU_SLOPES[step] * (x[last] - x[first]), price)


def _is_falling(x: list[float], y: list[float], noise: float) -> bool:
    """Whether the second half lies lower than the first by more than STEEP and twice the error of that slope."""
    half = len(x) // 2
    octaves = median(x[-half:]) - median(x[:half])
    slope = (median(y[-half:]) - median(y[:half])) / octaves
    error = noise * math.sqrt(math.pi / 2 * 2 / half) / octaves  # of two medians
    return slope < min(STEEP_SLOPE, -2 * error)


def _choose_cheapest_row(y: list[float], plateaus: list[_FittedPlateau]) -> list[_FittedPlateau]:
    """The falling row of plateaus that costs least, counting the points that are in none of them."""
    jump = math.log(SMALLEST_JUMP)
    prices: list[float] = []  # of the best row that ends with each plateau, without the points after it
    before: list[int | None] = []
    for plateau in plateaus:
        start = sum(START_PRICE if value < plateau.start else LOOSE_PRICE for value in y[: plateau.first])
        price, previous = start, None
        # Those that end before this one starts also started before it: their prices are known.
        for number, (other, row) in enumerate(zip(plateaus, prices, strict=False)):
            if other.last < plateau.first and other.end - plateau.start >= jump:
                loose = row + LOOSE_PRICE * (plateau.first - other.last - 1)
                if loose < price:
                    price, previous = loose, number
        prices.append(price + plateau.price)
        before.append(previous)
    if not plateaus:
        return []
    ends = [price + LOOSE_PRICE * (len(y) - 1 - p.last) for price, p in zip(prices, plateaus, strict=True)]
    row = []
    number: int | None = ends.index(min(ends))
    while number is not None:
        row.append(plateaus[number])
        number = before[number]
    return row[::-1]


def spans(level: SweepLevel, capacity: int) -> bool:
    """Return whether a plateau begins well below a capacity and ends well above it."""
    return level.first_bytes * MATCH_FACTOR <= capacity <= level.last_bytes / MATCH_FACTOR


def match_capacity(level: SweepLevel, capacities: dict[str, int]) -> str | None:
    """Return the name of the capacity that fits a plateau: the nearest to its knee, within MATCH_FACTOR; None if none does.

    Without a knee it is the first capacity that holds all of the plateau.
    """
    if not level.knee_bytes:
        return next((name for name, size in capacities.items() if size >= level.last_bytes), None)
    ratio_by_name = {name: max(size / level.knee_bytes, level.knee_bytes / size) for name, size in capacities.items()}
    name = min(ratio_by_name, key=ratio_by_name.get, default=None)
    return name if name and ratio_by_name[name] <= MATCH_FACTOR else None
