"""C = A B^T in fp16 and bf16 by our kernel for tensor cores (kernels/tensor_matmul.cu): its limits and its launch."""

import math
from collections.abc import Callable
from pathlib import Path

from roofline.core import architectures
from roofline.core.dtypes import PRODUCT_DTYPES, dtype_bytes
from roofline.core.terms import Array
from roofline.devices.base import CudaDevice
from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS

LIBRARY_NAME = "tensor_matmul"
KERNEL = Path(__file__).parent / "kernels" / "tensor_matmul.cu"
HALF_DTYPES = [dtype for dtype in PRODUCT_DTYPES if dtype_bytes(dtype) == 2]  # that it is compiled for
FIRST_CAPABILITY = (7, 5)  # with mma.m16n8k8
ROW_MULTIPLE = 8  # n and k are multiples of it: rows are moved 16 bytes at a time

# As in the kernels: rows and columns of C that a block computes, its threads, its shared memory.
CLUSTER_BLOCKS = 2  # on Hopper, one below the other
HOPPER_TILE, HOPPER_THREADS = (128, 256), 384
HOPPER_MAP_ROWS = (128, 128, 64)  # of a tile in the tensor maps of A, B and C
HOPPER_STAGE_DEPTH, STAGE_DEPTH = 64, 32  # of k that a stage holds
HOPPER_SHARED_BYTES = 4 * sum(HOPPER_TILE) * HOPPER_STAGE_DEPTH * 2 + 4 * 8192 + 1024
TILE, THREADS, SHARED_BYTES = (128, 128), 256, 0


def refusal_reason(dtype: str, capability: tuple[int, int], n: int, k: int) -> str | None:
    """Return in one line why the kernel refuses a product, which would miss the tensor cores; None if it takes it."""
    if dtype not in HALF_DTYPES:
        return f"{LIBRARY_NAME}: no {dtype}; allowed: {', '.join(HALF_DTYPES)}"
    if reason := missing_tensor_cores_reason(dtype, capability):
        return f"{LIBRARY_NAME}: {reason}"
    if n % ROW_MULTIPLE or k % ROW_MULTIPLE:
        problem = f"rows of {k} and {n} numbers would miss the tensor cores"
        return f"{LIBRARY_NAME}: {problem}; allowed: multiples of {ROW_MULTIPLE}"
    return None


def missing_tensor_cores_reason(dtype: str, capability: tuple[int, int]) -> str | None:
    """Return why our kernels cannot use tensor cores for a dtype on a card; None if they can."""
    reason = architectures.missing_tensor_cores_reason(dtype, capability)
    if reason or capability >= FIRST_CAPABILITY:
        return reason
    return "compute capability {}.{}, {} needs {}.{}".format(*capability, dtype, *FIRST_CAPABILITY)


def half_type_option(dtype: str) -> str:
    """Return the option of the compiler that chooses a kernel's numbers of two bytes (kernels/half_types.cuh)."""
    return f"-DBF16={int(dtype == 'bf16')}"


def tile_shape(is_hopper: bool) -> tuple[int, int, int]:
    """Return the rows and columns of C that a block, or a cluster of blocks, computes, and the k of a stage."""
    if is_hopper:
        rows, columns = HOPPER_TILE
        return CLUSTER_BLOCKS * rows, columns, HOPPER_STAGE_DEPTH
    return *TILE, STAGE_DEPTH


def grid_blocks(m: int, n: int, is_hopper: bool, multiprocessors: int) -> int:
    """Return the number of blocks of a launch.

    Each tile has a block. On Hopper clusters stay on their multiprocessors, and all of them compute equally many tiles.
    """
    rows, columns, _ = tile_shape(is_hopper)
    tiles = math.ceil(m / rows) * math.ceil(n / columns)
    if not is_hopper:
        return tiles
    tiles_per_cluster = math.ceil(tiles / max(1, multiprocessors // CLUSTER_BLOCKS))
    return CLUSTER_BLOCKS * math.ceil(tiles / tiles_per_cluster)


def kernel_spec(dtype: str, is_hopper: bool) -> tuple:
    """Return source, name and macros of the kernel, as a device compiles it."""
    options = HOPPER_OPTIONS if is_hopper else ()
    return KERNEL, LIBRARY_NAME, (*options, half_type_option(dtype))


def make_launch(device: CudaDevice, dtype: str, a: Array, b: Array, c: Array) -> Callable[[], None]:
    """Return a function that computes C [m, n] = A [m, k] B^T of B [n, k].

    The arrays are in C order, and the caller keeps them alive. Raises ValueError for a product that the kernel refuses.
    """
    import numpy

    from roofline.devices.gpu.driver_calls import make_tensor_map

    (m, k), n, is_hopper = a.shape, b.shape[0], device.is_hopper
    if reason := refusal_reason(dtype, device.capability, n, k):
        raise ValueError(reason)
    kernel = device.load_kernel(*kernel_spec(dtype, is_hopper))
    if is_hopper:
        operands = [make_tensor_map(array, rows) for array, rows in zip((a, b, c), HOPPER_MAP_ROWS, strict=True)]
        threads, shared_bytes = HOPPER_THREADS, HOPPER_SHARED_BYTES
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    else:
        operands = [a, b, c]
        threads, shared_bytes = THREADS, SHARED_BYTES
    arguments = (*operands, *map(numpy.int32, (m, n, k)))
    grid, block = (grid_blocks(m, n, is_hopper, device.multiprocessors),), (threads,)
    return lambda: kernel(grid, block, arguments, shared_mem=shared_bytes)
