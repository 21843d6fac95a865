"""Scaled dot product attention: two products forward, five backward. A causal mask halves the FLOPs.

A trace does not hold the lengths of packed sequences: they count as equal, which is the least that they can take if
queries and keys are as many. Keys of a paged cache count with the longest sequence: at most.
"""

from pathlib import Path

import yaml

from formulas.base import Call, CallWork, Tensor, count_bytes, find_formula_key, formula

# Arguments by their place, of each operator.
PLACES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


@formula(*PLACES)
def attention_work(call: Call) -> CallWork | None:
    """Return the work of an attention, forward or backward; None if the trace does not record what it depends on."""
    backward, places = call.name.endswith("backward"), PLACES[find_formula_key(call.name)]
    query, key, value = call.inputs[backward : backward + 3]
    sequence_axis, head_axis = (-2, -3) if "cudnn" in call.name else (-3, -2)
    starts = call.argument(places["starts"]) if "starts" in places else None
    is_packed = isinstance(starts, Tensor) and starts.count > 1
    if len(query.dims) != 4 and not is_packed:
        return None
    batch = starts.count - 1 if is_packed else query.dims[0]
    queries, keys, note = query.dims[sequence_axis], key.dims[sequence_axis], ""
    if is_packed:
        queries, keys, note = queries / batch, keys / batch, ", sequences of equal length"
    if len(key.dims) > len(query.dims) and "longest_keys" in places:  # pages of a cache
        keys, note = call.sizes(places["longest_keys"])[0], ", at most"
    pairs = float(queries * keys)
    sizes = f"{queries:g} x {keys:g}"
    before, after = (call.sizes(places["window"] + side) for side in (0, 1)) if "window" in places else ([], [])
    window = before[0] + max(0, *after) + 1 if before and before[0] >= 0 and after else keys
    if window < keys:
        keys, pairs, sizes = window, float(queries * window), f"{sizes} in a window of {window:g}"
    elif queries > 1 and call.inputs[places["causal"]] in ("True", "1", "2"):
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
