"""Kernels that torch.compile made with Triton: every argument once, results among them.

FLOPs count of templates alone, whose name says what they compute: triton_tem_fused_mm_3.
"""

import re
from dataclasses import replace
from itertools import permutations
from math import prod

from formulas.base import Call, CallWork, Tensor, count_bytes, formula
from formulas.grouped import grouped_matmul_work
from formulas.products import product_dtype, product_work

LOOKS_UP = re.compile("embedding|index|gather|select")
WHOLE_WINDOW = 3  # times as many elements as indices: a kernel reads a part
PRODUCT = re.compile("mm|linear|matmul")


@formula("triton_*")
def triton_work(call: Call) -> CallWork | None:
    """Return the work of a Triton kernel. Its result is the last tensor, or the first if it overwrites that.

    Integers are its numbers of indices, the last of a reduction those that are reduced. A result has as many elements
    as there are indices, or results of the reduction; a look-up reads as many of its table.
    """
    tensors = call.tensors()
    *operands, result = tensors
    if call.name.startswith("triton_tem"):
        return _template_work(call, operands, result)
    sizes = [int(argument) for argument in call.inputs if str(argument).isdigit()]
    reduces = not call.name.startswith("triton_poi")
    indices = prod(sizes) if len(sizes) > reduces else max(tensor.count for tensor in tensors)
    results = {indices, prod(sizes[:-1] or sizes)} if reduces else {indices}
    first = tensors[0]
    if result.count < indices and result.count not in results and first.count in results:
        operands, result = tensors, first
    read_bytes = sum(_read_bytes(call.name, tensor, indices) for tensor in operands)
    return CallWork(0, read_bytes, min(result.bytes, result.item_bytes * indices))


def _template_work(call: Call, operands: list[Tensor], result: Tensor) -> CallWork | None:
    """Return the work of a template of torch.compile, by its name; of flex attention at most, as a trace has no mask.

    None if the name, or the shapes, are of none of these.
    """
    if "grouped_mm" in call.name:
        offsets = next(tensor for tensor in operands if len(tensor.dims) == 1)
        return grouped_matmul_work(replace(call, name="_grouped_mm", inputs=(*operands[:2], offsets)))
    if "flex_attention" in call.name:
        (batch, heads, queries, size), (*_, keys, value_size) = operands[0].dims, operands[2].dims
        products = 5 if "backward" in call.name else 2
        flops = products * batch * heads * queries * keys * (size + value_size)
        shape = f"batch {batch}, {heads} heads of {size}, at most {queries} x {keys}"
        return CallWork(flops, count_bytes(operands), result.bytes, operands[0].dtype, True, shape)
    if "convolution" in call.name:
        image, weight = operands[:2]
        flops = 2 * result.count * prod(weight.dims[1:])
        return CallWork(flops, count_bytes(operands), result.bytes, product_dtype(call, image), True)
    matrices = [tensor for tensor in operands if len(tensor.dims) == len(result.dims) >= 2]
    for a, b in permutations(matrices if PRODUCT.search(call.name) else (), 2):
        if (*a.dims[-2:], b.dims[-1]) == (result.dims[-2], b.dims[-2], result.dims[-1]):
            added = [tensor for tensor in operands if tensor is not a and tensor is not b]
            return product_work(call, a, b, added, result.type)
    return None


def _read_bytes(name: str, tensor: Tensor, indices: int) -> int:
    """Return the bytes that a kernel reads of a tensor: all, or of one that it looks up an element for each index."""
    is_part = tensor.count >= WHOLE_WINDOW * indices and "pool" not in name
    if LOOKS_UP.search(name) or is_part:
        return min(tensor.bytes, tensor.item_bytes * indices)
    return tensor.bytes
