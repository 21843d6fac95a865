"""Kernels of serving engines that are given their results, such as `_C::rms_norm` of vLLM: every tensor once.

A tensor that is overwritten is read and written; of a cache only what is written counts.
"""

from formulas.base import Call, CallWork, count_bytes, formula
from formulas.mapped import LISTED

OVERWRITTEN = {"add_rms": slice(2), "rotary": slice(1, 3)}  # tensors, by a word of the name
FLOPS = {"rms": 6, "silu": 4, "gelu": 4, "rope": 3, "rotary": 3, "softmax": 6}  # per element, likewise


@formula(*(f"*::{name}" for name in LISTED["given"].split()))
def given_results_work(call: Call) -> CallWork:
    """Return the work of a kernel all of whose tensors are arguments. A rotation reads a part of its table."""
    tensors = call.tensors()
    overwritten = next((tensors[places] for word, places in OVERWRITTEN.items() if word in call.name), [])
    flops = next((flops for word, flops in FLOPS.items() if word in call.name), 1)
    if "rotary" in call.name or "rope" in call.name:
        tensors = [tensor for tensor in tensors if tensor.dims[0] == tensors[0].dims[0]]
    largest = max(tensor.count for tensor in tensors)
    return CallWork(flops * largest, count_bytes(tensors), count_bytes(overwritten))


@formula("*::reshape_and_cache*", "*::concat_and_cache_mla", "*::set_kv_buffer*")
def cache_work(call: Call) -> CallWork:
    """Return the work of storing keys and values of new tokens, the first two tensors, in a cache of its own type."""
    new, cache = call.tensors()[:2], call.tensors()[2]
    return CallWork(0, count_bytes(new), sum(tensor.count for tensor in new) * cache.item_bytes)
