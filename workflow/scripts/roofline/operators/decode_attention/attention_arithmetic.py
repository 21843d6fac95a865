"""One decode step of one layer of attention: shapes, counts, and the arithmetic for any array library.

Core: scores = K q / sqrt(d), softmax, weighted sum of V. FLOPs 4 x batch x query heads x S x head size, bytes K and V
once each. With grouped-query attention a K/V head serves several query heads, so the intensity rises.
Block: with the query projection before it and the output projection after it. The write of the new token into the cache
is not part of the step.
"""

from dataclasses import asdict, dataclass
from typing import ClassVar

from roofline.core.dtypes import ITEM_BYTES, relative_error
from roofline.operators.base import Implementation, count_rotation_copies


@dataclass(frozen=True)
class AttentionShape:
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
        return asdict(self)


def attention_flops(shape: AttentionShape, scope: str) -> int:
    core = 4 * shape.batch * shape.heads * shape.seq_len * shape.head_size
    return core + (4 * shape.batch * shape.hidden_size**2 if scope == "block" else 0)


def attention_bytes(shape: AttentionShape, dtype: str, scope: str) -> int:
    return kv_cache_bytes(shape, dtype) + (projection_bytes(shape, dtype) if scope == "block" else 0)


def kv_cache_bytes(shape: AttentionShape, dtype: str) -> int:
    """K and V of one layer."""
    return 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size * ITEM_BYTES[dtype]


def projection_bytes(shape: AttentionShape, dtype: str) -> int:
    """The query and the output projection of one layer."""
    return 2 * shape.hidden_size**2 * ITEM_BYTES[dtype]


def attend(xp, query, keys, values):
    """softmax(K q) V for scaled queries [batch, kv_heads, d, group] and caches [batch, kv_heads, S, d], softmax in
    fp32 (float64 for float64 inputs). Returns [batch, kv_heads, group, d] in the caches' dtype."""
    scores = xp.matmul(keys, query)
    # A bf16 number has no rank next to others in NumPy's and CuPy's promotion.
    wide = xp.float64 if scores.dtype == xp.float64 else xp.float32
    scores = scores.astype(wide, copy=False) if scores.dtype.kind != "f" else scores
    weights = xp.subtract(scores, scores.max(axis=-2, keepdims=True), dtype=wide)
    xp.exp(weights, out=weights)
    weights /= weights.sum(axis=-2, keepdims=True)
    weights = weights.astype(keys.dtype, copy=False)
    if weights.shape[-1] == 1:
        weights = weights.reshape(*weights.shape[:-2], 1, weights.shape[-2])
    else:
        weights = weights.swapaxes(-1, -2)
    return xp.matmul(weights, values)


def reference_attention(query, keys, values):
    """The same in float64 on the host, for queries [batch, heads, d] as they are; returns [batch, heads, d]."""
    import numpy

    query, keys, values = (numpy.asarray(array).astype(numpy.float64) for array in (query, keys, values))
    batch, _, head_size = query.shape
    grouped = (query * head_size**-0.5).reshape(batch, keys.shape[1], -1, head_size).swapaxes(-1, -2)
    return attend(numpy, grouped, keys, values).reshape(query.shape)


def worst_head_error(result, expected) -> float:
    """The largest relative error of a head: norm of the difference over the norm, for arrays [..., d]."""
    import numpy

    heads = zip(numpy.reshape(result, (-1, result.shape[-1])), expected.reshape(-1, expected.shape[-1]), strict=True)
    return max(relative_error(*head) for head in heads)


def multiply(device, left, right):
    """Matrices multiplied in their own dtype, or in fp32 where the device emulates it."""
    widened = (device.widen(array) for array in (left, right))
    return device.xp.matmul(*widened).astype(left.dtype, copy=False)


def project_query(device, shape: AttentionShape, hidden, layer: dict):
    """[batch, heads, head size]."""
    query = multiply(device, hidden, layer["query"]) + layer["query_bias"]
    return query.reshape(shape.batch, shape.heads, shape.head_size)


class DecodeImplementation(Implementation):
    """Steps go round the caches; their result is [batch, heads, d] of a core, [batch, hidden] of a block."""

    scopes = ("core",)
    tolerance: ClassVar[dict[str, float]] = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.shape, self.dtype = AttentionShape(**case.shape), case.dtype

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.query, self.hidden = shared["query"], shared["hidden"]
        self.caches = [(copy["keys"], copy["values"]) for copy in copies]
        self.layers = [shared.get("layer")]

    def rotated_layers(self) -> list[dict]:
        """The projections' weights, in as many copies as make those of a block cold; one where the caches are warm."""
        first, device = self.shared["layer"], self.device
        moved = attention_bytes(self.shape, self.dtype, "block")
        copies = 1 if len(self.caches) == 1 else count_rotation_copies(moved, device.last_level_cache_bytes)
        made = {name: device.rolled_copies(array, copies - 1) for name, array in first.items()}
        return [first, *({name: arrays[place] for name, arrays in made.items()} for place in range(copies - 1))]
