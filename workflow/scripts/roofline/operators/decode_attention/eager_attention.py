"""Decode attention in plain array operations, one after another: the same code for CuPy and NumPy."""

from typing import ClassVar

from roofline.core.dtypes import FLOAT_BYTES, array_dtype, dtype_bytes
from roofline.core.terms import Array
from roofline.devices.base import Device, Step
from roofline.operators.base import Case
from roofline.operators.decode_attention import attention_arithmetic as arithmetic
from roofline.operators.decode_attention.attention_arithmetic import DecodeImplementation
from roofline.records.seal_records import CostTerms

# Kernels of a step: two products, and largest, difference, exponential, sum and quotient of the scores. For fp16 CuPy
# launches two more for each product of stacks, and one rounds the weights. bf16 is widened: query, keys and values
# before, the result after. In fp32, heads that share keys are copied for either product, and so is the result.
CORE_KERNELS = {"fp32": 7, "fp16": 12, "bf16": 11}
GROUPED_KERNELS = {"fp32": 3, "fp16": 0, "bf16": 0}
# A product, the bias and the scale before the core; a product and the bias after it. bf16 rounds once more.
PROJECTION_KERNELS = {"fp32": 5, "fp16": 5, "bf16": 6}
SCORE_PASSES = 10  # reads and writes of the scores in fp32, by all these kernels


class EagerAttention(DecodeImplementation):
    """Attention whose scores, softmax and weighted sum are operations of the array library, with results in memory."""

    name, kind = "eager", "gpu"
    scopes = ("core", "block")
    # Scores, weights and result are rounded to the cache's dtype, with the softmax in fp32: about four roundings of
    # 2^-11 in fp16, of 2^-8 in bf16. In fp32 it is the sum over S that counts.
    tolerance: ClassVar[dict[str, float]] = {"fp32": 2e-5, "fp16": 5e-3, "bf16": 3e-2}

    @classmethod
    def unsupported(cls, device: Device, case: Case) -> str | None:
        return "CuPy has no FP8 numbers" if case.dtype == arithmetic.FP8 else None

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        import numpy

        super().prepare(shared, copies)
        self.as_dtype = array_dtype(self.dtype)
        # A number on the host would make CuPy import its sparse matrices, which takes 0.1 s or more of each job.
        self.scale = self.device.to_device(numpy.float32(self.shape.head_size**-0.5)).astype(self.as_dtype)
        self.layers = self.make_rotated_layers()
        self.scaled_query = self.scale_to_columns(self.query)

    def step(self, scope: str | None) -> Step:
        return self._run_core if scope == "core" else self._run_block

    def _run_core(self, index: int) -> Array:
        return self._attend(self.scaled_query, index)

    def _run_block(self, index: int) -> Array:
        layer = self.layers[index % len(self.layers)]
        query = arithmetic.project_query(self.device, self.shape, self.hidden, layer)
        attended = self._attend(self.scale_to_columns(query), index)
        flat = attended.reshape(self.shape.batch, self.shape.hidden_size)
        return arithmetic.multiply(self.device, flat, layer["output"]) + layer["output_bias"]

    def costs(self, scope: str | None) -> CostTerms:
        """Return the kernels, the passes over intermediates, and the products of stacked matrices, which read memory
        and cache equally slowly."""
        shape = self.shape
        kernels = CORE_KERNELS[self.dtype]
        if scope == "block":
            kernels += PROJECTION_KERNELS[self.dtype]
        if shape.group > 1:
            kernels += GROUPED_KERNELS[self.dtype]
        elements = 2 * shape.batch * shape.kv_heads * shape.seq_len * shape.head_size
        passed_bytes = SCORE_PASSES * FLOAT_BYTES * shape.batch * shape.heads * shape.seq_len
        if self.dtype == "bf16":
            passed_bytes += elements * (FLOAT_BYTES + dtype_bytes(self.dtype))
        multiplied_as = "fp16" if self.dtype == "fp16" else "fp32"  # bf16 is widened
        floor = {f"{multiplied_as}_column_product_s_per_element": float(elements)}
        if scope == "block" and shape.batch > 1:  # a single row is read as fast as the memory allows
            projected_as = "fp32" if self.dtype == "fp32" else "fp16"  # bf16 takes as long as fp16
            weights = arithmetic.projection_bytes(shape, self.dtype) / dtype_bytes(self.dtype)
            floor[f"{projected_as}_projection_s_per_element"] = weights
        return CostTerms(
            calls={"array_operation_s": float(kernels)},
            start={"array_kernel_s": float(kernels)},
            extra={"pass_s_per_byte": float(passed_bytes)},
            floor=floor,
        )

    def scale_to_columns(self, query: Array) -> Array:
        """Return the scaled query as [batch, kv_heads, head size, group]: with a column per query head, K q needs no
        transposed K."""
        shape = self.shape
        scaled = query * self.scale
        if shape.group == 1:
            return scaled.reshape(shape.batch, shape.heads, shape.head_size, 1)
        return scaled.reshape(shape.batch, shape.kv_heads, shape.group, shape.head_size).swapaxes(-1, -2)

    def _attend(self, query: Array, index: int) -> Array:
        """Return [batch, heads, head size] in the dtype of the case, for a query by columns and a step's cache."""
        keys, values = self.caches[index % len(self.caches)]
        query, keys, values = (self.device.widen(array) for array in (query, keys, values))
        attended = arithmetic.attend(self.device.xp, query, keys, values).astype(self.as_dtype, copy=False)
        return attended.reshape(self.shape.batch, self.shape.heads, self.shape.head_size)
