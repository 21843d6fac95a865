"""Memory levels found in synthetic sweeps of known levels."""

import itertools
import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core import plateaus
from roofline.core.plateaus import find_knee, find_levels
from roofline.core.units import GIB, KIB


def steps(sizes, heights, knees, octaves=0.25):
    """Return plateaus joined by logistic steps of the logarithm; a step is at the geometric mean at its knee."""
    logarithm = numpy.full(len(sizes), math.log(heights[0]))
    for upper, lower, knee in zip(heights[:-1], heights[1:], knees, strict=True):
        logarithm += math.log(lower / upper) / (1 + numpy.exp(-numpy.log2(sizes / knee) / octaves))
    return numpy.exp(logarithm)


def sweep(sizes, bandwidths, noise=0.0, seed=0):
    scatter = 1 + noise * numpy.random.default_rng(seed).normal(size=len(sizes))
    return list(zip(sizes.tolist(), (bandwidths * scatter).tolist(), strict=True))


def falls(heights, middles, octaves=0.25):
    """Return the sizes at which logistic steps with these middles have fallen by a tenth."""
    knees = []
    for upper, lower, middle in zip(heights[:-1], heights[1:], middles, strict=True):
        share = math.log(0.9) / math.log(lower / upper)
        knees.append(middle * 2 ** (octaves * math.log(share / (1 - share))))
    return knees


def require_levels(points, heights, knees):
    levels = find_levels(points)
    assert [level.gb_per_s for level in levels] == [pytest.approx(height, rel=0.05) for height in heights]
    near = max(0.2, points[1][0] / points[0][0] - 1)  # or a point of the sweep away
    assert [level.knee_bytes for level in levels[:-1]] == [pytest.approx(knee, rel=near) for knee in knees]
    assert levels[-1].knee_bytes is None
    for level, following in itertools.pairwise(levels):
        assert level.first_bytes < level.last_bytes < following.first_bytes
        assert level.first_bytes < level.knee_bytes < following.last_bytes


@st.composite
def random_levels(draw):
    """One to four levels of ratios 1.4 to 5, three octaves and more apart."""
    heights, knees = [draw(st.floats(10, 30_000))], []
    for _ in range(draw(st.integers(0, 3))):
        heights.append(heights[-1] / draw(st.floats(1.4, 5)))
        knees.append((knees[-1] if knees else 4 * KIB) * 2 ** draw(st.floats(3.2, 5)))
    return heights, knees


@settings(max_examples=15, deadline=None)
@given(random_levels(), st.integers(40, 60), st.sampled_from([0, 0.01, 0.02]), st.integers(0, 1000))
def test_random_levels_are_recovered(levels, count, noise, seed):
    sizes = numpy.geomspace(4 * KIB, 2**3.2 * (levels[1][-1] if levels[1] else GIB), count)
    points = sweep(sizes, steps(sizes, *levels, octaves=0.15), noise, seed)
    require_levels(points, levels[0], falls(*levels, octaves=0.15))


@pytest.mark.parametrize("fall", [1, 0.9, 0.75], ids=["flat", "falling by 10 %", "falling by 25 %"])
def test_noise_is_not_a_level(fall):
    for count in (12, 30, 60):
        for seed in range(60 // count):
            sizes = numpy.geomspace(64 * KIB, 4 * GIB, count)
            (level,) = find_levels(sweep(sizes, 3_000 * numpy.geomspace(1, fall, count), 0.03, seed))
            assert level.knee_bytes is None
            assert level.gb_per_s == pytest.approx(3_000 * math.sqrt(fall), rel=0.05)


def test_the_knee_is_interpolated_in_logarithms_and_not_a_single_low_point():
    points = [(1e6, 100.0), (4e6, 100.0), (16e6, 25.0), (64e6, 25.0)]
    assert find_knee(points, 100) == pytest.approx(4e6 * 4 ** (math.log(0.9) / math.log(0.25)))
    assert find_knee([(1, 100.0), (2, 90.0), (3, 25.0)], 100) == pytest.approx(2)
    assert find_knee([(1, 100.0), (2, 80.0), (4, 100.0), (8, 100.0), (16, 80.0), (32, 60.0)], 100) > 8
    assert find_knee([(1, 100.0), (2, 95.0), (4, 91.0)], 100) is None


@pytest.mark.parametrize(("lower", "levels"), [(90, 1), (80, 2)])
def test_levels_lie_a_seventh_apart(lower, levels):
    sizes = KIB * 2 ** numpy.arange(0, 10, 0.25)
    heights = numpy.where(sizes < 32 * KIB, 100.0, lower)
    assert len(find_levels(sweep(sizes, heights))) == levels


def test_noise_is_the_median_second_difference():
    """The median deviation of normal noise is 1 / 1.4826 of the standard deviation."""
    bends = numpy.random.default_rng(1).normal(scale=0.02, size=20_000)
    assert plateaus._estimate_noise(bends.tolist()) == pytest.approx(0.02, rel=0.03)
