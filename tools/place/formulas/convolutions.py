"""Convolutions: 2 FLOPs per output, input channel of its group, and place of the kernel. Pooling: one per place."""

from collections.abc import Sequence
from math import prod

from formulas.base import Call, CallWork, Tensor, count_bytes, formula
from formulas.products import product_dtype

# The arguments of padding, stride and dilation.
FORWARD = {"cudnn_convolution": (2, 3, 4), "cudnn_convolution_relu": (4, 3, 5), "_conv_depthwise2d": (5, 4, 6)}
Sizes = Sequence[int]  # for each axis of a window


@formula(*FORWARD)
def convolution_work(call: Call) -> CallWork:
    """Return the work of a forward convolution."""
    image, weight = call.inputs[:2]
    padding, stride, dilation = (call.sizes(place) for place in FORWARD[call.name])
    positions = _count_positions(image, weight.dims[2:], padding, stride, dilation)
    outputs = image.dims[0] * weight.dims[0] * positions
    multiply_adds = outputs * prod(weight.dims[1:])
    return _convolution_work(call, multiply_adds, call.tensors(), outputs * image.item_bytes, image, weight)


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


@formula("max_pool2d_with_indices")
def max_pooling_work(call: Call) -> CallWork:
    """Return the work of max pooling. It writes the largest of each window, and where it was, as a long integer."""
    image, window = call.inputs[0], call.sizes(1)
    padding, stride, dilation = call.sizes(3), call.sizes(2), call.sizes(4)
    outputs = prod(image.dims[:-2]) * _count_positions(image, window, padding, stride, dilation)
    return CallWork(outputs * prod(window), image.bytes, outputs * (image.item_bytes + 8))


def _count_positions(image: Tensor, window: Sizes, padding: Sizes, stride: Sizes, dilation: Sizes) -> int:
    """Return how many places a window takes on an image."""
    axes = zip(image.dims[-len(window) :], window, padding, stride, dilation, strict=True)
    return prod((size + 2 * pad - dilated * (width - 1) - 1) // step + 1 for size, width, pad, step, dilated in axes)


def _convolution_work(
    call: Call, multiply_adds: int, read: list[Tensor], written_bytes: float, image: Tensor, weight: Tensor
) -> CallWork:
    shape = " by ".join("x".join(map(str, tensor.dims)) for tensor in (image, weight))
    return CallWork(2 * multiply_adds, count_bytes(read), written_bytes, product_dtype(call, image), True, shape)
