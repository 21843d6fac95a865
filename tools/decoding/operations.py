"""What a model reads and multiplies in one decode step of a batch of sequences, and in the prefill of a prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from architecture import Attention, Linear, Model, Part
from number_formats import NumberFormat

Attended = Callable[[Attention], tuple[int, int]]  # of one layer: tokens whose K/V are moved, and multiply-adds


@dataclass(frozen=True)
class ModelOperation:
    """One kernel's worth, in all layers that have it: bytes of weights or of K/V that it reads, and its FLOPs."""

    name: str
    part: Part
    bytes: float
    flops: float
    arithmetic: str  # the dtype that it would multiply in
    times: int = 1  # layers; bytes and FLOPs are of each


def operations(
    model: Model, batch: int, context: int, cache: NumberFormat, *, expected: bool = False
) -> list[ModelOperation]:
    """Every operation that reads weights or K/V, for `batch` sequences of `context` tokens, the new one among them.

    Of experts the fewest that a batch can use are read, or as `expected` under uniform routing. What stays on the chip
    is left out: activations, norms' FLOPs, the new token's K/V."""
    tokens = {layer.attention: batch * layer.attention.tokens(context) for layer in model.layers}
    return _all(model, batch, batch, lambda one: (tokens[one], one.products * tokens[one]), cache, expected)


def of_prompt(model: Model, prompt: int, cached: int, cache: NumberFormat) -> list[ModelOperation]:
    """Every operation of a prefill: `prompt` tokens, the keys and values of whose first `cached` are there already.

    The head makes one token, experts are by uniform routing, what is cached is read once, other K/V written once."""
    new = prompt - cached

    def attended(one: Attention) -> tuple[int, int]:
        pairs = one.pairs(prompt) - one.pairs(cached)
        return one.tokens(cached + 1) - 1 + one.tokens(new), (one.unabsorbed or one.products) * pairs

    return _all(model, new, 1, attended, cache, expected=True)


def _all(model: Model, tokens: int, made: int, attended: Attended, cache: NumberFormat, expected: bool):
    """Of `tokens` that pass through all layers, of which the head makes `made`."""
    found: dict[ModelOperation, int] = {}

    def add(name: str, part: Part, read: float, flops: float, arithmetic: str) -> None:
        one = ModelOperation(name, part, read, flops, arithmetic)
        found[one] = found.get(one, 0) + 1

    for table in model.tables:
        add(table.name, "head", tokens * table.row_bytes, 0, table.stored.arithmetic)
    for layer in model.layers:
        for linear in layer.linears:
            add(linear.name, linear.part, *_linear(linear, tokens, expected), linear.stored.arithmetic)
        for vector in layer.vectors:
            add(vector.name, vector.part, vector.bytes, 0, vector.stored.arithmetic)
        moved, products = attended(layer.attention)
        read = moved * cache.matrix_bytes(layer.attention.cached, 1)
        add("attention", "KV cache", read, 2 * products, cache.arithmetic)
    for vector in model.vectors:
        add(vector.name, vector.part, vector.bytes, 0, vector.stored.arithmetic)
    add(model.head.name, "head", *_linear(model.head, made, expected), model.head.stored.arithmetic)
    return [
        ModelOperation(one.name, one.part, one.bytes, one.flops, one.arithmetic, times) for one, times in found.items()
    ]


def _linear(linear: Linear, tokens: int, expected: bool) -> tuple[float, float]:
    """Bytes and FLOPs of a matrix times the vectors of all tokens."""
    flops = 2 * linear.outputs * linear.inputs * tokens * linear.per_token
    choosing = tokens if expected else 1  # one uses the fewest experts; others choose theirs at random
    return linear.bytes * linear.copies * (1 - (1 - linear.per_token / linear.copies) ** choosing), flops
