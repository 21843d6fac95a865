"""Copies, reductions, look-ups, and optimizers, which step through lists of tensors."""

from math import prod

from formulas.base import FORMULAS, Call, Work, formula, item_in, mapped, read


@formula("copy_")
def copy(call: Call) -> Work:
    target, source = call.inputs[:2]
    return Work(0, source.bytes, target.bytes)


@formula("sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "max", "min", "prod", "linalg_vector_norm")
def reduction(call: Call) -> Work:
    """The second argument names the axes, of a norm the third; without any all are reduced."""
    given, axes = call.inputs[0], call.sizes(2 if call.name == "linalg_vector_norm" else 1)
    gone = {axis % len(given.dims) for axis in axes if given.dims} or set(range(len(given.dims)))
    left = prod(size for axis, size in enumerate(given.dims) if axis not in gone)
    return Work(given.count, given.bytes, left * (8 if call.name.startswith("arg") else given.item_bytes))


@formula("cat")
def cat(call: Call) -> Work | None:
    count, item = sum(one.count for one in call.tensors()), item_in(call.kernel)
    return Work(0, item * count, item * count) if count and item else None


@formula("index_select", "gather", "embedding")
def look_up(call: Call) -> Work:
    """What the indices name: at most the whole table."""
    table, index = call.tensors(3)[:2]
    row = 1 if call.name == "gather" else table.count // table.dims[_axis(call)]
    found = index.count * row * table.item_bytes
    return Work(0, min(found, table.bytes) + index.bytes, found)


def _axis(call: Call) -> int:
    return call.sizes(1)[0] if call.name == "index_select" else 0


@formula("embedding_dense_backward")
def look_up_backward(call: Call) -> Work:
    gradient = call.inputs[0]
    return Work(gradient.count, read(call.tensors(2)), call.sizes(2)[0] * gradient.dims[-1] * gradient.item_bytes)


@formula("nll_loss_forward", "nll_loss2d_forward")
def loss(call: Call) -> Work:
    """One entry of each row."""
    return Work(call.inputs[1].count, call.inputs[1].count * call.inputs[0].item_bytes + call.inputs[1].bytes, 8)


@formula("nll_loss_backward")
def loss_backward(call: Call) -> Work:
    return mapped([call.inputs[2]], 0, call.inputs[1])


FOREACH = tuple(f"_foreach_{name}_" for name in "add sub mul div addcmul addcdiv lerp sqrt neg zero copy".split())


@formula("_fused_adamw_", "_fused_adam_", "_fused_sgd_", "_foreach_sqrt", "_foreach_norm", "_amp_foreach", *FOREACH)
def lists(call: Call) -> Work | None:
    """All lists read; the first written, by Adam also its two moments. Types are those of the kernel's name."""
    counts = [sum(tensor.count for tensor in one) for one in call.inputs if isinstance(one, tuple)]
    item = item_in(call.kernel)
    if not item or not sum(counts):
        return None
    written = counts[0] * (3 if "adam" in call.name else 1)
    return Work(sum(counts), item * sum(counts), item * written)


FORMULAS["_foreach_mul"] = FORMULAS["_foreach_div"] = FORMULAS["_foreach_add"] = lists
