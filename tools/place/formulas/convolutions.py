"""Convolutions: 2 FLOPs per output, input channel of its group, and place of the kernel. Pooling: one per place."""

from math import prod

from formulas.base import Call, CallWork, Tensor, formula, read
from formulas.products import arithmetic

# The arguments of padding, stride and dilation.
FORWARD = {"cudnn_convolution": (2, 3, 4), "cudnn_convolution_relu": (4, 3, 5), "_conv_depthwise2d": (5, 4, 6)}


@formula(*FORWARD)
def forward(call: Call) -> CallWork:
    image, weight = call.inputs[:2]
    outputs = image.dims[0] * weight.dims[0] * _spots(image, weight.dims[2:], *map(call.sizes, FORWARD[call.name]))
    return _work(call, outputs * prod(weight.dims[1:]), call.tensors(), outputs * image.item_bytes, image, weight)


# A forward's FLOPs for each gradient that is asked for, of the input and of the weight.
@formula("convolution_backward")
def backward(call: Call) -> CallWork:
    gradient, image, weight = call.inputs[:3]
    for_image, for_weight, *_ = (one == "True" for one in call.inputs[10].strip("[]").split(", "))
    spots = image if call.inputs[7] == "True" else gradient  # transposed
    products = spots.count * prod(weight.dims[1:]) * (for_image + for_weight)
    written = for_image * image.count * image.item_bytes + for_weight * weight.count * weight.item_bytes
    return _work(call, products, [gradient, *[weight] * for_image, *[image] * for_weight], written, image, weight)


# Written: the largest of each window, and where it was, a long integer.
@formula("max_pool2d_with_indices")
def pool(call: Call) -> CallWork:
    image, window = call.inputs[0], call.sizes(1)
    outputs = prod(image.dims[:-2]) * _spots(image, window, *map(call.sizes, (3, 2, 4)))
    return CallWork(outputs * prod(window), image.bytes, outputs * (image.item_bytes + 8))


def _spots(image: Tensor, window, pads, steps, dilations) -> int:
    sizes = zip(image.dims[-len(window) :], window, pads, steps, dilations, strict=True)
    return prod((size + 2 * pad - far * (wide - 1) - 1) // step + 1 for size, wide, pad, step, far in sizes)


def _work(call: Call, products: int, taken: list[Tensor], written: float, image: Tensor, weight: Tensor) -> CallWork:
    shape = " by ".join("x".join(map(str, one.dims)) for one in (image, weight))
    return CallWork(2 * products, read(taken), written, arithmetic(call, image), True, shape)
