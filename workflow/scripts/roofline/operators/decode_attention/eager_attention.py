"""Decode attention in plain array operations, one after another: the same code for CuPy and NumPy."""

from typing import ClassVar

from roofline.core.dtypes import ITEM_BYTES, array_dtype
from roofline.operators.decode_attention.attention_arithmetic import (
    DecodeImplementation,
    attend,
    multiply,
    project_query,
    projection_bytes,
)
from roofline.records.seal_records import CostTerms

# Kernels of a step: two products, and largest, difference, exponential, sum and quotient of the scores. Of fp16, CuPy
# takes two more for each product of stacks, and one rounds the weights. bf16 is widened: query, keys and values before,
# the result after. In fp32 heads that share keys are copied for either product, and so is the result.
CORE_KERNELS = {"fp32": 7, "fp16": 12, "bf16": 11}
GROUPED_KERNELS = {"fp32": 3, "fp16": 0, "bf16": 0}
# A product, the bias and the scale before; a product and the bias after. bf16 rounds once more.
PROJECTION_KERNELS = {"fp32": 5, "fp16": 5, "bf16": 6}
SCORE_PASSES = 10  # over the scores in fp32: of these operations the reads and writes


class EagerAttention(DecodeImplementation):
    """Scores, softmax and weighted sum, each an operation of the array library with a result in memory."""

    name, kind = "eager", "gpu"
    scopes = ("core", "block")
    # Scores, weights and result are rounded to the cache's dtype, with the softmax in fp32: about four roundings of
    # 2^-11 in fp16, of 2^-8 in bf16. In fp32 it is the sum over S that counts.
    tolerance: ClassVar[dict[str, float]] = {"fp32": 2e-5, "fp16": 5e-3, "bf16": 3e-2}

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        import numpy

        super().prepare(shared, copies)
        self.as_dtype = array_dtype(self.dtype)
        # On the device: a number of the host's would have CuPy import its sparse matrices, 0.1 s and more of each job.
        self.scale = self.device.to_device(numpy.float32(self.shape.head_size**-0.5)).astype(self.as_dtype)
        self.layers = self.rotated_layers()
        self.scaled_query = self.columns(self.query)

    def step(self, scope: str):
        return self._core if scope == "core" else self._block

    def _core(self, index: int):
        return self._attend(self.scaled_query, index)

    def _block(self, index: int):
        layer = self.layers[index % len(self.layers)]
        attended = self._attend(self.columns(project_query(self.device, self.shape, self.hidden, layer)), index)
        flat = attended.reshape(self.shape.batch, self.shape.hidden_size)
        return multiply(self.device, flat, layer["output"]) + layer["output_bias"]

    def costs(self, scope: str) -> CostTerms:
        """Launches, passes over intermediates, and products of stacks, which read their matrices as slowly as they do
        whether these are in memory or in the cache."""
        shape, wide = self.shape, ITEM_BYTES["fp32"]
        operations = float(CORE_KERNELS[self.dtype] + (PROJECTION_KERNELS[self.dtype] if scope == "block" else 0))
        operations += GROUPED_KERNELS[self.dtype] * (shape.group > 1)
        elements = 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size
        passes = SCORE_PASSES * wide * shape.batch * shape.heads * shape.seq_len
        if self.dtype == "bf16":
            passes += elements * (wide + ITEM_BYTES["bf16"])
        stacks = f"{'fp16' if self.dtype == 'fp16' else 'fp32'}_column_product_s_per_element"
        floor = {stacks: float(elements)}
        if scope == "block" and shape.batch > 1:  # a single row is read as fast as the memory allows
            of_weights = f"{'fp32' if self.dtype == 'fp32' else 'fp16'}_projection_s_per_element"
            floor[of_weights] = projection_bytes(shape, self.dtype) / ITEM_BYTES[self.dtype]
        return CostTerms(
            calls={"array_operation_s": operations},
            start={"array_kernel_s": operations},
            extra={"pass_s_per_byte": float(passes)},
            floor=floor,
        )

    def columns(self, query):
        """Scaled, [batch, kv_heads, head size, group]: a column per query head, so that K q needs no transposed K."""
        shape = self.shape
        scaled = query * self.scale
        if shape.group == 1:
            return scaled.reshape(shape.batch, shape.heads, shape.head_size, 1)
        return scaled.reshape(shape.batch, shape.kv_heads, shape.group, shape.head_size).swapaxes(-1, -2)

    def _attend(self, query, index: int):
        keys, values = self.caches[index % len(self.caches)]
        widened = (self.device.widen(array) for array in (query, keys, values))
        attended = attend(self.device.xp, *widened).astype(self.as_dtype, copy=False)
        return attended.reshape(self.shape.batch, self.shape.heads, self.shape.head_size)
