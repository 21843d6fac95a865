"""Decode attention in plain array operations, one after another: the same code for CuPy and NumPy."""

from typing import ClassVar

from roofline.core.dtypes import array_dtype
from roofline.operators.decode_attention.counts import attend
from roofline.operators.decode_attention.implementation import DecodeImplementation, product, projected_query


class Eager(DecodeImplementation):
    """Scores, softmax and weighted sum, each an operation of the array library with a result in memory."""

    name, kind = "eager", "gpu"
    scopes = ("core", "block")
    # Scores, weights and result are rounded to the cache's dtype, with the softmax in fp32: about four roundings of
    # 2^-11 in fp16, of 2^-8 in bf16. In fp32 it is the sum over S that counts.
    tolerance: ClassVar[dict[str, float]] = {"fp32": 2e-5, "fp16": 5e-3, "bf16": 3e-2}

    def __init__(self, operator, device, case, shared: dict, copies: list[dict]):
        import numpy

        super().__init__(operator, device, case, shared, copies)
        self.as_dtype = array_dtype(self.dtype)
        # On the device: a number of the host's would have CuPy import its sparse matrices, 0.1 s and more of each job.
        self.scale = device.array(numpy.float32(self.shape.head_size**-0.5)).astype(self.as_dtype)
        self.layers = self.rotated_layers()
        self.scaled_query = self.columns(self.query)

    def step(self, scope: str):
        return self._core if scope == "core" else self._block

    def _core(self, index: int):
        return self._attend(self.scaled_query, index)

    def _block(self, index: int):
        layer = self.layers[index % len(self.layers)]
        attended = self._attend(self.columns(projected_query(self.device, self.shape, self.hidden, layer)), index)
        flat = attended.reshape(self.shape.batch, self.shape.hidden_size)
        return product(self.device, flat, layer["output"]) + layer["output_bias"]

    def columns(self, query):
        """Scaled, [batch, kv_heads, head size, group]: a column per query head, so that K q needs no transposed K."""
        shape = self.shape
        scaled = query * self.scale
        if shape.group == 1:
            return scaled.reshape(shape.batch, shape.heads, shape.head_size, 1)
        return scaled.reshape(shape.batch, shape.kv_heads, shape.group, shape.head_size).swapaxes(-1, -2)

    def _attend(self, query, index: int):
        keys, values = self.caches[index % len(self.caches)]
        widened = (self.device.widened(array) for array in (query, keys, values))
        attended = attend(self.device.xp, *widened).astype(self.as_dtype, copy=False)
        return attended.reshape(self.shape.batch, self.shape.heads, self.shape.head_size)
