"""Grouped matrix products, as of experts: each group of rows has its matrix.

The offsets of the groups are on the GPU, so a trace does not have them. FLOPs and bytes are those of all rows and all
groups: at most, where groups are empty.
"""

from math import prod

from formulas.base import Call, CallWork, Tensor, count_bytes, formula
from formulas.products import has_product_dtype, product_dtype, scaled_dtype


@formula("_grouped_mm", "_scaled_grouped_mm")
def grouped_matmul_work(call: Call) -> CallWork:
    """Return the work of PyTorch's grouped product.

    Of a [m, k] and b [g, k, n], groups are of rows; of [g, m, k] and [k, n], of columns; of [m, k] and [k, n], of k.
    """
    left, right = call.inputs[:2]
    is_scaled = call.name == "_scaled_grouped_mm"
    scales, offsets = call.inputs[2:4] if is_scaled else (), call.inputs[4 if is_scaled else 2]
    groups = offsets.count if isinstance(offsets, Tensor) else left.dims[0]
    (rows, depth), columns = left.dims[-2:], right.dims[-1]
    flops, results, read_bytes = 2 * rows * columns * depth, rows * columns, count_bytes([left, right, *scales])
    if len(left.dims) == len(right.dims):
        results *= groups
        flops *= groups if len(left.dims) == 3 else 1
    elif len(right.dims) == 3:  # with fewer rows than groups, some matrices are not read
        read_bytes -= right.bytes * max(0.0, 1 - rows / groups)
    shape = f"at most {rows} x {columns} x {depth} in {groups} groups"
    dtype = scaled_dtype(call, left, scales) if is_scaled else product_dtype(call, left)
    written_bytes = results * (2 if is_scaled else left.item_bytes)
    return CallWork(flops, read_bytes, written_bytes, dtype, True, shape, (columns, depth))


@formula("*::inplace_fused_experts", "*::outplace_fused_experts", "*::fused_experts")
def fused_experts_work(call: Call) -> CallWork:
    """Return the work of the experts of vLLM and SGLang: two products of each token with each of its experts.

    The first matrix holds gate and up. Weights of fewer bits than the tokens are dequantised: their bytes count.
    """
    tokens, first, second, _, chosen = call.tensors()[:5]
    rows, (experts, columns, _) = chosen.count, first.dims
    width = tokens.dims[-1]
    inner = columns if second.dims[2] == columns else columns // 2
    weights_bytes = (first.bytes + second.bytes) * min(1.0, rows / experts)
    shape = f"at most {tokens.dims[0]} tokens, {chosen.dims[-1]} of {experts} experts, {width} x {inner}"
    dtype = product_dtype(call, first if has_product_dtype(first) else tokens)
    flops = 2 * rows * width * (columns + inner)
    return CallWork(flops, weights_bytes + tokens.bytes + chosen.bytes, tokens.bytes, dtype, True, shape)


@formula("*::*_grouped_mm", "*::*_group_mm", "*::*_moe_mm")
def engine_grouped_work(call: Call) -> CallWork | None:
    """Return the work of a grouped product of a serving engine, which is given its result [m, n].

    Its operands are the [m, k] and [g, n, k] or [g, k, n] that fit the result. None if none do.
    """
    result, *others = call.tensors()
    rows, columns = result.dims[-2:]
    for right in (tensor for tensor in others if len(tensor.dims) == 3 and columns in tensor.dims[1:]):
        depth = prod(right.dims[1:]) // columns
        for left in (tensor for tensor in others if tensor.dims == (rows, depth)):
            shape = f"at most {rows} x {columns} x {depth} in {right.dims[0]} groups"
            read_bytes = left.bytes + right.bytes * min(1.0, rows / right.dims[0])
            written_bytes, flops = result.count * result.item_bytes, 2 * rows * columns * depth
            return CallWork(flops, read_bytes, written_bytes, product_dtype(call, left), True, shape)
    return None
