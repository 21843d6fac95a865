"""C = A B^T in fp16 and bf16 by a kernel of ours, on tensor cores (kernels/tensor_matmul.cu): what it takes, and its
launch."""

import math
from collections.abc import Callable
from pathlib import Path

from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS

NAME = "tensor_matmul"
KERNEL = Path(__file__).parent / "kernels" / "tensor_matmul.cu"
FIRST = {"fp16": (7, 5), "bf16": (8, 0)}  # the first compute capability that it is compiled for
MULTIPLE = 8  # of n and k: rows are moved 16 bytes at a time

# As the kernels have them: rows and columns of C that a block computes, its threads, its shared memory.
CLUSTER = 2  # of Hopper's blocks, one below the other
HOPPER_TILE, HOPPER_THREADS = (128, 256), 384
HOPPER_MAP_ROWS = (128, 128, 64)  # of the tensor maps' tiles: of A, B and C
DEPTH, DEPTH_ELSEWHERE = 64, 32  # of k, a stage
HOPPER_SHARED_BYTES = 4 * sum(HOPPER_TILE) * DEPTH * 2 + 4 * 8192 + 1024
TILE, THREADS, SHARED_BYTES = (128, 128), 256, 0


def refusal(dtype: str, capability: tuple[int, int], n: int, k: int) -> str | None:
    """Why there is no such product, in one line; None if there is. None is computed without tensor cores instead."""
    if dtype not in FIRST:
        return f"{NAME}: no {dtype}; allowed: {', '.join(FIRST)}"
    if reason := lacking(dtype, capability):
        return f"{NAME}: {reason}"
    if n % MULTIPLE or k % MULTIPLE:
        return f"{NAME}: rows of {k} and {n} numbers would miss the tensor cores; allowed: multiples of {MULTIPLE}"
    return None


def lacking(dtype: str, capability: tuple[int, int]) -> str | None:
    """Why a card has no tensor cores of ours for a dtype."""
    if capability >= FIRST[dtype]:
        return None
    here, first = (".".join(map(str, version)) for version in (capability, FIRST[dtype]))
    return f"compute capability {here}, {dtype} needs {first}"


def tile(is_hopper: bool) -> tuple[int, int, int]:
    """Rows and columns of C that blocks compute together, and the k that they go through at a time."""
    rows, columns = HOPPER_TILE if is_hopper else TILE
    return (CLUSTER * rows, columns, DEPTH) if is_hopper else (rows, columns, DEPTH_ELSEWHERE)


def blocks(m: int, n: int, is_hopper: bool, multiprocessors: int) -> int:
    """Of a launch: a block for every tile; on Hopper clusters that stay, each for as many tiles as any other."""
    rows, columns = HOPPER_TILE if is_hopper else TILE
    if not is_hopper:
        return math.ceil(m / rows) * math.ceil(n / columns)
    tiles = math.ceil(m / (CLUSTER * rows)) * math.ceil(n / columns)
    turns = math.ceil(tiles / max(1, multiprocessors // CLUSTER))
    return CLUSTER * math.ceil(tiles / turns)


def source(dtype: str, is_hopper: bool) -> tuple:
    """The kernel, as a device compiles it."""
    return KERNEL, NAME, (*(HOPPER_OPTIONS if is_hopper else ()), f"-DBF16={int(dtype == 'bf16')}")


def launch(device, dtype: str, a, b, c) -> Callable[[], None]:
    """A function that computes C [m, n] = A [m, k] B^T of B [n, k], arrays in C order that the caller keeps.

    Raises ValueError where there is no such product.
    """
    import numpy

    from roofline.devices.gpu.driver_calls import tensor_map

    (m, k), n, is_hopper = a.shape, b.shape[0], device.is_hopper
    if reason := refusal(dtype, device.capability, n, k):
        raise ValueError(reason)
    kernel = device.kernel(*source(dtype, is_hopper))
    operands = [tensor_map(*one) for one in zip((a, b, c), HOPPER_MAP_ROWS, strict=True)] if is_hopper else [a, b, c]
    arguments = (*operands, *map(numpy.int32, (m, n, k)))
    shared_bytes = HOPPER_SHARED_BYTES if is_hopper else SHARED_BYTES
    if shared_bytes:
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    grid, block = (blocks(m, n, is_hopper, device.multiprocessors),), (HOPPER_THREADS if is_hopper else THREADS,)
    return lambda: kernel(grid, block, arguments, shared_mem=shared_bytes)
