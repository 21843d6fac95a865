"""RMSNorm + matmul by NumPy: its BLAS on all cores, of numbers widened to fp32 where the CPU does not compute in
theirs."""

from roofline.operators.base import Implementation
from roofline.operators.rmsnorm_matmul.counts import normalised
from roofline.records.prediction import CostTerms

OPERATIONS = 10  # of NumPy, three of them to widen


class OnCpu(Implementation):
    name, kind = "numpy", "cpu"

    def compute(self, inputs: dict):
        x, w, g = (self.device.widened(inputs[name]) for name in ("x", "w", "g"))
        inputs["y"][...] = normalised(x, g) @ w.T
        return inputs["y"]

    def costs(self, scope: str | None) -> CostTerms:
        hidden = self.case.shape["hidden"]
        return CostTerms(
            calls={"array_operation_s": float(OPERATIONS)},
            extra={f"{self.case.dtype}_widen_s_per_element": float(hidden**2)},
        )
