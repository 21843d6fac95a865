"""Reads and writes of places that indices name, sorts: bytes alone. Indices of `index` and `index_put_` have no sizes.

What is read at scattered places counts as if it were dense: the least that it can be.
"""

import re
from math import prod

from formulas.base import Call, CallWork, count_bytes, formula

INDEX_BYTES = 8  # of the indices that are made, or that the trace has no type of
GATHERS_ROWS = "vectorized_gather_kernel"  # a block for each row
ITEMS_PER_BLOCK = re.compile(r"index_elementwise_kernel<(\d+), (\d+)")  # threads, and items of each


@formula("index_select", "gather", "embedding")
def look_up_work(call: Call) -> CallWork:
    """Return the work of a look-up: it reads the rows that the indices name, at most the whole table."""
    table, index = call.tensors()[:2]
    axis = call.sizes(1)[0] if call.name == "index_select" else 0
    items_per_index = 1 if call.name == "gather" else table.count // table.dims[axis]
    row_bytes = index.count * items_per_index * table.item_bytes
    return CallWork(0, min(row_bytes, table.bytes) + index.bytes, row_bytes)


@formula("index", "masked_select", "take")
def index_work(call: Call) -> CallWork | None:
    """Return the work of x[indices]: the size of the result follows from the kernel's launch, to a block."""
    table, per_block = call.tensors()[0], ITEMS_PER_BLOCK.search(call.kernel)
    if GATHERS_ROWS in call.kernel:
        indices, count = call.blocks, call.blocks * prod(table.dims[1:])
    elif per_block:
        indices = count = call.blocks * int(per_block[1]) * int(per_block[2])
    else:
        return None
    result_bytes = count * table.item_bytes
    return CallWork(0, min(result_bytes, table.bytes) + INDEX_BYTES * indices, result_bytes)


@formula("index_put_", "_index_put_impl_", "_unsafe_index_put", "index_copy_", "index_fill_", "masked_scatter_", "put_")
def index_write_work(call: Call) -> CallWork:
    """Return the work of writing values at places of a tensor; if it adds to them, they are read too."""
    target, *others = call.tensors()
    count = others[-1].count
    if others[-1].type != target.type:  # a scalar, at places along an axis
        count *= target.count // target.dims[call.sizes(1)[0]]
    written_bytes = min(count, target.count) * target.item_bytes
    adds = "put" in call.name and call.argument(3) == "True"
    return CallWork(0, count_bytes(others) + adds * written_bytes, written_bytes)


@formula("index_add", "index_add_", "index_reduce_", "scatter*", "embedding_renorm_")
def scatter_work(call: Call) -> CallWork:
    """Return the work of a scatter: indices and values are read, the places that they name are read if added to.

    Without `_` at the end, the whole tensor is copied first.
    """
    target, index, *values = call.tensors()
    by_axis = call.name.startswith("index")  # an index names a row
    count = index.count * (target.count // target.dims[call.sizes(1)[0]] if by_axis else 1)
    place_bytes = min(count, target.count) * target.item_bytes
    value_bytes = count * target.item_bytes if values else 0
    adds = any(word in call.name for word in ("add", "reduce"))
    copied = 0 if call.name.endswith("_") else target.bytes
    return CallWork(count if adds else 0, index.bytes + value_bytes + adds * place_bytes + copied, place_bytes + copied)


@formula("embedding_dense_backward")
def embedding_backward_work(call: Call) -> CallWork:
    """Return the work of the gradient of an embedding; the third argument is its number of rows."""
    gradient, rows = call.inputs[0], call.sizes(2)[0]
    written_bytes = rows * gradient.dims[-1] * gradient.item_bytes
    return CallWork(gradient.count, count_bytes(call.tensors()), written_bytes)


@formula("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag_work(call: Call) -> CallWork:
    """Return the work of sums of rows of a table: rows and indices are read, a row for each bag is written."""
    table, index, offsets = call.inputs[:3]
    row_bytes = table.dims[1] * table.item_bytes
    read_bytes = min(index.count * row_bytes, table.bytes) + index.bytes + offsets.bytes
    bags = offsets.count
    return CallWork(index.count * table.dims[1], read_bytes, bags * row_bytes + (index.count + bags) * INDEX_BYTES)


@formula("_embedding_bag_dense_backward")
def embedding_bag_backward_work(call: Call) -> CallWork:
    """Return the work of the gradient of embedding bags; the sixth argument is the number of rows."""
    gradient, index = call.inputs[:2]
    rows, row_bytes = call.sizes(5)[0], gradient.dims[1] * gradient.item_bytes
    return CallWork(index.count * gradient.dims[1], gradient.bytes + index.bytes, rows * row_bytes)


@formula("sort", "argsort", "topk", "_cummax_helper", "_cummin_helper")
def sort_work(call: Call) -> CallWork:
    """Return the work of a sort or selection: a pass that reads, and values and their places written."""
    tensor = call.tensors()[0]
    outputs = tensor.count
    if call.name == "topk":
        outputs = tensor.count // tensor.dims[call.sizes(2)[0]] * call.sizes(1)[0]
    return CallWork(0, tensor.bytes, outputs * (tensor.item_bytes + INDEX_BYTES))


@formula("nonzero", "bincount", "histc", "_unique2", "unique_dim", "unique_consecutive", "searchsorted", "bucketize")
def count_work(call: Call) -> CallWork:
    """Return the work of counting or searching: all tensors are read; a search writes a place for each number."""
    tensors = call.tensors()
    searched = call.name in ("searchsorted", "bucketize")
    results = tensors[1 if call.name == "searchsorted" else 0].count if searched else 0
    return CallWork(0, count_bytes(tensors), INDEX_BYTES * results)


@formula("nll_loss_forward", "nll_loss2d_forward", "nll_loss_backward", "nll_loss2d_backward")
def nll_loss_work(call: Call) -> CallWork:
    """Return the work of the negative log likelihood: a number for each target is read, or written to the gradient."""
    backward = call.name.endswith("backward")
    scores, target = call.inputs[backward : backward + 2]
    picked_bytes = target.count * scores.item_bytes
    return CallWork(target.count, target.bytes + (not backward) * picked_bytes, backward * picked_bytes)
