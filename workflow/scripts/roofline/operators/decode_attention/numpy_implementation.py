"""Decode attention by NumPy on all cores; what computes is in numpy_cores.py, which loads NumPy."""

from roofline.core.dtypes import ITEM_BYTES
from roofline.operators.decode_attention.costs import CORE_BYTES
from roofline.operators.decode_attention.counts import flops, traffic_bytes
from roofline.operators.decode_attention.implementation import DecodeImplementation
from roofline.records.prediction import CostTerms

# What widening a number reads and writes in the caches, and a product then reads: fp16 is looked over twice (4 bytes),
# copied (6), shifted (8) and masked (8); bf16 is copied (6).
PASS_BYTES = {"fp32": 0, "fp16": 4 + 6 + 8 + 8 + 4, "bf16": 6 + 4}


class NumpyOnAllCores(DecodeImplementation):
    # Everything is computed in fp32 from the numbers in the cache, and the result rounded once: by 2^-11 of itself at
    # most in fp16, 2^-8 in bf16, and by about half of that as the norm of a head. In fp32 it is the sums over the head
    # and over S that count, and the exponential, which makes a score's relative error of 2^-24 an absolute one.
    name, kind = "numpy", "cpu"
    scopes = ("core", "block")

    def __init__(self, operator, device, case, shared: dict, copies: list[dict], cores: int | None = None):
        from roofline.operators.decode_attention.numpy_cores import Steps

        super().__init__(operator, device, case, shared, copies)
        self.layers = self.rotated_layers()
        self.steps = Steps(device, self.shape, self.dtype, self.query, self.hidden, self.caches, self.layers, cores)

    def step(self, scope: str | None):
        return self.steps.core if scope == "core" else self.steps.block

    def plan(self) -> dict:
        return {"cores": len(self.steps.plan.tasks), "projecting_cores": self.steps.projecting_cores}

    def cores(self, scope: str | None) -> int:
        plan = self.plan()
        return plan["cores"] if scope == "core" else max(plan.values())

    def costs(self, scope: str | None) -> CostTerms:
        """Calls come before the work. Each core reads and widens what is its own, in caches that all share; of a small
        cell few cores do."""
        shape, dtype = self.shape, self.dtype
        moved = traffic_bytes(shape, dtype, scope)
        cores = min(max(1.0, moved / CORE_BYTES), self.device.cores)
        passed = float(PASS_BYTES[dtype] * moved / ITEM_BYTES[dtype])
        projected = flops(shape, scope) - flops(shape, "core")
        return CostTerms(
            calls={"array_calls_s": 1.0} | ({"projection_calls_s": 2.0} if projected else {}),
            share="stream_share",
            floor={"core_read_s_per_byte": moved / cores},
            extra={
                "core_pass_s_per_byte": passed / cores,
                "shared_cache_s_per_byte": passed,
                "projection_s_per_flop": float(projected),
            },
        )
