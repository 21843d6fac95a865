"""Copies, reductions, new tensors, and optimizers, which step through lists of tensors."""

import re
from math import ceil, prod

from formulas.base import Call, CallWork, formula, item_bytes
from formulas.mapped import LISTED

# A trace holds no types of lists of tensors. The names of their kernels do.
ITEM = re.compile(r"OpaqueType<(\d+)|\b(c10::BFloat16|c10::Half|c10::complex<\w+>|float|double|long)(?!\w)")
LISTS = re.compile(r"TensorListMetadata<(\d+)>")
ITEMS_PER_BLOCK = 65536  # of multi_tensor_apply
CHUNK_TYPES = re.compile(r"chunk_cat_cuda_kernel<([\w:]+), ([\w:]+)>")


@formula("copy_")
def copy_work(call: Call) -> CallWork:
    """Return the work of a copy, which may convert."""
    target, source = call.inputs[:2]
    types = f" {source.dtype} to {target.dtype}" if source.type != target.type else ""
    return CallWork(0, source.bytes, target.bytes, shape="x".join(map(str, target.dims)) + types)


@formula(*LISTED["reductions"].split())
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


@formula("cat", "_fused_adam*", "_fused_sgd_", "_foreach_*")
def list_work(call: Call) -> CallWork | None:
    """Return the work of an operator on lists of tensors: lists are read, the first is written.

    Adam also writes its two moments, SGD its momentum. A list of more than 30 tensors has no sizes: those of the
    gradients count if as many blocks ran. None if no sizes are known, or the name of the kernel has no type.
    """
    counts = [sum(tensor.count for tensor in tensors) for tensors in call.inputs if isinstance(tensors, tuple)]
    if not sum(counts):
        counts = [_count_by_gradients(call)] * int((LISTS.search(call.kernel) or "01")[1])
    item = ITEM.search(call.kernel)
    if item is None or not sum(counts):
        return None
    opaque_bytes, type_name = item.groups()
    element_bytes = int(opaque_bytes) if opaque_bytes else item_bytes(type_name)
    lists_written, lists_read = 1, counts
    if "adam" in call.name:
        lists_written = 3
    elif "sgd" in call.name:
        lists_written = 2 if len([count for count in counts if count == counts[0]]) > 2 else 1
    elif "norm" in call.name:
        lists_written = 0  # of that size
    elif "copy" in call.name or "zero" in call.name:
        lists_read = counts[1:]
    flops = 0 if call.name == "cat" else sum(lists_read)
    return CallWork(flops, element_bytes * sum(lists_read), element_bytes * counts[0] * lists_written)


def _count_by_gradients(call: Call) -> int:
    """Return the elements of all gradients that were accumulated before, or of a rank's shards, if they make as many
    blocks as ran; else 0."""
    for ranks in {1, call.ranks}:
        sizes = [ceil(count / ranks) for count in call.gradients]
        if sizes and sum(ceil(size / ITEMS_PER_BLOCK) for size in sizes) == call.blocks:
            return sum(sizes)
    return 0


@formula("split_with_sizes_copy")
def split_work(call: Call) -> CallWork:
    """Return the work of a copy into parts."""
    return CallWork(0, call.inputs[0].bytes, call.inputs[0].bytes)


@formula("_chunk_cat")
def chunk_cat_work(call: Call) -> CallWork | None:
    """Return the work of a copy of lists into one tensor, which may convert.

    None if the kernel copies bytes, and the tensor is new.
    """
    types, results = CHUNK_TYPES.search(call.kernel), call.inputs[3:]
    written, read = types.groups() if types else ("char", "char")
    if written == "char" and results:
        written = read = results[0].type
    count = sum(tensor.count for tensor in call.inputs[0])
    return None if written == "char" else CallWork(0, count * item_bytes(read), count * item_bytes(written))


@formula("arange", "linspace", "logspace", "range", "randperm", "eye", "*nonzero_static")
def creation_work(call: Call) -> CallWork:
    """Return the work of filling a new tensor, which is the last; if it is still empty, its length is the first."""
    result = call.tensors()[-1]
    count = result.count or max(call.sizes(0) + call.sizes(1))
    return CallWork(0, 0, count * result.item_bytes)
