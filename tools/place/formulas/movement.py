"""Copies, reductions, look-ups, and optimizers, which step through lists of tensors."""

import re
from math import prod

from formulas.base import Call, CallWork, count_bytes, formula, item_bytes

# A trace holds no types of lists of tensors. The names of their kernels do.
ITEM = re.compile(r"OpaqueType<(\d+)|\b(c10::BFloat16|c10::Half|c10::complex<\w+>|float|double|long)(?!\w)")


@formula("copy_")
def copy_work(call: Call) -> CallWork:
    """Return the work of a copy, which may convert."""
    target, source = call.inputs[:2]
    types = f" {source.dtype} to {target.dtype}" if source.type != target.type else ""
    return CallWork(0, source.bytes, target.bytes, shape="x".join(map(str, target.dims)) + types)


@formula("sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "max", "min", "prod", "linalg_vector_norm")
def reduction_work(call: Call) -> CallWork:
    """Return the work of a reduction.

    The second argument names the axes (of a norm, the third); without any all are reduced.
    """
    tensor, axes = call.inputs[0], call.sizes(2 if call.name == "linalg_vector_norm" else 1)
    rank = len(tensor.dims)
    reduced_axes = {axis % rank for axis in axes if rank} or set(range(rank))
    outputs = prod(size for axis, size in enumerate(tensor.dims) if axis not in reduced_axes)
    result_bytes = outputs * (8 if call.name.startswith("arg") else tensor.item_bytes)
    return CallWork(tensor.count, tensor.bytes, result_bytes)


@formula("index_select", "gather", "embedding")
def look_up_work(call: Call) -> CallWork:
    """Return the work of a look-up: it reads the rows that the indices name, at most the whole table."""
    table, index = call.tensors()[:2]
    axis = call.sizes(1)[0] if call.name == "index_select" else 0
    items_per_index = 1 if call.name == "gather" else table.count // table.dims[axis]
    row_bytes = index.count * items_per_index * table.item_bytes
    return CallWork(0, min(row_bytes, table.bytes) + index.bytes, row_bytes)


@formula("embedding_dense_backward")
def look_up_backward_work(call: Call) -> CallWork:
    """Return the work of the gradient of an embedding; the third argument is its number of rows."""
    gradient, rows = call.inputs[0], call.sizes(2)[0]
    written_bytes = rows * gradient.dims[-1] * gradient.item_bytes
    return CallWork(gradient.count, count_bytes(call.tensors()), written_bytes)


@formula("cat", "_fused_adam*", "_fused_sgd_", "_foreach_*")
def list_work(call: Call) -> CallWork | None:
    """Return the work of an operator on lists of tensors: all are read, the first is written.

    Adam also writes its two moments; a norm writes nothing of that size. None if the trace has no sizes, or the name
    of the kernel no type.
    """
    counts = [sum(tensor.count for tensor in tensors) for tensors in call.inputs if isinstance(tensors, tuple)]
    item = ITEM.search(call.kernel)
    if item is None or not sum(counts):
        return None
    opaque_bytes, type_name = item.groups()
    element_bytes = int(opaque_bytes) if opaque_bytes else item_bytes(type_name)
    lists_written = 3 if "adam" in call.name else 1
    if "norm" in call.name:
        lists_written = 0
    flops = 0 if call.name == "cat" else sum(counts)
    return CallWork(flops, element_bytes * sum(counts), element_bytes * counts[0] * lists_written)
