"""A dense model as far as a decode step computes it: sizes, norms, biases and rotary embedding, from its config."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import config_file
from architecture import Model

DENSE_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
ACTIVATIONS = ("silu", "swish", None)
SCALING_NUMBERS = {  # by the type of rope_scaling: the numbers that it needs
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "linear": ("factor",),
}
LARGEST_NUMBER = 1e12  # of a rotary embedding or a norm
DEFAULT_THETA, DEFAULT_EPS = 1e4, 1e-6  # as Hugging Face's classes have them
WEIGHT_BITS = 16  # the chain runs a model's weights in bf16 or fp16
BIASED = ("q_proj", "k_proj", "v_proj")


class NotDense(ValueError):
    """The chain cannot run a model; the message says why, in one line."""


@dataclass(frozen=True)
class DenseModel:
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


def read_dense(entry: Mapping[str, Any]) -> DenseModel:
    """Return the dense model of an entry from `config_file.find_model`.

    Raises NotDense for a model that the chain cannot run, and BadModel for a bad config.
    """
    model, config = config_file.read_model(entry), entry["config"]
    config = {**config, **(config.get("text_config") or {})}  # of a model that sees or hears as well
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    _require_dense(model, config, rotary)
    layer = model.layers[0]
    linears = {linear.name.rpartition(".")[2]: linear for linear in layer.linears}
    queries, keys = linears["q_proj"], linears["k_proj"]
    head_size = layer.attention.head_size
    return DenseModel(
        layers=len(model.layers),
        hidden=queries.inputs,
        heads=queries.outputs // head_size,
        kv_heads=keys.outputs // head_size,
        head_size=head_size,
        inner=linears["down_proj"].inputs,
        vocabulary=model.head.outputs,
        tied=model.tied,
        bias=queries.bias is not None,
        norms=any("q_norm" in vector.name for vector in layer.vectors),
        eps=_read_number(config, "rms_norm_eps", DEFAULT_EPS),
        theta=_read_number(config if config.get("rope_theta") else rotary, "rope_theta", DEFAULT_THETA),
        scaling=dict(rotary) if _scaling_type(rotary) in SCALING_NUMBERS else None,
    )


def _read_number(mapping: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a number above 0. Raises NotDense for anything else."""
    value = default if mapping.get(name) is None else mapping[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_NUMBER:
        raise NotDense(f"{name} {value!r:.40}; allowed: a number above 0, up to {LARGEST_NUMBER:g}")
    return float(value)


def _scaling_type(rotary: Mapping[str, Any]) -> str | None:
    return rotary.get("rope_type", rotary.get("type"))


def _require_dense(model: Model, config: Mapping[str, Any], rotary: Mapping[str, Any]) -> None:
    """Raise NotDense for a model that the chain cannot run."""
    linears = [linear for layer in model.layers for linear in layer.linears]
    if any(linear.copies > 1 for linear in linears):
        raise NotDense("it has experts")
    if model.model_type not in DENSE_MODEL_TYPES:
        raise NotDense(f"model_type {model.model_type}; the chain runs {', '.join(DENSE_MODEL_TYPES)}")
    if config.get("hidden_act") not in ACTIVATIONS:
        raise NotDense(f"hidden_act {config['hidden_act']}; the chain has silu")
    if any(layer.attention.window for layer in model.layers):
        raise NotDense("its attention has a window")
    if any(linear.format.bits != WEIGHT_BITS for linear in (*linears, model.head)):
        raise NotDense("its weights are quantised, or not of 16 bits")
    if any(linear.bias for linear in linears if not linear.name.endswith(BIASED)):
        raise NotDense("it has biases next to those of queries, keys and values")
    if not isinstance(rotary, Mapping):
        raise NotDense(f"rope_scaling {rotary!r}; allowed: a mapping, or null")
    scaling_type = _scaling_type(rotary)
    if scaling_type not in (*SCALING_NUMBERS, "default", None):
        raise NotDense(f"rope_scaling of type {scaling_type}; the chain has {' and '.join(SCALING_NUMBERS)}")
    if len(set(map(repr, model.layers))) > 1:
        raise NotDense("its layers differ")
    numbers = {name: _read_number(rotary, name) for name in SCALING_NUMBERS.get(scaling_type, ())}
    if numbers.get("low_freq_factor", 0.0) >= numbers.get("high_freq_factor", math.inf):
        raise NotDense("rope_scaling: low_freq_factor is not below high_freq_factor")


def rotation_table(model: DenseModel, position: int) -> list[tuple[float, float]]:
    """Return the cosine and sine that rotate each pair of a query and a key at a position, in float64.

    Su et al. 2021, 2104.09864; Llama 3's scaling as in modeling_rope_utils.py of transformers 5.23.
    """
    pairs = model.head_size // 2
    rates = [_scale_rate(model, model.theta ** (-pair / pairs)) for pair in range(pairs)]
    return [(math.cos(position * rate), math.sin(position * rate)) for rate in rates]


def _scale_rate(model: DenseModel, rate: float) -> float:
    """Return a pair's radians per token after the model's rope_scaling."""
    scaling = model.scaling
    if scaling is None:
        return rate
    if _scaling_type(scaling) == "linear":
        return rate / scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * rate / (2 * math.pi)
    smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
    return (1 - smooth) * rate / scaling["factor"] + smooth * rate
