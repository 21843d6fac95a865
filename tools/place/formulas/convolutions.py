"""Convolutions: 2 FLOPs per output, input channel of its group, and place of the kernel."""

from math import prod

from formulas.base import Call, Tensor, Work, formula, read
from formulas.products import arithmetic

# Arguments: padding, stride, dilation.
FORWARD = {
    "cudnn_convolution": (2, 3, 4),
    "cudnn_convolution_relu": (4, 3, 5),
    "cudnn_convolution_add_relu": (6, 5, 7),
    "convolution": (4, 3, 5),
    "convolution_overrideable": (4, 3, 5),
    "_conv_depthwise2d": (5, 4, 6),
}


@formula(*FORWARD)
def forward(call: Call) -> Work:
    image, weight = call.inputs[:2]
    padding, stride, dilation = (call.sizes(place) for place in FORWARD[call.name])
    sizes = zip(image.dims[2:], weight.dims[2:], padding, stride, dilation, strict=False)
    spots = prod((size + 2 * pad - far * (wide - 1) - 1) // step + 1 for size, wide, pad, step, far in sizes)
    outputs = image.dims[0] * weight.dims[0] * spots
    flops = 2 * outputs * prod(weight.dims[1:])
    return Work(flops, read(call.tensors()), outputs * image.item_bytes, _dtype(call), True, _shape(image, weight))


@formula("convolution_backward")
def backward(call: Call) -> Work:
    """A forward's FLOPs for each gradient that is asked for, of the input and of the weight."""
    gradient, image, weight = call.inputs[:3]
    asked = [one == "True" for one in call.inputs[10].strip("[]").split(", ")][:2]
    spots = image if call.inputs[7] == "True" else gradient  # transposed
    flops = 2 * spots.count * prod(weight.dims[1:]) * sum(asked)
    written = sum(one.count * one.item_bytes for one, wanted in zip((image, weight), asked, strict=True) if wanted)
    taken = [gradient, *(one for one, wanted in zip((weight, image), asked, strict=True) if wanted)]
    return Work(flops, read(taken), written, _dtype(call), True, _shape(image, weight))


@formula("cudnn_convolution_transpose")
def transposed(call: Call) -> Work:
    image, weight = call.inputs[:2]
    padding, more, stride, dilation, (groups, *_) = map(call.sizes, range(2, 7))
    sizes = zip(image.dims[2:], weight.dims[2:], padding, more, stride, dilation, strict=False)
    spots = prod((size - 1) * step - 2 * pad + far * (wide - 1) + add + 1 for size, wide, pad, add, step, far in sizes)
    written = image.dims[0] * weight.dims[1] * groups * spots * image.item_bytes
    flops = 2 * image.count * prod(weight.dims[1:])
    return Work(flops, read((image, weight)), written, _dtype(call), True, _shape(image, weight))


def _dtype(call: Call) -> str:
    return arithmetic(call, call.inputs[0].type)


def _shape(image: Tensor, weight: Tensor) -> str:
    return f"{'x'.join(map(str, image.dims))} by {'x'.join(map(str, weight.dims))}"
