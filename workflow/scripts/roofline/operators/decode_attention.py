"""One decode step of one layer of attention: a single query token against the cached keys and values.

Core: scores = K q / sqrt(d), softmax, weighted sum of V. FLOPs 4 x batch x query heads x S x head size, bytes K
and V once each. Block: the query projection before it and the output projection after it, their FLOPs and
weights added. The write of the new token into the cache is not part of the step.
"""

from dataclasses import dataclass

from roofline.dtypes import ITEM_BYTES, array_dtype
from roofline.measuring import relative_error, require_right
from roofline.records import Check

OPERATOR = "decode_attention"
SCOPES = ("core", "block")

# Eager code rounds scores, weights and result to the cache's dtype, with the softmax in fp32: about four roundings
# of 2^-11 in fp16. In fp32 it is the sum over S that counts.
TOLERANCE = {"fp32": 2e-5, "fp16": 5e-3}
DTYPES = tuple(TOLERANCE)

# Rotating through several times the last-level cache makes every step read K and V from memory.
COLD_CACHE_MULTIPLE = 3
LARGEST_ROTATION_BYTES = 2 << 30
MOST_COPIES = 4096  # of tiny caches the arrays themselves would fill the memory; fewer copies are said to be warm


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    head_size: int
    seq_len: int

    @property
    def hidden_size(self) -> int:
        return self.heads * self.head_size

    def as_dict(self) -> dict[str, int]:
        return {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.heads,
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
    return 2 * shape.batch * shape.heads * shape.seq_len * shape.head_size * ITEM_BYTES[dtype]


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
    return caches + weights + widened + scores + (256 << 20)


def _weight_bytes(shape: Shape, dtype: str) -> int:
    return 2 * shape.hidden_size**2 * ITEM_BYTES[dtype]


def _projection_flops(shape: Shape) -> int:
    return 2 * 2 * shape.batch * shape.hidden_size**2


class Eager:
    """One cell in plain array operations: the same code for CuPy and NumPy.

    `layer` holds the projections (`query`, `output`: [hidden, hidden], `query_bias`, `output_bias`: [hidden]) and
    `hidden` the states [batch, hidden] of one token a sequence, all on the host in fp32.
    """

    def __init__(self, device, shape: Shape, dtype: str, layer, hidden, *, seed: int, copies: int | None = None):
        self._device, self._shape, self._dtype, self._xp = device, shape, dtype, device.xp
        self._as_dtype = as_dtype = array_dtype(dtype)
        self.hidden = device.array(hidden).astype(as_dtype)
        weight_copies = copies or rotation_copies(shape, dtype, device.last_level_cache_bytes, "block")
        weights = {name: device.array(host_weights).astype(as_dtype) for name, host_weights in layer.items()}
        of_weights = {name: device.copies(array, weight_copies - 1) for name, array in weights.items()}
        numbers = range(weight_copies - 1)
        self.layers = [weights, *({name: made[number] for name, made in of_weights.items()} for number in numbers)]
        self.scale = as_dtype.type(shape.head_size**-0.5)
        copies = copies or rotation_copies(shape, dtype, device.last_level_cache_bytes)
        self.cold = copies * cache_bytes(shape, dtype) >= COLD_CACHE_MULTIPLE * device.last_level_cache_bytes
        # The copies differ in their address alone, which is what matters to a cache.
        filled = device.normal((2, shape.batch, shape.heads, shape.seq_len, shape.head_size), dtype, seed)
        self.caches = [(copy[0], copy[1]) for copy in [filled, *device.copies(filled, copies - 1)]]
        self.query = self._project_query(self.layers[0])

    def step(self, scope: str):
        """The function to time: it is handed the step's number and returns the step's result."""
        return self._core if scope == "core" else self._block

    def _core(self, index: int):
        keys, values = self.caches[index % len(self.caches)]
        return self._attend(self.query, keys, values)

    def _block(self, index: int):
        keys, values = self.caches[index % len(self.caches)]
        layer = self.layers[index % len(self.layers)]
        attended = self._attend(self._project_query(layer), keys, values)
        flat = attended.reshape(self._shape.batch, self._shape.hidden_size)
        return self._product(flat, layer["output"]) + layer["output_bias"]

    def _attend(self, query, keys, values):
        widened = (self._device.widened(array) for array in (query, keys, values))
        return attend(self._xp, *widened).astype(self._as_dtype, copy=False)

    def _product(self, left, right):
        widened = (self._device.widened(array) for array in (left, right))
        return self._xp.matmul(*widened).astype(self._as_dtype, copy=False)

    def _project_query(self, layer):
        """[batch, heads, head size, 1]: a column a head, so that K q needs no transposed copy of K."""
        query = self._product(self.hidden, layer["query"]) + layer["query_bias"]
        return (query * self.scale).reshape(self._shape.batch, self._shape.heads, self._shape.head_size, 1)

    def check(self, scope: str) -> tuple[Check, float]:
        """Compare the first and the last sequence of the batch with float64 arithmetic on the same inputs.

        Returns the check, and the seconds that the step took, its first.
        """
        import numpy

        rows = sorted({0, self._shape.batch - 1})
        results = []
        checked_s = self._device.step_times(lambda index: results.append(self.step(scope)(index)), 1)[0]
        result = results[0]
        host = self._device.to_host
        keys, values = (host(array[rows]).astype(numpy.float64) for array in self.caches[0])
        layer = {name: host(weights).astype(numpy.float64) for name, weights in self.layers[0].items()}
        if scope == "block":
            query = host(self.hidden[rows]).astype(numpy.float64) @ layer["query"] + layer["query_bias"]
            query = (query * self._shape.head_size**-0.5).reshape(len(rows), self._shape.heads, -1, 1)
        else:
            query = host(self.query[rows]).astype(numpy.float64)
        reference = attend(numpy, query, keys, values)
        if scope == "block":
            flat = reference.reshape(len(rows), self._shape.hidden_size)
            reference = flat @ layer["output"] + layer["output_bias"]
        error, tolerance = relative_error(host(result[rows]), reference), TOLERANCE[self._dtype]
        require_right(f"decode attention {scope} {self._dtype} {self._shape}", error, tolerance)
        check = Check(compared=f"{len(rows)} sequences against float64", error=error, tolerance=tolerance)
        return check, checked_s


IMPLEMENTATIONS = {"eager": Eager}


def attend(xp, query, keys, values):
    """softmax(K q) V for scaled queries [batch, heads, d, 1] and caches [batch, heads, S, d], softmax in fp32
    (float64 for float64 inputs). Returns [batch, heads, 1, d] in the caches' dtype."""
    scores = xp.matmul(keys, query)
    wide = xp.promote_types(scores.dtype, xp.float32)
    weights = xp.subtract(scores, scores.max(axis=-2, keepdims=True), dtype=wide)
    xp.exp(weights, out=weights)
    weights /= weights.sum(axis=-2, keepdims=True)
    weights = weights.astype(keys.dtype, copy=False).reshape(*weights.shape[:-2], 1, weights.shape[-2])
    return xp.matmul(weights, values)
