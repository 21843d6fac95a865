"""GEMM workloads of a GPU: the reference GEMM by `cupy.matmul`; by cuBLASLt every dtype, shape, layout and algorithm;
by a kernel of ours fp16 and bf16."""

import itertools
from collections.abc import Iterator

from roofline.core.dtypes import DTYPES, PRODUCT_DTYPES, ProductOutput, array_dtype, dtype_bytes
from roofline.core.terms import Array, UnsupportedError
from roofline.devices.base import CudaDevice, Step, Workload
from roofline.operators.gemm import cublaslt, tensor_matmul
from roofline.operators.gemm import gemm_arithmetic as arithmetic
from roofline.operators.gemm.block_scales import ScaleFactors
from roofline.operators.gemm.cublaslt import CublasLt, GemmProblem, GemmShape
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

# CuPy multiplies floats whose product has their own type; the others only cuBLASLt.
BY_CUPY = [name for name in PRODUCT_DTYPES if DTYPES[name].is_float and DTYPES[name].outputs[0].dtype == name]
SCALES_TEXT = "a random factor of 0.5 to 2 for each {0.across} x {0.along_k} of A, {1.across} x {1.along_k} of B"
ALGORITHMS = 8  # per shape and layout, that the heuristic is asked for

# m, n and k over the reference GEMM's size. The best differ by dtype: a long k spends less on beginnings and ends,
# a short product is over before the power limit acts.
RELATIVE_SHAPES = ((1, 1, 1), (1, 1, 4), (0.5, 1, 3.25), (0.5, 0.5, 4), (2, 2, 2), (0.75, 0.75, 0.75), (0.5, 0.5, 1))
# m over the number of multiprocessors, so that the last wave of tiles is full; n and k as above.
FULL_WAVES = ((64, 1, 2), (32, 1, 1), (16, 0.5, 1))
ALIGNMENT = 64  # kernels of every dtype suit rows and columns that are multiples of it
# Products whose tiles fill all multiprocessors exactly once or twice, with a k so long that beginnings and ends take
# next to no time. On three H200s such a product was the fastest in tf32, fp16, bf16, fp8 and int8, on two in fp64.
EXACT_WAVES = (1, 2)
LONGEST_K, K_MULTIPLE = 65536, 1024  # fp8 with fast accumulation has an error of 0.008 at 65536 and 0.011 at 131072
MOST_ASPECT = 4  # of such a product's longer side over the shorter
# Rows and columns of a tile of the kernels that win on H100 and H200, by dtype and accumulation.
WIDE_TILE, SQUARE_TILE = (128, 256), (128, 128)
SQUARE_TILES = (("fp64", "fp64"), ("fp32", "fp32"), ("fp8_e4m3", "fp32"), ("fp8_block", "fp32"))
SAMPLED_BLOCKS = 4  # blocks of rows, and of columns, that are compared with float64
SAMPLED_ROWS, SAMPLED_COLUMNS = 4, 64  # of a block
SAMPLED_NUMBERS = 2**20  # of B at most, that a block of columns holds


def candidate_shapes(
    size: int, multiprocessors: int, most_flops: float, tile: tuple[int, int] = WIDE_TILE
) -> list[GemmShape]:
    """Return the shapes to try in their order: time may end the search.

    The reference GEMM is the first, then exact waves of tiles, then what was the fastest of shorter products.
    """
    relative = [GemmShape(*(_aligned(factor * size, size) for factor in factors)) for factors in RELATIVE_SHAPES]
    waves = [exact_waves_shape(count * multiprocessors, tile, most_flops) for count in EXACT_WAVES]
    full_waves = [
        GemmShape(_full_waves(rows * multiprocessors), _aligned(n * size, size), _aligned(k * size, size))
        for rows, n, k in FULL_WAVES
    ]
    return list(dict.fromkeys([relative[0], *filter(None, waves), relative[1], *full_waves, *relative[2:]]))


def exact_waves_shape(tiles: int, tile: tuple[int, int], most_flops: float) -> GemmShape | None:
    """Return the product of so many tiles with the longest k of at most `most_flops`; None if that is too short.

    Its sides have the smallest sum within MOST_ASPECT. If no grid of exactly so many tiles is, it has the most tiles of
    those that are.
    """
    for count in range(tiles, 0, -1):
        grids = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
        sides = [(rows * tile[0], columns * tile[1]) for rows, columns in grids]
        if fitting := [pair for pair in sides if max(pair) <= MOST_ASPECT * min(pair)]:
            smallest = min(fitting, key=sum)
            affordable_k = int(most_flops / arithmetic.gemm_flops(*smallest, 1)) // K_MULTIPLE * K_MULTIPLE
            return GemmShape(*smallest, min(LONGEST_K, affordable_k)) if affordable_k else None
    return None


def _aligned(length: float, size: int) -> int:
    return size if length == size else max(ALIGNMENT, round(length / ALIGNMENT) * ALIGNMENT)


def _full_waves(length: int) -> int:
    """Return the length aligned downwards: one more row of tiles would need another wave."""
    return max(ALIGNMENT, length // ALIGNMENT * ALIGNMENT)


class CublasLtWorkloads:
    """Products of one dtype by cuBLASLt and by our kernel. All use the same operands, which fit the largest shape."""

    def __init__(self, device: CudaDevice, dtype: str, shapes: list[GemmShape], seed: int):
        self._device, self._dtype, self._shapes = device, dtype, shapes
        self._inputs = inputs_text(dtype)
        self._workspace = device.xp.empty(cublaslt.CUBLASLT_WORKSPACE_BYTES, "uint8")
        self._lt = CublasLt(self._workspace.data.ptr)
        self._a = device.normal((max(shape.m * shape.k for shape in shapes),), dtype, seed)
        self._b = device.normal((max(shape.n * shape.k for shape in shapes),), dtype, seed + 1)
        scales, most_results = DTYPES[dtype].scales, max(shape.m * shape.n for shape in shapes)
        self._d = device.xp.empty(_widest_output_bytes(dtype) * most_results, "uint8")
        self._factors = {shape: ScaleFactors(device, scales, shape, seed) for shape in shapes if scales}

    def candidates(self, output: ProductOutput) -> Iterator[Workload]:
        """Yield the heuristic's first choice for every shape and layout, then every second choice, and so on."""
        offered = []
        for shape, layout in itertools.product(self._shapes, cublaslt.layouts(self._dtype)):
            problem = GemmProblem(self._dtype, shape, layout, output)
            factors = self._factors[shape].addresses if shape in self._factors else None
            algorithms = self._lt.find_algorithms(problem, count=ALGORITHMS, factor_addresses=factors)
            offered.append((problem, algorithms))
        for rank in range(ALGORITHMS):
            for problem, algorithms in offered:
                if rank < len(algorithms):
                    yield self._workload(problem, algorithms[rank])

    def _workload(self, problem: GemmProblem, algorithm: cublaslt.CublasAlgorithm) -> Workload:
        a_address, b_address, d_address = (array.data.ptr for array in (self._a, self._b, self._d))
        stream = self._device.stream.ptr

        def step(index: int) -> None:
            algorithm.run(a_address, b_address, d_address, stream)

        choice = f"choice {algorithm.rank + 1} of the heuristic: {algorithm.name}"
        return self._make_workload(problem, arithmetic.CUBLASLT, choice, step)

    def own_kernel_workloads(self) -> Iterator[Workload]:
        """Yield our kernel's product of every shape; none for a dtype that the kernel does not have."""
        for shape in self._shapes if self._dtype in tensor_matmul.HALF_DTYPES else ():
            problem = GemmProblem(self._dtype, shape, "TN", DTYPES[self._dtype].outputs[0])
            yield self._make_workload(problem, tensor_matmul.LIBRARY_NAME, None, self._own_kernel_step(shape))

    def _own_kernel_step(self, shape: GemmShape) -> Step:
        """Compile our kernel and return its step; for a shape that it does not take, a step that raises the reason.

        D as cuBLASLt stores it, by columns, is to our kernel D^T = B A^T, stored by rows.
        """
        m, n, k = shape
        if reason := tensor_matmul.refusal_reason(self._dtype, self._device.capability, m, k):
            return _refusing_step(reason)
        d = self._d[: dtype_bytes(self._dtype, m * n)].view(array_dtype(self._dtype)).reshape(n, m)
        a, b = self._a[: m * k].reshape(m, k), self._b[: n * k].reshape(n, k)
        run = tensor_matmul.make_launch(self._device, self._dtype, b, a, d)
        return lambda index: run()

    def _make_workload(self, problem: GemmProblem, library: str, algorithm: str | None, step: Step) -> Workload:
        spec = WorkloadSpec(
            library=library,
            shape=problem.shape._asdict(),
            layout=problem.layout,
            algorithm=algorithm,
            accumulation=problem.output.accumulation,
            output=problem.output.dtype,
        )
        return Workload(
            product=spec,
            flops=arithmetic.gemm_flops(*problem.shape),
            step=step,
            clear=lambda: self._device.poison(self._d),
            compare=lambda: self._compare(problem, library),
            inputs=self._inputs,
        )

    def _compare(self, problem: GemmProblem, library: str) -> Check:
        """Compare blocks of D, from the corners and between them, with float64."""
        dtype, (m, n, k), layout, output = problem
        self._device.synchronize()
        sampled_columns = max(SAMPLED_ROWS, min(SAMPLED_COLUMNS, SAMPLED_NUMBERS // k))
        rows, columns = _sample_slices(m, SAMPLED_ROWS), _sample_slices(n, sampled_columns)
        a_blocks = self._copy_operand("activations", problem.shape, rows, by_rows=layout[0] == "T")
        b_blocks = self._copy_operand("weights", problem.shape, columns, by_rows=layout[1] == "N")
        d_matrix = self._d[: dtype_bytes(output.dtype, m * n)].view(array_dtype(output.dtype)).reshape(n, m)
        d_blocks = [[_copy_block(d_matrix, rows=column, columns=row).T for column in columns] for row in rows]
        label = f"{dtype} product {m} x {n} x {k} {layout} by {library}"
        return _compare_blocks(label, dtype, output, a_blocks, b_blocks, d_blocks)

    def _copy_operand(self, name: str, shape: GemmShape, parts: list[slice], by_rows: bool) -> list[Array]:
        """Return these rows of A or columns of B, [part, k] each, times their scale factors."""
        buffer, length = {"activations": (self._a, shape.m), "weights": (self._b, shape.n)}[name]
        sides = (length, shape.k) if by_rows else (shape.k, length)
        matrix = buffer[: length * shape.k].reshape(sides)
        blocks = [_copy_block(matrix, rows=part) if by_rows else _copy_block(matrix, columns=part).T for part in parts]
        blocks = [block.view(array_dtype(self._dtype)) for block in blocks]  # fp8 is bytes on the device
        if shape not in self._factors:
            return blocks
        return [self._factors[shape].scaled(name, block, part) for block, part in zip(blocks, parts, strict=True)]


def _refusing_step(reason: str) -> Step:
    def step(index: int) -> None:
        raise UnsupportedError(reason)

    return step


def _widest_output_bytes(dtype: str) -> int:
    """Return the bytes of a number of a dtype's widest result."""
    return max(dtype_bytes(output.dtype) for output in DTYPES[dtype].outputs)


def _sample_slices(length: int, width: int) -> list[slice]:
    """Return SAMPLED_BLOCKS slices of at most `width`, evenly spread from the first index to the last."""
    width = min(width, length // SAMPLED_BLOCKS)
    starts = [(length - width) * index // (SAMPLED_BLOCKS - 1) for index in range(SAMPLED_BLOCKS)]
    return [slice(start, start + width) for start in starts]


def _copy_block(matrix: Array, rows: slice | None = None, columns: slice | None = None) -> Array:
    """Return these rows and columns (None: all) of a matrix on the host. No kernel is compiled for the copy."""
    import cupy
    import numpy

    rows, columns = rows or slice(0, matrix.shape[0]), columns or slice(0, matrix.shape[1])
    block = numpy.empty((rows.stop - rows.start, columns.stop - columns.start), matrix.dtype)
    start, width = matrix[rows.start, columns.start :].data.ptr, block.shape[1] * block.itemsize
    copy_down = cupy.cuda.runtime.memcpyDeviceToHost
    cupy.cuda.runtime.memcpy2D(block.ctypes.data, width, start, matrix.strides[0], width, len(block), copy_down)
    return block


# ---------------------------------------------------------------- the interface that numpy_products.py has too


def planned_references(device: CudaDevice, dtype: str, size: int) -> list[tuple[str, str]]:
    """Return library and output of the workloads that are timed as operators: the reference GEMM, and our kernel's."""
    reference = ("cupy.matmul", dtype) if dtype in BY_CUPY else (arithmetic.CUBLASLT, DTYPES[dtype].outputs[0].dtype)
    refused = tensor_matmul.refusal_reason(dtype, device.capability, size, size)
    return [reference] if refused else [reference, (tensor_matmul.LIBRARY_NAME, dtype)]


def reference_workload(device: CudaDevice, dtype: str, size: int, seed: int) -> Workload:
    """Return the reference GEMM: by cupy.matmul, or by cuBLASLt's first choice for a dtype that CuPy lacks.

    Raises UnsupportedError if cuBLASLt offers no algorithm.
    """
    if dtype in BY_CUPY:
        return _cupy_workload(device, dtype, size, seed)
    workloads = CublasLtWorkloads(device, dtype, [GemmShape(size, size, size)], seed)
    workload = next(workloads.candidates(DTYPES[dtype].outputs[0]), None)
    if workload is None:
        raise UnsupportedError(f"cuBLASLt offers no {dtype} product of size {size} on this card")
    return workload


def _cupy_workload(device: CudaDevice, dtype: str, size: int, seed: int) -> Workload:
    a = device.normal((size, size), dtype, seed)
    b = device.normal((size, size), dtype, seed + 1)
    c = device.empty((size, size), dtype)

    def step(index: int) -> None:
        device.xp.matmul(a, b, out=c)

    def compare() -> Check:
        device.synchronize()
        rows, columns = _sample_slices(size, SAMPLED_ROWS), _sample_slices(size, SAMPLED_COLUMNS)
        sampled_a = [_copy_block(a, rows=part) for part in rows]
        sampled_b = [_copy_block(b, columns=part).T for part in columns]
        sampled_c = [[_copy_block(c, row_part, column_part) for column_part in columns] for row_part in rows]
        output = DTYPES[dtype].outputs[0]
        return _compare_blocks(f"{dtype} matmul {size}", dtype, output, sampled_a, sampled_b, sampled_c)

    return Workload(
        product=arithmetic.library_choice("cupy.matmul", size, dtype),
        flops=arithmetic.gemm_flops(size, size, size),
        step=step,
        clear=lambda: device.poison(c),
        compare=compare,
        inputs=inputs_text(dtype),
        result=c,
    )


def _compare_blocks(
    label: str, dtype: str, output: ProductOutput, a_blocks: list, b_blocks: list, c_blocks: list
) -> Check:
    """Compare the blocks of C where these rows of A and columns of B meet, [rows, k] each."""
    import numpy

    a, b, c = numpy.vstack(a_blocks), numpy.vstack(b_blocks).T, numpy.block(c_blocks)
    return arithmetic.compare_product(label, dtype, output, a, b, c)


def candidate_workloads(device: CudaDevice, dtype: str, size: int, most_flops: float, seed: int) -> Iterator[Workload]:
    """Yield the reference GEMM by CuPy, then products by our kernel and by cuBLASLt of at most `most_flops`."""
    if dtype in BY_CUPY:
        yield _cupy_workload(device, dtype, size, seed)
    output = DTYPES[dtype].outputs[0]
    workloads = CublasLtWorkloads(device, dtype, _fitting_shapes(device, dtype, output, size, most_flops), seed)
    yield from workloads.own_kernel_workloads()
    yield from workloads.candidates(output)


def own_reference_workloads(device: CudaDevice, dtype: str, size: int, seed: int) -> list[Workload]:
    """Return our kernel's product of the reference GEMM's size, which is timed as an operator too; none if refused."""
    if tensor_matmul.refusal_reason(dtype, device.capability, size, size):
        return []  # the search's record has the reason
    workloads = CublasLtWorkloads(device, dtype, [GemmShape(size, size, size)], seed)
    return list(workloads.own_kernel_workloads())


def rebuild_workload(device: CudaDevice, dtype: str, size: int, product: WorkloadSpec, seed: int) -> Workload:
    """Return the product of a record on new operands. Raises LookupError if cuBLASLt no longer offers it."""
    if product.library == "cupy.matmul":
        return _cupy_workload(device, dtype, size, seed)
    workloads = CublasLtWorkloads(device, dtype, [GemmShape(**product.shape)], seed)
    if product.library == tensor_matmul.LIBRARY_NAME:
        return next(workloads.own_kernel_workloads())
    for workload in workloads.candidates(ProductOutput(product.output, product.accumulation)):
        if workload.product == product:
            return workload
    raise LookupError(f"cuBLASLt no longer offers {product.algorithm} for {dtype} {product.shape}")


def variant_workloads(
    device: CudaDevice, dtype: str, size: int, most_flops: float, seed: int
) -> Iterator[list[Workload]]:
    """Yield, for each other output or accumulation of the dtype, its candidates of at most `most_flops`."""
    for output in DTYPES[dtype].outputs[1:]:
        shapes = _fitting_shapes(device, dtype, output, size, most_flops)
        yield list(CublasLtWorkloads(device, dtype, shapes, seed).candidates(output))


def inputs_text(dtype: str) -> str:
    """Return the description of a dtype's operands, for the record."""
    row = DTYPES[dtype]
    if not row.is_float:
        return f"{row.standard_deviation:g} x standard normal numbers, rounded and clipped to -127 to 127"
    if row.scales:
        return f"standard normal numbers, rounded to {row.stored_as}; {SCALES_TEXT.format(*row.scales)}"
    if row.stored_as != dtype:
        return f"standard normal {row.stored_as} numbers; the tensor cores round them to {dtype}"
    return f"standard normal numbers, rounded to {dtype}"


def _fitting_shapes(
    device: CudaDevice, dtype: str, output: ProductOutput, size: int, most_flops: float
) -> list[GemmShape]:
    """Return the shapes of at most `most_flops` whose operands and result take at most a quarter of the free memory.

    The reference GEMM remains if none fits.
    """
    limit = device.identity.memory_free_bytes // 4
    result_bytes = _widest_output_bytes(dtype)

    def fits(shape: GemmShape) -> bool:
        m, n, k = shape
        product_bytes = dtype_bytes(dtype, (m + n) * k) + m * n * result_bytes
        return product_bytes <= limit and arithmetic.gemm_flops(m, n, k) <= most_flops

    tile = SQUARE_TILE if (dtype, output.accumulation) in SQUARE_TILES else WIDE_TILE
    shapes = candidate_shapes(size, device.multiprocessors, most_flops, tile)
    return [shape for shape in shapes if fits(shape)] or shapes[:1]
