"""A kernel that reads memory and multiplies in registers: points of the energy roofline.

Reads at full speed reach the power limit of some cards, so resident blocks vary too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy

from roofline.core.dtypes import array_dtype, dtype_bytes, require_close
from roofline.core.units import GIB
from roofline.devices.base import EnergyKernel

if TYPE_CHECKING:
    import cupy

    from roofline.devices.gpu.gpu_device import GpuDevice

# (multiply-adds on each number, blocks per multiprocessor)
MULTIPLIES_AND_BLOCKS = {
    "fp32": (
        *((1, 1), (1, 2), (1, 3), (8, 2), (16, 1), (16, 2)),
        *((32, 2), (64, 1), (64, 2), (256, 2), (256, 8), (1024, 8)),
    ),
    "fp64": ((1, 1), (1, 2), (4, 2), (8, 1), (64, 1), (64, 2), (128, 8)),
}
THREADS, SIZE_BYTES, SEED = 256, GIB, 3
VECTOR_BYTES = 16  # which a thread reads at once
FACTOR, ADDEND = -1 + 2**-16, 0.5  # a number changes with each multiply-add, and does not grow
CHECKED_ITEMS, TOLERANCE = 1 << 20, 1e-3  # the numbers of a check, and the largest relative error of their sum


def make_energy_kernels(device: "GpuDevice") -> Iterator[EnergyKernel]:
    """Yield the points of each dtype, which all read the same random numbers: 1 GiB, or an eighth of free memory."""
    size = min(SIZE_BYTES, device.identity.memory_free_bytes // 8)
    for dtype, multiplies_and_blocks in MULTIPLIES_AND_BLOCKS.items():
        numbers = device.normal((size // dtype_bytes(dtype),), dtype, SEED)
        checked_sum = float(device.to_host(numbers[:CHECKED_ITEMS]).sum(dtype=numpy.float64))
        for multiplies, blocks in multiplies_and_blocks:
            yield _make_energy_kernel(device, dtype, numbers, checked_sum, multiplies, blocks)


def _make_energy_kernel(
    device: "GpuDevice", dtype: str, numbers: "cupy.ndarray", checked_sum: float, multiplies: int, blocks: int
) -> EnergyKernel:
    """Return one point. `checked_sum` is the sum of the first CHECKED_ITEMS numbers."""
    number, grid_blocks = array_dtype(dtype).type, blocks * device.multiprocessors
    defines = (f"-DDOUBLE={int(dtype_bytes(dtype) == 8)}", f"-DMULTIPLIES={multiplies}")
    kernel = device.load_kernel("energy.cu", "read_and_multiply", defines)
    sums = device.empty((grid_blocks * THREADS,), dtype)
    numbers_per_vector = VECTOR_BYTES // dtype_bytes(dtype)

    def run(passes: int, index: int, items: int = numbers.size) -> None:
        vectors_and_passes = numpy.uint64(items // numbers_per_vector), numpy.uint32(passes)
        arguments = (numbers, *vectors_and_passes, number(FACTOR), number(ADDEND), sums)
        kernel((grid_blocks,), (THREADS,), arguments)

    def verify() -> None:
        run(1, 0, CHECKED_ITEMS)
        power = FACTOR**multiplies
        expected = power * checked_sum + CHECKED_ITEMS * ADDEND * (1 - power) / (1 - FACTOR)
        error = abs(float(device.to_host(sums).sum(dtype=numpy.float64)) / expected - 1)
        require_close(f"the sum of {dtype} numbers after {multiplies} multiply-adds", error, TOLERANCE)

    flops_per_byte = (2 * multiplies + 1) / dtype_bytes(dtype)
    return EnergyKernel(dtype, multiplies, blocks, flops_per_byte, numbers.nbytes, run, verify)
