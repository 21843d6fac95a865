"""A kernel that reads memory and multiplies in registers: points of the energy roofline.

Reads at full speed reach the power limit of some cards, so resident blocks vary too.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy

from roofline.core.dtypes import ITEM_BYTES, array_dtype, require_close

# (multiply-adds on each number, blocks per multiprocessor)
MULTIPLIES_AND_BLOCKS = {
    "fp32": (
        *((1, 1), (1, 2), (1, 3), (8, 2), (16, 1), (16, 2)),
        *((32, 2), (64, 1), (64, 2), (256, 2), (256, 8), (1024, 8)),
    ),
    "fp64": ((1, 1), (1, 2), (4, 2), (8, 1), (64, 1), (64, 2), (128, 8)),
}
THREADS, SIZE_BYTES, SEED = 256, 1 << 30, 3
FACTOR, ADDEND = -1 + 2**-16, 0.5  # numbers change, and stay of one size
CHECKED_ITEMS, TOLERANCE = 1 << 20, 1e-3  # numbers, and of their sum


class EnergyKernel(NamedTuple):
    dtype: str
    multiplies: int
    blocks: int
    flops_per_byte: float
    bytes: int  # of one pass
    run: Callable[[int], None]  # with the number of passes
    verify: Callable[[], None]  # raises ArithmeticError


def make_energy_kernels(device) -> Iterator[EnergyKernel]:
    size = min(SIZE_BYTES, device.identity.memory_free_bytes // 8)
    for dtype, mixes in MULTIPLIES_AND_BLOCKS.items():
        numbers = device.normal((size // ITEM_BYTES[dtype],), dtype, SEED)
        total = float(device.to_host(numbers[:CHECKED_ITEMS]).sum(dtype=numpy.float64))
        for multiplies, blocks in mixes:
            yield _make_energy_kernel(device, dtype, numbers, total, multiplies, blocks)


def _make_energy_kernel(device, dtype: str, numbers, total: float, multiplies: int, blocks: int) -> EnergyKernel:
    """`total`: the sum of the first numbers, to check."""
    number, grid = array_dtype(dtype).type, blocks * device.multiprocessors
    defines = (f"-DDOUBLE={int(dtype == 'fp64')}", f"-DMULTIPLIES={multiplies}")
    kernel = device.load_kernel("energy.cu", "read_and_multiply", defines)
    sums, wide = device.empty((grid * THREADS,), dtype), 16 // ITEM_BYTES[dtype]

    def run(passes: int, items: int = numbers.size) -> None:
        amounts = numpy.uint64(items // wide), numpy.uint32(passes)
        kernel((grid,), (THREADS,), (numbers, *amounts, number(FACTOR), number(ADDEND), sums))

    def verify() -> None:
        run(1, CHECKED_ITEMS)
        power = FACTOR**multiplies
        expected = power * total + CHECKED_ITEMS * ADDEND * (1 - power) / (1 - FACTOR)
        error = abs(float(device.to_host(sums).sum(dtype=numpy.float64)) / expected - 1)
        require_close(f"the sum of {dtype} numbers after {multiplies} multiply-adds", error, TOLERANCE)

    flops_per_byte = (2 * multiplies + 1) / ITEM_BYTES[dtype]
    return EnergyKernel(dtype, multiplies, blocks, flops_per_byte, numbers.nbytes, run, verify)
