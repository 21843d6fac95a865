"""Matrix products: 2 m n k FLOPs; both operands and what is added read once, the result written once."""

import re
from math import prod

from formulas.base import TYPES, Call, Tensor, Work, formula, read

TENSOR_CORES = re.compile(r"tf32|s1688|s884|nvjet")  # of a kernel that multiplies fp32
BY_NAME = {"fp8_e4m3": re.compile(r"e4m3|e5m2|fp8|nvjet_q"), "int8": re.compile(r"imma|i8816|i16832|s8_s8")}
RESULTS = {"5": "c10::Half", "6": "float", "15": "c10::BFloat16"}  # by PyTorch's number of a type


def arithmetic(call: Call, of_type: str) -> str:
    """By the kernel's name, then by the type of the operands."""
    named = (dtype for dtype, pattern in BY_NAME.items() if pattern.search(call.kernel))
    by_type = "tf32" if of_type == "float" and TENSOR_CORES.search(call.kernel) else TYPES[of_type][1]
    return next(named, by_type)


def product(call: Call, a: Tensor, b: Tensor, added=(), result: str | None = None) -> Work:
    *batch, m, k = a.dims
    n = b.dims[-1] if len(b.dims) > 1 else 1
    count = prod(batch)
    written = count * m * n * Tensor((), (), result or a.type).item_bytes
    shape = " x ".join(map(str, (m, n, k))) + (f", {count} times" if count > 1 else "")
    return Work(2 * count * m * n * k, read([a, b, *added]), written, arithmetic(call, a.type), True, shape)


@formula("mm", "bmm", "mv")
def plain(call: Call) -> Work:
    return product(call, *call.inputs[:2])


@formula("addmm", "baddbmm", "addmv", "_addmm_activation")
def with_sum(call: Call) -> Work:
    return product(call, *call.inputs[1:3], call.inputs[:1])


@formula("linear")
def linear(call: Call) -> Work:
    a, b = call.inputs[:2]
    flat = Tensor((a.count // a.dims[-1], a.dims[-1]), (1, 1), a.type)
    return product(call, flat, Tensor(b.dims[::-1], b.strides[::-1], b.type), call.tensors()[2:])


@formula("_int_mm")
def of_integers(call: Call) -> Work:
    return product(call, *call.inputs[:2], result="int")


@formula("_scaled_mm")
def scaled(call: Call) -> Work:
    result = RESULTS.get(str(call.inputs[6]) if len(call.inputs) > 6 else "", "c10::BFloat16")
    return product(call, *call.inputs[:2], call.tensors(5)[2:], result)
