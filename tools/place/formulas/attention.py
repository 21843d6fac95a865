"""Scaled dot product attention: two products forward, five backward. A causal mask halves the FLOPs.

A trace does not hold the lengths of packed sequences: they count as equal, which is the least that they can take if
queries and keys are as many. Keys of a paged cache count with the longest sequence: at most.
"""

from typing import NamedTuple

from formulas.base import Call, CallWork, Tensor, count_bytes, find_formula_key, formula


class Places(NamedTuple):
    """Arguments of an attention by their place."""

    causal: int
    starts: int | None = None  # of packed sequences of queries, and where the last ends
    longest_keys: int | None = None
    window: int | None = None  # keys before a query; those after follow
    operands: int = 0  # query, key and value


PLACES = {
    "_flash_attention_forward": Places(8, 3, 6, 11),
    "_efficient_attention_forward": Places(9, 4),
    "_cudnn_attention_forward": Places(10),
    "_flash_attention_backward": Places(11, 6, operands=1),
    "_efficient_attention_backward": Places(14, 6, operands=1),
    "_cudnn_attention_backward": Places(14, operands=1),
    "_scaled_dot_product_cudnn_attention": Places(6),
    "_scaled_dot_product_cudnn_attention_backward": Places(14, operands=1),
    # FlashAttention 2 and 3, as their packages, vLLM and SGLang register them.
    "*::_flash_attn_forward": Places(5, window=6),
    "*::_flash_attn_varlen_forward": Places(9, 3, 6, 10),
    "*::_flash_attn_backward": Places(11, window=12, operands=1),
    "*::_flash_attn_varlen_backward": Places(15, 9, 12, 16, operands=1),
    "*::varlen_fwd": Places(15, 4, 11, 16),
    "*::fwd": Places(24, 7, 13, 25),
    "flash_attn_3::_flash_attn_forward": Places(24, 7, 13, 25),
}


@formula(*PLACES)
def attention_work(call: Call) -> CallWork | None:
    """Return the work of an attention, forward or backward; None if the trace does not record what it depends on."""
    backward, places = call.name.endswith("backward"), PLACES[find_formula_key(call.name)]
    query, key, value = call.inputs[places.operands : places.operands + 3]
    sequence_axis, head_axis = (-2, -3) if "cudnn" in call.name else (-3, -2)
    starts = call.inputs[places.starts] if places.starts is not None and places.starts < len(call.inputs) else None
    is_packed = isinstance(starts, Tensor) and starts.count > 1
    if len(query.dims) != 4 and not is_packed:
        return None
    batch = starts.count - 1 if is_packed else query.dims[0]
    queries, keys, note = query.dims[sequence_axis], key.dims[sequence_axis], ""
    if is_packed:
        queries, keys, note = queries / batch, keys / batch, ", sequences of equal length"
    if len(key.dims) > len(query.dims) and places.longest_keys is not None:  # pages of a cache
        keys, note = call.sizes(places.longest_keys)[0], ", at most"
    pairs = float(queries * keys)
    sizes = f"{queries:g} x {keys:g}"
    before, after = (call.sizes(places.window + side) for side in (0, 1)) if places.window else ([], [])
    window = before[0] + max(0, *after) + 1 if before and before[0] >= 0 and after else keys
    if window < keys:
        keys, pairs, sizes = window, float(queries * window), f"{sizes} in a window of {window:g}"
    elif queries > 1 and call.inputs[places.causal] in ("True", "1", "2"):
        pairs -= min(queries, keys) * queries / 2
        sizes = f"causal half of {sizes}"
    query_heads, key_heads, size = query.dims[head_axis], key.dims[head_axis], query.dims[-1]
    flops = 2 * (batch * query_heads * pairs) * (size + value.dims[-1])
    shape = f"batch {batch}, {query_heads} x {key_heads} heads of {size}, {sizes}{note}"
    if backward:
        gradient_bytes = sum(tensor.count * tensor.item_bytes for tensor in (query, key, value))
        read = [tensor for tensor in call.tensors() if tensor.item_bytes > 1]
        return CallWork(2.5 * flops, count_bytes(read), gradient_bytes, query.dtype, True, shape)
    biases = [bias for bias in call.inputs[3:4] if isinstance(bias, Tensor) and len(bias.dims) == 4]
    written_bytes = query.count // size * value.dims[-1] * query.item_bytes
    cached_bytes = batch * keys * key_heads * (size + value.dims[-1]) * key.item_bytes
    key_bytes = min(count_bytes([key, value]), cached_bytes) if note == ", at most" else count_bytes([key, value])
    return CallWork(flops, count_bytes([query, *biases]) + key_bytes, written_bytes, query.dtype, True, shape)
