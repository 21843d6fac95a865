"""What a model reads and multiplies in one decode step of a batch of sequences, and in the prefill of a prompt."""

from collections import Counter
from dataclasses import dataclass, replace

from architecture import Matrix, Model, Part
from number_formats import NumberFormat


@dataclass(frozen=True)
class ModelOperation:
    """The work of one kernel: the bytes of weights or of K/V that it reads, and its FLOPs."""

    name: str
    part: Part
    bytes: float
    flops: float
    product_dtype: str  # if the card has it
    count: int = 1  # layers that have it; bytes and FLOPs are of one


Operations = list[ModelOperation]


def step_operations(model: Model, batch: int, context: int, cache: NumberFormat, expected: bool = False) -> Operations:
    """Return every operation of a decode step that reads weights or K/V.

    The step is of `batch` sequences of `context` tokens, the new one among them. The experts read are the fewest that
    a batch can use, or those `expected` under uniform routing. What stays on the chip is left out: activations and the
    FLOPs of norms. K/V of the new token are written once.
    """
    return _list_operations(model, batch, 1, context - 1, cache, expected=expected, absorbed=True, headed=1)


def verification_operations(model: Model, batch: int, positions: int, context: int, cache: NumberFormat) -> Operations:
    """Return every operation of a step that computes `positions` tokens of each sequence, the first as `context`-th.

    Weights and K/V are read once, the head makes a token of every position, experts are by uniform routing.
    """
    sizes = batch, positions, context - 1
    return _list_operations(model, *sizes, cache, expected=True, absorbed=True, headed=positions)


def prefill_operations(model: Model, prompt: int, cached: int, cache: NumberFormat) -> Operations:
    """Return every operation of the prefill of `prompt` tokens, of which the K/V of the first `cached` exist already.

    The head makes one token, experts are by uniform routing, cached K/V are read once, new K/V are written once.
    """
    return _list_operations(model, 1, prompt - cached, cached, cache, expected=True, absorbed=False, headed=1)


def _list_operations(
    model: Model, batch: int, new: int, cached: int, cache: NumberFormat, *, expected: bool, absorbed: bool, headed: int
) -> Operations:
    """Return the operations of `batch` sequences, each of `new` tokens after `cached` ones.

    The head makes `headed` tokens of each. `absorbed`: the form of latent attention that reads the latent as cached.
    """
    tokens = batch * new
    # Each token reads a row of an embedding table.
    operations = [_make_operation(table, tokens * table.format.matrix_bytes(1, table.inputs)) for table in model.tables]
    for layer in model.layers:
        operations += [_make_product(linear, tokens, expected) for linear in layer.linears]
        operations += [_make_operation(vector, vector.bytes) for vector in layer.vectors]
        attention = layer.attention
        read_numbers = attention.read_numbers * (attention.attended_tokens(cached + 1) - 1)
        written_numbers = attention.cached_numbers * attention.kept_tokens(new)
        moved_bytes = batch * cache.matrix_bytes(read_numbers + written_numbers, 1)
        pairs = attention.attended_pairs(cached + new) - attention.attended_pairs(cached)
        unabsorbed = None if absorbed else attention.unabsorbed_multiply_adds
        flops = 2 * (unabsorbed or attention.multiply_adds) * batch * pairs
        if attention.multiply_adds:
            operations.append(ModelOperation("attention", "KV cache", moved_bytes, flops, cache.product_dtype))
        if attention.state_bytes:  # read if there is one, and written
            moved_bytes = (2 if cached else 1) * batch * attention.state_bytes
            flops = 2 * attention.state_multiply_adds * tokens
            dtype = (
                attention.state_dtype if absorbed else model.tables[0].format.product_dtype
            )  # a prefill is in chunks
            operations.append(ModelOperation("state", "state", moved_bytes, flops, dtype))
    operations += [_make_operation(vector, vector.bytes) for vector in model.vectors]
    operations.append(_make_product(model.head, batch * headed, expected))
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
