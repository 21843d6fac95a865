"""Matrix products: 2 m n k FLOPs; both operands and what is added read once, the result written once."""

import re
from math import prod

from formulas.base import Call, CallWork, Tensor, formula, read

TENSOR_CORES = re.compile(r"tf32|s1688|s884|nvjet")  # of a kernel that multiplies fp32
BY_NAME = {"fp8_e4m3": re.compile(r"e4m3|e5m2|fp8|nvjet_q"), "int8": re.compile(r"imma|i8816|i16832|s8_s8")}
RESULTS = {"5": "c10::Half", "6": "float", "15": "c10::BFloat16"}  # by PyTorch's number of a type


def arithmetic(call: Call, operand: Tensor) -> str:
    """By the kernel's name, then by the type of the operands."""
    named = (dtype for dtype, pattern in BY_NAME.items() if pattern.search(call.kernel))
    return next(named, "tf32" if operand.type == "float" and TENSOR_CORES.search(call.kernel) else operand.dtype)


def product(call: Call, a: Tensor, b: Tensor, added=(), result: str | None = None) -> CallWork:
    *batch, m, k = a.dims
    n, count = b.dims[-1] if len(b.dims) > 1 else 1, prod(batch)
    written = count * m * n * Tensor((), (), result or a.type).item_bytes
    shape = f"{m} x {n} x {k}" + f", {count} times" * (count > 1)
    return CallWork(2 * count * m * n * k, read([a, b, *added]), written, arithmetic(call, a), True, shape)


@formula("mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "_addmm_activation")
def plain(call: Call) -> CallWork:
    added = int("add" in call.name)
    return product(call, *call.inputs[added : added + 2], call.inputs[:added])


# The seventh argument is the type of the result.
@formula("_scaled_mm", "_int_mm")
def narrow(call: Call) -> CallWork:
    result = "int" if call.name == "_int_mm" else RESULTS.get((*call.inputs, *[""] * 7)[6], "c10::BFloat16")
    return product(call, *call.inputs[:2], call.tensors()[2:], result)
