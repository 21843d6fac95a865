"""Operators that mapped.yaml lists: element-wise ones, norms and softmax read every tensor once and write one result.

Kernels of serving engines, such as `_C::rms_norm` of vLLM, are given their results: every tensor once. A tensor that
is overwritten is read and written; of a cache only what is written counts.
"""

from itertools import zip_longest
from math import prod
from pathlib import Path

import yaml

from formulas.base import Call, CallWork, Tensor, count_bytes, formula

LISTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OVERWRITTEN = {"add_rms": slice(2), "rotary": slice(1, 3)}  # tensors, by a word of the name
FLOPS = {"rms": 6, "silu": 4, "gelu": 4, "rope": 3, "rotary": 3, "softmax": 6}  # per element, likewise


def _by_operator(family: str) -> dict[str, int]:
    """Return the number that mapped.yaml lists an operator under, by operator."""
    return {name: count for count, names in LISTED[family].items() for name in names.split()}


NORMS = _by_operator("norms")
READ = _by_operator("elementwise")
READ |= {f"{name}_": count for name, count in READ.items() if not name.endswith("_")}  # in place


@formula(*READ)
def elementwise_work(call: Call) -> CallWork:
    """Return the work of an element-wise operator: one FLOP per element of the result."""
    inputs, first = call.tensors()[: READ[call.name]], call.inputs[0]
    if call.name.endswith("_") and first.count:  # in place
        item_bytes, count = first.item_bytes, first.count
    else:
        item_bytes, count = _result_item_bytes(inputs), _broadcast_count(inputs)
    if call.name in LISTED["to_bool"].split():
        item_bytes = 1
    elif call.name == "native_dropout":
        item_bytes += 1  # the mask is written too
    return CallWork(count, count_bytes(inputs), count * item_bytes)


def _result_item_bytes(inputs: list[Tensor]) -> int:
    """Return the bytes of an element of the result: the widest input's that is not a scalar and not bool."""
    not_scalar = [tensor for tensor in inputs if tensor.dims] or inputs
    return max(not_scalar, key=lambda tensor: 0 if tensor.type == "bool" else tensor.item_bytes).item_bytes


def _broadcast_count(inputs: list[Tensor]) -> int:
    """Return the number of elements that the inputs broadcast to: axes are aligned at the last."""
    axes = zip_longest(*(reversed(tensor.dims) for tensor in inputs), fillvalue=1)
    return prod(max(sizes) if all(sizes) else 0 for sizes in axes)


@formula(*NORMS)
def norm_work(call: Call) -> CallWork:
    """Return the work of a norm or a softmax, forward or backward."""
    first = call.inputs[0]
    return CallWork(NORMS[call.name] * first.count, count_bytes(call.tensors()), first.count * first.item_bytes)


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
    """Return the work of writing new keys and values, the first two tensors, to a cache, whose dtype may differ."""
    new, cache = call.tensors()[:2], call.tensors()[2]
    return CallWork(0, count_bytes(new), sum(tensor.count for tensor in new) * cache.item_bytes)
