"""One decode step of one layer of attention: a single query token against the cached keys and values.

Core: scores = K q / sqrt(d), softmax, weighted sum of V. FLOPs 4 x batch x query heads x S x head size, bytes K
and V once each; with fewer K/V heads than query heads (grouped-query attention) a K/V head serves a group of query
heads, so that the intensity rises with the group. Block: the query projection before it and the output projection
after it, their FLOPs and weights added. The write of the new token into the cache is not part of the step.
"""

from dataclasses import dataclass
from typing import ClassVar

from roofline.dtypes import ITEM_BYTES
from roofline.measuring import relative_error, require_right
from roofline.records import Check

OPERATOR = "decode_attention"
SCOPES = ("core", "block")

# By kind of device; implementations.py has their classes.
IMPLEMENTATIONS = {"gpu": ("eager", "fused", "fused_graph"), "cpu": ("numpy",)}
DTYPES = ("fp32", "fp16", "bf16")
HEAD_SIZES = (64, 128)  # that `fused` is compiled for

# Rotating through several times the last-level cache makes every step read K and V from memory.
COLD_CACHE_MULTIPLE = 3
LARGEST_ROTATION_BYTES = 2 << 30
MOST_COPIES = 4096  # of tiny caches the arrays themselves would fill the memory; fewer copies are said to be warm


@dataclass(frozen=True)
class Shape:
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
        return {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "seq_len": self.seq_len,
        }


def flops(shape: Shape, scope: str) -> int:
    core = 4 * shape.batch * shape.heads * shape.seq_len * shape.head_size
    return core + (_projection_flops(shape) if scope == "block" else 0)


def traffic_bytes(shape: Shape, dtype: str, scope: str) -> int:
    return cache_bytes(shape, dtype) + (_weight_bytes(shape, dtype) if scope == "block" else 0)


def cache_bytes(shape: Shape, dtype: str) -> int:
    """K and V of one layer."""
    return 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size * ITEM_BYTES[dtype]


def rotation_copies(shape: Shape, dtype: str, last_level_cache_bytes: int, scope: str = "core") -> int:
    """How many copies to rotate among so that what a step reads has left the last-level cache; 1 is enough for a
    step that reads several times as much itself."""
    wanted = min(COLD_CACHE_MULTIPLE * last_level_cache_bytes, LARGEST_ROTATION_BYTES)
    return min(MOST_COPIES, max(1, -(-wanted // traffic_bytes(shape, dtype, scope))))


def workspace_bytes(shape: Shape, dtype: str, last_level_cache_bytes: int) -> int:
    """What a cell needs at once: the rotated caches, scores and weights, and one piece of random numbers."""
    scores = 3 * 4 * shape.batch * shape.heads * shape.seq_len
    caches = rotation_copies(shape, dtype, last_level_cache_bytes) * cache_bytes(shape, dtype)
    weights = rotation_copies(shape, dtype, last_level_cache_bytes, "block") * _weight_bytes(shape, dtype)
    widened = 2 * cache_bytes(shape, dtype) if ITEM_BYTES[dtype] < 4 else 0  # where the device emulates the dtype
    # Graphs round the caches up to whole models of them, which are smaller than the rotation itself.
    rounding = COLD_CACHE_MULTIPLE * last_level_cache_bytes
    return caches + rounding + weights + widened + scores + (256 << 20)


def _weight_bytes(shape: Shape, dtype: str) -> int:
    return 2 * shape.hidden_size**2 * ITEM_BYTES[dtype]


def _projection_flops(shape: Shape) -> int:
    return 2 * 2 * shape.batch * shape.hidden_size**2


def implementations_of(kind: str, wanted: list[str] | None) -> list[str]:
    """Those of a kind of device, in their order; of those wanted, where a list is given."""
    return [name for name in IMPLEMENTATIONS[kind] if wanted is None or name in wanted]


def attend(xp, query, keys, values):
    """softmax(K q) V for scaled queries [batch, kv_heads, d, group] and caches [batch, kv_heads, S, d], softmax in
    fp32 (float64 for float64 inputs). Returns [batch, kv_heads, group, d] in the caches' dtype."""
    scores = xp.matmul(keys, query)
    # A bf16 number has no rank beside others in NumPy's and CuPy's promotion.
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


def reference(query, keys, values):
    """The same in float64 on the host, for queries [batch, heads, d] as they are; returns [batch, heads, d]."""
    import numpy

    query, keys, values = (numpy.asarray(array).astype(numpy.float64) for array in (query, keys, values))
    batch, _, head_size = query.shape
    grouped = (query * head_size**-0.5).reshape(batch, keys.shape[1], -1, head_size).swapaxes(-1, -2)
    return attend(numpy, grouped, keys, values).reshape(query.shape)


def worst_head(result, expected) -> float:
    """The largest relative error of a head: norm of the difference over the norm, for arrays [..., d]."""
    import numpy

    heads = zip(numpy.reshape(result, (-1, result.shape[-1])), expected.reshape(-1, expected.shape[-1]), strict=True)
    return max(relative_error(*head) for head in heads)


class Cell:
    """One shape and dtype on a device, with its caches: what implementations have in common.

    `layer` holds the projections (`query`, `output`: [hidden, hidden], `query_bias`, `output_bias`: [hidden]) and
    `hidden` the states [batch, hidden] of one token a sequence, all on the host in fp32. Caches rotate among copies
    that differ in their address alone, which is what matters to a cache. An implementation gives `step(scope)`, the
    function to time, which is handed the step's number and returns the step's result: [batch, heads, d] of a core,
    [batch, hidden] of a block.
    """

    scopes = ("core",)
    tolerance: ClassVar[dict[str, float]] = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}

    def __init__(
        self, device, shape: Shape, dtype: str, layer, hidden, *, seed: int, copies: int | None = None, layers: int = 1
    ):
        from roofline.dtypes import array_dtype

        self.device, self.shape, self.dtype = device, shape, dtype
        as_dtype = array_dtype(dtype)
        self.layers = [{name: device.array(weights).astype(as_dtype) for name, weights in layer.items()}]
        self.hidden = device.array(hidden).astype(as_dtype)
        self.query = self.projected_query(self.layers[0])
        copies = copies or self.copies_wanted()
        filled = device.normal((2, shape.batch, shape.kv_heads, shape.seq_len, shape.head_size), dtype, seed)
        self.caches = [(copy[0], copy[1]) for copy in [filled, *device.copies(filled, copies - 1)]]

    def copies_wanted(self) -> int:
        return rotation_copies(self.shape, self.dtype, self.device.last_level_cache_bytes)

    @property
    def cold(self) -> bool:
        """Whether what a step reads has left the last-level cache since it was read before."""
        rotated = len(self.caches) * cache_bytes(self.shape, self.dtype)
        return rotated >= COLD_CACHE_MULTIPLE * self.device.last_level_cache_bytes

    @property
    def joins(self) -> bool:
        """Whether blocks of the device share the keys of a head, and are joined."""
        return False

    @property
    def turns(self) -> int:
        """Times that a block of the device waits for the memory, one tile of keys after another."""
        return 1

    @property
    def waves(self) -> float:
        """Times as many blocks as the device holds at once; 1 where all fit."""
        return 1.0

    def steps_a_call(self) -> int:
        """Layers that one call goes through; a latency is the call's time over these."""
        return 1

    def empty_step(self):
        """The same call with nothing to do, where there is one to time; else None."""
        return None

    def described(self) -> str | None:
        """How the cell is computed, in a few words."""
        return None

    def product(self, left, right):
        widened = (self.device.widened(array) for array in (left, right))
        return self.device.xp.matmul(*widened).astype(left.dtype, copy=False)

    def projected_query(self, layer):
        """[batch, heads, head size]."""
        query = self.product(self.hidden, layer["query"]) + layer["query_bias"]
        return query.reshape(self.shape.batch, self.shape.heads, self.shape.head_size)

    def check(self, scope: str) -> tuple[Check, float]:
        """Compare every head of the first and the last sequence with float64 arithmetic on the same inputs.

        Returns the check, of the worst head, and the seconds that the step took, its first. Raises ArithmeticError.
        """
        import numpy

        rows = sorted({0, self.shape.batch - 1})
        results = []
        checked_s = self.device.step_times(lambda index: results.append(self.step(scope)(index)), 1)[0]
        result = self.device.to_host(results[0][rows]).astype(numpy.float64)
        if scope == "block":
            # The output projection mixes the heads of a block: there a sequence is what can be wrong alone.
            expected, part = self._reference_block(rows), "sequences"
            result = result.reshape(expected.shape)
        else:
            expected, part = self._reference_core(rows, self.device.to_host(self.query[rows])), "heads"
        error, tolerance = worst_head(result, expected), self.tolerance[self.dtype]
        require_right(f"decode attention {scope} {self.dtype} {self.shape}", error, tolerance)
        compared = f"{part} of {len(rows)} sequences against float64, the worst of them"
        return Check(compared=compared, error=error, tolerance=tolerance), checked_s

    def _reference_core(self, rows: list[int], query):
        """[rows, heads, head size] for queries alike; one K/V head at a time, since a cache may be large."""
        import numpy

        keys, values = self.caches[0]
        expected = numpy.empty(query.shape)
        for place, row in enumerate(rows):
            for head in range(self.shape.kv_heads):
                group = slice(head * self.shape.group, (head + 1) * self.shape.group)
                of_head = (self.device.to_host(array[row, head])[None, None] for array in (keys, values))
                expected[place, group] = reference(query[place : place + 1, group], *of_head)[0]
        return expected

    def _reference_block(self, rows: list[int]):
        import numpy

        layer = {name: self.device.to_host(weights).astype(numpy.float64) for name, weights in self.layers[0].items()}
        hidden = self.device.to_host(self.hidden[rows]).astype(numpy.float64)
        query = (hidden @ layer["query"] + layer["query_bias"]).reshape(len(rows), self.shape.heads, -1)
        attended = self._reference_core(rows, query).reshape(len(rows), self.shape.hidden_size)
        return attended @ layer["output"] + layer["output_bias"]
