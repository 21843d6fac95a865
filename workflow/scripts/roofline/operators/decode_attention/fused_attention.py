"""Decode attention by one kernel of ours (kernels/decode_attention.cu): a launch per layer, or one graph for all."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.core.dtypes import FLOAT_BYTES, dtype_bytes
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.core.terms import Array
from roofline.core.units import KIB
from roofline.devices.base import RESERVED_SHARED_BYTES, CudaDevice, GpuLimits, Step
from roofline.operators.base import GRAPH_APPLICATIONS, Case, CudaImplementation, ExecutedFlops, Operator, macro_options
from roofline.operators.constants import LAUNCH_START_TERMS, launch_terms
from roofline.operators.decode_attention.attention_arithmetic import (
    FP8,
    AttentionShape,
    DecodeImplementation,
    cached_numbers,
    query_dtype,
)
from roofline.records.seal_records import CostTerms

if TYPE_CHECKING:
    import cupy


KERNEL = Path(__file__).parent / "kernels" / "decode_attention.cu"
FP8_KERNEL = KERNEL.with_name("decode_attention_fp8.cu")
LAUNCH_ARGUMENTS, SCALES_ARGUMENTS = 9, 2  # the second of FP8 keys and values alone
HEAD_SIZES = (64, 128)  # sizes that it is compiled for

# As in the headers of the kernel.
VECTOR_BYTES = 16
LOADS = 8  # vectors of a tile that a lane loads, of keys and of values each
MMA_QUERIES = 8
MMA_FROM = (8, 0)  # first compute capability with mma.m16n8k16, and with cp.async, which fills stages
FP8_FROM = (8, 9)  # first compute capability that converts FP8
PADDING_FLOATS = 4  # besides the vector, of a row in shared memory and of a split in the workspace

WARPS_PER_BLOCK = (4, 2)  # the smaller block needs half the registers and shared memory
MOST_QUERIES = 4  # of a block without tensor cores: more would not fit the registers
DEFAULT_SHARED_BYTES = 48 * KIB  # what every card grants a block without being asked
SHARED_GRANULE_BYTES = 128  # unit in which shared memory is allocated

# How the work is divided among blocks, found on H200s over batch 1 to 512 and S 60 to 131 072.
LEAST_KEYS = 128  # of a split: joining splits takes as long as a block takes for about twice as many
LONG_KEYS = 2048  # of a split, from which several blocks per multiprocessor read faster than one
LEAST_OF_LONG = 512  # keys of a split where there are several blocks per multiprocessor
LEAST_OF_WAVES = 1024  # keys of a split where there are WAVES
EVEN_SHARE = 0.9  # average blocks of a multiprocessor over those of the busiest: then none waits long for another
MOSTLY_EVEN_SHARE = 0.75  # below, more blocks gain more than they lose by being uneven
WAVES = 5  # of blocks, after which an uneven end no longer matters; where keys are too few for so many, two or more
# Waves of blocks in which the last one costs. A tenth of a wave does not: blocks do not all end at the same time, and
# 400 blocks in 396 slots were faster than in 528 of another variant.
CROWDED_WAVES = (1.1, 2.0)


@dataclass(frozen=True)
class KernelVariant:
    """One way to compile the kernel. Registers and shared memory let `blocks` of it be resident on a multiprocessor."""

    uses_mma: bool  # tensor cores, else multiply-adds
    queries: int  # of a K/V head, that a block computes together
    stages: int  # of tiles in shared memory; 0: tiles go through registers
    warps: int
    blocks: int
    tile: int  # keys that a warp takes at a time
    shared_bytes: int

    def defines(self, dtype: str, head_size: int) -> tuple[str, ...]:
        """Return the -D options of the compiler for a dtype of query and result, and a head size."""
        macros = {"HEAD_SIZE": head_size, "QUERIES": self.queries, "WARPS": self.warps, "BLOCKS": self.blocks}
        macros |= {"STAGES": self.stages, "BY_MMA": int(self.uses_mma)}
        return macro_options(DTYPE=dtype.capitalize(), **macros)


def kernel_spec(cache_dtype: str, defines: tuple[str, ...]) -> tuple[Path, str, tuple[str, ...]]:
    """Return the file, the name and the -D options of the kernel for a dtype of keys and values."""
    source = FP8_KERNEL if cache_dtype == FP8 else KERNEL
    return source, source.stem, defines


@dataclass(frozen=True)
class AttentionPlan:
    """A variant and its grid: `splits` of S for each K/V head and tile of its queries."""

    variant: KernelVariant
    splits: int
    tiles: int
    blocks: int
    shared_bytes: int  # of a block, as launched


def list_variants(shape: AttentionShape, dtype: str, limits: GpuLimits) -> Iterator[KernelVariant]:
    """Yield the variants that may compute a cell, those with more bytes in flight first.

    Tensor cores are used where a K/V head serves several queries and the card has them for the dtype: for one query the
    multiply-adds keep up with any memory. FP8 always takes them: their operands need the fewest conversions. Tiles go
    through shared memory where two blocks have room for it; those of FP8 always do.
    """
    vectors = dtype_bytes(dtype, shape.head_size) // VECTOR_BYTES  # of a row
    tile = LOADS * LANES_PER_WARP // vectors
    is_fp8 = dtype == FP8
    uses_mma = is_fp8 or (shape.group > 1 and dtype_bytes(dtype) == 2 and limits.capability >= MMA_FROM)
    if uses_mma:
        queries = MMA_QUERIES
        parts = 1  # partial results of a warp
    else:
        queries = min(1 << (shape.group - 1).bit_length(), MOST_QUERIES)  # rounded up to a power of two
        lanes_per_row = 8 if vectors < 16 else vectors // 2
        parts = LANES_PER_WARP // lanes_per_row
    stages_and_warps = []
    if limits.capability >= MMA_FROM:
        stages_and_warps.append((2, WARPS_PER_BLOCK[0]))
        # With one query per head, registers allow a fourth block without stages: smaller blocks are not needed.
        if shape.group > 1 or is_fp8:
            stages_and_warps.append((2, WARPS_PER_BLOCK[1]))
    if not is_fp8:
        stages_and_warps.append((0, WARPS_PER_BLOCK[0]))
    for stages, warps in stages_and_warps:
        # As many blocks as registers allow without spilling: fewer with more queries.
        if stages or uses_mma:
            resident = 3
        else:
            resident = {1: 4, 2: 3}.get(queries, 2)
        resident = resident * WARPS_PER_BLOCK[0] // warps  # twice as many blocks of half the warps
        # Vector, largest score and sum of weights of each query and part; then whether the block is the last.
        parts_bytes = FLOAT_BYTES * warps * parts * queries * (shape.head_size + PADDING_FLOATS + 2) + 16
        tiles_bytes = 2 * warps * stages * LOADS * LANES_PER_WARP * VECTOR_BYTES  # keys and values
        shared_bytes = max(parts_bytes, tiles_bytes)
        blocks = max(1, min(resident, limits.shared_per_sm // (shared_bytes + RESERVED_SHARED_BYTES)))
        if blocks > 1 or not stages:
            yield KernelVariant(uses_mma, queries, stages, warps, blocks, tile, shared_bytes)


def plan_attention(shape: AttentionShape, dtype: str, limits: GpuLimits) -> AttentionPlan:
    """Return the variant and the splits for a cell on a card.

    This is the first variant; where its blocks would crowd into a second wave, the first that has all of them resident
    at once. Where a block is done in a turn or two, it is the variant with most blocks resident at once, except for
    multiply-adds with several queries, whose blocks take longer.
    """

    def plan_variant(variant: KernelVariant) -> AttentionPlan:
        tiles = math.ceil(shape.group / variant.queries)
        heads = shape.batch * shape.kv_heads * tiles
        splits = choose_splits(heads, shape.seq_len, limits.multiprocessors, variant.blocks)
        blocks = heads * splits
        return AttentionPlan(variant, splits, tiles, blocks, _shared_bytes_for_spread(variant, blocks, limits))

    def slots(plan: AttentionPlan) -> int:
        return limits.multiprocessors * plan.variant.blocks

    plans = [plan_variant(variant) for variant in list_variants(shape, dtype, limits)]
    first = plans[0]
    if shape.seq_len <= 2 * LEAST_KEYS and (first.variant.uses_mma or shape.group == 1):
        return max(plans, key=lambda plan: min(plan.blocks, slots(plan)))
    if CROWDED_WAVES[0] < first.blocks / slots(first) < CROWDED_WAVES[1]:
        return next((plan for plan in plans if plan.blocks <= slots(plan)), first)
    return first


def choose_splits(heads: int, seq_len: int, multiprocessors: int, resident: int) -> int:
    """Return how many blocks share the keys of one K/V head, where `resident` blocks fit a multiprocessor.

    That is as many as it takes to give every multiprocessor a block, of LEAST_KEYS keys or more. Where such blocks are
    long, it is as many as give every multiprocessor two, or all of them nearly as much to do. Where no number does, and
    S is twice as long, it is as many as make WAVES of blocks of LEAST_OF_WAVES keys or more; but heads that make two
    waves by themselves are not split.
    """
    if seq_len <= 2 * LEAST_KEYS:
        return 1
    one_per_sm = max(1, min(multiprocessors // heads, seq_len // LEAST_KEYS))
    if seq_len < LONG_KEYS * one_per_sm:
        return one_per_sm
    most_splits = seq_len // LEAST_OF_LONG
    splits_by_blocks = {}  # by blocks per multiprocessor
    busy_shares = {}  # of these blocks the share that has keys, likewise
    for blocks_per_sm in range(1, resident + 1):
        splits = min(multiprocessors * blocks_per_sm // heads, most_splits)
        splits_by_blocks[blocks_per_sm] = splits
        busy_shares[blocks_per_sm] = heads * splits / (multiprocessors * blocks_per_sm)
    if busy_shares.get(2, 0) >= EVEN_SHARE:
        blocks_per_sm = 2
    else:
        blocks_per_sm = max(busy_shares, key=lambda count: _evenness_key(busy_shares[count], count))
    slots = multiprocessors * resident
    uneven = busy_shares[blocks_per_sm] < EVEN_SHARE
    if uneven and heads < CROWDED_WAVES[1] * slots and seq_len >= 2 * LONG_KEYS:
        splits_in_waves = min(math.ceil(WAVES * slots / heads), seq_len // LEAST_OF_WAVES)
        if heads * splits_in_waves >= CROWDED_WAVES[1] * slots:
            return splits_in_waves
    return max(1, splits_by_blocks[blocks_per_sm])


def _evenness_key(busy_share: float, blocks_per_sm: int) -> tuple[float, int]:
    """Return the key that ranks numbers of blocks per multiprocessor: of equal shares more blocks, but fewer where the
    share is at least MOSTLY_EVEN_SHARE."""
    return busy_share, -blocks_per_sm if busy_share >= MOSTLY_EVEN_SHARE else blocks_per_sm


def _shared_bytes_for_spread(variant: KernelVariant, blocks: int, limits: GpuLimits) -> int:
    """Return the shared memory of a block with which no multiprocessor holds more than its equal share of the blocks.

    Otherwise, since blocks begin where those of the kernel before end, some multiprocessors would get three and others
    one.
    """
    blocks_per_sm = math.ceil(blocks / limits.multiprocessors)
    if blocks_per_sm >= variant.blocks:
        return variant.shared_bytes
    too_much_for_more = limits.shared_per_sm // (blocks_per_sm + 1) - RESERVED_SHARED_BYTES + SHARED_GRANULE_BYTES
    return max(variant.shared_bytes, min(too_much_for_more, limits.shared_per_sm - RESERVED_SHARED_BYTES))


class FusedAttention(CudaImplementation, DecodeImplementation):
    """Attention by one launch per layer."""

    name, fused = "fused", True

    @classmethod
    def unsupported(cls, device: CudaDevice, case: Case) -> str | None:  # type: ignore[override]  # its kind is gpu
        size, heads, kv_heads = (case.shape[name] for name in ("head_size", "heads", "kv_heads"))
        if heads % kv_heads:
            return f"{heads} heads; it takes multiples of the {kv_heads} K/V heads"
        if case.dtype == FP8 and device.limits.capability < FP8_FROM:
            return "FP8 needs compute capability {}.{}".format(*FP8_FROM)
        return None if size in HEAD_SIZES else f"heads of {size}; it takes {', '.join(map(str, HEAD_SIZES))}"

    def __init__(self, operator: Operator, device: CudaDevice, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.launch_plan = plan_attention(self.shape, self.dtype, device.limits)

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """Allocate the result and what blocks leave for one another, and list a launch's arguments for each cache."""
        import numpy

        super().prepare(shared, copies)
        xp, shape, plan = self.device.xp, self.shape, self.launch_plan
        self.out = xp.empty_like(self.query)
        queries = shape.batch * shape.heads if plan.splits > 1 else 0
        self.workspace = xp.empty((queries, plan.splits, shape.head_size + PADDING_FLOATS), xp.float32)
        self.arrived = xp.zeros(shape.batch * shape.kv_heads * plan.tiles, xp.uint32)
        sizes = (numpy.int32(shape.seq_len), numpy.int32(shape.group), numpy.int32(plan.splits))
        written = (self.out, self.workspace, self.arrived)
        self.arguments = []
        for copy in copies:
            scales = [copy[name] for name in ("keys_scales", "values_scales") if name in copy]
            self.arguments.append((self.query, copy["keys"], copy["values"], *written, *sizes, *scales))

    def poison(self) -> None:
        self.device.poison(self.out)

    def plan(self) -> dict:
        """Return the splits of S, the blocks, the tiles of keys that a block goes through, and the waves of blocks."""
        plan = self.launch_plan
        keys_per_turn = plan.variant.warps * plan.variant.tile
        keys_per_split = math.ceil(self.shape.seq_len / plan.splits)
        slots = self.device.multiprocessors * plan.variant.blocks
        return {
            "splits": plan.splits,
            "blocks": plan.blocks,
            "tiles_per_block": math.ceil(keys_per_split / keys_per_turn),
            "waves": max(1.0, plan.blocks / slots),
        }

    def costs(self, scope: str | None) -> CostTerms:
        plan, is_fp8 = self.plan(), self.dtype == FP8
        arguments = LAUNCH_ARGUMENTS + (SCALES_ARGUMENTS if is_fp8 else 0)
        conversions = {"fp8_conversion_s_per_number": float(cached_numbers(self.shape))} if is_fp8 else {}
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call} if self.graph else launch_terms(arguments),
            start={"graph_node_s": 1.0} if self.graph else LAUNCH_START_TERMS,
            extra={"join_splits_s": 1.0} if plan["splits"] > 1 else {},
            floor={"memory_wait_s": plan["tiles_per_block"] - 1.0, "block_s": float(plan["blocks"]), **conversions},
            waits={"wave_s": plan["waves"] - 1.0},
            share="stream_share",
        )

    def executed_flops(self, scope: str | None) -> ExecutedFlops | None:
        """Return the FLOPs of whole tiles on tensor cores; None where the kernel uses multiply-adds."""
        shape, plan, variant = self.shape, self.launch_plan, self.launch_plan.variant
        if not variant.uses_mma:
            return None
        tiles = shape.batch * shape.kv_heads * plan.tiles * math.ceil(shape.seq_len / variant.tile)
        padded = f"queries padded to {variant.queries}, keys to {variant.tile}"
        return ExecutedFlops({"tensor": 4.0 * tiles * variant.tile * shape.head_size * variant.queries}, padded)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.launch_plan.variant.warps * LANES_PER_WARP

    def kernels(self) -> list[tuple]:
        defines = self.launch_plan.variant.defines(query_dtype(self.dtype), self.shape.head_size)
        return [kernel_spec(self.dtype, defines)]

    @cached_property
    def kernel(self) -> "cupy.RawKernel":
        """The kernel of CuPy, allowed the shared memory that it is launched with."""
        kernel = self.device.load_kernel(*self.kernels()[0])
        if self.launch_plan.shared_bytes > DEFAULT_SHARED_BYTES:
            # All that the card has: the limit is the kernel's, which other cells launch with more or less.
            kernel.max_dynamic_shared_size_bytes = self.device.limits.shared_per_block
        return kernel

    def step(self, scope: str | None) -> Callable[[int], Array]:
        kernel, grid, block = self.kernel, (self.launch_plan.blocks,), (self.threads,)
        arguments, count, shared_bytes = self.arguments, len(self.arguments), self.launch_plan.shared_bytes

        def step(index: int) -> Array:
            kernel(grid, block, arguments[index % count], shared_mem=shared_bytes)
            return self.out

        return step


class FusedAttentionGraph(FusedAttention):
    """The attention of all layers in one graph. Each layer reads its own cache, as far as there are copies.

    Where the card supports it, a layer's kernel begins while the one before it ends and fetches keys and values, which
    are in memory already; it reads its query when that one is done.
    """

    name, graph = "fused_graph", True

    @classmethod
    def copies_wanted(cls, case: Case, least_copies: int) -> int:
        """Return whole models of caches, where there are more than a model has: then few graphs go through all in
        turn."""
        layers = case.params["layers"]
        return math.ceil(least_copies / layers) * layers if least_copies > layers else least_copies

    @property
    def per_call(self) -> int:
        return self.case.params.get("layers", GRAPH_APPLICATIONS)  # a case by its shape alone is of no model

    @cached_property
    def graphs(self) -> list["cupy.cuda.Graph"]:
        """Graphs that go through all caches in turn."""
        plan = self.launch_plan
        return self.capture_launches(self.kernel, plan.blocks, self.threads, self.arguments, plan.shared_bytes)

    def step(self, scope: str | None) -> Step:
        return self.replay([(graph, self.out) for graph in self.graphs])
