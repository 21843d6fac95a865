"""A dense model as far as a decode step computes it: sizes, norms, biases and rotary places, from its config."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import config_file
from architecture import Model

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ACTIVATIONS = ("silu", "swish", None)
SCALINGS = {  # with the numbers that each needs
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "linear": ("factor",),
}
LARGEST = 1e12  # of a rotary number
THETA, EPS = 1e4, 1e-6  # where a config names none, as Hugging Face's classes have them
PLAIN = ("bf16", "fp16")  # of weights; the chain runs a model's weights in either


class NotDense(ValueError):
    """Why the chain cannot run a model, in one line."""


@dataclass(frozen=True)
class Dense:
    """Sizes of one layer, all alike, and of what surrounds them. `scaling` is the config's rope_scaling."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    tied: bool
    bias: bool  # of queries, keys and values
    norms: bool  # of each head's query and key
    eps: float
    theta: float
    scaling: dict[str, Any] | None

    @property
    def qkv(self) -> int:
        """Outputs of the product for queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_size


def dense(found: Mapping[str, Any]) -> Dense:
    """Of what `config_file.find` gave. Raises NotDense, and BadModel for a bad config."""
    model, config = config_file.read(found), found["config"]
    config = {**config, **(config.get("text_config") or {})}  # of a model that sees or hears as well
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    _require_dense(model, config, rotary)
    first = model.layers[0]
    sizes = {one.name.rpartition(".")[2]: one for one in first.linears}
    size = first.attention.head_size
    return Dense(
        layers=len(model.layers),
        hidden=sizes["q_proj"].inputs,
        heads=sizes["q_proj"].outputs // size,
        kv_heads=sizes["k_proj"].outputs // size,
        head_size=size,
        inner=sizes["down_proj"].inputs,
        vocabulary=model.head.outputs,
        tied=model.tied,
        bias=sizes["q_proj"].bias is not None,
        norms=any("q_norm" in one.name for one in first.vectors),
        eps=_number(config, "rms_norm_eps", EPS),
        theta=_number(config if config.get("rope_theta") else rotary, "rope_theta", THETA),
        scaling=dict(rotary) if _kind(rotary) in SCALINGS else None,
    )


def _number(of: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Raises NotDense."""
    value = default if of.get(name) is None else of[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST:
        raise NotDense(f"{name} {value!r:.40}; allowed: a number above 0, up to {LARGEST:g}")
    return float(value)


def _kind(rotary: Mapping[str, Any]) -> str | None:
    return rotary.get("rope_type", rotary.get("type"))


def _require_dense(model: Model, config: Mapping[str, Any], rotary: Mapping[str, Any]) -> None:
    linears = [one for layer in model.layers for one in layer.linears]
    if any(one.copies > 1 for one in linears):
        raise NotDense("it has experts")
    if model.model_type not in FAMILIES:
        raise NotDense(f"model_type {model.model_type}; the chain runs {', '.join(FAMILIES)}")
    if config.get("hidden_act") not in ACTIVATIONS:
        raise NotDense(f"hidden_act {config['hidden_act']}; the chain has silu")
    if any(layer.attention.window for layer in model.layers):
        raise NotDense("its attention has a window")
    if any(one.stored.name not in PLAIN for one in (*linears, model.head)):
        raise NotDense("its weights are quantised, or not of 16 bits")
    if any(one.bias for one in linears if one.name.rpartition(".")[2] not in ("q_proj", "k_proj", "v_proj")):
        raise NotDense("it has biases next to those of queries, keys and values")
    if not isinstance(rotary, Mapping):
        raise NotDense(f"rope_scaling {rotary!r}; allowed: a mapping, or null")
    if _kind(rotary) not in (*SCALINGS, "default", None):
        raise NotDense(f"rope_scaling of type {_kind(rotary)}; the chain has {' and '.join(SCALINGS)}")
    if len(set(map(repr, model.layers))) > 1:
        raise NotDense("its layers differ")
    given = {name: _number(rotary, name) for name in SCALINGS.get(_kind(rotary), ())}
    if given.get("low_freq_factor", 0.0) >= given.get("high_freq_factor", math.inf):
        raise NotDense("rope_scaling: low_freq_factor is not below high_freq_factor")


def turns(model: Dense, place: int) -> list[tuple[float, float]]:
    """Cosine and sine by which each pair of a query and a key at `place` is turned, in float64.

    Su et al. 2021, 2104.09864; Llama 3's scaling as transformers 5.23, modeling_rope_utils.py, has it.
    """
    half = model.head_size // 2
    speeds = [_scaled(model, model.theta ** (-pair / half)) for pair in range(half)]
    return [(math.cos(place * speed), math.sin(place * speed)) for speed in speeds]


def _scaled(model: Dense, speed: float) -> float:
    scaling = model.scaling
    if scaling is None:
        return speed
    if _kind(scaling) == "linear":
        return speed / scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turned = scaling["original_max_position_embeddings"] * speed / (2 * math.pi)
    smooth = min(1.0, max(0.0, (turned - low) / (high - low)))
    return (1 - smooth) * speed / scaling["factor"] + smooth * speed
