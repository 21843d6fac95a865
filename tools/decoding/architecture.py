"""A decoder as far as its decode step costs: matrices, vectors, tables and caches, layer by layer."""

from dataclasses import dataclass, field
from typing import Literal

from number_formats import NumberFormat

# What the cost of a step depends on.
Part = Literal["attention", "KV cache", "MLP", "experts", "head"]


@dataclass(frozen=True)
class Linear:
    """A matrix of outputs x inputs, maybe with a bias; of experts `copies`, of which a token uses `per_token`."""

    name: str
    part: Part
    outputs: int
    inputs: int
    stored: NumberFormat
    bias: NumberFormat | None = None
    copies: int = 1
    per_token: int = 1

    @property
    def parameters(self) -> int:
        """Of one copy."""
        return self.outputs * (self.inputs + bool(self.bias))

    @property
    def bytes(self) -> int:
        """Of one copy."""
        bias = self.bias.matrix_bytes(self.outputs, 1) if self.bias else 0
        return self.stored.matrix_bytes(self.outputs, self.inputs) + bias


@dataclass(frozen=True)
class Vector:
    """Numbers that every token needs: the weights of a norm."""

    name: str
    part: Part
    elements: int
    stored: NumberFormat

    @property
    def bytes(self) -> int:
        return self.stored.matrix_bytes(self.elements, 1)


@dataclass(frozen=True)
class EmbeddingTable:
    """Rows of which a token needs one: embeddings."""

    name: str
    rows: int
    columns: int
    stored: NumberFormat

    @property
    def parameters(self) -> int:
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        return self.stored.matrix_bytes(self.rows, self.columns)

    @property
    def row_bytes(self) -> int:
        return self.stored.matrix_bytes(1, self.columns)


@dataclass(frozen=True)
class Attention:
    """One layer's: what it keeps of a token, and what a query computes with it."""

    cached: int  # numbers of a token
    products: int  # multiply-adds of a query with a token: of the scores and of the values, over all heads
    window: int | None = None  # tokens back, the query's own among them; None: all
    head_size: int | None = None  # where queries, keys and values have one in common
    unabsorbed: int | None = None  # of latent attention: products with the keys and values that the latent vector gives

    def tokens(self, context: int) -> int:
        return min(context, self.window) if self.window else context

    def pairs(self, tokens: int) -> int:
        """Of a query with a token, where each of so many attends to itself and to those before it."""
        most = self.tokens(tokens)
        return most * (most + 1) // 2 + (tokens - most) * most


@dataclass(frozen=True)
class ModelLayer:
    linears: tuple[Linear, ...]
    vectors: tuple[Vector, ...]
    attention: Attention


@dataclass(frozen=True)
class Model:
    name: str
    source: str  # where its config is from
    model_type: str
    layers: tuple[ModelLayer, ...]
    tables: tuple[EmbeddingTable, ...]
    vectors: tuple[Vector, ...]  # after the last layer
    head: Linear
    tied: bool  # the head is the embedding table itself
    longest_context: int
    cache: str  # what K/V are kept in unless a user says otherwise
    assumed: dict[str, str] = field(default_factory=dict)  # fields that the config lacks, with the default taken

    @property
    def linears(self) -> list[Linear]:
        """Of all layers, and the head if it has its own weights."""
        return [one for layer in self.layers for one in layer.linears] + ([] if self.tied else [self.head])

    @property
    def _vectors(self) -> list[Vector]:
        return [one for layer in self.layers for one in layer.vectors] + list(self.vectors)

    @property
    def parameters(self) -> int:
        return self.active_parameters + sum((one.copies - one.per_token) * one.parameters for one in self.linears)

    @property
    def routed(self) -> bool:
        return any(one.copies > one.per_token for one in self.linears)

    @property
    def active_parameters(self) -> int:
        """Those that one token needs, embedding tables included."""
        matrices = sum(one.per_token * one.parameters for one in self.linears)
        return matrices + sum(one.elements for one in self._vectors) + sum(one.parameters for one in self.tables)

    @property
    def weight_bytes(self) -> int:
        matrices = sum(one.copies * one.bytes for one in self.linears)
        return matrices + sum(one.bytes for one in [*self._vectors, *self.tables])

    def cache_bytes(self, context: int, stored: NumberFormat) -> int:
        """K/V of one sequence of so many tokens."""
        numbers = sum(one.attention.cached * one.attention.tokens(context) for one in self.layers)
        return stored.matrix_bytes(numbers, 1)
