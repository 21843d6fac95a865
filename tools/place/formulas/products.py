"""Matrix products: 2 m n k FLOPs; both operands and what is added read once, the result written once."""

import re
from collections.abc import Sequence
from math import prod

from formulas.base import Call, CallWork, Tensor, UnknownTypeError, count_bytes, formula, item_bytes
from roofline.api import DTYPES

TENSOR_CORES = re.compile(r"tf32|s1688|s884|nvjet")  # of a kernel that multiplies fp32
KERNEL_NAMES = {"fp8_e4m3": re.compile(r"e4m3|e5m2|fp8|nvjet_q"), "int8": re.compile(r"imma|i8816|i16832|s8_s8")}
RESULTS = {"5": "c10::Half", "6": "float", "15": "c10::BFloat16"}  # by PyTorch's number of a type
RESULT_TYPE = 6  # the argument of _scaled_mm


def product_dtype(call: Call, operand: Tensor) -> str:
    """Return the dtype of the arithmetic, by the kernel's name, then by the type of the operands.

    Raises UnknownTypeError for operands of a type without a dtype, such as complex numbers.
    """
    if operand.dtype not in DTYPES or not DTYPES[operand.dtype].outputs:
        raise UnknownTypeError(operand.type)
    for dtype, pattern in KERNEL_NAMES.items():
        if pattern.search(call.kernel):
            return dtype
    return "tf32" if operand.type == "float" and TENSOR_CORES.search(call.kernel) else operand.dtype


def product_work(call: Call, a: Tensor, b: Tensor, added: Sequence[Tensor] = (), result_type: str = "") -> CallWork:
    """Return the work of a [..., m, k] times [..., k, n] or [k], plus the tensors `added`; the result has a's type."""
    *batch, m, k = a.dims
    n = b.dims[-1] if len(b.dims) > 1 else 1
    count = prod(batch)
    written_bytes = count * m * n * item_bytes(result_type or a.type)
    shape = f"{m} x {n} x {k}, {count} times" if count > 1 else f"{m} x {n} x {k}"
    read_bytes = count_bytes([a, b, *added])
    return CallWork(2 * count * m * n * k, read_bytes, written_bytes, product_dtype(call, a), True, shape)


@formula("mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "_addmm_activation")
def matmul_work(call: Call) -> CallWork:
    """Return the work of a matrix product; operators that add have the summand as their first argument."""
    first = 1 if "add" in call.name else 0
    a, b = call.inputs[first : first + 2]
    return product_work(call, a, b, call.inputs[:first])


@formula("_scaled_mm", "_int_mm")
def narrow_matmul_work(call: Call) -> CallWork:
    """Return the work of a product of fp8 or int8; its result has another type than its operands."""
    result_type = "c10::BFloat16"
    if call.name == "_int_mm":
        result_type = "int"
    elif len(call.inputs) > RESULT_TYPE:
        result_type = RESULTS.get(call.inputs[RESULT_TYPE], result_type)
    a, b = call.inputs[:2]
    return product_work(call, a, b, call.tensors()[2:], result_type)
