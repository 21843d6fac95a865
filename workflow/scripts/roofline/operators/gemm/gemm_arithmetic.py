"""The arithmetic of matrix products C = A B: counts, descriptions, tolerances, and comparison with float64."""

from roofline.core.dtypes import ITEM_BYTES, relative_error, require_close
from roofline.core.terms import Array
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

# Rounding of the result alone is 2^-9 (bf16) and 2^-12 (fp16) normwise. Sums have fp32 or more bits, except in the fast
# accumulation of fp8. tf32 rounds the operands too, to 11 bits. int8 is compared after the same scaling and rounding.
GEMM_TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "fp8_e4m3": 1e-2, "int8": 1e-3}


def gemm_flops(m: int, n: int, k: int) -> int:
    """Return the FLOPs of a product, 2 m n k: a multiply-add is two FLOPs."""
    return 2 * m * n * k


def gemm_bytes(m: int, n: int, k: int, dtype: str, output: str | None = None) -> int:
    """Return the bytes of A, B and C once each; `output` is the dtype of C, where it differs."""
    return (m * k + k * n) * ITEM_BYTES[dtype] + m * n * ITEM_BYTES[output or dtype]


def square_gemm_bytes(size: int, dtype: str) -> int:
    """Return the bytes that a square product needs: A, B, C, and C again for a library that returns a new array."""
    return 4 * size * size * ITEM_BYTES[dtype]


def library_choice(library: str, shape: dict[str, int], layout: str, accumulation: str, output: str) -> WorkloadSpec:
    """Return the description of a product whose algorithm the library chooses by itself."""
    return WorkloadSpec(
        library=library, shape=shape, layout=layout, algorithm=None, accumulation=accumulation, output=output
    )


def compare_product(
    label: str, dtype: str, a: Array, b: Array, c: Array, *, alpha: float = 1.0, rounded: bool = False
) -> Check:
    """Compare C (m x n) with alpha A B in float64, all of them host arrays: A is m x k, B is k x n.

    `rounded` says that C holds whole numbers of int8. Raises ArithmeticError with `label` if the relative error is
    above GEMM_TOLERANCE.
    """
    import numpy

    reference = alpha * (a.astype(numpy.float64) @ b.astype(numpy.float64))
    if rounded:
        reference = numpy.clip(numpy.rint(reference), -128, 127)
    error, tolerance = relative_error(c, reference), GEMM_TOLERANCE[dtype]
    require_close(label, error, tolerance)
    compared = f"{c.shape[0]} x {c.shape[1]} results against float64"
    return Check(compared=compared, relative_error=error, tolerance=tolerance)
