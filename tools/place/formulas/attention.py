"""Scaled dot product attention: two products forward, five backward. A causal mask halves the FLOPs."""

from formulas.base import Call, CallWork, Tensor, count_bytes, formula

# The argument of the causal mask.
MASK = {"_flash_attention_forward": 8, "_efficient_attention_forward": 9, "_cudnn_attention_forward": 10}
MASK |= {"_flash_attention_backward": 11, "_efficient_attention_backward": 14, "_cudnn_attention_backward": 14}
MASK |= {"_scaled_dot_product_cudnn_attention": 6, "_scaled_dot_product_cudnn_attention_backward": 14}


@formula(*MASK)
def attention_work(call: Call) -> CallWork | None:
    """Return the work of an attention, forward or backward.

    None if the sequences differ in length: the trace does not record their lengths.
    """
    backward = call.name.endswith("backward")
    query, key, value = call.inputs[1:4] if backward else call.inputs[:3]  # the gradient comes first
    if len(query.dims) != 4:
        return None
    sequence_axis, head_axis = (2, 1) if "cudnn" in call.name else (1, 2)
    queries, keys = query.dims[sequence_axis], key.dims[sequence_axis]
    pairs = float(queries * keys)
    sizes = f"{queries} x {keys}"
    if call.inputs[MASK[call.name]] in ("True", "1", "2"):  # causal
        pairs -= min(queries, keys) * queries / 2
        sizes = f"causal half of {sizes}"
    flops = 2 * (query.dims[0] * query.dims[head_axis] * pairs) * (query.dims[3] + value.dims[3])
    heads = f"{query.dims[head_axis]} x {key.dims[head_axis]} heads of {query.dims[3]}"
    shape = f"batch {query.dims[0]}, {heads}, {sizes}"
    if backward:
        gradient_bytes = sum(tensor.count * tensor.item_bytes for tensor in (query, key, value))
        return CallWork(2.5 * flops, count_bytes(call.tensors()), gradient_bytes, query.dtype, True, shape)
    biases = [bias for bias in call.inputs[3:4] if isinstance(bias, Tensor) and len(bias.dims) == 4]
    written_bytes = query.count // query.dims[3] * value.dims[3] * query.item_bytes
    return CallWork(flops, count_bytes([query, key, value, *biases]), written_bytes, query.dtype, True, shape)
