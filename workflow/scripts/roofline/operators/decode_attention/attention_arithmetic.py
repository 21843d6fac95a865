"""One decode step of one layer of attention: shapes, counts, and the arithmetic for any array library.

Core: scores = K q / sqrt(d), softmax, weighted sum of V. FLOPs 4 x batch x query heads x S x head size, bytes K and V
once each, those of FP8 with their scales. With grouped-query attention a K/V head serves several query heads, so the
intensity rises.
Block: with the query projection before it and the output projection after it. The write of the new token into the cache
is not part of the step.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from roofline.core.dtypes import FLOAT_BYTES, TOLERANCES, array_dtype, dtype_bytes, relative_error
from roofline.core.terms import Array
from roofline.devices.base import Device
from roofline.operators.base import Case, Implementation, Operator, count_rotation_copies

FP8 = "fp8_e4m3"  # of keys and values; query, softmax weights and result are fp16


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of a decode step: sequences, query heads, K/V heads, numbers of a head, and cached keys of a sequence."""

    batch: int
    heads: int
    kv_heads: int
    head_size: int
    seq_len: int

    @property
    def hidden_size(self) -> int:
        return self.heads * self.head_size

    @property
    def group(self) -> int:
        """Query heads that a K/V head serves."""
        return self.heads // self.kv_heads

    def as_dict(self) -> dict[str, int]:
        """Return the sizes by name, as `Case.shape` holds them."""
        return asdict(self)


def attention_flops(shape: AttentionShape, scope: str | None) -> int:
    """Return the FLOPs of a core, 4 x batch x heads x seq_len x head_size, and of a block also 4 x batch x hidden^2 for
    its two projections. Softmax is not counted."""
    core = 4 * shape.batch * shape.heads * shape.seq_len * shape.head_size
    return core + (4 * shape.batch * shape.hidden_size**2 if scope == "block" else 0)


def attention_bytes(shape: AttentionShape, dtype: str, scope: str | None) -> int:
    """Return the bytes of K and V, and of a block also those of the weights of its two projections."""
    return kv_cache_bytes(shape, dtype) + (projection_bytes(shape, dtype) if scope == "block" else 0)


def kv_cache_bytes(shape: AttentionShape, dtype: str) -> int:
    """Return the bytes of K and V of one layer, and of their scales."""
    scales = 2 * FLOAT_BYTES * shape.batch * shape.kv_heads if dtype == FP8 else 0
    return cached_numbers(shape) * dtype_bytes(dtype) + scales


def cached_numbers(shape: AttentionShape) -> int:
    """Return how many numbers K and V of one layer have."""
    return 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size


def query_dtype(dtype: str) -> str:
    """Return the dtype of query and result for a dtype of the cache."""
    return "fp16" if dtype == FP8 else dtype


def cached_head(device: Device, copy: Mapping[str, Array], name: str, row: int, head: int) -> Array:
    """Return `keys` or `values` of a K/V head of a sequence as a host array, [S, d]. FP8 ones are float64, scaled."""
    numbers = device.to_host(copy[name][row, head])
    scales = copy.get(f"{name}_scales")
    if scales is None:
        return numbers
    return numbers.view(array_dtype(FP8)).astype("float64") * device.to_host(scales[row])[head]


def projection_bytes(shape: AttentionShape, dtype: str) -> int:
    """Return the bytes of the weights of one layer's query and output projection, without their biases."""
    return dtype_bytes(dtype, 2 * shape.hidden_size**2)


def attend(xp: Any, query: Array, keys: Array, values: Array) -> Array:
    """Return softmax(K q) V as [batch, kv_heads, group, d] in the caches' dtype, computed with the array library `xp`.

    The queries [batch, kv_heads, d, group] are already scaled; the caches are [batch, kv_heads, S, d]. The softmax is
    computed in fp32, for float64 inputs in float64.
    """
    scores = xp.matmul(keys, query)
    # A bf16 number has no rank next to others in NumPy's and CuPy's promotion.
    softmax_dtype = xp.float64 if scores.dtype == xp.float64 else xp.float32
    scores = scores.astype(softmax_dtype, copy=False) if scores.dtype.kind != "f" else scores
    weights = xp.subtract(scores, scores.max(axis=-2, keepdims=True), dtype=softmax_dtype)
    xp.exp(weights, out=weights)
    weights /= weights.sum(axis=-2, keepdims=True)
    weights = weights.astype(keys.dtype, copy=False)
    if weights.shape[-1] == 1:
        weights = weights.reshape(*weights.shape[:-2], 1, weights.shape[-2])
    else:
        weights = weights.swapaxes(-1, -2)
    return xp.matmul(weights, values)


def reference_attention(query: Array, keys: Array, values: Array) -> Array:
    """Return attention in float64 on the host, [batch, heads, d], for unscaled queries of that shape and host caches
    [batch, kv_heads, S, d]."""
    import numpy

    query, keys, values = (numpy.asarray(array).astype(numpy.float64) for array in (query, keys, values))
    batch, _, head_size = query.shape
    grouped = (query * head_size**-0.5).reshape(batch, keys.shape[1], -1, head_size).swapaxes(-1, -2)
    return attend(numpy, grouped, keys, values).reshape(query.shape)


def worst_head_error(result: Array, expected: Array) -> float:
    """Return the largest relative error of a head, norm of the difference over norm, for host arrays [..., d]."""
    import numpy

    head_size = result.shape[-1]
    heads = numpy.reshape(result, (-1, head_size))
    expected_heads = expected.reshape(-1, expected.shape[-1])
    return max(relative_error(head, reference) for head, reference in zip(heads, expected_heads, strict=True))


def multiply(device: Device, states: Array, weights: Array) -> Array:
    """Return `states` times `weights` in the dtype of the states, multiplied in fp32 where the device emulates it."""
    product = device.xp.matmul(device.widen(states), device.widen(weights))
    return product.astype(states.dtype, copy=False)


def project_query(device: Device, shape: AttentionShape, hidden: Array, layer: dict[str, Array]) -> Array:
    """Return the query [batch, heads, head size] of hidden states [batch, hidden], by a layer's query projection."""
    query = multiply(device, hidden, layer["query"]) + layer["query_bias"]
    return query.reshape(shape.batch, shape.heads, shape.head_size)


class DecodeImplementation(Implementation):
    """Base of the implementations. A step reads the next cache in turn, and returns [batch, heads, d] for a core,
    [batch, hidden] for a block."""

    scopes: ClassVar[tuple[str, ...]] = ("core",)
    layers: list[dict]  # of implementations of a block: copies of the projections' weights
    tolerance: ClassVar[Mapping[str, float]] = {**TOLERANCES, FP8: TOLERANCES["fp16"]}  # on the rounded cache

    def __init__(self, operator: Operator, device: Device, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.shape, self.dtype = AttentionShape(**case.shape), case.dtype

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.query, self.hidden = shared["query"], shared["hidden"]
        self.caches = [(copy["keys"], copy["values"]) for copy in copies]

    def make_rotated_layers(self) -> list[dict]:
        """Return copies of the projections' weights, as many as make those of a block cold; one where the caches are
        warm."""
        first, device = self.shared["layer"], self.device
        moved = attention_bytes(self.shape, self.dtype, "block")
        copies = 1 if len(self.caches) == 1 else count_rotation_copies(moved, device.last_level_cache_bytes)
        rolled_weights = {name: device.rolled_copies(array, copies - 1) for name, array in first.items()}
        rolled = [{name: arrays[index] for name, arrays in rolled_weights.items()} for index in range(copies - 1)]
        return [first, *rolled]
