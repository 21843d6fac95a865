"""What one decode step of a model reads and multiplies: one token for each of a batch of sequences."""

from dataclasses import dataclass

from architecture import Attention, Linear, Model, Part
from number_formats import NumberFormat


@dataclass(frozen=True)
class Operation:
    """One kernel's worth, in all layers that have it: bytes of weights or of K/V that it reads, and its FLOPs."""

    name: str
    part: Part
    bytes: float
    flops: float
    arithmetic: str  # the dtype that it would multiply in
    times: int = 1  # layers; bytes and FLOPs are of each


def operations(
    model: Model, batch: int, context: int, cache: NumberFormat, *, expected: bool = False
) -> list[Operation]:
    """Every operation that reads weights or K/V, for `batch` sequences of `context` tokens, the new one among them.

    Of experts the fewest that a batch can use are read, or as `expected` under uniform routing. Weights are read once,
    whatever the batch. What stays on the chip is left out: activations, norms' FLOPs, the new token's K/V.
    """
    found: dict[Operation, int] = {}

    def add(name: str, part: Part, read: float, flops: float, arithmetic: str) -> None:
        one = Operation(name, part, read, flops, arithmetic)
        found[one] = found.get(one, 0) + 1

    for table in model.tables:
        add(table.name, "head", batch * table.row_bytes, 0, table.stored.arithmetic)
    for layer in model.layers:
        for linear in layer.linears:
            add(linear.name, linear.part, *_linear(linear, batch, expected), linear.stored.arithmetic)
        for vector in layer.vectors:
            add(vector.name, vector.part, vector.bytes, 0, vector.stored.arithmetic)
        add("attention", "KV cache", *_attention(layer.attention, batch, context, cache), cache.arithmetic)
    for vector in model.vectors:
        add(vector.name, vector.part, vector.bytes, 0, vector.stored.arithmetic)
    add(model.head.name, "head", *_linear(model.head, batch, expected), model.head.stored.arithmetic)
    return [Operation(one.name, one.part, one.bytes, one.flops, one.arithmetic, times) for one, times in found.items()]


def _linear(linear: Linear, batch: int, expected: bool) -> tuple[float, float]:
    """Bytes and FLOPs of a matrix times the batch's vectors."""
    flops = 2 * linear.outputs * linear.inputs * batch * linear.per_token
    tokens = batch if expected else 1  # one uses the fewest experts; others choose theirs at random
    return linear.bytes * linear.copies * (1 - (1 - linear.per_token / linear.copies) ** tokens), flops


def _attention(attention: Attention, batch: int, context: int, cache: NumberFormat) -> tuple[float, float]:
    tokens = batch * attention.tokens(context)
    return tokens * cache.matrix_bytes(attention.cached, 1), 2 * attention.products * tokens
