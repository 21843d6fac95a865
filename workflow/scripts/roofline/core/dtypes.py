"""The dtypes of this project by name: size, array type, and how far a result lies from its reference."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the launcher reads these tables without NumPy
    import numpy
    from numpy.typing import ArrayLike

ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1, "int8": 1, "int32": 4}
# The first compute capability whose tensor cores take a dtype.
FIRST_TENSOR_CORE_CAPABILITY = {"fp16": "7.0", "int8": "7.5", "tf32": "8.0", "bf16": "8.0", "fp8_e4m3": "8.9"}

# The dtype of each ceiling of register-only multiply-adds. All other compute ceilings are named like their dtype.
REGISTER_ONLY_DTYPES = {"fp64_fma": "fp64", "fp32_fma": "fp32", "fp16_fma": "fp16"}
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
COMPUTE_CEILINGS = (*DTYPES, *REGISTER_ONLY_DTYPES)


def operand_dtype(ceiling: str) -> str:
    """Return the dtype of a compute ceiling's operands."""
    return REGISTER_ONLY_DTYPES.get(ceiling, ceiling)


def array_dtype(name: str) -> "numpy.dtype":
    """Return the NumPy dtype of arrays that hold a dtype; tf32 is a way to multiply fp32 arrays."""
    import ml_dtypes
    import numpy

    types = {
        "fp64": numpy.float64,
        "fp32": numpy.float32,
        "tf32": numpy.float32,
        "fp16": numpy.float16,
        "bf16": ml_dtypes.bfloat16,
        "fp8_e4m3": ml_dtypes.float8_e4m3fn,
        "int8": numpy.int8,
        "int32": numpy.int32,
    }
    return numpy.dtype(types[name])


def relative_error(result: "ArrayLike", reference: "ArrayLike") -> float:
    """Return the norm of the difference over the norm of the reference, in float64; infinity if either is not finite.

    A reference of zeros has no norm to divide by: the norm of the result itself is returned.
    """
    import numpy

    result, reference = (numpy.asarray(values, numpy.float64) for values in (result, reference))
    if not (numpy.isfinite(result).all() and numpy.isfinite(reference).all()):
        return float("inf")
    # Without a BLAS, whose idle threads would spin on into what is timed next.
    difference_norm = float(numpy.sqrt(numpy.square(result - reference).sum()))
    reference_norm = float(numpy.sqrt(numpy.square(reference).sum()))
    return difference_norm / (reference_norm or 1.0)


def require_close(label: str, error: float, tolerance: float) -> None:
    """Raise ArithmeticError for an error above the tolerance: a wrong result is a failed job, never a number."""
    if not error <= tolerance:
        raise ArithmeticError(f"{label} differs from its float64 reference by {error:.2e}, allowed {tolerance:.0e}")
