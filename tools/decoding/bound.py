"""Decode speed: the upper bound that the ceilings of a card set, and what fits its memory."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum  # the same in every version of Python

from architecture import Model, Part
from number_formats import OTHERWISE, PLAIN, NumberFormat
from operations import ModelOperation, operations

from roofline.api import datasheets

MOST_BATCH = 1 << 20


class NoCeiling(ValueError):
    """Which ceiling is missing, in one line."""


@dataclass(frozen=True)
class CardCeilings:
    """Of one card: reads of its memory, and matrix products by dtype."""

    read_gb_per_s: float
    tflops: Mapping[str, float]

    def dtype(self, wanted: str) -> str:
        """The dtype that a card multiplies in if it lacks this one. Raises NoCeiling."""
        found = next((one for one in (wanted, *OTHERWISE[wanted]) if one in self.tflops), None)
        if found is None:
            raise NoCeiling(f"no GEMM ceiling for {wanted} or for a dtype that could replace it")
        return found

    def memory_s(self, one: ModelOperation) -> float:
        """Of all layers."""
        return one.times * one.bytes / (self.read_gb_per_s * 1e9)

    def compute_s(self, one: ModelOperation) -> float:
        return one.times * one.flops / (self.tflops[self.dtype(one.arithmetic)] * 1e12) if one.flops else 0.0


def of_datasheet(card: Mapping) -> CardCeilings:
    """Of an entry of config/datasheets.yaml."""
    tflops = {dtype: value for dtype in datasheets.DTYPES if (value := card["peaks_tflops"].get(dtype))}
    return CardCeilings(card["bandwidth_gb_per_s"], tflops)


@dataclass(frozen=True)
class CardLimits:
    """`sustained` has the ceilings of long loads, if they were measured."""

    name: str
    where_from: str
    memory_bytes: int | None
    memory_ceiling: str
    burst: CardCeilings
    sustained: CardCeilings | None = None
    usd_per_hour: float | None = None
    read_w: float | None = None  # watts of sustained reads of its memory

    @property
    def title(self) -> str:
        return f"{self.name} ({self.where_from})"


@dataclass(frozen=True)
class Bound:
    """The least time of one step."""

    memory_s: float
    compute_s: float  # products of different dtypes use the same units, so their times add up
    one_by_one_s: float  # the sum of the limits of all operations: without overlap
    by_part: Mapping[Part, float]  # seconds of the resource that sets the bound

    @property
    def seconds(self) -> float:
        return max(self.memory_s, self.compute_s)

    @property
    def limited_by(self) -> str:
        return "memory" if self.memory_s >= self.compute_s else "compute"


def bound(step: Sequence[ModelOperation], ceilings: CardCeilings) -> Bound:
    memory, compute = ([take(one) for one in step] for take in (ceilings.memory_s, ceilings.compute_s))
    memory_s, compute_s = fsum(memory), fsum(compute)
    setting = memory if memory_s >= compute_s else compute
    by_part: dict[Part, float] = {}
    for one, seconds in zip(step, setting, strict=True):
        by_part[one.part] = by_part.get(one.part, 0.0) + seconds
    return Bound(memory_s, compute_s, fsum(map(max, memory, compute)), by_part)


@dataclass(frozen=True)
class DecodeStepBound:
    """One token for each of a batch of sequences, of `context` tokens with the new one."""

    batch: int
    context: int
    routed: bool  # a mixture of experts
    expected: Bound  # with the experts that uniform routing uses
    bound: Bound  # with the fewest; the same for a dense model
    sustained_s: float | None  # as expected
    memory_bytes: int
    fits: bool | None
    largest_batch: int | None  # at this context
    compute_bound_from: int | None  # batch, at this context
    usd_per_hour: float | None
    read_w: float | None = None
    output_per_s: float | None = None  # of whole requests, prefill included

    @property
    def joules_per_token(self) -> float | None:
        """An estimate: watts of memory reads over the expected time; None if it is not memory-bound."""
        known = self.read_w if self.expected.limited_by == "memory" else None
        return known and known * self.expected.seconds / self.batch

    @property
    def tokens_per_s(self) -> float:
        """As expected."""
        return self.batch / self.expected.seconds

    @property
    def most_per_s(self) -> float:
        return self.batch / self.bound.seconds

    @property
    def usd_per_million(self) -> float | None:
        """Dollars for a million tokens, of whole requests if these are known. As expected."""
        return self.usd_per_hour and self.usd_per_hour / 3600 / (self.output_per_s or self.tokens_per_s) * 1e6


def steps(
    model: Model, card: CardLimits, batches: Sequence[int], contexts: Sequence[int], cache: str
) -> list[DecodeStepBound]:
    """At every batch and context. Raises NoCeiling."""
    stored, found = PLAIN[cache], []
    for context in contexts:
        most = card.memory_bytes and largest_batch(model, context, stored, card.memory_bytes)
        compute_bound = compute_bound_from(model, context, stored, card.burst, MOST_BATCH if most is None else most)
        for batch in batches:
            step = operations(model, batch, context, stored, expected=True)
            memory_bytes = model.weight_bytes + batch * model.cache_bytes(context, stored)
            one = DecodeStepBound(
                batch=batch,
                context=context,
                routed=model.routed,
                expected=bound(step, card.burst),
                bound=bound(operations(model, batch, context, stored), card.burst),
                sustained_s=sustained(step, card),
                memory_bytes=memory_bytes,
                fits=None if card.memory_bytes is None else memory_bytes <= card.memory_bytes,
                largest_batch=most,
                compute_bound_from=compute_bound,
                usd_per_hour=card.usd_per_hour,
                read_w=card.read_w,
            )
            found.append(one)
    return found


def sustained(step: Sequence[ModelOperation], card: CardLimits) -> float | None:
    needed = {card.burst.dtype(one.arithmetic) for one in step if one.flops}
    known = card.sustained is not None and needed <= card.sustained.tflops.keys()
    return bound(step, card.sustained).seconds if known else None


def largest_batch(model: Model, context: int, cache: NumberFormat, memory_bytes: int) -> int:
    """Sequences whose K/V fit next to the weights."""
    left = memory_bytes - model.weight_bytes
    return max(0, left // model.cache_bytes(context, cache)) if left > 0 else 0


def compute_bound_from(
    model: Model, context: int, cache: NumberFormat, ceilings: CardCeilings, most: int
) -> int | None:
    """The smallest compute-bound batch; None if every batch that fits is memory-bound."""

    def is_bound(batch: int) -> bool:
        return bound(operations(model, batch, context, cache, expected=True), ceilings).limited_by == "compute"

    first = bisect_left(range(MOST_BATCH + 1), True, lo=1, key=is_bound)
    return first if first <= min(most, MOST_BATCH) else None
