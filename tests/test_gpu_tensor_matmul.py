"""Our products by mma.sync and our RMSNorm on a real card (pytest -m gpu): right in every shape and at every edge.

Compiled for the plain architecture, so that Hopper takes the way of all others too.
"""

from pathlib import Path

import numpy
import pytest
from fake_gpu import real_gpu, skip_unless_supported

import roofline
from roofline.core.dtypes import array_dtype, relative_error

pytestmark = pytest.mark.gpu

OPERATORS = Path(roofline.__file__).parent / "operators"
PRODUCT = OPERATORS / "gemm/kernels/tensor_matmul.cu"
FUSED = OPERATORS / "rmsnorm_matmul/kernels/rmsnorm_matmul.cu"
NORM = OPERATORS / "rmsnorm_matmul/kernels/rms_norm.cu"
DTYPES = ("fp16", "bf16")
TOLERANCE = {"fp16": 1e-3, "bf16": 1e-2}
EPS = 1e-6
TILE = 128  # rows and columns of C, a block of the product
DIVISIONS = [(64, 2), (64, 8), (128, 1), (128, 4)]  # outputs a block, parts of k


@pytest.fixture
def device():
    return real_gpu()


def on_device(device, values, dtype: str):
    return device.to_device(numpy.asarray(values, numpy.float32)).astype(array_dtype(dtype))


def random_inputs(batch: int, outputs: int, hidden: int):
    random = numpy.random.default_rng(7)
    x = random.standard_normal((batch, hidden))
    return x, random.standard_normal((outputs, hidden)) / hidden**0.5, 1 + 0.1 * random.standard_normal(hidden)


def wide(device, array):
    return device.to_host(array).astype(numpy.float64)


def normalised(x, g):
    return x / numpy.sqrt((x**2).mean(axis=1, keepdims=True) + EPS) * g


def empty(device, shape: tuple[int, ...], dtype: str):
    array = device.empty(shape, dtype)
    device.poison(array)
    return array


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1000, 520, 328), (4096, 256, 64), (128, 128, 8), (1, 8, 4096), (129, 136, 40), (2048, 2048, 1024)],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_is_right_at_every_edge(device, dtype, m, n, k):
    skip_unless_supported(device, dtype)
    a, b, c = device.normal((m, k), dtype, 1), device.normal((n, k), dtype, 2), empty(device, (m, n), dtype)
    kernel = device.load_kernel(PRODUCT, "tensor_matmul", (f"-DBF16={int(dtype == 'bf16')}",))
    kernel((-(-m // TILE) * -(-n // TILE),), (256,), (a, b, c, *map(numpy.int32, (m, n, k))))
    assert relative_error(wide(device, c), wide(device, a) @ wide(device, b).T) < TOLERANCE[dtype]


def fused_error(device, dtype: str, x, w, g, columns: int, splits: int) -> float:
    """Of the kernel's result."""
    (batch, hidden), outputs = x.shape, len(w)
    rows = max(8, 1 << (min(batch, 64 if columns == 128 else 128) - 1).bit_length())
    stage_bytes = (columns + rows + 1) * 128
    stages = min(4, device.properties["MaxSharedMemoryPerBlockOptin"] // (stage_bytes + 64))
    numbers = {"BF16": int(dtype == "bf16"), "BATCH": rows, "COLUMNS": columns, "SPLITS": splits}
    numbers |= {"STAGES": stages, "BLOCKS": 1}
    kernel = device.load_kernel(FUSED, "rmsnorm_matmul", tuple(f"-D{key}={n}" for key, n in numbers.items()))
    kernel.max_dynamic_shared_size_bytes = stages * stage_bytes
    grid = (-(-outputs // columns) * splits, -(-batch // rows))
    blocks = grid[0] * grid[1]
    x, w, g = (on_device(device, values, dtype) for values in (x, w, g))
    y, workspace = empty(device, (batch, outputs), dtype), empty(device, (blocks * (columns + 1) * rows,), "fp32")
    sizes = (*map(numpy.int32, (batch, outputs, hidden)), numpy.float32(EPS))
    arguments = (x, w, g, y, workspace, device.xp.zeros(blocks // splits, "uint32"), *sizes)
    kernel(grid, (2 * columns,), arguments, shared_mem=stages * stage_bytes)
    x, w, g = (wide(device, array) for array in (x, w, g))
    return relative_error(wide(device, y), normalised(x, g) @ w.T)


@pytest.mark.parametrize("batch", [1, 8, 32, 100, 128])
@pytest.mark.parametrize(("columns", "splits"), DIVISIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fused_product_is_right_in_every_shape(device, dtype, columns, splits, batch):
    skip_unless_supported(device, dtype)
    for hidden, outputs in ((512, 256), (2048, 2048), (4104, 1000)):
        error = fused_error(device, dtype, *random_inputs(batch, outputs, hidden), columns, splits)
        assert error < TOLERANCE[dtype], (hidden, outputs)


@pytest.mark.parametrize(("rows", "hidden"), [(1, 8), (1, 2048), (128, 4096), (33, 8192), (2, 16384), (3, 20_000)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_is_right_for_short_and_long_rows(device, dtype, rows, hidden):
    skip_unless_supported(device, dtype)
    x, _, g = random_inputs(rows, 1, hidden)
    x[0] *= 1e-3
    x, g, out = on_device(device, x, dtype), on_device(device, g, dtype), empty(device, (rows, hidden), dtype)
    kernel = device.load_kernel(NORM, "rms_norm", (f"-DBF16={int(dtype == 'bf16')}",))
    threads = min(1024, -(-hidden // 256) * 32)
    kernel((rows,), (threads,), (x, g, out, numpy.int32(hidden), numpy.float32(EPS)))
    assert relative_error(wide(device, out), normalised(wide(device, x), wide(device, g))) < TOLERANCE[dtype]
