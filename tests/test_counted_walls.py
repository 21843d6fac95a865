"""The walls as ncu counts them."""

import pytest

from roofline.devices.gpu import wall_counts
from roofline.devices.gpu.wall_counts import (
    BY_CONSTRUCTION,
    REQUESTS,
    THREADS_ON,
    TRANSACTIONS,
    WARP_INSTRUCTIONS,
)


def values(pattern: str, of: int, off: float = 1.0) -> dict[str, float]:
    if pattern == "predication":
        return {WARP_INSTRUCTIONS: 1000, THREADS_ON: 1000 * of * off}
    return {REQUESTS[pattern]: 64, TRANSACTIONS[pattern]: 64 * BY_CONSTRUCTION[pattern](of) * off}


def every_wall(off: float = 1.0) -> list:
    return [values(pattern, of, off) for pattern, of in wall_counts.walls()]


def test_counts_are_held_against_the_construction():
    for wall in wall_counts.counted(every_wall(1.04)):
        assert wall.apart == pytest.approx(0.04)
        assert wall.counted == pytest.approx(1.04 * wall.by_construction)


def test_what_was_not_counted_is_null():
    found = every_wall()
    found[1] = {}
    assert wall_counts.counted(found)[1].counted is None


def test_other_numbers_of_launches_than_the_walls_are_no_walls():
    with pytest.raises(ValueError):
        wall_counts.counted(every_wall()[1:])
