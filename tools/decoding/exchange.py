"""How long the cards of one host take for an all-reduce and for a gather of some bytes, as measured or estimated."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy

from roofline.api import bound_all_reduce_s

# The shortest all-reduce of two H200s in a CUDA graph among NVIDIA's measurements: 512 bytes by SGLang 0.5.14
# (ai-dynamo/aiconfigurator, aic-core/.../h200_sxm/comm/sglang/0.5.14/custom_allreduce_perf.parquet, 2026-08).
START_S = 2.25e-6


@dataclass(frozen=True)
class CardLink:
    """The link of a card to the others of its host. `all_reduces`: seconds by bytes, by the number of cards."""

    gb_per_s: float  # in one direction, while the other direction is as busy
    origin: str  # of it
    all_reduces: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    def all_reduce_s(self, cards: int, size_bytes: int) -> float:
        """Return the seconds of an all-reduce: as measured for so many cards, between its sizes along a line.

        Otherwise the estimate: a start, and the least time of the bytes on the link.
        """
        if times := self.all_reduces.get(cards):
            return interpolate(times, size_bytes)
        return START_S + bound_all_reduce_s(size_bytes, self.gb_per_s, cards)

    def gather_s(self, cards: int, size_bytes: int) -> float:
        """Return the estimated seconds until a card has the parts of all others: a start, and what it receives."""
        return START_S + size_bytes * (cards - 1) / cards / (self.gb_per_s * 1e9)

    def origin_of(self, cards: int) -> str:
        """Return where the times of all-reduces are from: measured or estimated."""
        return "measured" if cards in self.all_reduces else "estimated"


def interpolate(seconds_by_bytes: Mapping[int, float], size_bytes: int) -> float:
    """Return the seconds of a size from those of others: along a line between two, in proportion above the largest.

    Below the smallest they are those of the smallest.
    """
    sizes = sorted(seconds_by_bytes)
    seconds = numpy.interp(size_bytes, sizes, [seconds_by_bytes[size] for size in sizes])
    return float(seconds) * max(1.0, size_bytes / sizes[-1])
