"""Decode attention by one kernel of ours (kernels/decode_attention.cu): a launch per layer, or one graph for all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roofline.core.dtypes import ITEM_BYTES
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.devices.gpu.kernel_compiler import list_kernel_files
from roofline.operators.base import ExecutedFlops
from roofline.operators.constants import LAUNCH_START_TERMS, launch_terms
from roofline.operators.decode_attention.attention_arithmetic import AttentionShape, DecodeImplementation
from roofline.records.seal_records import CostTerms

KERNEL = Path(__file__).parent / "kernels" / "decode_attention.cu"
ARGUMENTS = 9  # of a launch
HEAD_SIZES = (64, 128)  # that it is compiled for
KERNEL_DTYPES = {"fp32": "Fp32", "fp16": "Fp16", "bf16": "Bf16"}

# As the kernel's headers have them.
VECTOR_BYTES = 16
LOADS = 8  # vectors of a tile that a lane loads, of keys and of values each
MMA_QUERIES = 8
MMA_FROM = (8, 0)  # compute capabilities that have mma.m16n8k16, and cp.async
PADDING_FLOATS = 4  # floats of a row in shared memory and of a split in the workspace, next to the vector

WARPS_PER_BLOCK = (4, 2)  # of a block; the smaller ones need half the registers and shared memory
MOST_QUERIES = 4  # of a block without tensor cores: more would not fit the registers
STATIC_SHARED_BYTES = 48 << 10  # what every card grants without being asked
RESERVED_BYTES, GRANULE = 1 << 10, 128  # of shared memory: what a resident block takes besides its own; units of it

# How the work is divided among blocks, found on H200s over batch 1 to 512 and S 60 to 131 072.
LEAST_KEYS = 128  # of a split: joining splits takes as long as a block takes for about twice as many
LONG_KEYS = 2048  # of a split, from which several blocks per multiprocessor read faster than one
LEAST_OF_LONG = 512  # keys of a split where there are several per multiprocessor
LEAST_OF_WAVES = 1024  # keys of a split where there are WAVES
EVEN_SHARE = 0.9  # of the busiest multiprocessor's blocks the others have on average: then none waits long for another
MOSTLY_EVEN_SHARE = 0.75  # below, more blocks gain more than they lose by being uneven
WAVES = 5  # of blocks, after which an uneven end no longer matters; where keys are too few for so many, two or more
# Waves of blocks in which the last one costs. A tenth of a wave does not: blocks do not all end at the same time, and
# 400 blocks in 396 slots were faster than in 528 of another variant.
CROWDED_WAVES = (1.1, 2.0)


@dataclass(frozen=True)
class KernelVariant:
    """How the kernel is compiled; `blocks` are resident on a multiprocessor, by registers and shared memory."""

    by_mma: bool
    queries: int
    stages: int
    warps: int
    blocks: int
    tile: int
    shared_bytes: int

    def defines(self, dtype: str, head_size: int) -> tuple[str, ...]:
        macros = {
            "DTYPE": KERNEL_DTYPES[dtype],
            "HEAD_SIZE": head_size,
            "QUERIES": self.queries,
            "WARPS": self.warps,
            "BLOCKS": self.blocks,
            "STAGES": self.stages,
            "BY_MMA": int(self.by_mma),
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())


@dataclass(frozen=True)
class AttentionPlan:
    """A variant and its grid: `splits` of S for each K/V head and tile of its queries."""

    variant: KernelVariant
    splits: int
    tiles: int
    blocks: int
    shared_bytes: int  # of a block, as launched


def list_variants(
    shape: AttentionShape, dtype: str, capability: tuple[int, int], shared_per_multiprocessor: int
) -> Iterator[KernelVariant]:
    """Ways to compile for a cell, the one with more bytes under way first.

    Tensor cores where a K/V head serves several queries and the card has them for the dtype: for one query the
    multiply-adds keep up with any memory. Tiles go through shared memory where two blocks have room for it.
    """
    vectors = shape.head_size * ITEM_BYTES[dtype] // VECTOR_BYTES  # of a row
    by_mma = shape.group > 1 and ITEM_BYTES[dtype] == 2 and capability >= MMA_FROM
    queries = MMA_QUERIES if by_mma else min(1 << (shape.group - 1).bit_length(), MOST_QUERIES)
    groups = (
        1 if by_mma else LANES_PER_WARP // (8 if vectors < 16 else vectors // 2)
    )  # of lanes, each with its own part
    # With one query a head, few registers let a fourth block be there without shared memory.
    ways = (
        [(2, warps) for warps in (WARPS_PER_BLOCK if shape.group > 1 else WARPS_PER_BLOCK[:1])]
        if capability >= MMA_FROM
        else []
    )
    for stages, warps in [*ways, (0, WARPS_PER_BLOCK[0])]:
        # As many as the registers allow without spilling.
        wanted = 3 if stages or by_mma else {1: 4, 2: 3}.get(queries, 2)
        wanted = wanted * WARPS_PER_BLOCK[0] // warps
        of_parts = 4 * warps * groups * queries * (shape.head_size + PADDING_FLOATS + 2) + 16
        shared_bytes = max(of_parts, 2 * warps * stages * LOADS * LANES_PER_WARP * VECTOR_BYTES)
        blocks = max(1, min(wanted, shared_per_multiprocessor // (shared_bytes + RESERVED_BYTES)))
        if blocks > 1 or not stages:
            yield KernelVariant(by_mma, queries, stages, warps, blocks, LOADS * LANES_PER_WARP // vectors, shared_bytes)


def plan_attention(
    shape: AttentionShape, dtype: str, capability: tuple[int, int], multiprocessors: int, shared_per_multiprocessor: int
) -> AttentionPlan:
    """The variant and the splits for a cell on a card.

    The first variant; where its blocks would crowd into a second wave, the one of which all are there at once. Where a
    block is done in a turn or two, the one of which most are there at once: but for multiply-adds with several
    queries, whose blocks take longer.
    """

    def planned(variant: KernelVariant) -> AttentionPlan:
        tiles = math.ceil(shape.group / variant.queries)
        heads = shape.batch * shape.kv_heads * tiles
        splits = choose_splits(heads, shape.seq_len, multiprocessors, variant.blocks)
        blocks = heads * splits
        shared_bytes = _shared_bytes_for_spread(variant, blocks, multiprocessors, shared_per_multiprocessor)
        return AttentionPlan(variant, splits, tiles, blocks, shared_bytes)

    def waves(one: AttentionPlan) -> float:
        return one.blocks / (multiprocessors * one.variant.blocks)

    plans = [planned(variant) for variant in list_variants(shape, dtype, capability, shared_per_multiprocessor)]
    if shape.seq_len <= 2 * LEAST_KEYS and (plans[0].variant.by_mma or shape.group == 1):
        return max(plans, key=lambda one: min(one.blocks, multiprocessors * one.variant.blocks))
    if CROWDED_WAVES[0] < waves(plans[0]) < CROWDED_WAVES[1]:
        return next((one for one in plans if waves(one) <= 1), plans[0])
    return plans[0]


def choose_splits(heads: int, seq_len: int, multiprocessors: int, resident: int) -> int:
    """How many blocks share the keys of one K/V head, of which `resident` blocks fit a multiprocessor.

    As many as it takes for a block on every multiprocessor, of LEAST_KEYS or more. Where these are long, two on every
    multiprocessor, or as many as give all of them nearly as much to do. Where no number does, and S is twice as long,
    WAVES of blocks of LEAST_OF_WAVES or more; but heads that make two waves by themselves are left whole.
    """
    if seq_len <= 2 * LEAST_KEYS:
        return 1
    one_each = max(1, min(multiprocessors // heads, seq_len // LEAST_KEYS))
    if seq_len < LONG_KEYS * one_each:
        return one_each
    most = seq_len // LEAST_OF_LONG
    ways = {each: min(multiprocessors * each // heads, most) for each in range(1, resident + 1)}
    shares = {each: heads * splits / (multiprocessors * each) for each, splits in ways.items()}
    each = 2 if shares.get(2, 0) >= EVEN_SHARE else max(shares, key=lambda each: _evenness_key(shares[each], each))
    slots = multiprocessors * resident
    if shares[each] < EVEN_SHARE and heads < CROWDED_WAVES[1] * slots and seq_len >= 2 * LONG_KEYS:
        in_waves = min(math.ceil(WAVES * slots / heads), seq_len // LEAST_OF_WAVES)
        if heads * in_waves >= CROWDED_WAVES[1] * slots:
            return in_waves
    return max(1, ways[each])


def _evenness_key(share: float, each: int) -> tuple[float, int]:
    """By what to choose how many blocks each multiprocessor has: of equal shares the more, unless few are idle."""
    return share, -each if share >= MOSTLY_EVEN_SHARE else each


def _shared_bytes_for_spread(
    variant: KernelVariant, blocks: int, multiprocessors: int, shared_per_multiprocessor: int
) -> int:
    """Shared memory of a block: as much as keeps more blocks from a multiprocessor than each of them is to have.

    Else, as one kernel's blocks come where another's leave, some multiprocessors would get three and others one.
    """
    each = math.ceil(blocks / multiprocessors)
    if each >= variant.blocks:
        return variant.shared_bytes
    too_much_for_more = shared_per_multiprocessor // (each + 1) - RESERVED_BYTES + GRANULE
    return max(variant.shared_bytes, min(too_much_for_more, shared_per_multiprocessor - RESERVED_BYTES))


class FusedAttention(DecodeImplementation):
    """One launch per layer."""

    name, kind, fused = "fused", "gpu", True
    sources = tuple(sorted(list_kernel_files(KERNEL)))

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        size = case.shape["head_size"]
        return None if size in HEAD_SIZES else f"heads of {size}; it takes {', '.join(map(str, HEAD_SIZES))}"

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        of_all = device.properties["MaxSharedMemoryPerMultiprocessor"]
        self.division = plan_attention(self.shape, self.dtype, device.capability, device.multiprocessors, of_all)

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """The result and what blocks leave for one another, and the arguments of a launch for each cache."""
        import numpy

        super().prepare(shared, copies)
        xp, shape = self.device.xp, self.shape
        self.out = xp.empty_like(self.query)
        queries = shape.batch * shape.heads if self.division.splits > 1 else 0
        self.workspace = xp.empty((queries, self.division.splits, shape.head_size + PADDING_FLOATS), xp.float32)
        self.arrived = xp.zeros(shape.batch * shape.kv_heads * self.division.tiles, xp.uint32)
        numbers = map(numpy.int32, (shape.seq_len, shape.group, self.division.splits))
        rest = (self.out, self.workspace, self.arrived, *numbers)
        self.arguments = [(self.query, keys, values, *rest) for keys, values in self.caches]

    def poison(self) -> None:
        self.device.poison(self.out)

    def plan(self) -> dict:
        """Splits of S that are joined, tiles of keys that a block goes through, and times as many blocks as fit."""
        division = self.division
        keys_per_turn = division.variant.warps * division.variant.tile
        slots = self.device.multiprocessors * division.variant.blocks
        return {
            "splits": division.splits,
            "blocks": division.blocks,
            "tiles_per_block": math.ceil(math.ceil(self.shape.seq_len / division.splits) / keys_per_turn),
            "waves": max(1.0, division.blocks / slots),
        }

    def costs(self, scope: str | None) -> CostTerms:
        plan = self.plan()
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call} if self.graph else launch_terms(ARGUMENTS),
            start={"graph_node_s": 1.0} if self.graph else LAUNCH_START_TERMS,
            extra={"join_splits_s": 1.0} if plan["splits"] > 1 else {},
            floor={"memory_wait_s": plan["tiles_per_block"] - 1.0, "block_s": float(self.division.blocks)},
            waits={"wave_s": plan["waves"] - 1.0},
            share="stream_share",
        )

    def executed_flops(self, scope: str | None) -> ExecutedFlops | None:
        """On tensor cores, of whole tiles."""
        shape, division, variant = self.shape, self.division, self.division.variant
        if not variant.by_mma:
            return None
        tiles = shape.batch * shape.kv_heads * division.tiles * math.ceil(shape.seq_len / variant.tile)
        padded = f"queries padded to {variant.queries}, keys to {variant.tile}"
        return ExecutedFlops({"tensor": 4.0 * tiles * variant.tile * shape.head_size * variant.queries}, padded)

    @property
    def threads(self) -> int:
        return self.division.variant.warps * LANES_PER_WARP

    def kernels(self) -> list[tuple]:
        return [(KERNEL, "decode_attention", self.division.variant.defines(self.dtype, self.shape.head_size))]

    @cached_property
    def kernel(self):
        kernel = self.device.load_kernel(*self.kernels()[0])
        if self.division.shared_bytes > STATIC_SHARED_BYTES:
            # All that the card has: the limit is the kernel's, which other cells launch with more or less.
            kernel.max_dynamic_shared_size_bytes = self.device.properties["MaxSharedMemoryPerBlockOptin"]
        return kernel

    def step(self, scope: str | None):
        kernel, grid, block = self.kernel, (self.division.blocks,), (self.threads,)
        arguments, count, shared_bytes = self.arguments, len(self.arguments), self.division.shared_bytes

        def step(index: int):
            kernel(grid, block, arguments[index % count], shared_mem=shared_bytes)
            return self.out

        return step


class FusedAttentionGraph(FusedAttention):
    """The attention of all layers in one graph, each layer with its own cache as far as caches rotate.

    Where the card can, a layer's kernel begins while the one before it ends and asks for keys and values, which are
    there already; it reads its query when that one is done.
    """

    name, graph = "fused_graph", True

    @classmethod
    def copies_wanted(cls, case, least: int) -> int:
        """Whole models of caches, where there are more than a model has: so few graphs go through all in turn."""
        layers = case.params["layers"]
        return math.ceil(least / layers) * layers if least > layers else least

    @property
    def per_call(self) -> int:
        return self.case.params["layers"]

    @cached_property
    def graphs(self) -> list:
        """Graphs that go through all caches in turn, from one to the next and from the last to the first."""
        layers, count = self.per_call, len(self.arguments)
        grid, block = (self.division.blocks,), (self.threads,)
        return [
            self.device.capture_launches(
                self.kernel,
                grid,
                block,
                [self.arguments[place % count] for place in range(first, first + layers)],
                self.division.shared_bytes,
            )
            for first in range(0, math.lcm(count, layers), layers)
        ]

    def step(self, scope: str | None):
        graphs, stream, count = self.graphs, self.device.stream, len(self.graphs)

        def step(index: int):
            graphs[index % count].launch(stream)
            return self.out

        return step
