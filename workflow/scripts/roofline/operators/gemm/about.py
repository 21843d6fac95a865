"""GEMM, as readers see it."""

from roofline.core.architectures import Architecture
from roofline.core.dtypes import COMMON_DTYPE, has_narrower_dtype
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
        compute = []
        if (
            "tf32" in architecture.tensor_dtypes and cell.dtype == COMMON_DTYPE
        ):  # cuBLAS computes fp64 on tensor cores already
            compute.append("TF32 on tensor cores")
        if has_narrower_dtype(cell.dtype, architecture.tensor_dtypes):
            compute.append("lower precision")
        return super().advice(cell, kind, architecture) | {"compute": compute}
