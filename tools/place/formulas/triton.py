"""Kernels that torch.compile made with Triton: every argument once, results among them.

Their FLOPs are known only of products, whose name says so: triton_tem_fused_mm_3.
"""

import re
from itertools import permutations

from formulas.base import Call, Work, formula, read
from formulas.products import product

PRODUCT = re.compile(r"^triton_tem_fused_.*(?:mm|linear|matmul)")


# Too many bytes if the kernel touches a slice of an argument.
@formula("triton_*")
def fused(call: Call) -> Work | None:
    *given, result = call.tensors()
    matrices = [one for one in given if len(one.dims) == len(result.dims) >= 2] if PRODUCT.match(call.name) else []
    for a, b in permutations(matrices, 2):
        if (*a.dims[-2:], b.dims[-1]) == (result.dims[-2], b.dims[-2], result.dims[-1]):
            return product(call, a, b, [one for one in given if one is not a and one is not b], result.type)
    return Work(0, read(given), result.bytes)
