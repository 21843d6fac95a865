"""What a model reads and multiplies in one decode step of a batch of sequences, and in the prefill of a prompt."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from architecture import Attention, Matrix, Model, Part
from number_formats import NumberFormat

# Returns for one layer the tokens whose K/V are moved, and the multiply-adds.
AttentionWork = Callable[[Attention], tuple[int, int]]


@dataclass(frozen=True)
class ModelOperation:
    """The work of one kernel: the bytes of weights or of K/V that it reads, and its FLOPs."""

    name: str
    part: Part
    bytes: float
    flops: float
    product_dtype: str  # if the card has it
    count: int = 1  # layers that have it; bytes and FLOPs are of one


def step_operations(
    model: Model, batch: int, context: int, cache_format: NumberFormat, *, expected: bool = False
) -> list[ModelOperation]:
    """Return every operation of a decode step that reads weights or K/V.

    The step is of `batch` sequences of `context` tokens, the new one among them. The experts read are the fewest that
    a batch can use, or those `expected` under uniform routing. What stays on the chip is left out: activations, the
    FLOPs of norms, K/V of the new token.
    """

    def attention_work(attention: Attention) -> tuple[int, int]:
        tokens = batch * attention.attended_tokens(context)
        return tokens, attention.multiply_adds * tokens

    return _list_operations(model, batch, batch, attention_work, cache_format, expected)


def prefill_operations(model: Model, prompt: int, cached: int, cache_format: NumberFormat) -> list[ModelOperation]:
    """Return every operation of the prefill of `prompt` tokens, of which the K/V of the first `cached` exist already.

    The head makes one token, experts are by uniform routing, cached K/V are read once, new K/V are written once.
    """
    new = prompt - cached

    def attention_work(attention: Attention) -> tuple[int, int]:
        pairs = attention.attended_pairs(prompt) - attention.attended_pairs(cached)
        moved = attention.attended_tokens(cached + 1) - 1 + attention.attended_tokens(new)
        return moved, (attention.unabsorbed_multiply_adds or attention.multiply_adds) * pairs

    return _list_operations(model, new, 1, attention_work, cache_format, expected=True)


def _list_operations(
    model: Model, tokens: int, head_tokens: int, attention_work: AttentionWork, cache: NumberFormat, expected: bool
) -> list[ModelOperation]:
    """Return the operations of `tokens` that pass through all layers, of which the head makes `head_tokens`."""
    operations = [_make_operation(table, tokens * table.row_bytes) for table in model.tables]
    for layer in model.layers:
        operations += [_make_product(linear, tokens, expected) for linear in layer.linears]
        operations += [_make_operation(vector, vector.bytes) for vector in layer.vectors]
        moved_tokens, multiply_adds = attention_work(layer.attention)
        moved_bytes = moved_tokens * cache.matrix_bytes(layer.attention.cached_numbers, 1)
        flops, dtype = 2 * multiply_adds, cache.product_dtype
        operations.append(ModelOperation("attention", "KV cache", moved_bytes, flops, dtype))
    operations += [_make_operation(vector, vector.bytes) for vector in model.vectors]
    operations.append(_make_product(model.head, head_tokens, expected))
    return [replace(operation, count=count) for operation, count in Counter(operations).items()]


def _make_operation(matrix: Matrix, read_bytes: float, flops: int = 0) -> ModelOperation:
    return ModelOperation(matrix.name, matrix.part, read_bytes, flops, matrix.format.product_dtype)


def _make_product(linear: Matrix, tokens: int, expected: bool) -> ModelOperation:
    """Return the product of a matrix and the vectors of all tokens."""
    # One token uses the fewest experts. Under uniform routing each further token chooses its experts at random.
    choosing_tokens = tokens if expected else 1
    used_share = 1 - (1 - linear.per_token / linear.copies) ** choosing_tokens
    flops = 2 * linear.outputs * linear.inputs * tokens * linear.per_token
    return _make_operation(linear, linear.bytes * linear.copies * used_share, flops)
