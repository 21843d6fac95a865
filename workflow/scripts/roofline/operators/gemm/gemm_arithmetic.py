"""The arithmetic of matrix products C = A B: counts, tolerances, and comparison with float64."""

from roofline.core.dtypes import ITEM_BYTES, relative_error, require_close
from roofline.records.timing_record import Check

# Rounding of the result alone is 2^-9 (bf16) and 2^-12 (fp16) normwise; sums are kept in fp32 or wider, but for fp8's
# fast accumulation. tf32 rounds the operands themselves, to 11 bits. int8 is compared after the same scaling and
# rounding.
GEMM_TOLERANCE = {
    "fp64": 1e-12,
    "fp32": 1e-5,
    "tf32": 2e-3,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "fp8_e4m3": 1e-2,
    "int8": 1e-3,
}


def gemm_flops(m: int, n: int, k: int) -> int:
    """2 m n k: a multiply-add is two FLOPs."""
    return 2 * m * n * k


def gemm_bytes(m: int, n: int, k: int, dtype: str, output: str | None = None) -> int:
    """A, B and C once each; C in the dtype `output` where it is another."""
    return (m * k + k * n) * ITEM_BYTES[dtype] + m * n * ITEM_BYTES[output or dtype]


def square_gemm_bytes(size: int, dtype: str) -> int:
    """What a square product needs on the device: A, B, C, and C again where the library returns a new array."""
    return 4 * size * size * ITEM_BYTES[dtype]


def compare_product(what: str, dtype: str, a, b, c, alpha: float = 1.0, rounded: bool = False) -> Check:
    """Blocks of C (m x n) against alpha A B in float64, of host arrays A (m x k) and B (k x n).

    `rounded`: C holds whole numbers of int8. Raises ArithmeticError where they differ by more than TOLERANCE.
    """
    import numpy

    reference = alpha * (a.astype(numpy.float64) @ b.astype(numpy.float64))
    if rounded:
        reference = numpy.clip(numpy.rint(reference), -128, 127)
    error, tolerance = relative_error(c, reference), GEMM_TOLERANCE[dtype]
    require_close(what, error, tolerance)
    return Check(
        compared=f"{c.shape[0]} x {c.shape[1]} results against float64", relative_error=error, tolerance=tolerance
    )
