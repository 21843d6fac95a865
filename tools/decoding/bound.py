"""Decode speed: the upper bound that the ceilings of a card set, and what fits its memory."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum  # the same in every version of Python

from architecture import Model, Part
from number_formats import SUBSTITUTE_DTYPES, NumberFormat
from operations import ModelOperation, step_operations
from split import CardLink, SplitModel

from roofline.api import DTYPES, datasheets

LARGEST_BATCH = 1 << 20  # to consider where the memory size is unknown


class NoCeiling(ValueError):
    """A ceiling is missing; the message names it, in one line."""


@dataclass(frozen=True)
class CardCeilings:
    """The ceilings of one card: reads of its memory, and matrix products by dtype."""

    read_gb_per_s: float
    tflops: Mapping[str, float]

    def substitute_dtype(self, dtype: str) -> str:
        """Return the dtype that the card multiplies in: this one, or another if it lacks this one. Raises NoCeiling."""
        for candidate in (dtype, *SUBSTITUTE_DTYPES):
            if candidate in self.tflops and DTYPES[candidate].bits >= DTYPES[dtype].bits:
                return candidate
        raise NoCeiling(f"no GEMM ceiling for {dtype} or for a dtype that could replace it")

    def compute_s(self, operation: ModelOperation) -> float:
        """Return the seconds that the operation's products take at least, in all layers. Raises NoCeiling."""
        if not operation.flops:
            return 0.0
        tflops = self.tflops[self.substitute_dtype(operation.product_dtype)]
        return operation.count * operation.flops / (tflops * 1e12)


def datasheet_ceilings(card: Mapping) -> CardCeilings:
    """Return the ceilings of an entry of config/datasheets.yaml."""
    tflops = {dtype: value for dtype in datasheets.PRODUCT_DTYPES if (value := card["peaks_tflops"].get(dtype))}
    return CardCeilings(card["bandwidth_gb_per_s"], tflops)


@dataclass(frozen=True)
class CardLimits:
    """A card with its ceilings; `sustained` are those of long loads, if they were measured."""

    name: str
    origin: str  # of the ceilings
    memory_bytes: int | None
    memory_ceiling: str
    burst: CardCeilings
    sustained: CardCeilings | None = None
    datasheet_tflops: Mapping[str, float | None] = field(default_factory=dict)  # dense, by dtype
    usd_per_hour: float | None = None
    read_power_w: float | None = None  # of sustained reads of its memory
    link: CardLink | None = None  # to the other cards of its host

    @property
    def title(self) -> str:
        return f"{self.name} ({self.origin})"


@dataclass(frozen=True)
class Bound:
    """The least time of one step."""

    memory_s: float
    compute_s: float  # products of different dtypes use the same units, so their times add up
    without_overlap_s: float  # the sum of the limits of all operations
    seconds_by_part: Mapping[Part, float]  # of the resource that sets the bound, and of exchanges
    exchange_s: float = 0.0  # between cards, which wait meanwhile

    @property
    def seconds(self) -> float:
        return max(self.memory_s, self.compute_s) + self.exchange_s

    @property
    def limited_by(self) -> str:
        if self.exchange_s > max(self.memory_s, self.compute_s):
            return "exchange"
        return "memory" if self.memory_s >= self.compute_s else "compute"


def bound_step(operations: Sequence[ModelOperation], ceilings: CardCeilings, exchange_s: float = 0.0) -> Bound:
    """Return the least time of a step of these operations and exchanges under the ceilings. Raises NoCeiling."""
    memory_times = [operation.count * operation.bytes / (ceilings.read_gb_per_s * 1e9) for operation in operations]
    compute_times = [ceilings.compute_s(operation) for operation in operations]
    memory_s, compute_s = fsum(memory_times), fsum(compute_times)
    limiting_times = memory_times if memory_s >= compute_s else compute_times
    seconds_by_part: dict[Part, float] = {}
    for operation, seconds in zip(operations, limiting_times, strict=True):
        seconds_by_part[operation.part] = seconds_by_part.get(operation.part, 0.0) + seconds
    if exchange_s:
        seconds_by_part["exchange"] = exchange_s
    without_overlap_s = fsum([*map(max, memory_times, compute_times), exchange_s])
    return Bound(memory_s, compute_s, without_overlap_s, seconds_by_part, exchange_s)


@dataclass(frozen=True)
class DecodeStepBound:
    """The bound of one token for each of a batch of sequences, of `context` tokens with the new one."""

    split: SplitModel
    card: CardLimits
    cache_format: NumberFormat
    batch: int
    context: int
    expected: Bound  # with the experts that uniform routing uses
    bound: Bound  # with the fewest experts; the same for a dense model
    sustained_s: float | None  # with the experts that uniform routing uses
    memory_bytes: int  # of one card
    fits: bool | None
    largest_batch: int | None  # at this context
    compute_bound_batch: int | None  # the smallest one, at this context
    # Answers to further questions, if they were asked (questions.py).
    first_token: Bound | None = None
    first_token_sustained_s: float | None = None
    output_tokens_per_s: float | None = None  # of whole requests, prefill included
    speculative_tokens_per_s: float | None = None
    speculation_gains_from: int | None = None  # the smallest batch that fits at which it is faster, at this context
    speculation_loses_from: int | None = None  # the batch from which on it is slower, if that fits, at this context

    @property
    def model(self) -> Model:
        """The whole model."""
        return self.split.model

    @property
    def cards(self) -> int:
        """The number of cards that it is split over."""
        return self.split.cards

    @property
    def title(self) -> str:
        """The cards, and the origin of their ceilings."""
        return f"{self.cards} x {self.card.title}" if self.cards > 1 else self.card.title

    @property
    def card_weight_bytes(self) -> int:
        """The weights of one card."""
        return self.split.shard.weight_bytes

    @property
    def card_cache_bytes(self) -> int:
        """K/V and states of one card, of the whole batch."""
        return self.memory_bytes - self.card_weight_bytes

    @property
    def exchange_s(self) -> float:
        """The seconds of all exchanges between the cards."""
        return self.bound.exchange_s

    @property
    def exchange_origin(self) -> str | None:
        """The origin of the times of all-reduces, measured or estimated; None on one card."""
        return self.card.link.origin_of(self.cards) if self.card.link and self.cards > 1 else None

    @property
    def joules_per_token(self) -> float | None:
        """An estimate: watts of memory reads times the expected time of a token; None unless memory-bound."""
        if not self.card.read_power_w or self.expected.limited_by != "memory":
            return None
        return self.cards * self.card.read_power_w * self.expected.seconds / self.batch

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second with the experts that uniform routing uses."""
        return self.batch / self.expected.seconds

    @property
    def most_tokens_per_s(self) -> float:
        return self.batch / self.bound.seconds

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Dollars for a million tokens: of whole requests if their rate is known, else of decode steps."""
        if not self.card.usd_per_hour:
            return None
        usd_per_s = self.cards * self.card.usd_per_hour / 3600
        return usd_per_s / (self.output_tokens_per_s or self.tokens_per_s) * 1e6


Steps = Sequence[DecodeStepBound]  # of a card


def bound_steps(
    model: Model,
    card: CardLimits,
    batches: Sequence[int],
    contexts: Sequence[int],
    cache_format: NumberFormat,
    cards: int = 1,
) -> list[DecodeStepBound]:
    """Return the bounds of decode steps at every context and, within it, every batch, of a model split over cards.

    Raises NoCeiling, and BadModel for a model that cannot be split so.
    """
    bounds, split = [], SplitModel(model, cards)
    shard = split.shard
    for context in contexts:
        largest_batch = find_largest_batch(shard, context, cache_format, card.memory_bytes)
        last = LARGEST_BATCH if largest_batch is None else largest_batch
        compute_bound_batch = find_compute_bound(split, card, context, cache_format, last)
        for batch in batches:
            expected = step_operations(shard, batch, context, cache_format, expected=True)
            fewest = step_operations(shard, batch, context, cache_format)
            exchange_s = split.exchange_s(card.link, batch, batch)
            step = DecodeStepBound(
                split=split,
                card=card,
                cache_format=cache_format,
                batch=batch,
                context=context,
                expected=bound_step(expected, card.burst, exchange_s),
                bound=bound_step(fewest, card.burst, exchange_s),
                sustained_s=sustained_step_s(expected, card, exchange_s),
                memory_bytes=shard.weight_bytes + batch * shard.sequence_bytes(context, cache_format),
                fits=None if largest_batch is None else batch <= largest_batch,
                largest_batch=largest_batch,
                compute_bound_batch=compute_bound_batch,
            )
            bounds.append(step)
    return bounds


def sustained_step_s(operations: Sequence[ModelOperation], card: CardLimits, exchange_s: float = 0.0) -> float | None:
    """Return the least seconds of a step at the ceilings of long loads; None if they lack one that it needs."""
    dtypes = {card.burst.substitute_dtype(operation.product_dtype) for operation in operations if operation.flops}
    if card.sustained is None or not dtypes <= card.sustained.tflops.keys():
        return None
    return bound_step(operations, card.sustained, exchange_s).seconds


def find_largest_batch(model: Model, context: int, cache: NumberFormat, memory_bytes: int | None) -> int | None:
    """Return how many sequences have room for their K/V next to the weights; None if the memory size is unknown."""
    if memory_bytes is None:
        return None
    return max(0, memory_bytes - model.weight_bytes) // model.sequence_bytes(context, cache)


def find_compute_bound(split: SplitModel, card: CardLimits, context: int, cache: NumberFormat, last: int) -> int | None:
    """Return the smallest compute-bound batch; None if memory or exchanges limit every one up to the `last`."""

    def is_compute_bound(batch: int) -> bool:
        operations = step_operations(split.shard, batch, context, cache, expected=True)
        return bound_step(operations, card.burst, split.exchange_s(card.link, batch, batch)).limited_by == "compute"

    return find_batch(is_compute_bound, 1, last)


def find_batch(condition: Callable[[int], bool], first: int, last: int) -> int | None:
    """Return the batch of `first` to `last` from which on a condition holds; None if it does not hold at `last`."""
    batch = bisect_left(range(last + 1), True, lo=first, key=condition)
    return batch if batch <= last else None
