"""Kernels that torch.compile made with Triton: every argument once, results among them.

Their FLOPs are known only of products, whose name says so: triton_tem_fused_mm_3.
"""

import re
from itertools import permutations
from math import prod

from formulas.base import Call, CallWork, count_bytes, formula
from formulas.products import product_work

PRODUCT = re.compile(r"^triton_tem_fused_.*(?:mm|linear|matmul)")


@formula("triton_*")
def triton_work(call: Call) -> CallWork | None:
    """Return the work of a Triton kernel whose last tensor is the result.

    A pointwise kernel writes one element per index, and its scalars are the numbers of indices. A tensor that is read
    in part counts as a whole.
    """
    *operands, result = call.tensors()
    if PRODUCT.match(call.name):
        matrices = [tensor for tensor in operands if len(tensor.dims) == len(result.dims) >= 2]
        for a, b in permutations(matrices, 2):
            if (*a.dims[-2:], b.dims[-1]) == (result.dims[-2], b.dims[-2], result.dims[-1]):
                added = [tensor for tensor in operands if tensor is not a and tensor is not b]
                return product_work(call, a, b, added, result.type)
    sizes = result.dims
    if call.name.startswith("triton_poi"):
        sizes = [int(argument) for argument in call.inputs if str(argument).isdigit()] or sizes
    return CallWork(0, count_bytes(operands), min(result.bytes, result.item_bytes * prod(sizes)))
