"""The dtypes of this project, one row each, and how far a result lies from its reference.

Consumers read columns. What belongs to one consumer alone, such as colours or the enumerators of a library, stays with
it, keyed by the value of a column.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # the launcher reads these tables without NumPy
    import numpy
    from numpy.typing import ArrayLike

FAST_ACCUMULATION = "fp32 with fast accumulation"  # of fp8, which keeps fewer bits of partial sums


class ProductOutput(NamedTuple):
    """A dtype that a product is written in, and the dtype of its sums."""

    dtype: str
    accumulation: str


class BlockScales(NamedTuple):
    """One scale factor for each block of an operand: its numbers across and along k, and the bits of a factor."""

    across: int
    along_k: int
    bits: int = 32


class OperandScales(NamedTuple):
    """The block scales of A and of B."""

    activations: BlockScales
    weights: BlockScales


@dataclass(frozen=True)
class Dtype:
    """How the numbers of an operand are stored and multiplied.

    `tolerance` is the relative error (Frobenius norm) that a product may have against float64. Rounding of the result
    alone is 2^-9 (bf16) and 2^-12 (fp16). Sums have fp32 or more bits, except in the fast accumulation of fp8. tf32
    rounds the operands too, to 11 bits. int8 is compared after the same scaling and rounding.
    """

    name: str
    bits: int  # of a number in memory
    array: str  # the type of a number on the host, of NumPy or ml_dtypes
    outputs: tuple[ProductOutput, ...] = ()  # the first is the ceiling, the others variants; none: it is not multiplied
    tolerance: float = 0.0
    standard_deviation: float = 1.0  # of the random numbers that it is measured on
    pipe: str = ""  # letter of its CUDA-core pipe, by which a register-only ceiling is measured
    numbers_per_instruction: int = 1  # of that pipe
    scales: OperandScales | None = None
    rated: bool = True  # datasheets print a rate of its products
    measured_from: Literal["default", "thorough"] = "default"  # the effort from which its product is a ceiling

    @property
    def stored_as(self) -> str:
        """The name of the first dtype whose numbers lie in memory alike: fp32 for tf32."""
        return next(dtype.name for dtype in _ROWS if dtype.array == self.array)

    @property
    def is_float(self) -> bool:
        """Whether its numbers are floating point."""
        return not self.array.startswith("int")

    def bytes(self, count: int) -> int:
        """Return the bytes of `count` numbers without scales, rounded up."""
        return math.ceil(self.bits * count / 8)

    def operand_bytes(self, rows: int, depth: int, operand: Literal["activations", "weights"]) -> int:
        """Return the bytes of an operand with `rows` rows or columns of `depth` numbers along k, and of its scales."""
        if self.scales is None:
            return self.bytes(rows * depth)
        blocks = self.scales.activations if operand == "activations" else self.scales.weights
        factors = math.ceil(rows / blocks.across) * math.ceil(depth / blocks.along_k)
        return self.bytes(rows * depth) + math.ceil(blocks.bits * factors / 8)


_BF16_OUTPUT = ProductOutput("bf16", "fp32")
_INTEGER_OUTPUTS = (ProductOutput("int8", "int32"), ProductOutput("int32", "int32"))
_ROWS = (
    Dtype("fp64", 64, "float64", (ProductOutput("fp64", "fp64"),), 1e-12, pipe="d"),
    Dtype("fp32", 32, "float32", (ProductOutput("fp32", "fp32"),), 1e-5, pipe="f"),
    Dtype("tf32", 32, "float32", (ProductOutput("fp32", "fp32"),), 2e-3),
    Dtype("fp16", 16, "float16", (ProductOutput("fp16", "fp32"),), 2e-3, pipe="h", numbers_per_instruction=2),
    Dtype("bf16", 16, "bfloat16", (_BF16_OUTPUT,), 1e-2),
    Dtype("fp8_e4m3", 8, "float8_e4m3fn", (ProductOutput("bf16", FAST_ACCUMULATION), _BF16_OUTPUT), 1e-2),
    Dtype(
        "fp8_block",
        8,
        "float8_e4m3fn",
        (_BF16_OUTPUT,),
        1e-2,
        scales=OperandScales(BlockScales(1, 128), BlockScales(128, 128)),
        rated=False,
        measured_from="thorough",
    ),
    Dtype("int8", 8, "int8", _INTEGER_OUTPUTS, 1e-3, standard_deviation=32.0),
    Dtype("int32", 32, "int32"),
)
DTYPES = {dtype.name: dtype for dtype in _ROWS}
PRODUCT_DTYPES = tuple(dtype.name for dtype in _ROWS if dtype.outputs)
TOLERANCES = {dtype.name: dtype.tolerance for dtype in _ROWS if dtype.outputs}
# Of an operator, in floats that have arrays of their own; its results may be fp8 themselves.
OPERATOR_TOLERANCES = {row.name: row.tolerance for row in _ROWS if row.is_float and row.stored_as == row.name}
OPERATOR_TOLERANCES |= {"fp8_e4m3": 5e-2}
COMMON_DTYPE = "fp32"  # every device computes in it: devices are compared by it, and emulate what is narrower

# The dtype of each ceiling of register-only multiply-adds. All other compute ceilings are named like their dtype.
REGISTER_ONLY_DTYPES = {f"{dtype.name}_fma": dtype.name for dtype in _ROWS if dtype.pipe}
COMPUTE_CEILINGS = (*PRODUCT_DTYPES, *REGISTER_ONLY_DTYPES)
DEFAULT_CEILINGS = [name for name in COMPUTE_CEILINGS if name not in DTYPES or DTYPES[name].measured_from == "default"]


def operand_dtype(ceiling: str) -> str:
    """Return the dtype of a compute ceiling's operands."""
    return REGISTER_ONLY_DTYPES.get(ceiling, ceiling)


def dtype_bytes(dtype: str, count: int = 1) -> int:
    """Return the bytes of `count` numbers of a dtype, by its name."""
    return DTYPES[dtype].bytes(count)


FLOAT_BYTES = dtype_bytes(COMMON_DTYPE)


def has_narrower_dtype(dtype: str, tensor_dtypes: Collection[str]) -> bool:
    """Return whether tensor cores that take these dtypes compute in one with fewer bits; without them nothing does."""
    return any(DTYPES[other].bits < DTYPES[dtype].bits for other in tensor_dtypes)


def array_dtype(name: str) -> "numpy.dtype":
    """Return the NumPy dtype of arrays that hold a dtype; tf32 is a way to multiply fp32 arrays."""
    import ml_dtypes
    import numpy

    array = DTYPES[name].array
    scalar: type[numpy.generic] = getattr(numpy, array, None) or getattr(ml_dtypes, array)
    return numpy.dtype(scalar)


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
