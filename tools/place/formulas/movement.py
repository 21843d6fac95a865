"""Copies, reductions, look-ups, and optimizers, which step through lists of tensors."""

import re
from math import prod

from formulas.base import Call, CallWork, formula, read

# A trace holds no types of lists of tensors. The names of their kernels do.
ITEM = re.compile(r"OpaqueType<(\d+)|\b(?:(c10::BFloat16|c10::Half)|(float)|(double|long))\b")


@formula("copy_")
def copy(call: Call) -> CallWork:
    to, source = call.inputs[:2]
    types = f" {source.dtype} to {to.dtype}" if source.type != to.type else ""
    return CallWork(0, source.bytes, to.bytes, shape="x".join(map(str, to.dims)) + types)


# The second argument names the axes, of a norm the third; without any all are reduced.
@formula("sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "max", "min", "prod", "linalg_vector_norm")
def reduction(call: Call) -> CallWork:
    given, axes = call.inputs[0], call.sizes(2 if call.name == "linalg_vector_norm" else 1)
    gone = {axis % len(given.dims) for axis in axes if given.dims} or set(range(len(given.dims)))
    left = prod(size for axis, size in enumerate(given.dims) if axis not in gone)
    return CallWork(given.count, given.bytes, left * (8 if call.name.startswith("arg") else given.item_bytes))


# What the indices name: at most the whole table.
@formula("index_select", "gather", "embedding")
def look_up(call: Call) -> CallWork:
    table, index = call.tensors()[:2]
    axis = call.sizes(1)[0] if call.name == "index_select" else 0
    found = index.count * (1 if call.name == "gather" else table.count // table.dims[axis]) * table.item_bytes
    return CallWork(0, min(found, table.bytes) + index.bytes, found)


@formula("embedding_dense_backward")
def look_up_backward(call: Call) -> CallWork:
    gradient = call.inputs[0]
    return CallWork(gradient.count, read(call.tensors()), call.sizes(2)[0] * gradient.dims[-1] * gradient.item_bytes)


# All lists read; the first written, by Adam also its two moments, by a norm nothing of its size.
@formula("cat", "_fused_adam*", "_fused_sgd_", "_foreach_*")
def lists(call: Call) -> CallWork | None:
    counts = [sum(tensor.count for tensor in one) for one in call.inputs if isinstance(one, tuple)]
    found = ITEM.search(call.kernel)
    if not found or not sum(counts):
        return None
    item = int(found[1] or (2 if found[2] else 4 if found[3] else 8))
    written = item * counts[0] * (3 if "adam" in call.name else "norm" not in call.name)
    return CallWork(0 if call.name == "cat" else sum(counts), item * sum(counts), written)
