"""The chain on a GPU: one CUDA graph of a step's kernels, each of which begins while the one before it ends.

    embed, then in each layer: queries, keys and values; attention; output; gate and up; down; last the head

The stream of a sequence is kept twice: as it is, to be added to, and scaled by the next norm's weights, to be
multiplied. Blocks that write it leave the sums of its squares, by which the next product scales its results.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from dense import Dense, turns
from families import DEFAULTS

from roofline.api import LANES_PER_WARP, Constant, CostTerms, Implementation, gpu_host_constants, kernel_compiler
from roofline.api import attention_kernel as attention
from roofline.api import product_kernel as products

EMBED = Path(__file__).with_name("embed.cu")
EMBED_THREADS, EMBEDDED = 512, 128  # of a row, and its numbers that leave one sum of squares
STORED = 8  # outputs that a kernel stores together
PRODUCTS_A_LAYER, OTHER_KERNELS = 4, 2  # the others: embedding and head
FITTED = "fitted on steps of Llama-3.2-1B on an H200, 2026-11: reference/experiments/predictions/fit_model.py"
HEAD = "measured: the head of Llama-3.2-1B, its largest product, on an H200, 2026-11"
# One start for products and attention: every layer has as many of both, so no number of layers separates them.
GPU = {
    **gpu_host_constants("graph_launch_s"),
    "kernel_start_s": Constant(2.78e-6, FITTED, "the start of a kernel while the one before it ends"),
    "row_s": Constant(3.58e-8, FITTED, "each row of x of a product of many rows: exchanged sums, and results"),
    "stream_share": Constant(0.94, HEAD, "of the memory ceiling at which weights, keys and values are read"),
}


class Chain(Implementation):
    name, kind, fused, graph = "chain", "gpu", True, True
    kernels_a_layer = PRODUCTS_A_LAYER + 1
    sources = (EMBED, DEFAULTS, *products.SOURCES, *sorted(kernel_compiler.list_kernel_files(attention.KERNEL)))
    improvements = ("larger batches share the weights", "narrower weights")

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        if device.capability != kernel_compiler.HOPPER_CAPABILITY:
            return "it is written for compute capability 9.0"
        if case.shape["batch"] > products.MOST_ROWS:
            return f"a batch of {case.shape['batch']}; it takes {products.MOST_ROWS} sequences"
        model = Dense(**case.params["model"])
        if model.head_size not in attention.HEAD_SIZES:
            return f"heads of {model.head_size}; its attention takes {', '.join(map(str, attention.HEAD_SIZES))}"
        multiples = {"hidden": EMBEDDED, "inner": products.SLICE_DEPTH, "vocabulary": STORED}
        sizes = ((name, getattr(model, name), of) for name, of in multiples.items())
        uneven = [f"{name} {size} is not a multiple of {of}" for name, size, of in sizes if size % of]
        return ", ".join(uneven) or None

    @classmethod
    def copies_wanted(cls, case, least_copies: int) -> int:
        """One: each layer has its own weights and cache, so a step is cold unless a cache holds the whole model."""
        return 1

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.model = Dense(**case.params["model"])
        self.batch, self.context = case.shape["batch"], case.shape["context"]
        self.rows = products.padded_rows(self.batch)

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.weights = copies[0]
        self._make_buffers(self.device.xp)

    def _make_buffers(self, xp) -> None:
        """Those that products multiply have all rows of a block: boxes that reach beyond a matrix are slow."""
        model, batch, rows = self.model, self.batch, max(products.FEWEST_OF_MANY, self.rows)
        of_heads = model.heads * model.head_size

        def numbers(rows: int, columns: int):
            return self.device.empty((rows, columns), self.case.dtype)

        self.stream, self.query = numbers(batch, model.hidden), numbers(batch, of_heads)
        self.scaled, self.attended = numbers(rows, model.hidden), numbers(rows, of_heads)
        self.gated, self.logits = numbers(rows, model.inner), numbers(batch, model.vocabulary)
        self.squares = xp.empty((model.hidden // 8, self.rows), xp.float32)  # as many parts as a product may leave
        self.turns = xp.asarray(turns(model, self.context - 1), xp.float32)
        self._divide_attention(xp)

    def _divide_attention(self, xp) -> None:
        """Its plan, and what its blocks leave for one another: held here, since a graph does not hold its buffers."""
        model = self.model
        shape = attention.AttentionShape(self.batch, model.heads, model.kv_heads, model.head_size, self.context)
        division = attention.plan_attention(shape, self.case.dtype, self.device.limits)
        queries = self.batch * model.heads if division.splits > 1 else 0
        self.splits = xp.empty((queries, division.splits, model.head_size + attention.PADDING_FLOATS), xp.float32)
        self.splits_arrived = xp.zeros(self.batch * model.kv_heads * division.tiles, xp.uint32)
        self.division = division

    # -- launches

    def launches(self) -> list[Callable[[], None]]:
        """Of one step, in their order."""
        model, weights = self.model, self.weights
        found, parts = [self._embed()], model.hidden // EMBEDDED
        attend = self._attention()
        for layer in range(model.layers):
            of = {name.partition(".")[2]: array for name, array in weights.items() if name.startswith(f"{layer}.")}
            after = weights.get(f"{layer + 1}.input_norm", weights["last_norm"])
            heads = {name: of[name] for name in ("bias", "query_norm", "key_norm") if name in of}
            heads |= {"keys": of["keys"], "values": of["values"], "turns": self.turns}
            found += [
                self._normed(products.EPILOGUE_QKV, parts, of["qkv"], self.query, **heads),
                attend(of["keys"], of["values"]),
            ]
            added, parts = self._added(self.attended, of["o"], of["middle_norm"])
            found += [added, self._normed(products.EPILOGUE_GATED, parts, of["gate_up"], self.gated)]
            added, parts = self._added(self.gated, of["down"], after)
            found.append(added)
        head = self._normed(products.EPILOGUE_NONE, parts, weights["head"], self.logits)
        return [*found, head]

    def _embed(self) -> Callable[[], None]:
        import numpy

        defines = (f"-DBF16={int(self.case.dtype == 'bf16')}", f"-DROWS={self.rows}")
        kernel = self.device.load_kernel(EMBED, "embed", defines)
        launch = self.device.make_launcher(kernel, (self.batch,), (EMBED_THREADS,), 0, overlap=True)
        weights, hidden = self.weights, numpy.int32(self.model.hidden)
        arguments = (self.weights["tokens"], weights["embedding"], weights["0.input_norm"])
        return lambda: launch((*arguments, self.stream, self.scaled, self.squares, hidden))

    def _attention(self) -> Callable:
        import numpy

        model, device, division = self.model, self.device, self.division
        defines = (*division.variant.defines(self.case.dtype, model.head_size), "-DAPPENDED=1")
        kernel = device.load_kernel(attention.KERNEL, "decode_attention", defines)
        kernel.max_dynamic_shared_size_bytes = device.limits.shared_per_block
        numbers = map(numpy.int32, (self.context, model.heads // model.kv_heads, division.splits))
        rest = (self.attended, self.splits, self.splits_arrived, *numbers)
        threads = (division.variant.warps * LANES_PER_WARP,)
        launch = device.make_launcher(kernel, (division.blocks,), threads, division.shared_bytes, overlap=True)

        def attend(keys, values) -> Callable[[], None]:
            return lambda: launch((self.query, keys, values, *rest))

        return attend

    def _normed(self, way: int, parts: int, w, y, **tensors) -> Callable[[], None]:
        """A product of the scaled stream, whose results the norm's factors scale: of `parts` sums of squares."""
        return self._product(way, self.scaled, w, parts, y=y, squares=self.squares, **tensors)[0]

    def _added(self, x, w, g) -> tuple[Callable[[], None], int]:
        """A product that is added to the stream, and how many sums of squares it leaves of each row."""
        return self._product(
            products.EPILOGUE_ADDED, x, w, 0, y=self.scaled, stream=self.stream, next_squares=self.squares, g=g
        )

    def _product(self, way: int, x, w, parts: int, **tensors) -> tuple[Callable[[], None], int]:
        """Of x [batch, inputs] with w [outputs, inputs], and what follows it."""
        model, device = self.model, self.device
        heads = {"head_size": model.head_size, "whole_heads": model.norms} if way == products.EPILOGUE_QKV else {}
        task = products.GemmTask(self.batch, *w.shape, leaves_squares=way == products.EPILOGUE_ADDED, **heads)
        plan = products.plan_gemm(task, device.limits)
        epilogue = products.Epilogue(way, model.head_size, model.norms, model.bias)
        product = products.HopperGemm(device, self.case.dtype, plan, epilogue)
        sizes = (model.heads, model.kv_heads, self.context, parts, model.eps)
        arguments = product.make_arguments(self.batch, x, w, sizes, tensors)
        launch = product.make_launcher(device, overlap=True)
        return lambda: launch(arguments), plan.squares_parts

    def costs(self, scope: str | None) -> CostTerms:
        return costs(self.model, self.rows)

    # -- the step

    @cached_property
    def captured(self):
        launches = self.launches()
        return self.device.capture_graph(lambda: [launch() for launch in launches])

    def step(self, scope: str | None):
        graph, stream = self.captured, self.device.stream

        def step(index: int):
            graph.launch(stream)
            return self.logits

        return step


def costs(model: Dense, rows: int) -> CostTerms:
    """Of a step whose products have `rows` rows of x, padded as the kernels have them."""
    many = (PRODUCTS_A_LAYER * model.layers + 1) * rows if rows > products.FEW_ROWS else 0
    return CostTerms(
        calls={"graph_launch_s": 1.0},
        start={"kernel_start_s": float(Chain.kernels_a_layer * model.layers + OTHER_KERNELS)},
        extra={"row_s": float(many)} if many else {},
        share="stream_share",
    )
