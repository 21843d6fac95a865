"""The chain on a GPU: one CUDA graph of a step's kernels, each of which begins while the one before it ends.

    embed, then in each layer: queries, keys and values; attention; output; gate and up; down; last the head

The stream of a sequence is kept twice: as it is, to be added to, and scaled by the next norm's weights, to be
multiplied. Blocks that write it leave the sums of its squares, by which the next product scales its results.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy
from dense import DenseModel, rotation_table
from families import DESCRIPTIONS_FILE

from reference import select_layer
from roofline.api import LANES_PER_WARP, Array, Case, Constant, CostTerms, CudaImplementation, Device, Operator
from roofline.api import attention_kernel as attention
from roofline.api import gpu_host_constants as host_constants
from roofline.api import product_kernel as products

KERNELS = Path(__file__).parent / "kernels"
SOURCES = {name: KERNELS / f"step_{name}.cu" for name in products.KERNELS}
QKV, ADDED, GATED, NONE = range(4)  # as step_epilogue.cuh numbers them
SIZES = (*((name, "i4") for name in ("heads", "key_heads", "context", "parts")), ("eps", "f4"))
CACHE_TENSORS = ("keys", "values", "keys_scales", "values_scales")
NORM_TENSORS = ("query_norm", "key_norm", "norm")  # the weights of norms
TENSORS = ("y", "stream", "g", "squares", "next_squares", *CACHE_TENSORS, "turns", "bias", *NORM_TENSORS)
EMBED = KERNELS / "embed.cu"
EMBED_THREADS = 512  # a block embeds one row
NUMBERS_PER_SQUARE_SUM = 128  # of a row, in embed.cu
LEAST_NUMBERS_PER_SQUARE_SUM = 8  # of a row, in any product that adds to the stream
STORE_OUTPUTS = 8  # outputs that a kernel stores together
# Groups of a tile of a product with long inputs and the fewest rows: an H200 made a step of Llama-3-8B in 1.3 and 1.1 %
# less time by these than by the largest even tiles.
SMALL_TILES = {QKV: 2, GATED: 2}
SINGLE_KERNELS = 2  # of a step: embedding and head
FITTED_SOURCE = "fitted on steps of Llama-3.2-1B on an H200, 2026-11: reference/experiments/predictions/fit_model.py"
HEAD_SOURCE = "measured: the head of Llama-3.2-1B, its largest product, on an H200, 2026-11"
# One start for products and attention: every layer has as many of both, so no number of layers separates them.
GPU_CONSTANTS = {
    **host_constants("graph_launch_s"),
    "kernel_start_s": Constant(2.57e-6, FITTED_SOURCE, "the start of a kernel while the one before it ends"),
    "x_number_s": Constant(1.09e-11, FITTED_SOURCE, "each number of x of a product of many rows"),
    "stream_share": Constant(0.94, HEAD_SOURCE, "of the memory ceiling at which weights, keys and values are read"),
}
Launch = Callable[[], None]


class Chain(CudaImplementation):
    """A decode step of a dense model as one CUDA graph, on a CUDA device of compute capability 9.0."""

    name, fused, graph = "chain", True, True
    kernels_per_layer = 5  # four products and attention
    sources = (*sorted(KERNELS.iterdir()), DESCRIPTIONS_FILE)
    improvements = ("larger batches share the weights", "narrower weights")

    @classmethod
    def unsupported(cls, device: Device, case: Case) -> str | None:
        if not device.is_hopper:
            return "it is written for compute capability 9.0"
        if case.shape["batch"] > products.MOST_ROWS:
            return f"a batch of {case.shape['batch']}; it takes {products.MOST_ROWS} sequences"
        sizes = case.params["model"]
        if sizes["head_size"] not in attention.HEAD_SIZES:
            return f"heads of {sizes['head_size']}; its attention takes {', '.join(map(str, attention.HEAD_SIZES))}"
        divisors = {"hidden": NUMBERS_PER_SQUARE_SUM, "inner": products.SLICE_DEPTH, "vocabulary": STORE_OUTPUTS}
        uneven = [name for name, divisor in divisors.items() if sizes[name] % divisor]
        return ", ".join(f"{name} {sizes[name]} is not a multiple of {divisors[name]}" for name in uneven) or None

    @classmethod
    def copies_wanted(cls, case: Case, least_copies: int) -> int:
        """Return 1: no layer shares weights or K/V, so a step is cold unless a cache holds the whole model."""
        return 1

    def __init__(self, operator: Operator, device: Device, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.model = DenseModel(**case.params["model"])
        self.batch, self.context = case.shape["batch"], case.shape["context"]
        self.rows, self.kv_dtype = products.padded_rows(self.batch), case.params["kv_dtype"]

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """Allocate the results of all kernels, and prepare attention.

        Those that products multiply have all rows of a block: boxes that reach beyond a matrix are slow.
        """
        super().prepare(shared, copies)
        self.weights = copies[0]
        model, batch, rows = self.model, self.batch, max(products.FEWEST_OF_MANY, self.rows)
        query_size, xp = model.heads * model.head_size, self.device.xp

        def allocate(rows: int, columns: int) -> Array:
            return self.device.empty((rows, columns), self.case.dtype)

        self.stream, self.query = allocate(batch, model.hidden), allocate(batch, query_size)
        self.scaled, self.attended = allocate(rows, model.hidden), allocate(rows, query_size)
        self.gated, self.logits = allocate(rows, model.inner), allocate(batch, model.vocabulary)
        self.squares = xp.empty((model.hidden // LEAST_NUMBERS_PER_SQUARE_SUM, self.rows), xp.float32)
        self.rotations = xp.asarray(rotation_table(model, self.context - 1), xp.float32)
        self._prepare_attention()

    def _prepare_attention(self) -> None:
        """Plan attention, allocate what its blocks leave for one another, and load its kernel.

        These buffers are attributes since a graph does not keep its buffers alive.
        """
        model, device, xp = self.model, self.device, self.device.xp
        shape = attention.AttentionShape(self.batch, model.heads, model.kv_heads, model.head_size, self.context)
        plan = attention.plan_attention(shape, self.kv_dtype, device.limits)
        queries = self.batch * model.heads if plan.splits > 1 else 0
        splits = xp.empty((queries, plan.splits, model.head_size + attention.PADDING_FLOATS), xp.float32)
        arrived = xp.zeros(self.batch * model.kv_heads * plan.tiles, xp.uint32)
        sizes = [numpy.int32(size) for size in (self.context, shape.group, plan.splits)]
        self.attention_arguments = (self.attended, splits, arrived, *sizes)  # after query, keys and values
        defines = (*plan.variant.defines(self.case.dtype, model.head_size), "-DAPPENDED=1")
        kernel = device.load_kernel(*attention.kernel_spec(self.kv_dtype, defines))
        kernel.max_dynamic_shared_size_bytes = device.limits.shared_per_block
        threads = (plan.variant.warps * LANES_PER_WARP,)
        self.attend = device.make_launcher(kernel, (plan.blocks,), threads, plan.shared_bytes, overlap=True)

    # -- launches

    @property
    def embedded_parts(self) -> int:
        """The sums of squares that the embedding leaves of each row."""
        return self.model.hidden // NUMBERS_PER_SQUARE_SUM

    def make_launches(self) -> list[Launch]:
        """Return the launches of one step, in their order."""
        model, weights = self.model, self.weights
        launches, squares_parts = self._make_start(), self.embedded_parts
        for layer in range(model.layers):
            arrays = {**select_layer(weights, layer), "turns": self.rotations}
            next_norm = weights.get(f"{layer + 1}.input_norm", weights["last_norm"])
            heads = {name: array for name, array in arrays.items() if name in TENSORS}
            qkv = self._make_normed_product(QKV, squares_parts, arrays["qkv"], y=self.query, **heads)
            attend = self._make_attention(arrays)
            output, squares_parts = self._make_addition(self.attended, arrays["o"], arrays["middle_norm"])
            gate_up = self._make_normed_product(GATED, squares_parts, arrays["gate_up"], y=self.gated)
            down, squares_parts = self._make_addition(self.gated, arrays["down"], next_norm)
            launches += [qkv, attend, *output, gate_up, *down]
        head = self._make_normed_product(NONE, squares_parts, weights["head"], y=self.logits)
        return [*launches, head, *self._make_end()]

    def _make_start(self) -> list[Launch]:
        """Return the launches before the first layer."""
        return [self._make_embed()]

    def _make_end(self) -> list[Launch]:
        """Return the launches after the head."""
        return []

    def _make_embed(self) -> Launch:
        defines = (products.half_type_option(self.case.dtype), f"-DROWS={self.rows}")
        kernel = self.device.load_kernel(EMBED, "embed", defines)
        launch = self.device.make_launcher(kernel, (self.batch,), (EMBED_THREADS,), 0, overlap=True)
        inputs = (self.weights["tokens"], self.weights["embedding"], self.weights["0.input_norm"])
        arguments = (*inputs, self.stream, self.scaled, self.squares, numpy.int32(self.model.hidden))
        return partial(launch, arguments)

    def _make_attention(self, arrays: Mapping[str, Array]) -> Launch:
        scales = [arrays[name] for name in ("keys_scales", "values_scales") if name in arrays]
        caches = arrays["keys"], arrays["values"]
        return partial(self.attend, (self.query, *caches, *self.attention_arguments, *scales))

    def _make_normed_product(self, kind: int, squares_parts: int, weights: Array, **tensors: Array) -> Launch:
        """Return a product of the scaled stream, whose results are scaled by `squares_parts` sums of squares a row."""
        launch, _ = self._make_product(kind, self.scaled, weights, squares_parts, squares=self.squares, **tensors)
        return launch

    def _make_addition(self, inputs: Array, weights: Array, next_norm: Array) -> tuple[list[Launch], int]:
        """Return what adds a product to the stream, and how many sums of squares it leaves of each row."""
        tensors = {"y": self.scaled, "stream": self.stream, "next_squares": self.squares, "g": next_norm}
        launch, squares_parts = self._make_product(ADDED, inputs, weights, 0, **tensors)
        return [launch], squares_parts

    def _make_product(
        self, kind: int, inputs: Array, weights: Array, squares_parts: int, **tensors: Array
    ) -> tuple[Launch, int]:
        """Return a product of inputs [batch, columns] and weights [outputs, columns] with an epilogue of this kind.

        `squares_parts` sums of squares of each row are read. Also returns how many it leaves.
        """
        model, device = self.model, self.device
        heads = {"head_size": model.head_size, "whole_heads": model.norms} if kind == QKV else {}
        has_small_tiles = self.rows == products.FEWEST_ROWS and weights.shape[1] >= products.LONG_INPUTS
        groups = SMALL_TILES.get(kind) if has_small_tiles else None
        task = products.GemmTask(self.batch, *weights.shape, leaves_squares=kind == ADDED, groups=groups, **heads)
        plan = products.plan_gemm(task, device.limits)
        flags = {"norms": model.norms, "bias": model.bias, "fp8_cache": self.kv_dtype == attention.FP8}
        epilogue = step_epilogue(kind, model.head_size, **flags)
        product = products.HopperGemm(device, self.case.dtype, plan, epilogue)
        sizes = (model.heads, model.kv_heads, self.context, squares_parts, model.eps)
        arguments = product.make_arguments(self.batch, inputs, weights, sizes, tensors)
        launch = device.make_launcher(product.kernel, plan.grid, (plan.threads,), plan.shared_bytes, overlap=True)
        return partial(launch, arguments), plan.squares_parts

    def costs(self, scope: str | None) -> CostTerms:
        return step_costs(self.model, self.rows)

    # -- the step

    @cached_property
    def captured_graph(self) -> Any:
        launches = self.make_launches()
        return self.device.capture_graph(lambda: [launch() for launch in launches])

    def step(self, scope: str | None) -> Callable[[int], Array]:
        return self.replay([(self.captured_graph, self.logits)])


def step_costs(model: DenseModel, rows: int) -> CostTerms:
    """Return the costs of a step whose products have `rows` rows of x, padded as the kernels have them."""
    kernels = float(Chain.kernels_per_layer * model.layers + SINGLE_KERNELS)
    inputs_per_layer = 2 * model.hidden + model.heads * model.head_size + model.inner  # of four products
    x_numbers = float(rows * (model.layers * inputs_per_layer + model.hidden))
    extra = {"x_number_s": x_numbers} if rows > products.FEW_ROWS else {}
    calls, start = {"graph_launch_s": 1.0}, {"kernel_start_s": kernels}
    return CostTerms(calls=calls, start=start, extra=extra, share="stream_share")


def step_epilogue(kind: int, head_size: int, *, norms: bool, bias: bool, fp8_cache: bool) -> products.Epilogue:
    """Return the epilogue QKV, ADDED, GATED or NONE.

    With QKV, queries and keys of heads are normalised where `norms` is set, a bias is added where `bias` is, and keys
    and values are written as FP8 where `fp8_cache` is.
    """
    flags = {"HEAD_NORMS": norms and kind == QKV, "BIAS": bias, "FP8_CACHE": fp8_cache}
    macros = {"EPILOGUE": kind, "HEAD_SIZE": head_size, **flags}
    return products.Epilogue(SOURCES, SIZES, TENSORS, tuple((name, int(value)) for name, value in macros.items()))
