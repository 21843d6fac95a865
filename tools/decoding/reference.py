"""Random weights and K/V caches of a model, and its decode step on them in float64, one operation after another.

Matrices are [outputs, inputs], normal numbers of variance 1 / hidden.
"""

import numpy
from dense import Dense, turns

from roofline.api import array_dtype

SPREAD_OF_NORMS = 0.1  # of a norm's weights, about 1


def normalised(x, g, eps: float):
    """x / sqrt(mean(x^2) + eps) * g along the last axis."""
    return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * g


def turned(x, of: numpy.ndarray):
    """Pairs i and i + half of the last axis, turned by [half, 2] cosines and sines."""
    low, high = numpy.split(x, 2, axis=-1)
    return numpy.concatenate([low * of[:, 0] - high * of[:, 1], high * of[:, 0] + low * of[:, 1]], axis=-1)


def layer(model: Dense, of: dict, x, keys, values, rounded=lambda array: array):
    """The stream [batch, hidden] after one layer, whose cache `keys` and `values` [batch, K/V heads, S, head size] is
    given the new token's at its last place. `rounded` is how the cache keeps numbers."""
    batch, size = len(x), model.head_size
    of_places = numpy.array(turns(model, keys.shape[2] - 1))
    made = normalised(x, of["input_norm"], model.eps) @ of["qkv"].T + of.get("bias", 0)
    query, key, value = numpy.split(made.reshape(batch, -1, size), [model.heads, model.heads + model.kv_heads], axis=1)
    if model.norms:
        query, key = (normalised(one, of[g], model.eps) for one, g in ((query, "query_norm"), (key, "key_norm")))
    query = turned(query, of_places)
    keys[:, :, -1], values[:, :, -1] = rounded(turned(key, of_places)), rounded(value)
    grouped = query.reshape(batch, model.kv_heads, -1, size)
    scores = numpy.einsum("bhgd,bhsd->bhgs", grouped, keys) * size**-0.5
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    x = x + numpy.einsum("bhgs,bhsd->bhgd", weights, values).reshape(batch, -1) @ of["o"].T
    gate, up = numpy.split(normalised(x, of["middle_norm"], model.eps) @ of["gate_up"].T, 2, axis=-1)
    return x + (gate / (1 + numpy.exp(-gate)) * up) @ of["down"].T


def step(model: Dense, weights: dict, cache: dict, rounded=lambda array: array):
    """The logits [batch, vocabulary] of float64 arrays; the caches are given the new token's."""
    x = weights["embedding"][cache["tokens"]]
    for place in range(model.layers):
        of = {name.partition(".")[2]: array for name, array in weights.items() if name.startswith(f"{place}.")}
        x = layer(model, of, x, cache[f"{place}.keys"], cache[f"{place}.values"], rounded)
    return normalised(x, weights["last_norm"], model.eps) @ weights["head"].T


def shapes(model: Dense) -> dict[str, tuple[int, ...]]:
    """Of the arrays of one layer. Gate is above up; queries are above keys, and those above values."""
    found = {
        "input_norm": (model.hidden,),
        "qkv": (model.qkv, model.hidden),
        "o": (model.hidden, model.heads * model.head_size),
        "middle_norm": (model.hidden,),
        "gate_up": (2 * model.inner, model.hidden),
        "down": (model.hidden, model.inner),
    }
    found |= {"bias": (model.qkv,)} if model.bias else {}
    return found | ({"query_norm": (model.head_size,), "key_norm": (model.head_size,)} if model.norms else {})


def draw(device, model: Dense, dtype: str, seed: int) -> dict:
    """Arrays by name: `embedding`, `head` and `last_norm`, and of each layer `{layer}.{name}`."""
    wanted = {"embedding": (model.vocabulary, model.hidden), "last_norm": (model.hidden,)}
    wanted |= {} if model.tied else {"head": (model.vocabulary, model.hidden)}
    wanted |= {f"{layer}.{name}": shape for layer in range(model.layers) for name, shape in shapes(model).items()}
    found = {}
    for place, (name, shape) in enumerate(wanted.items()):
        norm = name.endswith("norm")
        found[name] = device.normal(shape, dtype, seed + place)
        found[name] *= _number(device, SPREAD_OF_NORMS if norm else model.hidden**-0.5, dtype)
        if norm:
            found[name] += _number(device, 1, dtype)
    return {"head": found["embedding"]} | found


def draw_cache(device, model: Dense, dtype: str, batch: int, context: int, seed: int) -> dict:
    """`{layer}.keys` and `{layer}.values` [batch, K/V heads, context, head size]."""
    shape = (batch, model.kv_heads, context, model.head_size)
    names = [f"{layer}.{name}" for layer in range(model.layers) for name in ("keys", "values")]
    return {name: device.normal(shape, dtype, seed + place) for place, name in enumerate(names)}


def _number(device, value: float, dtype: str):
    """On the device: for a number of the host, CuPy would import its sparse matrices, which takes 0.1 s."""
    return device.to_device(numpy.float32(value)).astype(array_dtype(dtype))
