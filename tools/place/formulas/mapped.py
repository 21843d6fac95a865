"""Element-wise operators, norms and softmax, which mapped.yaml lists: every tensor read once, one result written."""

from itertools import zip_longest
from math import prod
from pathlib import Path

import yaml

from formulas.base import Call, CallWork, Tensor, count_bytes, formula

LISTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


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
