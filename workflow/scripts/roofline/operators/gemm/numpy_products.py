"""GEMM workloads of a CPU: square products by NumPy's BLAS, on all cores.

It loads NumPy, so it is imported only once the number of BLAS threads is set.
"""

from typing import TYPE_CHECKING

import numpy

from roofline.core.dtypes import DTYPES, relative_error
from roofline.core.terms import Array
from roofline.devices import host
from roofline.devices.base import Workload
from roofline.operators.gemm.gemm_arithmetic import gemm_flops, library_choice, square_gemm_bytes
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check, make_check

if TYPE_CHECKING:
    from roofline.devices.cpu.cpu_device import CpuDevice

SAMPLED_ROWS = 8
SIDE_STEP = 256  # a side is a multiple of it


def reference_workload(device: "CpuDevice", dtype: str, size: int, seed: int) -> Workload:
    """Return C = A B of size x size arrays by NumPy's BLAS."""
    a = device.normal((size, size), dtype, seed)
    b = device.normal((size, size), dtype, seed + 1)
    c, workers = device.empty((size, size), dtype), device.workers

    def multiply(index: int) -> None:
        numpy.matmul(a, b, out=c)

    rows = numpy.linspace(0, size - 1, SAMPLED_ROWS).astype(int)
    sampled, b_parts = a[rows], numpy.array_split(b, workers.count, axis=1)

    def multiply_part(core: int) -> Array:
        # einsum calls no BLAS: in fp64, a reference from the library under test would share its errors.
        return numpy.einsum("ij,jk->ik", sampled, b_parts[core], dtype=numpy.float64)

    expected = numpy.hstack(workers.run(workers.count, multiply_part))

    def clear() -> None:
        c[rows] = numpy.nan

    def compare() -> Check:
        """Compare the sampled rows. Raises ArithmeticError if they differ."""
        error = relative_error(c[rows], expected)
        compared = f"{SAMPLED_ROWS} rows against float64 without the BLAS"
        return make_check(f"{dtype} matmul {size}", error, DTYPES[dtype].tolerance, compared)

    return Workload(
        product=library_choice("numpy.matmul", size, dtype),
        flops=gemm_flops(size, size, size),
        step=multiply,
        clear=clear,
        compare=compare,
    )


def candidate_workloads(device: "CpuDevice", dtype: str, size: int, most_flops: float, seed: int) -> list[Workload]:
    """Return the largest square product of at most `most_flops` and half of the free memory: no smaller one is faster.

    Its side is at most `size`, and else an odd multiple of SIDE_STEP: rows whose distance is a power of two would
    compete for the same lines of the caches. If the memory is too small, the side is one SIDE_STEP.
    """
    most_steps = min(size, round((most_flops / 2) ** (1 / 3))) // SIDE_STEP
    odd_steps = most_steps if most_steps % 2 else most_steps - 1
    largest = min(size, SIDE_STEP * max(1, odd_steps))
    fits = 2 * square_gemm_bytes(largest, dtype) <= host.memory_available_bytes()
    return [reference_workload(device, dtype, largest if fits else min(size, SIDE_STEP), seed)]


def planned_references(device: "CpuDevice", dtype: str, size: int) -> list[tuple[str, str]]:
    """Return library and output of the workload that is timed as an operator: the reference GEMM."""
    return [("numpy.matmul", dtype)]


def own_reference_workloads(device: "CpuDevice", dtype: str, size: int, seed: int) -> list[Workload]:
    """Return none: the library has no GEMM of ours for a CPU."""
    return []


def rebuild_workload(device: "CpuDevice", dtype: str, size: int, product: WorkloadSpec, seed: int) -> Workload:
    """Return the product of a record on new operands. Raises LookupError if NumPy does not have it."""
    candidate = reference_workload(device, dtype, product.shape["m"], seed)
    if candidate.product != product:
        raise LookupError(f"NumPy has no {product}")
    return candidate


def variant_workloads(device: "CpuDevice", dtype: str, size: int, most_flops: float, seed: int) -> list[list[Workload]]:
    """Return none: NumPy's product has one accumulation and one output for each dtype."""
    return []
