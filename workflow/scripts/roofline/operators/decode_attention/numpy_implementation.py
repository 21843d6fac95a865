"""Decode attention by NumPy on all cores; what computes is in numpy_cores.py, which loads NumPy."""

from roofline.core.dtypes import ITEM_BYTES
from roofline.core.host_costs import added, divided
from roofline.operators.decode_attention.costs import CORE_BYTES
from roofline.operators.decode_attention.counts import flops, traffic_bytes, weight_bytes
from roofline.operators.decode_attention.implementation import DecodeImplementation
from roofline.records.prediction import CostTerms

# Calls of NumPy: of a step, of a core's chunk of it, and of a projection. Numbers of two bytes are widened by more of
# them; those of further pieces are part of what a number costs.
CALLS, CHUNK_CALLS = {"fp32": 12, "fp16": 20, "bf16": 15}, 9
PROJECTION_CALLS = {"fp32": 6, "fp16": 12, "bf16": 8}


class NumpyOnAllCores(DecodeImplementation):
    # Everything is computed in fp32 from the numbers in the cache, and the result rounded once: by 2^-11 of itself at
    # most in fp16, 2^-8 in bf16, and by about half of that as the norm of a head. In fp32 it is the sums over the head
    # and over S that count, and the exponential, which makes a score's relative error of 2^-24 an absolute one.
    name, kind = "numpy", "cpu"
    scopes = ("core", "block")

    def prepare(self, shared: dict, copies: list[dict], cores: int | None = None) -> None:
        from roofline.operators.decode_attention.numpy_cores import Steps

        super().prepare(shared, copies)
        self.layers = self.rotated_layers()
        arrays = self.query, self.hidden, self.caches, self.layers
        self.steps = Steps(self.device, self.shape, self.dtype, *arrays, cores)

    def step(self, scope: str | None):
        return self.steps.core if scope == "core" else self.steps.block

    def plan(self) -> dict:
        return {"cores": len(self.steps.plan.tasks), "projecting_cores": self.steps.projecting_cores}

    def cores(self, scope: str | None) -> int:
        plan = self.plan()
        return plan["cores"] if scope == "core" else max(plan.values())

    def costs(self, scope: str | None) -> CostTerms:
        """Calls come before the work; it is handed to threads, and each core reads and multiplies what is its own: of a
        small cell few cores do. Weights are read by one row each, or widened as keys are, and multiplied where there
        are more rows."""
        shape, dtype, projected = self.shape, self.dtype, scope != "core"
        attended = traffic_bytes(shape, dtype, "core")
        cores = min(max(1, attended // CORE_BYTES), self.device.cores)
        handovers = (1 + 2 * projected) * (cores > 1)
        calls = CALLS[dtype] + 2 * projected * PROJECTION_CALLS[dtype]
        work = self._read(attended, cores) | {"softmax_s_per_score": shape.batch * shape.heads * shape.seq_len / cores}
        work |= divided("core_operation_s", float(CHUNK_CALLS * self._chunks(cores)), cores) if cores > 1 else {}
        if projected:
            weights = weight_bytes(shape, dtype)
            if ITEM_BYTES[dtype] < 4:
                work = added(work, self._read(weights, cores))
            else:
                work["row_product_s_per_byte"] = float(weights)
            if shape.batch > 1:
                work |= divided("projection_s_per_flop", float(flops(shape, scope) - flops(shape, "core")), cores)
        return CostTerms(
            calls={"array_operation_s": float(calls)},
            extra={"handover_s": float(handovers), "thread_s": float(handovers * cores)},
            floor=work,
        )

    def _read(self, moved: float, cores: int) -> dict[str, float]:
        """Of so many bytes of the cache's dtype, by matrix products."""
        if ITEM_BYTES[self.dtype] < 4:
            return divided(f"{self.dtype}_read_s_per_element", moved / ITEM_BYTES[self.dtype], cores)
        return divided("product_read_s_per_byte", float(moved), cores)

    def _chunks(self, cores: int) -> int:
        """Of all cores: as many units at once as their scores leave room for (Plan in numpy_cores.py)."""
        shape = self.shape
        lanes, units = max(2, shape.group), shape.batch * shape.kv_heads
        each = max(1, self.device.l2_bytes // 16 // (lanes * max(shape.seq_len, shape.head_size)))
        return max(cores, -(-units // each))
