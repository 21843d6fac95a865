"""Kernels that torch.compile made with Triton: every argument once, results among them.

Their FLOPs are known only of products, whose name says so: triton_tem_fused_mm_3.
"""

import re
from itertools import permutations
from math import prod

from formulas.base import Call, CallWork, formula, read
from formulas.products import product

PRODUCT = re.compile(r"^triton_tem_fused_.*(?:mm|linear|matmul)")


# A pointwise kernel writes one element per index, and its scalars are how many. What is read of a slice is the whole.
@formula("triton_*")
def fused(call: Call) -> CallWork | None:
    *given, result = call.tensors()
    matrices = [one for one in given if len(one.dims) == len(result.dims) >= 2] if PRODUCT.match(call.name) else []
    for a, b in permutations(matrices, 2):
        if (*a.dims[-2:], b.dims[-1]) == (result.dims[-2], b.dims[-2], result.dims[-1]):
            return product(call, a, b, [one for one in given if one is not a and one is not b], result.type)
    indices = [int(one) for one in call.inputs if str(one).isdigit() and call.name.startswith("triton_poi")]
    return CallWork(0, read(given), min(result.bytes, result.item_bytes * prod(indices or result.dims)))
