"""C = A B^T in fp16 and bf16 by a kernel of ours, on tensor cores (kernels/tensor_matmul.cu): what it takes, and its
launch."""

import math
from collections.abc import Callable
from pathlib import Path

from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS

LIBRARY_NAME = "tensor_matmul"
KERNEL = Path(__file__).parent / "kernels" / "tensor_matmul.cu"
FIRST_CAPABILITY_BY_DTYPE = {"fp16": (7, 5), "bf16": (8, 0)}  # the first compute capability that it is compiled for
ROW_MULTIPLE = 8  # of n and k: rows are moved 16 bytes at a time

# As the kernels have them: rows and columns of C that a block computes, its threads, its shared memory.
CLUSTER_BLOCKS = 2  # of Hopper's blocks, one below the other
HOPPER_TILE, HOPPER_THREADS = (128, 256), 384
HOPPER_MAP_ROWS = (128, 128, 64)  # of the tensor maps' tiles: of A, B and C
HOPPER_STAGE_DEPTH, STAGE_DEPTH = 64, 32  # of k, a stage
HOPPER_SHARED_BYTES = 4 * sum(HOPPER_TILE) * HOPPER_STAGE_DEPTH * 2 + 4 * 8192 + 1024
TILE, THREADS, SHARED_BYTES = (128, 128), 256, 0


def refusal_reason(dtype: str, capability: tuple[int, int], n: int, k: int) -> str | None:
    """Why there is no such product, in one line; None if there is. None is computed without tensor cores instead."""
    if dtype not in FIRST_CAPABILITY_BY_DTYPE:
        return f"{LIBRARY_NAME}: no {dtype}; allowed: {', '.join(FIRST_CAPABILITY_BY_DTYPE)}"
    if reason := missing_tensor_cores_reason(dtype, capability):
        return f"{LIBRARY_NAME}: {reason}"
    if n % ROW_MULTIPLE or k % ROW_MULTIPLE:
        return f"{LIBRARY_NAME}: rows of {k} and {n} numbers would miss the tensor cores; allowed: multiples of {ROW_MULTIPLE}"
    return None


def missing_tensor_cores_reason(dtype: str, capability: tuple[int, int]) -> str | None:
    """Why a card has no tensor cores of ours for a dtype."""
    if capability >= FIRST_CAPABILITY_BY_DTYPE[dtype]:
        return None
    here, first = (".".join(map(str, version)) for version in (capability, FIRST_CAPABILITY_BY_DTYPE[dtype]))
    return f"compute capability {here}, {dtype} needs {first}"


def tile_shape(is_hopper: bool) -> tuple[int, int, int]:
    """Rows and columns of C that blocks compute together, and the k that they go through at a time."""
    rows, columns = HOPPER_TILE if is_hopper else TILE
    return (CLUSTER_BLOCKS * rows, columns, HOPPER_STAGE_DEPTH) if is_hopper else (rows, columns, STAGE_DEPTH)


def grid_blocks(m: int, n: int, is_hopper: bool, multiprocessors: int) -> int:
    """Of a launch: a block for every tile; on Hopper clusters that stay, each for as many tiles as any other."""
    rows, columns = HOPPER_TILE if is_hopper else TILE
    if not is_hopper:
        return math.ceil(m / rows) * math.ceil(n / columns)
    tiles = math.ceil(m / (CLUSTER_BLOCKS * rows)) * math.ceil(n / columns)
    turns = math.ceil(tiles / max(1, multiprocessors // CLUSTER_BLOCKS))
    return CLUSTER_BLOCKS * math.ceil(tiles / turns)


def kernel_spec(dtype: str, is_hopper: bool) -> tuple:
    """The kernel, as a device compiles it."""
    return KERNEL, LIBRARY_NAME, (*(HOPPER_OPTIONS if is_hopper else ()), f"-DBF16={int(dtype == 'bf16')}")


def make_launch(device, dtype: str, a, b, c) -> Callable[[], None]:
    """A function that computes C [m, n] = A [m, k] B^T of B [n, k], arrays in C order that the caller keeps.

    Raises ValueError where there is no such product.
    """
    import numpy

    from roofline.devices.gpu.driver_calls import make_tensor_map

    (m, k), n, is_hopper = a.shape, b.shape[0], device.is_hopper
    if reason := refusal_reason(dtype, device.capability, n, k):
        raise ValueError(reason)
    kernel = device.load_kernel(*kernel_spec(dtype, is_hopper))
    operands = (
        [make_tensor_map(*one) for one in zip((a, b, c), HOPPER_MAP_ROWS, strict=True)] if is_hopper else [a, b, c]
    )
    arguments = (*operands, *map(numpy.int32, (m, n, k)))
    shared_bytes = HOPPER_SHARED_BYTES if is_hopper else SHARED_BYTES
    if shared_bytes:
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    grid, block = (grid_blocks(m, n, is_hopper, device.multiprocessors),), (HOPPER_THREADS if is_hopper else THREADS,)
    return lambda: kernel(grid, block, arguments, shared_mem=shared_bytes)
