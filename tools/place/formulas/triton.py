"""Kernels that torch.compile made with Triton: every argument once, results among them.

Their FLOPs are known only of products, whose name says so: triton_tem_fused_mm_3.
"""

import re

from formulas.base import Call, Work, formula, read
from formulas.products import product

PRODUCT = re.compile(r"^triton_tem_fused_.*(?:mm|linear|matmul)")


@formula("triton_*")
def fused(call: Call) -> Work | None:
    """Of which an argument is larger than what the kernel touches, if it is a slice."""
    tensors = call.tensors()
    if not tensors:
        return None
    given, result = tensors[:-1], tensors[-1]
    matrices = [one for one in given if len(one.dims) == len(result.dims) >= 2]
    for a in matrices if PRODUCT.match(call.name) else ():
        for b in matrices:
            if a is not b and (a.dims[-2], a.dims[-1], b.dims[-1]) == (result.dims[-2], b.dims[-2], result.dims[-1]):
                return product(call, a, b, [one for one in given if one not in (a, b)], result.type)
    return Work(0, read(given), result.bytes)
