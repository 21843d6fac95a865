"""A decoder as far as its decode step costs: matrices, vectors, tables and caches, layer by layer."""

from dataclasses import dataclass, field
from typing import Literal

from number_formats import NumberFormat

# What the cost of a step depends on.
Part = Literal["attention", "KV cache", "state", "MLP", "experts", "head", "exchange"]


@dataclass(frozen=True)
class Matrix:
    """A matrix of outputs x inputs, maybe with a bias; of experts `copies`, of which a token uses `per_token`.

    A vector, such as the weights of a norm, has one input; an embedding table has an output for each token.
    """

    name: str
    part: Part
    outputs: int
    inputs: int
    format: NumberFormat
    bias: NumberFormat | None = None
    copies: int = 1
    per_token: int = 1

    @property
    def parameters(self) -> int:
        """The number of weights and biases of one copy."""
        return self.outputs * (self.inputs + bool(self.bias))

    @property
    def bytes(self) -> int:
        """The stored size of one copy."""
        bias_bytes = self.bias.matrix_bytes(self.outputs, 1) if self.bias else 0
        return self.format.matrix_bytes(self.outputs, self.inputs) + bias_bytes


@dataclass(frozen=True)
class Attention:
    """The attention of one layer: what it caches of a token, and what a query computes with a cached token."""

    cached_numbers: int  # per token; 0 if it uses those of another layer
    read_numbers: int  # per token that is attended to
    multiply_adds: int  # of a query with a token, for the scores and for the values, over all heads
    window: int | None = None  # tokens that a query attends to, its own among them; None: all
    head_size: int | None = None  # None where queries, keys and values have different sizes
    unabsorbed_multiply_adds: int | None = None  # latent attention: with the keys and values that the latent gives
    chunked: bool = False  # tokens attend to those of their chunk, which is as long as a window
    state_bytes: int = 0  # of a sequence, whatever its context
    state_dtype: str = "fp32"  # of its products
    state_multiply_adds: int = 0  # of a token with the state
    heads: int = 1  # of queries; of a state those of its keys
    key_heads: int = 0  # of keys and values; 0 if the cache has no heads

    def kept_tokens(self, context: int) -> int:
        """Return of how many tokens K/V are kept for a sequence of `context` tokens."""
        return min(context, self.window) if self.window else context

    def attended_tokens(self, context: int) -> int:
        """Return how many tokens the last of `context` tokens attends to."""
        return self.attended_pairs(context) - self.attended_pairs(context - 1)

    def list_knots(self, first: int, last: int) -> set[int]:
        """Return the contexts above `first` and below `last` between which the attended tokens grow evenly."""
        if not self.window:
            return set()
        ends = range(self.window, last, self.window) if self.chunked else (self.window,)
        return {context for end in ends for context in (end, end + self.chunked) if first < context < last}

    def attended_pairs(self, tokens: int) -> int:
        """Return the pairs of a query and a token when each of `tokens` attends to itself and to those before it."""
        window = self.kept_tokens(tokens)
        if self.chunked and window:
            chunks, rest = divmod(tokens, window)
            return (chunks * window * (window + 1) + rest * (rest + 1)) // 2
        return window * (window + 1) // 2 + (tokens - window) * window


@dataclass(frozen=True)
class ModelLayer:
    """One decoder layer."""

    linears: tuple[Matrix, ...]  # those that are multiplied
    vectors: tuple[Matrix, ...]
    attention: Attention


@dataclass(frozen=True)
class Model:
    """A decoder. Sizes are in bytes as stored, parameters are counted once."""

    name: str
    source: str  # of its config
    model_type: str
    layers: tuple[ModelLayer, ...]
    tables: tuple[Matrix, ...]  # of embeddings, that of the tokens first; a token needs a row of each
    vectors: tuple[Matrix, ...]  # after the last layer
    head: Matrix
    tied: bool  # the head is the embedding table itself
    longest_context: int
    cache_dtype: str  # of K/V, unless a user chooses another
    assumed_defaults: dict[str, str] = field(default_factory=dict)  # by the field that the config lacks

    @property
    def linears(self) -> list[Matrix]:
        """The matrices of all layers, and the head if it has weights that no table shares."""
        linears = [linear for layer in self.layers for linear in layer.linears]
        return linears if self.tied else [*linears, self.head]

    @property
    def _weights(self) -> list[Matrix]:
        vectors = [vector for layer in self.layers for vector in layer.vectors]
        return [*self.linears, *vectors, *self.vectors, *self.tables]

    @property
    def parameters(self) -> int:
        """The number of parameters, all experts included."""
        return sum(matrix.copies * matrix.parameters for matrix in self._weights)

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token needs; of the tables, that of the embedding alone."""
        return sum(one.per_token * one.parameters for one in self._weights if one not in self.tables[1:])

    @property
    def has_routed_experts(self) -> bool:
        return any(linear.copies > linear.per_token for linear in self.linears)

    @property
    def weight_bytes(self) -> int:
        return sum(matrix.copies * matrix.bytes for matrix in self._weights)

    @property
    def state_bytes(self) -> int:
        """The bytes of one sequence that do not grow with its context."""
        return sum(layer.attention.state_bytes for layer in self.layers)

    def cache_bytes(self, context: int, cache_format: NumberFormat) -> int:
        """Return the bytes of the keys and values of one sequence of `context` tokens."""
        numbers = sum(one.attention.cached_numbers * one.attention.kept_tokens(context) for one in self.layers)
        return cache_format.matrix_bytes(numbers, 1)

    def sequence_bytes(self, context: int, cache_format: NumberFormat) -> int:
        """Return the bytes that are kept for one sequence: K/V and state."""
        return self.cache_bytes(context, cache_format) + self.state_bytes
