"""Decode attention by NumPy on the cores of a CPU: what it gives without compiled code of our own.

Sequences and K/V heads ("units") are divided among the cores. A core goes through its own in chunks whose scores stay
in its second cache. Numbers that the CPU cannot compute in are widened to fp32 chunk by chunk.
"""

from roofline.core.cell_prediction import divided_cost_terms
from roofline.core.dtypes import ITEM_BYTES
from roofline.operators.base import emulation_skip_reason
from roofline.operators.decode_attention.attention_arithmetic import (
    DecodeImplementation,
    attention_bytes,
    projection_bytes,
)
from roofline.records.seal_records import CostTerms

FP32_BYTES = 4
BYTES_PER_CORE = 2 << 20  # so small a cell is computed by one core, and one of so many times as much by so many cores
# Of K as fp32. Threads that call NumPy one short time after another wait for the interpreter's lock: pieces of 4 MiB
# were seen to take half the time of pieces of 512 KiB.
PIECE_BYTES = 4 << 20
WIDENED_BYTES = {"fp32": 0, "fp16": 6, "bf16": 3}  # that widening a number costs as much as to read and write
FEWEST_COLUMNS = 64  # of a projection's weights, that a core multiplies by
CALLS_PER_STEP, CHUNK_CALLS, PROJECTION_CALLS = 6, 9, 6  # of NumPy: a step's, a chunk's and a projection's


class NumpyAttention(DecodeImplementation):
    # Everything is computed in fp32 from the numbers in the cache, and the result rounded once: by 2^-11 of itself at
    # most in fp16, 2^-8 in bf16, and by about half of that as the norm of a head. In fp32 it is the sums over the head
    # and over S that count, and the exponential, which makes a score's relative error of 2^-24 an absolute one.
    name, kind = "numpy", "cpu"
    scopes = ("core", "block")

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        return emulation_skip_reason(case)

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        shape, self.emulated = self.shape, ITEM_BYTES[self.dtype] < FP32_BYTES
        self.units, self.lanes = shape.batch * shape.kv_heads, max(2, shape.group)
        unit_bytes = FP32_BYTES * shape.seq_len * shape.head_size
        self.core_count = max(1, min(device.cores, self.units, 2 * self.units * unit_bytes // BYTES_PER_CORE))
        self.each = max(1, device.l2_bytes // 16 // (self.lanes * max(shape.seq_len, shape.head_size)))
        if self.emulated:
            self.each = max(1, min(self.each, PIECE_BYTES // unit_bytes))

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.layers = self.rotated_layers()
        self.columns = self._columns(self.query)
        by_unit = (self.units, self.shape.seq_len, self.shape.head_size)
        self.by_unit = [tuple(array.reshape(by_unit) for array in pair) for pair in self.caches]
        most = (self.each, *by_unit[1:]) if self.emulated else (0,)
        self.wide = [self.device.empty(most, "fp32") for _ in range(self.core_count)]

    def step(self, scope: str | None):
        return self._core if scope == "core" else self._block

    def plan(self) -> dict:
        return {"cores": self.core_count}

    def cores(self, scope: str | None) -> int:
        return self.core_count

    def costs(self, scope: str | None) -> CostTerms:
        """Each core reads, widens and multiplies its own part. The calls of all cores take turns, since each holds the
        interpreter's lock."""
        shape, cores = self.shape, self.core_count
        chunks = max(cores, -(-self.units // self.each))
        calls, more_calls, handed = CALLS_PER_STEP + CHUNK_CALLS, CHUNK_CALLS * (chunks - 1), cores * (cores > 1)
        work = self._read(attention_bytes(shape, self.dtype, "core"), cores)
        if scope != "core":
            calls += 2 * PROJECTION_CALLS
            projecting = self._projecting(shape.batch)
            handed += 2 * projecting * (projecting > 1)
            of_weights = self._read(projection_bytes(shape, self.dtype), projecting)
            work = {name: work.get(name, 0.0) + amount for name, amount in of_weights.items()}
        scores = shape.batch * shape.heads * shape.seq_len
        return CostTerms(
            calls={"array_operation_s": float(calls)},
            extra={"array_operation_s": float(more_calls), "handover_s": float(handed)},
            floor=work | {"softmax_s_per_score": scores / cores},
        )

    def _read(self, moved: int, cores: int) -> dict[str, float]:
        """The terms of so many bytes in the dtype of the case, read and, if need be, widened."""
        passed = WIDENED_BYTES[self.dtype] * moved / ITEM_BYTES[self.dtype]
        return divided_cost_terms("read_s_per_byte", float(moved), cores) | divided_cost_terms(
            "pass_s_per_byte", passed, cores
        )

    def _core(self, index: int):
        return self._attend(self.columns, index, self.hidden.dtype)

    def _block(self, index: int):
        layer = self.layers[index % len(self.layers)]
        query = self._projected(self.hidden, layer["query"], layer["query_bias"])
        attended = self._attend(self._columns(query), index, query.dtype).reshape(query.shape)
        return self._projected(attended, layer["output"], layer["output_bias"]).astype(self.hidden.dtype, copy=False)

    def _columns(self, query):
        """Scaled, [units, head size, group]: a column a query head, so that K q needs no transposed K."""
        shape, xp = self.shape, self.device.xp
        scaled = query.astype(xp.float32) * xp.float32(shape.head_size**-0.5)
        return xp.ascontiguousarray(scaled.reshape(self.units, shape.group, shape.head_size).swapaxes(-1, -2))

    def _projecting(self, rows: int) -> int:
        """How many cores: a single row is faster multiplied by one."""
        return max(1, min(self.core_count, rows, self.shape.hidden_size // FEWEST_COLUMNS))

    def _projected(self, left, weights, bias):
        """left [batch, hidden] times weights [hidden, hidden], plus the bias, in fp32: each core has some columns."""
        xp, width = self.device.xp, weights.shape[1]
        count = self._projecting(len(left))
        left, result = self.device.widen(left), xp.empty((len(left), width), xp.float32)

        def work(core: int) -> None:
            columns = slice(width * core // count, width * (core + 1) // count)
            xp.matmul(left, self.device.widen(weights[:, columns]), out=result[:, columns])

        self.device.run_on_cores(count, work)
        return result + bias.astype(xp.float32)

    def _attend(self, columns, index: int, dtype):
        """[batch, heads, head size] in a dtype."""
        shape, (keys, values) = self.shape, self.by_unit[index % len(self.by_unit)]
        result = self.device.xp.empty((self.units, shape.group, shape.head_size), dtype)

        def work(core: int) -> None:
            first, last = (self.units * edge // self.core_count for edge in (core, core + 1))
            for start in range(first, last, self.each):
                units = slice(start, min(start + self.each, last))
                result[units] = self._chunk(columns[units], keys[units], values[units], self.wide[core])

        self.device.run_on_cores(self.core_count, work)
        return result.reshape(shape.batch, shape.heads, shape.head_size)

    def _chunk(self, columns, keys, values, wide):
        """[units, group, head size] for columns [units, head size, group], K and V [units, rows, head size].

        A product by one row reads memory more slowly than a product by two: if the group has one, a second, idle row of
        weights goes with it.
        """
        xp, group = self.device.xp, columns.shape[-1]
        weights = xp.zeros((len(keys), self.lanes, keys.shape[1]), xp.float32)
        scores, wide = weights[:, :group], wide[: len(keys)]
        keys = self.device.widen(keys, wide)
        if group == 1 and not self.emulated:  # from memory: a fifth faster than the BLAS, which is faster from a cache
            xp.vecdot(keys, columns[:, None, :, 0], out=scores[:, 0])
        else:
            scores[...] = xp.matmul(keys, columns).swapaxes(-1, -2)
        scores -= xp.maximum.reduce(scores, axis=-1, keepdims=True)
        xp.exp(scores, out=scores)
        totals = xp.add.reduce(scores, axis=-1, keepdims=True)
        return xp.matmul(weights, self.device.widen(values, wide))[:, :group] / totals
