"""GEMM, as readers see it."""

from roofline.core.dtypes import dtype_bytes
from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.operators.about import About, Advice, CellIdentity, ImplementationAdvice


class AboutGemm(About):
    """The text of GEMM, whose every implementation is one fused kernel."""

    name = "gemm"
    title = "GEMM"
    counted = "A, B and C once each"
    unit = "tensor_core"
    default_advice = ImplementationAdvice(fused=True)

    def label(self, cell: CellIdentity) -> str:
        m, n, k = (cell.shape[side] for side in "mnk")
        return f"{m}³" if m == n == k else f"{m} x {n} x {k}"

    def advice(self, cell: CellIdentity, kind: DeviceKind) -> Advice:
        device, compute = DEVICE_TRAITS[kind], []
        if device.tensor_cores and cell.dtype == "fp32":  # cuBLAS computes fp64 on tensor cores already
            compute.append("TF32 on tensor cores")
        if dtype_bytes(cell.dtype) > device.narrowest_bytes:
            compute.append("lower precision")
        return super().advice(cell, kind) | {"compute": compute}
