"""Decode attention by NumPy on the cores of a CPU: what it gives without compiled code of our own.

Sequences and K/V heads ("units") are divided among the cores. A core goes through its units in chunks whose scores stay
in its second cache. Numbers that the CPU cannot compute in are widened to fp32 chunk by chunk.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from roofline.core.cell_prediction import divided_cost_terms
from roofline.core.dtypes import FLOAT_BYTES, dtype_bytes
from roofline.core.terms import Array
from roofline.core.units import MIB
from roofline.devices.base import Device
from roofline.operators.base import Case, Operator
from roofline.operators.decode_attention import attention_arithmetic as arithmetic
from roofline.operators.decode_attention.attention_arithmetic import DecodeImplementation
from roofline.records.seal_records import CostTerms

if TYPE_CHECKING:
    import numpy

    from roofline.devices.cpu.cpu_device import CpuDevice

BYTES_PER_CORE = 2 * MIB  # of K and V as fp32: a cell is computed by one core for each, at least by one
# Bytes of K as fp32 in a chunk. Threads that call NumPy at short intervals wait for the interpreter's lock: chunks of
# 4 MiB were seen to take half the time of chunks of 512 KiB.
CHUNK_BYTES = 4 * MIB
# Widening a number costs as much as reading and writing so many bytes.
WIDENED_BYTES = {"fp32": 0, "fp16": 6, "bf16": 3}
FEWEST_COLUMNS = 64  # of a projection's weights, for each core that multiplies
CALLS_PER_STEP, CHUNK_CALLS, PROJECTION_CALLS = 6, 9, 6  # calls of NumPy in a step, a chunk and a projection


class NumpyAttention(DecodeImplementation):
    """Attention by NumPy and its BLAS, with the units divided among the cores."""

    # Everything is computed in fp32 from the numbers in the cache, and the result rounded once: by 2^-11 of itself at
    # most in fp16, 2^-8 in bf16, and by about half of that as the norm of a head. In fp32 it is the sums over the head
    # and over S that count, and the exponential, which makes a score's relative error of 2^-24 an absolute one.
    name, kind = "numpy", "cpu"
    scopes = ("core", "block")
    device: "CpuDevice"

    @classmethod
    def unsupported(cls, device: Device, case: Case) -> str | None:
        if case.dtype == arithmetic.FP8:
            return "NumPy has no FP8 numbers"
        if dtype_bytes(case.dtype) < FLOAT_BYTES and case.shape["batch"] > 1:
            return f"NumPy emulates {case.dtype}: at batch 1 only"
        return None

    def __init__(self, operator: Operator, device: "CpuDevice", case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        shape = self.shape
        self.emulated = dtype_bytes(self.dtype) < FLOAT_BYTES
        self.units = shape.batch * shape.kv_heads
        self.weight_rows = max(2, shape.group)  # of a unit's softmax weights: see _attend_chunk
        unit_bytes = FLOAT_BYTES * shape.seq_len * shape.head_size
        self.core_count = max(1, min(device.cores, self.units, 2 * self.units * unit_bytes // BYTES_PER_CORE))
        unit_numbers = self.weight_rows * max(shape.seq_len, shape.head_size)
        self.units_per_chunk = max(1, device.l2_bytes // 16 // unit_numbers)
        if self.emulated:
            self.units_per_chunk = max(1, min(self.units_per_chunk, CHUNK_BYTES // unit_bytes))

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.layers = self.make_rotated_layers()
        self.query_columns = self._scale_to_columns(self.query)
        shape_by_unit = (self.units, self.shape.seq_len, self.shape.head_size)
        self.caches_by_unit = [tuple(array.reshape(shape_by_unit) for array in cache) for cache in self.caches]
        buffer_shape = (self.units_per_chunk, *shape_by_unit[1:]) if self.emulated else (0,)
        self.fp32_buffers = [self.device.empty(buffer_shape, "fp32") for _ in range(self.core_count)]

    def step(self, scope: str | None) -> Callable[[int], Array]:
        return self._run_core if scope == "core" else self._run_block

    def plan(self) -> dict:
        return {"cores": self.core_count}

    def cores(self, scope: str | None) -> int:
        return self.core_count

    def costs(self, scope: str | None) -> CostTerms:
        """Return NumPy's calls, handovers to threads, and the bytes and scores of each core.

        Each core reads, widens and multiplies its own part. The calls of all cores take turns, since each holds the
        interpreter's lock.
        """
        shape, cores = self.shape, self.core_count
        chunks = max(cores, -(-self.units // self.units_per_chunk))  # rounded up
        calls, later_calls = CALLS_PER_STEP + CHUNK_CALLS, CHUNK_CALLS * (chunks - 1)
        handovers = cores if cores > 1 else 0
        work = self._read_terms(arithmetic.attention_bytes(shape, self.dtype, "core"), cores)
        if scope != "core":
            calls += 2 * PROJECTION_CALLS
            projection_cores = self._projection_cores(shape.batch)
            handovers += 2 * projection_cores if projection_cores > 1 else 0
            weight_terms = self._read_terms(arithmetic.projection_bytes(shape, self.dtype), projection_cores)
            work = {name: work.get(name, 0.0) + amount for name, amount in weight_terms.items()}
        scores = shape.batch * shape.heads * shape.seq_len
        return CostTerms(
            calls={"array_operation_s": float(calls)},
            extra={"array_operation_s": float(later_calls), "handover_s": float(handovers)},
            floor=work | {"softmax_s_per_score": scores / cores},
        )

    def _read_terms(self, moved_bytes: int, cores: int) -> dict[str, float]:
        """Return the terms of reading bytes in the dtype of the case and, where it is emulated, widening them."""
        widened_bytes = WIDENED_BYTES[self.dtype] * moved_bytes / dtype_bytes(self.dtype)
        return {
            **divided_cost_terms("read_s_per_byte", float(moved_bytes), cores),
            **divided_cost_terms("pass_s_per_byte", widened_bytes, cores),
        }

    def _run_core(self, index: int) -> Array:
        return self._attend(self.query_columns, index, self.hidden.dtype)

    def _run_block(self, index: int) -> Array:
        layer = self.layers[index % len(self.layers)]
        query = self._project(self.hidden, layer["query"], layer["query_bias"])
        attended = self._attend(self._scale_to_columns(query), index, query.dtype).reshape(query.shape)
        return self._project(attended, layer["output"], layer["output_bias"]).astype(self.hidden.dtype, copy=False)

    def _scale_to_columns(self, query: Array) -> Array:
        """Return the scaled query in fp32 as [units, head size, group]: with a column per query head, K q needs no
        transposed K."""
        shape, xp = self.shape, self.device.xp
        scaled = query.astype(xp.float32) * xp.float32(shape.head_size**-0.5)
        return xp.ascontiguousarray(scaled.reshape(self.units, shape.group, shape.head_size).swapaxes(-1, -2))

    def _projection_cores(self, rows: int) -> int:
        """Return the cores that multiply rows by a projection's weights. One core is faster with a single row."""
        return max(1, min(self.core_count, rows, self.shape.hidden_size // FEWEST_COLUMNS))

    def _project(self, states: Array, weights: Array, bias: Array) -> Array:
        """Return states [batch, hidden] times weights [hidden, hidden], plus the bias, in fp32. Each core has some
        columns."""
        xp, width = self.device.xp, weights.shape[1]
        cores = self._projection_cores(len(states))
        states, result = self.device.widen(states), xp.empty((len(states), width), xp.float32)

        def multiply_columns(core: int) -> None:
            columns = slice(width * core // cores, width * (core + 1) // cores)
            xp.matmul(states, self.device.widen(weights[:, columns]), out=result[:, columns])

        self.device.run_on_cores(cores, multiply_columns)
        return result + bias.astype(xp.float32)

    def _attend(self, columns: Array, index: int, result_dtype: "numpy.dtype") -> Array:
        """Return [batch, heads, head size] for a query by columns and the cache of a step."""
        shape = self.shape
        keys, values = self.caches_by_unit[index % len(self.caches_by_unit)]
        result = self.device.xp.empty((self.units, shape.group, shape.head_size), result_dtype)

        def attend_units(core: int) -> None:
            first = self.units * core // self.core_count
            end = self.units * (core + 1) // self.core_count
            for start in range(first, end, self.units_per_chunk):
                units = slice(start, min(start + self.units_per_chunk, end))
                buffer = self.fp32_buffers[core]
                result[units] = self._attend_chunk(columns[units], keys[units], values[units], buffer)

        self.device.run_on_cores(self.core_count, attend_units)
        return result.reshape(shape.batch, shape.heads, shape.head_size)

    def _attend_chunk(self, columns: Array, keys: Array, values: Array, fp32_buffer: Array) -> Array:
        """Return [units, group, head size] for columns [units, head size, group], K and V [units, rows, head size].

        A product by one row reads memory more slowly than a product by two: if the group has one, a second, idle row of
        weights goes with it.
        """
        xp, group = self.device.xp, columns.shape[-1]
        weights = xp.zeros((len(keys), self.weight_rows, keys.shape[1]), xp.float32)
        scores, fp32_buffer = weights[:, :group], fp32_buffer[: len(keys)]
        keys = self.device.widen(keys, fp32_buffer)
        if group == 1 and not self.emulated:  # from memory: a fifth faster than the BLAS, which is faster from a cache
            xp.vecdot(keys, columns[:, None, :, 0], out=scores[:, 0])
        else:
            scores[...] = xp.matmul(keys, columns).swapaxes(-1, -2)
        scores -= xp.maximum.reduce(scores, axis=-1, keepdims=True)
        xp.exp(scores, out=scores)
        totals = xp.add.reduce(scores, axis=-1, keepdims=True)
        return xp.matmul(weights, self.device.widen(values, fp32_buffer))[:, :group] / totals
