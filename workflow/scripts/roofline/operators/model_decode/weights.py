"""Weights and K/V caches of a model, drawn at random: normal, of variance 1 / hidden, each matrix its own."""

from roofline.operators.model_decode.dense import Dense
from roofline.operators.rmsnorm_matmul.operator import number_on

SPREAD_OF_NORMS = 0.1  # of a norm's weights, about 1


def shapes(model: Dense) -> dict[str, tuple[int, ...]]:
    """Of one layer's arrays, matrices [outputs, inputs]. Gate stands above up, queries above keys above values."""
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
    spread = model.hidden**-0.5
    wanted = {"embedding": (model.vocabulary, model.hidden), "last_norm": (model.hidden,)}
    wanted |= {} if model.tied else {"head": (model.vocabulary, model.hidden)}
    wanted |= {f"{layer}.{name}": shape for layer in range(model.layers) for name, shape in shapes(model).items()}
    found = {
        name: _norm(device, shape, dtype, seed + place)
        if name.endswith("norm")
        else _scaled(device, shape, dtype, seed + place, spread)
        for place, (name, shape) in enumerate(wanted.items())
    }
    return {"head": found["embedding"]} | found


def draw_cache(device, model: Dense, dtype: str, batch: int, context: int, seed: int) -> dict:
    """`{layer}.keys` and `{layer}.values` [batch, K/V heads, context, head size]."""
    shape = (batch, model.kv_heads, context, model.head_size)
    names = [f"{layer}.{name}" for layer in range(model.layers) for name in ("keys", "values")]
    return {name: device.normal(shape, dtype, seed + place) for place, name in enumerate(names)}


def _scaled(device, shape, dtype: str, seed: int, spread: float):
    array = device.normal(shape, dtype, seed)
    array *= number_on(device, spread, dtype)
    return array


def _norm(device, shape, dtype: str, seed: int):
    array = _scaled(device, shape, dtype, seed, SPREAD_OF_NORMS)
    array += number_on(device, 1, dtype)
    return array
