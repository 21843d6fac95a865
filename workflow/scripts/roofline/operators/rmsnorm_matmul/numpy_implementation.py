"""RMSNorm + matmul by NumPy: its BLAS on all cores, of numbers widened to fp32 where the CPU does not compute in
theirs."""

from roofline.core.host_costs import divided
from roofline.operators.base import Implementation
from roofline.operators.rmsnorm_matmul.counts import normalised
from roofline.records.prediction import CostTerms

OPERATIONS = 10  # of NumPy, three of them to widen
LARGEST_KEPT = 32 << 20  # bytes of an array that the C library keeps for the next one; larger ones are new memory


class OnCpu(Implementation):
    name, kind = "numpy", "cpu"

    def compute(self, inputs: dict):
        x, w, g = (self.device.widened(inputs[name]) for name in ("x", "w", "g"))
        inputs["y"][...] = normalised(x, g) @ w.T
        return inputs["y"]

    def costs(self, scope: str | None) -> CostTerms:
        """One core widens the weights, all read what it leaves. The BLAS packs them where there are several rows."""
        batch, weights, cores = self.case.shape["batch"], self.case.shape["hidden"] ** 2, self.device.cores
        wide_bytes = 4.0 * weights
        return CostTerms(
            calls={"array_operation_s": float(OPERATIONS)},
            extra={
                f"{self.case.dtype}_convert_s_per_element": float(weights),
                "fresh_page_s_per_byte": wide_bytes if wide_bytes > LARGEST_KEPT else 0.0,
                **({"pack_s_per_element": float(weights)} if batch > 1 else {}),
            },
            floor=(
                {"row_s_per_element": float(batch * weights)}
                if batch > 1
                else divided("product_read_s_per_byte", wide_bytes, cores)
            ),
        )
