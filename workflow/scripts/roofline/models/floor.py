"""The time below which no decode step can get: what each resource needs by itself, under ceilings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum  # the same in every version of Python

from roofline.devices.datasheets import DTYPES
from roofline.models.architecture import Model, Part
from roofline.models.decoding import Operation, step
from roofline.models.number_formats import OTHERWISE, NumberFormat

MOST_BATCH = 1 << 20


class NoCeiling(ValueError):
    """Which ceiling is missing, in one line."""


@dataclass(frozen=True)
class Ceilings:
    """Of one card: what memory gives, and products by dtype."""

    read_gb_per_s: float
    tflops: Mapping[str, float]

    def dtype(self, wanted: str) -> str:
        """What a card multiplies in that has no products of this dtype. Raises NoCeiling."""
        found = next((one for one in (wanted, *OTHERWISE[wanted]) if one in self.tflops), None)
        if found is None:
            raise NoCeiling(f"no ceiling of {wanted} products, or of what would stand in for them")
        return found

    def memory_s(self, one: Operation) -> float:
        """Of all layers."""
        return one.times * one.bytes / (self.read_gb_per_s * 1e9)

    def compute_s(self, one: Operation) -> float:
        return one.times * one.flops / (self.tflops[self.dtype(one.arithmetic)] * 1e12) if one.flops else 0.0


def of_datasheet(card: Mapping) -> Ceilings:
    """What its vendor promises."""
    tflops = {dtype: value for dtype in DTYPES if (value := card["peaks_tflops"].get(dtype))}
    return Ceilings(card["bandwidth_gb_per_s"], tflops)


@dataclass(frozen=True)
class Floor:
    """Of one step."""

    memory_s: float
    compute_s: float  # products of different dtypes use the same units, so that their times add up
    one_by_one_s: float  # the sum of each operation's own limit
    by_part: Mapping[Part, float]  # seconds of the resource that sets the floor

    @property
    def seconds(self) -> float:
        return max(self.memory_s, self.compute_s)

    @property
    def limited_by(self) -> str:
        return "memory" if self.memory_s >= self.compute_s else "compute"


def floor(operations: Sequence[Operation], ceilings: Ceilings) -> Floor:
    memory, compute = ([take(one) for one in operations] for take in (ceilings.memory_s, ceilings.compute_s))
    memory_s, compute_s = fsum(memory), fsum(compute)
    setting = memory if memory_s >= compute_s else compute
    by_part: dict[Part, float] = {}
    for one, seconds in zip(operations, setting, strict=True):
        by_part[one.part] = by_part.get(one.part, 0.0) + seconds
    return Floor(memory_s, compute_s, fsum(map(max, memory, compute)), by_part)


def largest_batch(model: Model, context: int, cache: NumberFormat, memory_bytes: int) -> int:
    """Sequences whose K/V fit beside the weights; 0 where not one does."""
    left = memory_bytes - model.weight_bytes
    return max(0, left // model.cache_bytes(context, cache)) if left > 0 else 0


def compute_bound_from(
    model: Model, context: int, cache: NumberFormat, ceilings: Ceilings, *, expected: bool = False
) -> int | None:
    """The smallest batch whose floor computing sets; None where K/V, which grow as fast, keep memory ahead."""

    def is_bound(batch: int) -> bool:
        found = floor(step(model, batch, context, cache, expected=expected), ceilings)
        return found.limited_by == "compute"

    return _first(is_bound) if is_bound(MOST_BATCH) else None


def _first(holds: Callable[[int], bool]) -> int:
    """Of a condition that holds from some batch on."""
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
