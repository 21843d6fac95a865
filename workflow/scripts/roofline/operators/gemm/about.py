"""GEMM, as readers see it."""

from roofline.core.architectures import Architecture
from roofline.core.dtypes import COMMON_DTYPE
from roofline.core.terms import DeviceKind
from roofline.operators.about import About, Advice, ImplementationAdvice
from roofline.records.operator_record import CellKey


class AboutGemm(About):
    """The text of GEMM, whose every implementation is one fused kernel."""

    name = "gemm"
    title = "GEMM"
    counted = "A, B and C once each"
    unit = "tensor_core"
    default_advice = ImplementationAdvice(fused=True)

    def label(self, cell: CellKey) -> str:
        m, n, k = (cell.shape[side] for side in "mnk")
        return f"{m}³" if m == n == k else f"{m} x {n} x {k}"

    def advice(self, cell: CellKey, kind: DeviceKind, architecture: Architecture) -> Advice:
        advice = super().advice(cell, kind, architecture)
        # cuBLAS computes fp64 on tensor cores already.
        if cell.dtype == COMMON_DTYPE and "tf32" in architecture.tensor_dtypes:
            advice["compute"].insert(0, "TF32 on tensor cores")
        return advice
