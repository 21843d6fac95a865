"""Scaled dot product attention: two products forward, five backward. A causal mask halves the FLOPs."""

from formulas.base import TYPES, Call, Tensor, Work, formula, read

# Arguments: the query's (key and value follow), the causal mask's; the axes of sequence and heads.
SEQUENCE_FIRST, HEADS_FIRST = (1, 2), (2, 1)
FORWARD = {
    "_flash_attention_forward": (0, 8, SEQUENCE_FIRST),
    "_efficient_attention_forward": (0, 9, SEQUENCE_FIRST),
    "_cudnn_attention_forward": (0, 10, HEADS_FIRST),
    "_scaled_dot_product_flash_attention": (0, 4, HEADS_FIRST),
    "_scaled_dot_product_efficient_attention": (0, 6, HEADS_FIRST),
    "_scaled_dot_product_cudnn_attention": (0, 6, HEADS_FIRST),
    "flash_attn::_flash_attn_forward": (0, 5, SEQUENCE_FIRST),
}
BACKWARD = {
    "_flash_attention_backward": (1, 11, SEQUENCE_FIRST),
    "_efficient_attention_backward": (1, 14, SEQUENCE_FIRST),
    "_cudnn_attention_backward": (1, 14, HEADS_FIRST),
    "_scaled_dot_product_flash_attention_backward": (1, 10, HEADS_FIRST),
    "_scaled_dot_product_efficient_attention_backward": (1, 11, HEADS_FIRST),
    "_scaled_dot_product_cudnn_attention_backward": (1, 14, HEADS_FIRST),
}


@formula(*FORWARD, *BACKWARD)
def attention(call: Call) -> Work | None:
    """None for sequences of several lengths, which the trace does not hold."""
    backward = call.name in BACKWARD
    first, mask, (sequence, heads) = (BACKWARD if backward else FORWARD)[call.name]
    query, key, value = call.inputs[first : first + 3]
    if len(query.dims) != 4:
        return None
    queries, keys = query.dims[sequence], key.dims[sequence]
    causal = mask < len(call.inputs) and call.inputs[mask] in ("True", "1", "2")
    pairs = query.dims[0] * query.dims[heads] * (queries * keys - causal * min(queries, keys) * queries / 2)
    flops = 2 * pairs * (query.dims[3] + value.dims[3]) * (2.5 if backward else 1)
    written = query.count // query.dims[3] * value.dims[3] * query.item_bytes
    if backward:
        written = sum(one.count * one.item_bytes for one in (query, key, value))
    taken = call.tensors() if backward else [query, key, value, *_bias(call)]
    shape = f"batch {query.dims[0]}, {query.dims[heads]} x {key.dims[heads]} heads of {query.dims[3]}, "
    shape += f"{queries} x {keys}{' causal' if causal else ''}"
    return Work(flops, read(taken), written, TYPES[query.type][1], True, shape)


def _bias(call: Call) -> list[Tensor]:
    """The fourth argument, if it is as large as the scores: lengths of sequences are not."""
    bias = call.inputs[3] if len(call.inputs) > 3 else None
    return [bias] if isinstance(bias, Tensor) and len(bias.dims) == 4 else []
