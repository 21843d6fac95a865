"""Memory levels in a sweep over working-set sizes: plateaus of the bandwidth, and the knees at their ends."""

import itertools
import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from roofline.core.terms import KNEE_SHARE

SweepPoints = Sequence[tuple[float, float]]  # (bytes of the working set, GB/s), by increasing size

SMALLEST_JUMP = 1.15  # ratio of two levels; less may be one plateau that sags
SHORTEST_OCTAVES = 0.75  # a plateau spans so much of the working-set size; less is a step of a transition
PLATEAU_SLOPES = (0.0, -0.02)  # relative change of a plateau's bandwidth per octave of size
STEEP_SLOPE = -0.03  # per octave; points that fall faster, beyond what noise explains, are not a plateau
NOISE_RANGE = (0.01, 0.04)  # limits of the relative scatter of a point
MATCH_FACTOR = 2.0  # a knee this many times away from a capacity is not that level's

# Prices in units of half a squared residual over the noise, as a log-likelihood counts them: 0.5 for a usual point.
LEVEL_PRICE = 9.0  # a plateau: about log(points) for each of its two edges, as in the BIC
LOOSE_PRICE = 8.0  # a point between two plateaus: nearer than 4 times the noise, it belongs to one
OUTLIER_PRICE = 10.0  # the most that a point costs its plateau
START_PRICE = 2.0  # a point before the first plateau and below it
SLOPE_PRICE = 1.0  # each step in PLATEAU_SLOPES: a plateau is flat unless its points say otherwise


class SweepLevel(NamedTuple):
    """One plateau of a sweep, which is one memory level."""

    gb_per_s: float  # median of its points
    first_bytes: float
    last_bytes: float
    knee_bytes: float | None  # working set at its end; None for the last level


class _FittedPlateau(NamedTuple):
    first: int  # index of its first point
    last: int
    start: float  # the fitted logarithm of the bandwidth there
    end: float
    price: float


def find_levels(points: SweepPoints) -> list[SweepLevel]:
    """Return the plateaus of a sweep, fastest first; empty where nothing is flat.

    Segmented least squares in logarithms of size and bandwidth, solved by dynamic programming (Bellman and Roth, Curve
    Fitting by Segmented Straight Lines, JASA 64, 1969). A plateau is a line through the median of its points that falls
    by 0 to 2 % an octave, spans SHORTEST_OCTAVES and ends with points that fit. It costs LEVEL_PRICE; its points cost
    half their squared residual over the noise, up to OUTLIER_PRICE; points of a transition cost LOOSE_PRICE, before the
    first plateau START_PRICE. Each level starts lower than the last one ended by SMALLEST_JUMP. Levels within 15 % of
    each other, or seen by a single point, are not separated.
    """
    log_sizes = [math.log2(size) for size, _ in points]
    log_rates = [math.log(bandwidth) for _, bandwidth in points]
    plateaus = _choose_cheapest_row(log_rates, _list_plateaus(log_sizes, log_rates, _estimate_noise(log_rates)))
    levels = []
    for plateau in plateaus:
        figure = median([bandwidth for _, bandwidth in points[plateau.first : plateau.last + 1]])
        knee = None if plateau is plateaus[-1] else find_knee(points[plateau.first :], figure)
        levels.append(SweepLevel(figure, points[plateau.first][0], points[plateau.last][0], knee))
    return levels


def find_knee(points: SweepPoints, plateau_gb_per_s: float) -> float | None:
    """Return the working set in bytes at which the bandwidth falls to 0.9 of a plateau: the capacity of its level.

    It is interpolated in logarithms between two points. If scatter makes several crossings, the one with the fewest
    points on the wrong sides counts, the last among equals. None if there is no crossing.
    """
    fallen = KNEE_SHARE * plateau_gb_per_s
    knee, fewest = None, math.inf
    wrong = sum(bandwidth >= fallen for _, bandwidth in points)  # if the knee lay before the first point
    for (size, bandwidth), (next_size, next_bandwidth) in itertools.pairwise(points):
        wrong += -1 if bandwidth >= fallen else 1
        if bandwidth >= fallen > next_bandwidth and wrong <= fewest:
            share = math.log(bandwidth / fallen) / math.log(bandwidth / next_bandwidth)
            knee, fewest = size * (next_size / size) ** share, wrong
    return knee


def _estimate_noise(log_rates: list[float]) -> float:
    """Return the relative scatter of a point, estimated from the median second difference as of normal noise.

    The steps between levels hardly change that median.
    """
    bends = [abs(log_rates[i] - (log_rates[i - 1] + log_rates[i + 1]) / 2) for i in range(1, len(log_rates) - 1)]
    scatter = 1.4826 * median(bends) / math.sqrt(1.5) if bends else 0.0
    return min(max(scatter, NOISE_RANGE[0]), NOISE_RANGE[1])


def _list_plateaus(log_sizes: list[float], log_rates: list[float], noise: float) -> list[_FittedPlateau]:
    """Return every run of points that costs less as a plateau than as loose points, by their first points."""
    plateaus = []
    for first in range(len(log_sizes)):
        for last in range(first + 1, len(log_sizes)):
            if log_sizes[last] - log_sizes[first] < SHORTEST_OCTAVES:
                continue
            fits = [_fit_plateau(log_sizes, log_rates, first, last, step, noise) for step in range(len(PLATEAU_SLOPES))]
            cheapest = min(fits, key=lambda fit: fit.price)
            if cheapest.price < LOOSE_PRICE * (last - first + 1):
                plateaus.append(cheapest)
    return plateaus


def _fit_plateau(
    log_sizes: list[float], log_rates: list[float], first: int, last: int, step: int, noise: float
) -> _FittedPlateau:
    """Fit a plateau with one of PLATEAU_SLOPES to the points first to last, through their median.

    Both ends must fit, else its price is infinite: a finely swept transition would pass for a plateau with outliers.
    """
    heights = [log_rates[i] - PLATEAU_SLOPES[step] * (log_sizes[i] - log_sizes[first]) for i in range(first, last + 1)]
    start = median(heights)
    misfits = [(height - start) ** 2 / (2 * noise**2) for height in heights]
    price = LEVEL_PRICE + SLOPE_PRICE * step + sum(min(misfit, OUTLIER_PRICE) for misfit in misfits)
    if max(misfits[0], misfits[-1]) > LOOSE_PRICE or _is_falling(
        log_sizes[first : last + 1], log_rates[first : last + 1], noise
    ):
        price = math.inf
    return _FittedPlateau(
        first, last, start, start + PLATEAU_SLOPES[step] * (log_sizes[last] - log_sizes[first]), price
    )


def _is_falling(log_sizes: list[float], log_rates: list[float], noise: float) -> bool:
    """Return whether the points fall faster than STEEP_SLOPE and than twice the error of their slope.

    The slope is that between the medians of the first and the second half.
    """
    half = len(log_sizes) // 2
    octaves = median(log_sizes[-half:]) - median(log_sizes[:half])
    slope = (median(log_rates[-half:]) - median(log_rates[:half])) / octaves
    error = noise * math.sqrt(math.pi / 2 * 2 / half) / octaves  # of two medians
    return slope < min(STEEP_SLOPE, -2 * error)


def _choose_cheapest_row(log_rates: list[float], plateaus: list[_FittedPlateau]) -> list[_FittedPlateau]:
    """Return the falling row of plateaus that costs least, with the points that are in none of them.

    `plateaus` are ordered by their first points, so that the best row up to each one follows from earlier ones.
    """
    jump = math.log(SMALLEST_JUMP)
    row_prices: list[float] = []  # of the best row that ends with each plateau, without the points after it
    predecessors: list[int | None] = []
    for plateau in plateaus:
        price = sum(START_PRICE if value < plateau.start else LOOSE_PRICE for value in log_rates[: plateau.first])
        predecessor: int | None = None
        # Plateaus that end before this one starts also started before it: their prices are known.
        for number, row_price in enumerate(row_prices):
            earlier = plateaus[number]
            if earlier.last < plateau.first and earlier.end - plateau.start >= jump:
                joined = row_price + LOOSE_PRICE * (plateau.first - earlier.last - 1)
                if joined < price:
                    price, predecessor = joined, number
        row_prices.append(price + plateau.price)
        predecessors.append(predecessor)
    prices = [
        price + LOOSE_PRICE * (len(log_rates) - 1 - plateau.last)
        for price, plateau in zip(row_prices, plateaus, strict=True)
    ]
    row = []
    index = min(range(len(prices)), key=lambda number: prices[number], default=None)
    while index is not None:
        row.append(plateaus[index])
        index = predecessors[index]
    return row[::-1]


def spans(level: SweepLevel, capacity: int) -> bool:
    """Return whether a plateau begins well below a capacity and ends well above it."""
    return level.first_bytes * MATCH_FACTOR <= capacity <= level.last_bytes / MATCH_FACTOR


def match_capacity(level: SweepLevel, capacities: dict[str, int]) -> str | None:
    """Return the name of the capacity that fits a plateau; None if none does.

    It is the nearest to the knee, within MATCH_FACTOR. Without a knee it is the first that holds all of the plateau.
    """
    if not level.knee_bytes:
        return next((name for name, size in capacities.items() if size >= level.last_bytes), None)
    ratio_by_name = {name: max(size / level.knee_bytes, level.knee_bytes / size) for name, size in capacities.items()}
    name = min(ratio_by_name, key=lambda name: ratio_by_name[name], default=None)
    return name if name and ratio_by_name[name] <= MATCH_FACTOR else None
