"""Pooling and resampling of images: bytes, and an operation for each place of a window."""

from math import prod

from formulas.base import Call, CallWork, count_bytes, formula
from formulas.convolutions import count_positions

INDEX_BYTES = 8
CORNERS = {"nearest": 1, "linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}  # inputs of an output


@formula("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d")
def pooling_work(call: Call) -> CallWork:
    """Return the work of pooling. Max pooling also writes where the largest was, as a long integer."""
    image, window = call.inputs[0], call.sizes(1)
    stride, padding = call.sizes(2) or window, call.sizes(3)
    dilation = call.sizes(4) if "max" in call.name else [1] * len(window)
    outputs = prod(image.dims[: -len(window)]) * count_positions(image, window, padding, stride, dilation)
    item_bytes = image.item_bytes + (INDEX_BYTES if "max" in call.name else 0)
    return CallWork(outputs * prod(window), image.bytes, outputs * item_bytes)


@formula("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_pooling_work(call: Call) -> CallWork:
    """Return the work of pooling to a given size."""
    image, sizes = call.inputs[0], call.sizes(1)
    outputs = prod(image.dims[: -len(sizes)]) * prod(sizes)
    item_bytes = image.item_bytes + (INDEX_BYTES if "max" in call.name else 0)
    return CallWork(image.count, image.bytes, outputs * item_bytes)


@formula("*_pool2d_*backward", "*_pool3d_*backward")
def pooling_backward_work(call: Call) -> CallWork:
    """Return the work of a gradient of pooling: it reads the other gradient and the places, not the image."""
    gradient, image, *rest = call.tensors()
    return CallWork(gradient.count, count_bytes([gradient, *rest]), image.count * image.item_bytes)


@formula("upsample_*", "_upsample_*")
def resampling_work(call: Call) -> CallWork:
    """Return the work of resampling an image to the sizes of its second argument; backward to those of the third."""
    image, backward = call.inputs[0], call.name.endswith("backward")
    sizes = call.sizes(2)[2:] if backward else call.sizes(1)
    result = prod(image.dims[:2]) * prod(sizes)
    corners = next((count for kind, count in CORNERS.items() if f"_{kind}" in call.name), 1)
    outputs = image.count if backward else result
    return CallWork(2 * corners * outputs, image.bytes, result * image.item_bytes)
