"""Scaled dot product attention: two products forward, five backward. A causal mask halves the FLOPs."""

from formulas.base import Call, CallWork, Tensor, formula, read

# The argument of the causal mask.
MASK = {"_flash_attention_forward": 8, "_efficient_attention_forward": 9, "_cudnn_attention_forward": 10}
MASK |= {"_flash_attention_backward": 11, "_efficient_attention_backward": 14, "_cudnn_attention_backward": 14}
MASK |= {"_scaled_dot_product_cudnn_attention": 6, "_scaled_dot_product_cudnn_attention_backward": 14}


@formula(*MASK)
def attention(call: Call) -> CallWork | None:
    """None for sequences of several lengths, which the trace does not hold."""
    first, mask = int(call.name.endswith("backward")), MASK[call.name]
    query, key, value = inputs = call.inputs[first : first + 3]
    if len(query.dims) != 4:
        return None
    sequence, heads = (2, 1) if "cudnn" in call.name else (1, 2)
    queries, keys, causal = query.dims[sequence], key.dims[sequence], call.inputs[mask] in ("True", "1", "2")
    pairs = query.dims[0] * query.dims[heads] * (queries * keys - causal * min(queries, keys) * queries / 2)
    flops = 2 * pairs * (query.dims[3] + value.dims[3])
    shape = f"batch {query.dims[0]}, {query.dims[heads]} x {key.dims[heads]} heads of {query.dims[3]}, "
    shape += f"{'causal half of ' * causal}{queries} x {keys}"
    if first:  # backward
        written = sum(one.count * one.item_bytes for one in inputs)
        return CallWork(2.5 * flops, read(call.tensors()), written, query.dtype, True, shape)
    bias = [one for one in call.inputs[3:4] if isinstance(one, Tensor) and len(one.dims) == 4]
    written = query.count // query.dims[3] * value.dims[3] * query.item_bytes
    return CallWork(flops, read([*inputs, *bias]), written, query.dtype, True, shape)
