"""Square products by NumPy's BLAS, on all cores. Imported once the threads of the BLAS are set: it loads NumPy."""

import numpy

from roofline.core.dtypes import relative_error, require_close
from roofline.devices import host
from roofline.devices.base import Workload
from roofline.operators.gemm.gemm_arithmetic import GEMM_TOLERANCE, gemm_flops, square_gemm_bytes
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

SAMPLED_ROWS = 8
SIDE_STEP = 256  # of sides


def reference_workload(device, dtype: str, size: int, seed: int) -> Workload:
    """C = A B by NumPy's BLAS, of size x size arrays of one dtype."""
    a, b = (device.normal((size, size), dtype, seed + i) for i in range(2))
    c, workers = device.empty((size, size), dtype), device.workers

    def multiply(index: int) -> None:
        numpy.matmul(a, b, out=c)

    rows = numpy.linspace(0, size - 1, SAMPLED_ROWS).astype(int)
    sampled, parts = a[rows], numpy.array_split(b, workers.count, axis=1)
    # einsum calls no BLAS: in fp64, a reference from the library under test would share its errors.
    sums = workers.run(workers.count, lambda part: numpy.einsum("ij,jk->ik", sampled, parts[part], dtype=numpy.float64))
    expected = numpy.hstack(sums)

    def clear() -> None:
        c[rows] = numpy.nan

    def compare() -> Check:
        """Raises ArithmeticError where the sampled rows differ."""
        error = relative_error(c[rows], expected)
        require_close(f"{dtype} matmul {size}", error, GEMM_TOLERANCE[dtype])
        compared = f"{SAMPLED_ROWS} rows against float64 without the BLAS"
        return Check(compared=compared, relative_error=error, tolerance=GEMM_TOLERANCE[dtype])

    return Workload(
        product=WorkloadSpec(
            library="numpy.matmul",
            shape={"m": size, "n": size, "k": size},
            layout="NN",
            algorithm=None,
            accumulation=dtype,
            output=dtype,
        ),
        flops=gemm_flops(size, size, size),
        step=multiply,
        clear=clear,
        compare=compare,
    )


def candidate_workloads(device, dtype: str, size: int, most_flops: float, seed: int) -> list[Workload]:
    """The largest square up to the size of no more than `most_flops` and half of the free memory, or one of STEP.

    Smaller ones are no faster. An odd multiple of STEP: rows a power of two apart share places in the caches.
    """
    most = min(size, round((most_flops / 2) ** (1 / 3))) // SIDE_STEP
    largest = min(size, SIDE_STEP * max(1, most - 1 | 1))
    fits = 2 * square_gemm_bytes(largest, dtype) <= host.memory_available_bytes()
    return [reference_workload(device, dtype, largest if fits else min(size, SIDE_STEP), seed)]


def planned_references(device, dtype: str, size: int) -> list[tuple[str, str]]:
    return [("numpy.matmul", dtype)]


def own_reference_workloads(device, dtype: str, size: int, seed: int) -> list[Workload]:
    return []


def rebuild_workload(device, dtype: str, size: int, product: WorkloadSpec, seed: int) -> Workload:
    """The candidate that is this product, on its own operands. Raises LookupError where none is."""
    found = reference_workload(device, dtype, product.shape["m"], seed)
    if found.product != product:
        raise LookupError(f"NumPy has no {product}")
    return found


def variant_workloads(device, dtype: str, product: WorkloadSpec, seed: int) -> list[list[Workload]]:
    """None: NumPy's product has one accumulation and one output for each dtype."""
    return []
