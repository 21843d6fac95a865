"""Matrix products: 2 m n k FLOPs; both operands and what is added read once, the result written once."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from formulas.base import Call, CallWork, Tensor, UnknownTypeError, count_bytes, formula, item_bytes
from roofline.api import DTYPES

TENSOR_CORES = re.compile(r"tf32|s1688|s884|nvjet")  # of a kernel that multiplies fp32
KERNEL_NAMES = {"fp8_e4m3": re.compile(r"e4m3|e5m2|fp8|nvjet_q"), "int8": re.compile(r"imma|i8816|i16832|s8_s8")}
RESULTS = {"5": "c10::Half", "6": "float", "15": "c10::BFloat16"}  # by PyTorch's number of a type
RESULT_TYPE, ENGINE_RESULT_TYPE = 6, 4  # the argument of _scaled_mm, and of products of serving engines
BLOCKS = {"fp8_e4m3": "fp8_block"}  # with scales of blocks
COMPLEX = {"c10::complex<float>": "float", "c10::complex<double>": "double"}


def has_product_dtype(operand: Tensor) -> bool:
    """Return whether numbers of this type are multiplied at a rate that is measured."""
    return operand.dtype in DTYPES and bool(DTYPES[operand.dtype].outputs)


def product_dtype(call: Call, operand: Tensor) -> str:
    """Return the dtype of the arithmetic, by the kernel's name, then by the type of the operands.

    Raises UnknownTypeError for operands of a type without a dtype.
    """
    real = COMPLEX.get(operand.type, operand.type)
    part = Tensor((), (), real)
    if not has_product_dtype(part):
        raise UnknownTypeError(operand.type)
    for dtype, pattern in KERNEL_NAMES.items():
        if pattern.search(call.kernel):
            return dtype
    return "tf32" if real == "float" and TENSOR_CORES.search(call.kernel) else part.dtype


def scaled_dtype(call: Call, matrix: Tensor, scales: Sequence[object]) -> str:
    """Return the dtype of a product whose operands have scales: of blocks along k, a ceiling of their own."""
    rows = matrix.count // matrix.dims[-1]
    dtype, scale = product_dtype(call, matrix), scales[0] if scales else None
    is_block = isinstance(scale, Tensor) and scale.count > rows
    return BLOCKS.get(dtype, dtype) if is_block else dtype


def product_work(
    call: Call, a: Tensor, b: Tensor, added: Sequence[Tensor] = (), result_type: str = "", dtype: str = ""
) -> CallWork:
    """Return the work of a [..., m, k] times [..., k, n] or [k], plus the tensors `added`; the result has a's type.

    A complex multiply-add is 8 FLOPs.
    """
    *batch, m, k = a.dims
    n = b.dims[-1] if len(b.dims) > 1 else 1
    count = prod(batch)
    written_bytes = count * m * n * item_bytes(result_type or a.type)
    shape = f"{m} x {n} x {k}, {count} times" if count > 1 else f"{m} x {n} x {k}"
    flops = (8 if a.type in COMPLEX else 2) * count * m * n * k
    read_bytes = count_bytes([a, b, *added])
    return CallWork(flops, read_bytes, written_bytes, dtype or product_dtype(call, a), True, shape, (m, n, k))


@formula("mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "_addmm_activation", "addmm_", "baddbmm_", "addmv_", "addbmm")
def matmul_work(call: Call) -> CallWork:
    """Return the work of a matrix product; operators that add have the summand as their first argument.

    It is not read where its factor, the fourth argument, is 0.
    """
    first = 1 if "add" in call.name else 0
    a, b = call.inputs[first : first + 2]
    return product_work(call, a, b, [] if call.argument(3) in ("0", "0.") else call.inputs[:first])


@formula("dot", "vdot")
def dot_work(call: Call) -> CallWork:
    """Return the work of the inner product of two vectors."""
    row, column = call.inputs[:2]
    return product_work(call, replace(row, dims=(1, row.count), strides=(row.count, 1)), column)


@formula("_scaled_mm", "_int_mm", "*::fp8_scaled_mm", "*::int8_scaled_mm", "*::fp8_blockwise_scaled_mm")
def narrow_matmul_work(call: Call) -> CallWork:
    """Return the work of a product of fp8 or int8; its result has another type than its operands."""
    place = RESULT_TYPE if call.name == "_scaled_mm" else ENGINE_RESULT_TYPE
    result_type = "int" if call.name == "_int_mm" else RESULTS.get(str(call.argument(place)), "c10::BFloat16")
    a, b = call.inputs[:2]
    dtype = scaled_dtype(call, a, call.inputs[2:4])
    return product_work(call, a, b, call.tensors()[2:], result_type, dtype)


@formula("_scaled_mm_v2")
def listed_scales_work(call: Call) -> CallWork:
    """Return the work of a product whose scales are lists, which a trace has no types of: they count as fp32."""
    matrix, right = call.inputs[:2]
    scales = [replace(scale, type="float") for place in (2, 5) for scale in call.inputs[place]]
    result_type = RESULTS.get(str(call.inputs[9]), "c10::BFloat16")
    return product_work(call, matrix, right, scales, result_type, scaled_dtype(call, matrix, scales))


@formula("*::cutlass_scaled_mm", "*::dsv3_fused_a_gemm", "*::dsv3_router_gemm")
def given_result_work(call: Call) -> CallWork:
    """Return the work of a product whose result is the first argument."""
    result, matrix, right, *scales = call.tensors()
    return product_work(call, matrix, right, scales, result.type, scaled_dtype(call, matrix, scales))


@formula("*::*marlin_gemm", "*::machete_mm")
def packed_matmul_work(call: Call) -> CallWork | None:
    """Return the work of a product with weights of fewer bits, of which m, n and k are arguments, in a row.

    None without them.
    """
    matrix, *others = call.tensors()
    numbers = [int(argument) if str(argument).isdigit() else 0 for argument in call.inputs]
    for rows, columns, depth in zip(numbers, numbers[1:], numbers[2:], strict=False):
        if (rows, depth) == matrix.dims and columns:
            read_bytes = matrix.bytes + count_bytes(tensor for tensor in others if tensor.count <= columns * depth)
            written_bytes, sizes = rows * columns * matrix.item_bytes, (rows, columns, depth)
            shape = f"{rows} x {columns} x {depth}"
            return CallWork(2 * prod(sizes), read_bytes, written_bytes, matrix.dtype, True, shape, sizes)
    return None
