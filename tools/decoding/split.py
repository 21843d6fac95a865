"""A model split over the cards of one host by tensor: what a card holds, and what the cards exchange in a step.

Rows of the matrices that a layer multiplies first, and columns of those that it multiplies last, are divided
(Megatron-LM, 1909.08053), those of experts too. Each card computes a part of every sum: an all-reduce after attention
and one after the MLP add them up. The vocabulary is divided: an all-reduce completes the embedding, a gather the
logits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy
from architecture import Attention, Matrix, Model, ModelLayer
from config_fields import BadModel

from roofline.api import bound_all_reduce_s

MOST_CARDS = 8  # of one host
# By the last part of a matrix's name; all others are on every card, such as norms and routers.
DIVIDED_OUTPUTS = {"q_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj", "conv1d", "sinks"}
DIVIDED_OUTPUTS |= {f"in_proj_{name}" for name in ("qkvz", "ba", "qkv", "z", "b", "a")}
OF_KEY_HEADS = {"k_proj", "v_proj"}
DIVIDED_INPUTS = {"o_proj", "out_proj", "down_proj"}
# Numbers of an attention.
DIVIDED_BY_CARDS = ("multiply_adds", "state_bytes", "state_multiply_adds", "heads")
DIVIDED_BY_KEY_HEADS = ("cached_numbers", "read_numbers")
ALL_REDUCES_PER_LAYER, SINGLE_ALL_REDUCES = 2, 1  # the single one is of the embedding
# The shortest all-reduce of two H200s that is known: 1 KiB by kernels of this project in a CUDA graph, 2026-11-30
# (benchmarks/peers/results/nvidia-h200-x2/all_reduce.json).
START_S = 1.72e-6


@dataclass(frozen=True)
class CardLink:
    """The link of a card to the others of its host. `all_reduces`: seconds by bytes, by the number of cards."""

    gb_per_s: float  # in one direction, while the other direction is as busy
    origin: str  # of it
    all_reduces: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    def all_reduce_s(self, cards: int, size_bytes: int) -> float:
        """Return the seconds of an all-reduce as measured for so many cards: between its sizes along a line, in
        proportion above the largest, and below the smallest those of the smallest.

        Otherwise the estimate: a start, and the least time of the bytes on the link.
        """
        times = self.all_reduces.get(cards)
        if not times:
            return START_S + bound_all_reduce_s(size_bytes, self.gb_per_s, cards)
        sizes = sorted(times)
        seconds = numpy.interp(size_bytes, sizes, [times[size] for size in sizes])
        return float(seconds) * max(1.0, size_bytes / sizes[-1])

    def gather_s(self, cards: int, size_bytes: int) -> float:
        """Return the estimated seconds until a card has the parts of all others: a start, and what it receives."""
        return START_S + size_bytes * (cards - 1) / cards / (self.gb_per_s * 1e9)

    def origin_of(self, cards: int) -> str:
        """Return where the times of all-reduces are from: measured or estimated."""
        return "measured" if cards in self.all_reduces else "estimated"


@dataclass(frozen=True)
class SplitModel:
    """A model on a number of cards, one of which holds `shard`. Raises BadModel, in one line, if it cannot be split."""

    model: Model
    cards: int

    @cached_property
    def shard(self) -> Model:
        """The part of one card; all cards hold as much, but the last may have less of the vocabulary."""
        model, cards = self.model, self.cards
        if cards == 1:
            return model
        shards = {layer: _split_layer(model, layer, cards) for layer in set(model.layers)}
        layers, (table, *other_tables) = tuple(shards[layer] for layer in model.layers), model.tables
        table = replace(table, outputs=ceil(table.outputs / cards))
        head = replace(model.head, outputs=ceil(model.head.outputs / cards))
        return replace(model, layers=layers, tables=(table, *other_tables), head=head)

    def exchange_bytes(self, tokens: int, headed: int) -> tuple[int, int, int]:
        """Return the number of all-reduces of a step of `tokens`, the bytes of each, and those of `headed` logits."""
        number_format, head = self.model.tables[0].format, self.model.head
        all_reduces = ALL_REDUCES_PER_LAYER * len(self.model.layers) + SINGLE_ALL_REDUCES
        all_reduce_bytes = number_format.matrix_bytes(tokens, head.inputs)
        return all_reduces, all_reduce_bytes, number_format.matrix_bytes(headed, head.outputs)

    def exchange_s(self, link: CardLink | None, tokens: int, headed: int) -> float:
        """Return the seconds that the exchanges of a step take. Nothing is read or multiplied meanwhile."""
        if self.cards == 1:
            return 0.0
        assert link, "load_card refuses a card without one"
        all_reduces, all_reduce_bytes, gather_bytes = self.exchange_bytes(tokens, headed)
        gather_s = link.gather_s(self.cards, gather_bytes)
        return all_reduces * link.all_reduce_s(self.cards, all_reduce_bytes) + gather_s


def _split_layer(model: Model, layer: ModelLayer, cards: int) -> ModelLayer:
    attention = layer.attention
    if attention.heads % cards:
        raise BadModel(f"CARDS: {cards}; {model.name} has {attention.heads} heads, which {cards} cards do not divide")
    key_heads = attention.key_heads
    if key_heads and key_heads % cards and cards % key_heads:
        raise BadModel(f"CARDS: {cards}; {model.name} has {key_heads} K/V heads; allowed: a divisor or multiple of it")
    # Of fewer K/V heads than cards, each card keeps one, which several cards have.
    key_share = max(1, key_heads // cards), max(1, key_heads)

    def split(matrix: Matrix) -> Matrix:
        name = matrix.name.rpartition(".")[2]
        if name in OF_KEY_HEADS:
            return replace(matrix, outputs=matrix.outputs * key_share[0] // key_share[1])
        axis = "outputs" if name in DIVIDED_OUTPUTS else "inputs" if name in DIVIDED_INPUTS else ""
        return _divide(model, matrix, axis, cards) if axis else matrix

    linears, vectors = (tuple(map(split, matrices)) for matrices in (layer.linears, layer.vectors))
    return ModelLayer(linears, vectors, _split_attention(attention, key_share, cards))


def _divide(model: Model, matrix: Matrix, axis: str, cards: int) -> Matrix:
    """Return a card's part of a matrix. A scale for a block of rows and columns needs whole blocks on each card."""
    size, block = getattr(matrix, axis), matrix.format.block
    multiple = cards * (block[axis == "inputs"] if block and block[0] > 1 else 1)
    if size % multiple:
        raise BadModel(f"CARDS: {cards}; {matrix.name} of {model.name} has {size} {axis}, not a multiple of {multiple}")
    return replace(matrix, **{axis: size // cards})


def _split_attention(attention: Attention, key_share: tuple[int, int], cards: int) -> Attention:
    """Return the attention of one card. The latent of latent attention, which has no K/V heads, is on every card."""
    kept, all_heads = key_share if attention.key_heads else (1, 1)
    unabsorbed = attention.unabsorbed_multiply_adds
    changes = {name: getattr(attention, name) // cards for name in DIVIDED_BY_CARDS}
    changes |= {name: getattr(attention, name) * kept // all_heads for name in DIVIDED_BY_KEY_HEADS}
    changes["unabsorbed_multiply_adds"] = unabsorbed and unabsorbed // cards
    return replace(attention, **changes, key_heads=kept if attention.key_heads else 0)
