"""GEMM, as readers see it."""

from roofline.core.dtypes import ITEM_BYTES
from roofline.core.terms import DEVICE_TRAITS
from roofline.operators.about import About, Advice, CellIdentity, ImplementationAdvice


class AboutGemm(About):
    name = "gemm"
    title = "GEMM"
    counted = "A, B and C once each"
    unit = "tensor_core"
    other_ways = ImplementationAdvice(fused=True)

    def label(self, cell: CellIdentity) -> str:
        m, n, k = (cell.shape[side] for side in "mnk")
        return f"{m}³" if m == n == k else f"{m} x {n} x {k}"

    def advice(self, cell: CellIdentity, kind: str) -> Advice:
        lowest = cell.dtype in ("fp8_e4m3", "int8")
        # cuBLAS computes fp64 on tensor cores.
        tf32 = ["TF32 on tensor cores"] if DEVICE_TRAITS[kind].tensor_cores and cell.dtype == "fp32" else []
        lower = [] if lowest or ITEM_BYTES[cell.dtype] <= DEVICE_TRAITS[kind].narrowest_bytes else ["lower precision"]
        return super().advice(cell, kind) | {"compute": tf32 + lower}
