"""Products on a GPU: the reference GEMM by `cupy.matmul`; by cuBLASLt every dtype, shape, layout and algorithm; by a
kernel of ours fp16 and bf16."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from roofline.core.dtypes import ITEM_BYTES, array_dtype
from roofline.core.terms import UnsupportedError
from roofline.devices.base import Workload
from roofline.operators.gemm import tensor_matmul
from roofline.operators.gemm.cublaslt import ARITHMETIC_BY_DTYPE, CUBLASLT_WORKSPACE_BYTES, CublasLt
from roofline.operators.gemm.gemm_arithmetic import compare_product, gemm_flops
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

BY_CUPY = ("fp64", "fp32", "fp16", "bf16")
# What cuBLASLt writes of a dtype, and how it sums: the first is the ceiling, the others are variants.
FAST_ACCUMULATION, EXACT_ACCUMULATION = "fp32 with fast accumulation", "fp32"
OUTPUTS = {
    "fp64": [("fp64", "fp64")],
    "fp32": [("fp32", "fp32")],
    "tf32": [("fp32", "fp32")],
    "fp16": [("fp16", "fp32")],
    "bf16": [("bf16", "fp32")],
    "fp8_e4m3": [("bf16", FAST_ACCUMULATION), ("bf16", EXACT_ACCUMULATION)],
    "int8": [("int8", "int32"), ("int32", "int32")],
}
INPUTS = {
    "tf32": "standard normal fp32 numbers; the tensor cores round them to tf32",
    "int8": "32 x standard normal numbers, rounded and clipped to -127 to 127",
}
INT8_SCALE = 32.0
ALGORITHMS = 8  # asked of the heuristic for each shape and layout

# m, n and k over the reference GEMM's size. The best differ by dtype: a long k spends less on beginnings and ends,
# a short product is over before the power limit acts.
SHAPES = ((1, 1, 1), (1, 1, 4), (0.5, 1, 3.25), (0.5, 0.5, 4), (2, 2, 2), (0.75, 0.75, 0.75), (0.5, 0.5, 1))
# m as a multiple of the multiprocessors, so that the last wave of tiles is full; n and k as above.
FULL_WAVES = ((64, 1, 2), (32, 1, 1), (16, 0.5, 1))
SHAPES_BEFORE_FULL_WAVES = (
    2  # SHAPES before FULL_WAVES: with the first two of these they were the fastest on every H100 and H200
)
ALIGNMENT = 64  # rows and columns a multiple of this suit every dtype's kernels
SAMPLED_BLOCKS = 4  # blocks of rows, and of columns, compared with float64
SAMPLED_ROWS, SAMPLED_COLUMNS = 4, 64


class GemmShape(NamedTuple):
    m: int
    n: int
    k: int


def candidate_shapes(size: int, multiprocessors: int) -> list[GemmShape]:
    """Shapes to try, the reference GEMM first, then those that were fastest before: time may end the search."""
    found = [GemmShape(*(_aligned(part * size, size) for part in parts)) for parts in SHAPES]
    found[SHAPES_BEFORE_FULL_WAVES:SHAPES_BEFORE_FULL_WAVES] = [
        GemmShape(_full_waves(rows * multiprocessors), _aligned(n * size, size), _aligned(k * size, size))
        for rows, n, k in FULL_WAVES
    ]
    return list(dict.fromkeys(found))


def _aligned(length: float, size: int) -> int:
    return size if length == size else max(ALIGNMENT, round(length / ALIGNMENT) * ALIGNMENT)


def _full_waves(length: int) -> int:
    """Aligned downwards: a row of tiles too many would be its own wave."""
    return max(ALIGNMENT, length // ALIGNMENT * ALIGNMENT)


class CublasLtWorkloads:
    """Products of one dtype by cuBLASLt and by ours, all on the same operands, which fit the largest shape."""

    def __init__(self, device, dtype: str, shapes: list[GemmShape], seed: int):
        self._device, self._dtype, self._shapes = device, dtype, shapes
        self._inputs = inputs_text(dtype)
        self._workspace = device.xp.empty(CUBLASLT_WORKSPACE_BYTES, "uint8")
        self._lt = CublasLt(self._workspace.data.ptr)
        self._a = device.normal((max(shape.m * shape.k for shape in shapes),), dtype, seed)
        self._b = device.normal((max(shape.n * shape.k for shape in shapes),), dtype, seed + 1)
        largest = max(ITEM_BYTES[output] for output, _ in OUTPUTS[dtype])
        self._d = device.xp.empty(largest * max(shape.m * shape.n for shape in shapes), "uint8")

    def candidates(self, output: str, accumulation: str) -> Iterator[Workload]:
        """The heuristic's first choice of every shape and layout, then every second choice, and so on."""
        offered = [
            (shape, layout, self._algorithms(shape, layout, output, accumulation))
            for shape in self._shapes
            for layout in ARITHMETIC_BY_DTYPE[self._dtype].layouts
        ]
        for rank in range(ALGORITHMS):
            for shape, layout, algorithms in offered:
                if rank < len(algorithms):
                    yield self._workload(shape, layout, algorithms[rank], output, accumulation)

    def _algorithms(self, shape: GemmShape, layout: str, output: str, accumulation: str) -> list:
        return self._lt.algorithms(
            self._dtype,
            *shape,
            layout,
            output,
            alpha=_int8_alpha(output, shape.k),
            fast=accumulation == FAST_ACCUMULATION,
            count=ALGORITHMS,
        )

    def _workload(self, shape: GemmShape, layout: str, algorithm, output: str, accumulation: str) -> Workload:
        a, b, d, stream = self._a.data.ptr, self._b.data.ptr, self._d.data.ptr, self._device.stream.ptr

        def step(index: int) -> None:
            algorithm.run(a, b, d, stream)

        how = f"choice {algorithm.rank + 1} of the heuristic: {algorithm.name}"
        return self._by("cuBLASLt", shape, layout, how, output, accumulation, step)

    def ours(self) -> Iterator[Workload]:
        """By our kernel, of every shape. cuBLASLt's D is stored by columns: to ours it is D^T = B A^T, by rows."""
        for shape in self._shapes if self._dtype in tensor_matmul.FIRST_CAPABILITY_BY_DTYPE else ():
            yield self._by(
                tensor_matmul.LIBRARY_NAME, shape, "TN", None, self._dtype, "fp32", self._step_of_ours(shape)
            )

    def _step_of_ours(self, shape: GemmShape):
        """Compiled at once. Where the kernel has no such product, a step that is refused with the reason."""
        m, n, k = shape
        if reason := tensor_matmul.refusal_reason(self._dtype, self._device.capability, m, k):
            return _refusing_step(reason)
        d = self._d[: m * n * ITEM_BYTES[self._dtype]].view(array_dtype(self._dtype)).reshape(n, m)
        a, b = self._a[: m * k].reshape(m, k), self._b[: n * k].reshape(n, k)
        run = tensor_matmul.make_launch(self._device, self._dtype, b, a, d)
        return lambda index: run()

    def _by(
        self, library: str, shape: GemmShape, layout: str, algorithm, output: str, accumulation: str, step
    ) -> Workload:
        return Workload(
            product=WorkloadSpec(
                library=library,
                shape=shape._asdict(),
                layout=layout,
                algorithm=algorithm,
                accumulation=accumulation,
                output=output,
            ),
            flops=gemm_flops(*shape),
            step=step,
            clear=lambda: self._device.poison(self._d),
            compare=lambda: self._compare(library, shape, layout, output),
            inputs=self._inputs,
        )

    def _compare(self, library: str, shape: GemmShape, layout: str, output: str) -> Check:
        """Blocks of rows and columns, from the corners and between, against float64."""
        m, n, k = shape
        self._device.synchronize()
        kind, out = array_dtype(self._dtype), array_dtype(output)
        rows, columns = _sample_slices(m, SAMPLED_ROWS), _sample_slices(n, SAMPLED_COLUMNS)
        a = [_copy_block(self._a, kind, k, m, slice(0, k), r).T if layout[0] == "N" else _copy_block(self._a, kind, m, k, r)
             for r in rows]  # fmt: skip
        b = [_copy_block(self._b, kind, n, k, c).T if layout[1] == "N" else _copy_block(self._b, kind, k, n, slice(0, k), c)
             for c in columns]  # fmt: skip
        d = [[_copy_block(self._d, out, n, m, c, r).T for c in columns] for r in rows]
        what = f"{self._dtype} product {m} x {n} x {k} {layout} by {library}"
        return _compare_blocks(what, self._dtype, a, b, d, _int8_alpha(output, k), rounded=output == "int8")


def _refusing_step(reason: str):
    def step(index: int) -> None:
        raise UnsupportedError(reason)

    return step


def _int8_alpha(output: str, k: int) -> float:
    """The scale that keeps int8 results of int8 operands within their range: as spread as the operands."""
    return INT8_SCALE / (INT8_SCALE**2 * math.sqrt(k)) if output == "int8" else 1.0


def _sample_slices(length: int, width: int) -> list[slice]:
    width = min(width, length // SAMPLED_BLOCKS)
    starts = [(length - width) * place // (SAMPLED_BLOCKS - 1) for place in range(SAMPLED_BLOCKS)]
    return [slice(start, start + width) for start in starts]


def _copy_block(buffer, kind, rows: int, columns: int, r: slice, c: slice | None = None):
    """A block of a row-major matrix in device memory, copied to the host without compiling a kernel for it."""
    import cupy
    import numpy

    c = c or slice(0, columns)
    block = numpy.empty((r.stop - r.start, c.stop - c.start), kind)
    width = block.shape[1] * kind.itemsize
    start = buffer.data.ptr + (r.start * columns + c.start) * kind.itemsize
    copy_down = cupy.cuda.runtime.memcpyDeviceToHost
    cupy.cuda.runtime.memcpy2D(
        block.ctypes.data, width, start, columns * kind.itemsize, width, block.shape[0], copy_down
    )
    return block


# ---------------------------------------------------------------- what the device offers


def planned_references(device, dtype: str, size: int) -> list[tuple[str, str]]:
    """Library and output of the reference GEMM, and of ours next to it."""
    reference = ("cupy.matmul", dtype) if dtype in BY_CUPY else ("cuBLASLt", OUTPUTS[dtype][0][0])
    refused = tensor_matmul.refusal_reason(dtype, device.capability, size, size)
    return [reference] if refused else [reference, (tensor_matmul.LIBRARY_NAME, dtype)]


def reference_workload(device, dtype: str, size: int, seed: int) -> Workload:
    """The reference GEMM: by cupy.matmul, or where CuPy has no such dtype by cuBLASLt's first choice."""
    if dtype in BY_CUPY:
        return _cupy_workload(device, dtype, size, seed)
    for workload in CublasLtWorkloads(device, dtype, [GemmShape(size, size, size)], seed).candidates(
        *OUTPUTS[dtype][0]
    ):
        return workload
    raise UnsupportedError(f"cuBLASLt offers no {dtype} product of size {size} on this card")


def _cupy_workload(device, dtype: str, size: int, seed: int) -> Workload:
    a, b = (device.normal((size, size), dtype, seed + place) for place in range(2))
    c = device.empty((size, size), dtype)

    def step(index: int) -> None:
        device.xp.matmul(a, b, out=c)

    def compare() -> Check:
        device.synchronize()
        kind = array_dtype(dtype)
        rows, columns = _sample_slices(size, SAMPLED_ROWS), _sample_slices(size, SAMPLED_COLUMNS)
        sampled_a = [_copy_block(a, kind, size, size, r) for r in rows]
        sampled_b = [_copy_block(b, kind, size, size, slice(0, size), column) for column in columns]
        sampled_c = [[_copy_block(c, kind, size, size, r, column) for column in columns] for r in rows]
        return _compare_blocks(f"{dtype} matmul {size}", dtype, sampled_a, sampled_b, sampled_c)

    return Workload(
        product=WorkloadSpec(
            library="cupy.matmul",
            shape={"m": size, "n": size, "k": size},
            layout="NN",
            algorithm=None,
            accumulation="fp64" if dtype == "fp64" else "fp32",
            output=dtype,
        ),
        flops=gemm_flops(size, size, size),
        step=step,
        clear=lambda: device.poison(c),
        compare=compare,
        inputs=inputs_text(dtype),
        result=c,
    )


def _compare_blocks(
    what: str, dtype: str, a: list, b: list, c: list, alpha: float = 1.0, rounded: bool = False
) -> Check:
    """Blocks of rows of A and of columns of B, and the blocks of C where they meet."""
    import numpy

    return compare_product(what, dtype, numpy.vstack(a), numpy.hstack(b), numpy.block(c), alpha, rounded)


def candidate_workloads(device, dtype: str, size: int, most_flops: float, seed: int) -> Iterator[Workload]:
    """The reference GEMM, then ours and cuBLASLt's of no more than so many FLOPs."""
    if dtype in BY_CUPY:
        yield _cupy_workload(device, dtype, size, seed)
    offered = CublasLtWorkloads(device, dtype, _fitting_shapes(device, dtype, size, most_flops), seed)
    yield from offered.ours()
    yield from offered.candidates(*OUTPUTS[dtype][0])


def own_reference_workloads(device, dtype: str, size: int, seed: int) -> list[Workload]:
    """Ours of the reference GEMM's size, where there is one: an operator too."""
    if tensor_matmul.refusal_reason(dtype, device.capability, size, size):
        return []  # the search's record has the reason
    return list(CublasLtWorkloads(device, dtype, [GemmShape(size, size, size)], seed).ours())


def rebuild_workload(device, dtype: str, size: int, product: WorkloadSpec, seed: int) -> Workload:
    """The same product on its own operands."""
    if product.library == "cupy.matmul":
        return _cupy_workload(device, dtype, size, seed)
    lt = CublasLtWorkloads(device, dtype, [GemmShape(**product.shape)], seed)
    if product.library == tensor_matmul.LIBRARY_NAME:
        return next(lt.ours())
    for workload in lt.candidates(product.output, product.accumulation):
        if workload.product == product:
            return workload
    raise LookupError(f"cuBLASLt no longer offers {product.algorithm} for {dtype} {product.shape}")


def variant_workloads(device, dtype: str, product: WorkloadSpec, seed: int) -> Iterator[list[Workload]]:
    """The candidates of the same shape with another output or accumulation."""
    for output, accumulation in OUTPUTS[dtype][1:]:
        lt = CublasLtWorkloads(device, dtype, [GemmShape(**product.shape)], seed)
        yield list(lt.candidates(output, accumulation))


def inputs_text(dtype: str) -> str:
    return INPUTS.get(dtype, f"standard normal numbers, rounded to {dtype}")


def _fitting_shapes(device, dtype: str, size: int, most_flops: float) -> list[GemmShape]:
    """Shapes of no more than so many FLOPs, whose operands and result take at most a quarter of the free memory.

    The reference GEMM alone where none is.
    """
    found = candidate_shapes(size, device.multiprocessors)
    limit = device.identity.memory_free_bytes // 4
    item, result = ITEM_BYTES[dtype], max(ITEM_BYTES[output] for output, _ in OUTPUTS[dtype])
    fitting = [
        s for s in found if (s.m + s.n) * s.k * item + s.m * s.n * result <= limit and gemm_flops(*s) <= most_flops
    ]
    return fitting or found[:1]
