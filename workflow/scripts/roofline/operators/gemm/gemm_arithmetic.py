"""The arithmetic of matrix products C = A B: counts, descriptions, tolerances, and comparison with float64."""

import math

from roofline.core.dtypes import DTYPES, ProductOutput, dtype_bytes, relative_error
from roofline.core.terms import Array
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check, make_check

CUBLASLT = "cuBLASLt"  # the library's name in records


def gemm_flops(m: int, n: int, k: int) -> int:
    """Return the FLOPs of a product, 2 m n k: a multiply-add is two FLOPs."""
    return 2 * m * n * k


def square_gemm_bytes(size: int, dtype: str) -> int:
    """Return the bytes that a square product needs: A, B, C, and C again for a library that returns a new array."""
    return dtype_bytes(dtype, 4 * size * size)


def library_choice(library: str, size: int, dtype: str) -> WorkloadSpec:
    """Return the description of a square product whose algorithm the library chooses by itself."""
    output, accumulation = DTYPES[dtype].outputs[0]
    shape = dict.fromkeys("mnk", size)
    return WorkloadSpec(
        library=library, shape=shape, layout="NN", algorithm=None, accumulation=accumulation, output=output
    )


def result_scale(dtype: str, output: ProductOutput, k: int) -> float:
    """Return the factor of the sums: for integers narrower than their sums one that gives them the spread of the
    operands, else 1."""
    if DTYPES[output.dtype].is_float or output.dtype == output.accumulation:
        return 1.0
    return 1 / (DTYPES[dtype].standard_deviation * math.sqrt(k))


def compare_product(label: str, dtype: str, output: ProductOutput, a: Array, b: Array, c: Array) -> Check:
    """Compare C (m x n) with A B in float64, scaled and rounded as C is; A is m x k, B is k x n, all on the host.

    Raises ArithmeticError with `label` if the relative error is above the dtype's tolerance.
    """
    import numpy

    reference = result_scale(dtype, output, a.shape[1]) * (a.astype(numpy.float64) @ b.astype(numpy.float64))
    if not DTYPES[output.dtype].is_float:
        limits = numpy.iinfo(c.dtype)
        reference = numpy.clip(numpy.rint(reference), limits.min, limits.max)
    compared = f"{c.shape[0]} x {c.shape[1]} results against float64"
    return make_check(label, relative_error(c, reference), DTYPES[dtype].tolerance, compared)
