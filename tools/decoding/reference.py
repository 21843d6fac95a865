"""Random weights and K/V caches of a model, and its decode step on them in float64, one operation after another.

Matrices are [outputs, inputs], normal numbers of variance 1 / hidden.
"""

from collections.abc import Mapping

import numpy
from dense import DenseModel, rotation_table

from roofline.api import Array, Case, Device, array_dtype
from roofline.api import attention_kernel as attention

NORM_SPREAD = 0.1  # of a norm's weights, about 1
SCALES = (0.25, 1.0)  # between which those of FP8 keys and values are drawn


def normalise(x: numpy.ndarray, norm: numpy.ndarray, eps: float) -> numpy.ndarray:
    """Return x / sqrt(mean(x^2) + eps) * norm along the last axis."""
    return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * norm


def rotate(x: numpy.ndarray, rotations: numpy.ndarray) -> numpy.ndarray:
    """Return x with the pairs i and i + half of its last axis rotated by [half, 2] cosines and sines."""
    low, high = numpy.split(x, 2, axis=-1)
    cosines, sines = rotations[:, 0], rotations[:, 1]
    return numpy.concatenate([low * cosines - high * sines, high * cosines + low * sines], axis=-1)


def round_to_cache(token: numpy.ndarray, scales: numpy.ndarray | None) -> numpy.ndarray:
    """Return keys or values [batch, K/V heads, head size] as a cache with these scales holds them, without scales as
    they are."""
    if scales is None:
        return token
    return dequantise((token / scales[..., None]).astype(array_dtype(attention.FP8)), scales)


def dequantise(numbers: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    """Return the float64 numbers of FP8 ones or their bytes, [batch, K/V heads, ...], by scales [batch, K/V heads]."""
    as_float = numbers.view(array_dtype(attention.FP8)).astype(numpy.float64)
    return as_float * scales.reshape(scales.shape + (1,) * (numbers.ndim - 2))


def to_float64(device: Device, arrays: Mapping[str, Array]) -> dict[str, numpy.ndarray]:
    """Return the arrays on the host in float64; keys and values in FP8 times their scales, tokens as they are."""
    on_host = {name: device.to_host(array) for name, array in arrays.items()}
    for name, array in on_host.items():
        if f"{name}_scales" in on_host:
            on_host[name] = dequantise(array, on_host[f"{name}_scales"])
        elif not name.endswith("tokens"):
            on_host[name] = array.astype(numpy.float64)
    return on_host


def run_layer(model: DenseModel, arrays: Mapping[str, numpy.ndarray], stream: numpy.ndarray) -> numpy.ndarray:
    """Return the stream [batch, hidden] after one layer, and write the new token's K/V at the caches' last position.

    The caches `keys` and `values` among the arrays are [batch, K/V heads, context, head size].
    """
    batch, head_size, keys, values = len(stream), model.head_size, arrays["keys"], arrays["values"]
    rotations = numpy.array(rotation_table(model, keys.shape[2] - 1))
    projected = normalise(stream, arrays["input_norm"], model.eps) @ arrays["qkv"].T + arrays.get("bias", 0)
    heads = projected.reshape(batch, -1, head_size)
    query, key, value = numpy.split(heads, [model.heads, model.heads + model.kv_heads], axis=1)
    if model.norms:
        query = normalise(query, arrays["query_norm"], model.eps)
        key = normalise(key, arrays["key_norm"], model.eps)
    query = rotate(query, rotations)
    keys[:, :, -1] = round_to_cache(rotate(key, rotations), arrays.get("keys_scales"))
    values[:, :, -1] = round_to_cache(value, arrays.get("values_scales"))
    grouped = query.reshape(batch, model.kv_heads, -1, head_size)
    scores = numpy.einsum("bhgd,bhsd->bhgs", grouped, keys) * head_size**-0.5
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = numpy.einsum("bhgs,bhsd->bhgd", weights, values).reshape(batch, -1)
    stream = stream + attended @ arrays["o"].T
    gate, up = numpy.split(normalise(stream, arrays["middle_norm"], model.eps) @ arrays["gate_up"].T, 2, axis=-1)
    return stream + (gate / (1 + numpy.exp(-gate)) * up) @ arrays["down"].T


def run_step(model: DenseModel, arrays: Mapping[str, numpy.ndarray]) -> numpy.ndarray:
    """Return the logits [batch, vocabulary] of float64 arrays, and write the new token's K/V into the caches."""
    stream = arrays["embedding"][arrays["tokens"]]
    for layer in range(model.layers):
        stream = run_layer(model, select_layer(arrays, layer), stream)
    return normalise(stream, arrays["last_norm"], model.eps) @ arrays["head"].T


def select_layer(arrays: Mapping[str, Array], layer: int) -> dict[str, Array]:
    """Return the arrays of one layer, by their names without its number."""
    prefix = f"{layer}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def layer_shapes(model: DenseModel) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one layer's arrays. Gate is above up, queries are above keys, and keys above values."""
    shapes: dict[str, tuple[int, ...]] = {
        "input_norm": (model.hidden,),
        "qkv": (model.qkv, model.hidden),
        "o": (model.hidden, model.heads * model.head_size),
        "middle_norm": (model.hidden,),
        "gate_up": (2 * model.inner, model.hidden),
        "down": (model.hidden, model.inner),
    }
    if model.bias:
        shapes["bias"] = (model.qkv,)
    if model.norms:
        shapes |= {"query_norm": (model.head_size,), "key_norm": (model.head_size,)}
    return shapes


def random_weights(device: Device, model: DenseModel, dtype: str, seed: int) -> dict[str, Array]:
    """Return arrays by name: `embedding`, `head` and `last_norm`, and of each layer `{layer}.{name}`."""
    shapes: dict[str, tuple[int, ...]] = {"embedding": (model.vocabulary, model.hidden), "last_norm": (model.hidden,)}
    if not model.tied:
        shapes["head"] = (model.vocabulary, model.hidden)
    for layer in range(model.layers):
        shapes |= {f"{layer}.{name}": shape for name, shape in layer_shapes(model).items()}
    weights = {}
    for index, (name, shape) in enumerate(shapes.items()):
        is_norm = name.endswith("norm")
        weights[name] = device.normal(shape, dtype, seed + index)
        weights[name] *= _to_device_number(device, NORM_SPREAD if is_norm else model.hidden**-0.5, dtype)
        if is_norm:
            weights[name] += _to_device_number(device, 1, dtype)
    return {"head": weights["embedding"]} | weights


def random_cache(device: Device, model: DenseModel, case: Case, seed: int) -> dict[str, Array]:
    """Return `{layer}.keys` and `{layer}.values`, each [batch, K/V heads, context, head size], and of FP8 ones
    `{layer}.keys_scales` and `{layer}.values_scales` in fp32, [batch, K/V heads]."""
    heads, kv_dtype = (case.shape["batch"], model.kv_heads), case.params["kv_dtype"]
    shape = (*heads, case.shape["context"], model.head_size)
    names = [f"{layer}.{name}" for layer in range(model.layers) for name in ("keys", "values")]
    arrays = {name: device.normal(shape, kv_dtype, seed + index) for index, name in enumerate(names)}
    if kv_dtype == attention.FP8:
        drawn = numpy.random.default_rng(seed).uniform(*SCALES, (len(names), *heads)).astype(numpy.float32)
        arrays |= {f"{name}_scales": scales for name, scales in zip(names, device.to_device(drawn), strict=True)}
    return arrays


def _to_device_number(device: Device, value: float, dtype: str) -> Array:
    """Return a number on the device: given one of the host, CuPy imports its sparse matrices, which takes 0.1 s."""
    return device.to_device(numpy.float32(value)).astype(array_dtype(dtype))
