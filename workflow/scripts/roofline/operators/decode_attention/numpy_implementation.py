"""Decode attention by NumPy on all cores; what computes is in numpy_cores.py, which loads NumPy."""

from roofline.operators.decode_attention.costs import CORE_BYTES
from roofline.operators.decode_attention.counts import traffic_bytes
from roofline.operators.decode_attention.implementation import DecodeImplementation
from roofline.records.prediction import CostTerms


class NumpyOnAllCores(DecodeImplementation):
    # Everything is computed in fp32 from the numbers in the cache, and the result rounded once: by 2^-11 of itself at
    # most in fp16, 2^-8 in bf16, and by about half of that as the norm of a head. In fp32 it is the sums over the head
    # and over S that count, and the exponential, which makes a score's relative error of 2^-24 an absolute one.
    name, kind = "numpy", "cpu"
    scopes = ("core", "block")

    def __init__(self, operator, device, case, shared: dict, copies: list[dict], cores: int | None = None):
        from roofline.operators.decode_attention.numpy_cores import Steps

        super().__init__(operator, device, case, shared, copies)
        layers = self.rotated_layers()
        self.steps = Steps(device, self.shape, self.dtype, self.query, self.hidden, self.caches, layers, cores)

    def step(self, scope: str | None):
        return self.steps.core if scope == "core" else self.steps.block

    def plan(self) -> dict:
        return {"cores": len(self.steps.plan.tasks), "projecting_cores": self.steps.projecting_cores}

    def cores(self, scope: str | None) -> int:
        plan = self.plan()
        return plan["cores"] if scope == "core" else max(plan.values())

    def plan_summary(self) -> str:
        return f"by NumPy on {self.plan()['cores']} cores, projections on {self.plan()['projecting_cores']}"

    def costs(self, scope: str | None) -> CostTerms:
        """Calls come before the work. Small cells are read at one core's pace."""
        read_by_one = min(traffic_bytes(self.shape, self.dtype, scope), CORE_BYTES)
        return (
            super()
            .costs(scope)
            .model_copy(update={"start": None, "floor": {f"numpy_{self.dtype}_core_s_per_byte": float(read_by_one)}})
        )
