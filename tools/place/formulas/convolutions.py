"""Convolutions: 2 FLOPs per output, input channel of its group, and place of the kernel."""

from collections.abc import Sequence
from math import prod

from formulas.base import Call, CallWork, Tensor, count_bytes, formula
from formulas.products import product_dtype

# The arguments of padding, stride and dilation.
FORWARD = {"cudnn_convolution": (2, 3, 4), "cudnn_convolution_relu": (4, 3, 5), "_conv_depthwise2d": (5, 4, 6)}
FORWARD |= {"cudnn_convolution_add_relu": (6, 5, 7), "conv_depthwise3d": (5, 4, 6)}
# These have no dilation.
FORWARD |= {"_slow_conv2d_forward": (5, 4, None), "slow_conv3d_forward": (5, 4, None)}
Sizes = Sequence[int]  # for each axis of a window


@formula(*FORWARD)
def convolution_work(call: Call) -> CallWork:
    """Return the work of a forward convolution."""
    image, weight = call.inputs[:2]
    padding, stride, dilation = (
        (place and call.sizes(place)) or [1] * len(weight.dims[2:]) for place in FORWARD[call.name]
    )
    positions = count_positions(image, weight.dims[2:], padding, stride, dilation)
    outputs = image.dims[0] * weight.dims[0] * positions
    multiply_adds = outputs * prod(weight.dims[1:])
    return _convolution_work(call, multiply_adds, call.tensors(), outputs * image.item_bytes, image, weight)


@formula("cudnn_convolution_transpose", "slow_conv_transpose2d", "slow_conv_transpose3d")
def transposed_convolution_work(call: Call) -> CallWork:
    """Return the work of a transposed convolution: each input is multiplied with the whole kernel of its channel."""
    image, weight = call.inputs[:2]
    window, is_slow = weight.dims[2:], call.name.startswith("slow")
    places = (5, 6, 4, 7) if is_slow else (2, 3, 4, 5)
    padding, added, stride, dilation = (call.sizes(place) for place in places)
    groups = 1 if is_slow else call.sizes(6)[0]
    axes = zip(image.dims[2:], window, padding, added, stride, dilation, strict=True)
    positions = prod(
        (size - 1) * step - 2 * pad + dilated * (width - 1) + extra + 1
        for size, width, pad, extra, step, dilated in axes
    )
    written_bytes = image.dims[0] * weight.dims[1] * groups * positions * image.item_bytes
    return _convolution_work(call, image.count * prod(weight.dims[1:]), call.tensors(), written_bytes, image, weight)


@formula("convolution_backward")
def convolution_backward_work(call: Call) -> CallWork:
    """Return the work of a backward convolution: a forward's FLOPs for each requested gradient, of input and weight."""
    gradient, image, weight = call.inputs[:3]
    requested = call.inputs[10].strip("[]").split(", ")
    outputs = image if call.inputs[7] == "True" else gradient  # transposed
    multiply_adds, read, written_bytes = 0, [gradient], 0
    for is_requested, operand, result in zip(requested, (weight, image), (image, weight), strict=False):
        if is_requested == "True":
            multiply_adds += outputs.count * prod(weight.dims[1:])
            read.append(operand)
            written_bytes += result.count * result.item_bytes
    return _convolution_work(call, multiply_adds, read, written_bytes, image, weight)


def count_positions(image: Tensor, window: Sizes, padding: Sizes, stride: Sizes, dilation: Sizes) -> int:
    """Return how many places a window takes on an image."""
    axes = zip(image.dims[-len(window) :], window, padding, stride, dilation, strict=True)
    return prod((size + 2 * pad - dilated * (width - 1) - 1) // step + 1 for size, width, pad, step, dilated in axes)


def _convolution_work(
    call: Call, multiply_adds: int, read: list[Tensor], written_bytes: float, image: Tensor, weight: Tensor
) -> CallWork:
    shape = " by ".join("x".join(map(str, tensor.dims)) for tensor in (image, weight))
    dtype, channels = product_dtype(call, image), weight.dims[:2]
    return CallWork(2 * multiply_adds, count_bytes(read), written_bytes, dtype, True, shape, channels)
