"""A decode step in float64, of the arrays of weights.py on the host: one operation after another."""

import numpy

from roofline.operators.model_decode.dense import Dense, turns


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
