"""Decode attention, as readers see it."""

from collections.abc import Mapping

from roofline.core.architectures import Architecture
from roofline.core.dtypes import COMMON_DTYPE, has_narrower_dtype
from roofline.core.terms import Axis, DeviceKind
from roofline.operators.about import About, Advice, ImplementationAdvice
from roofline.records.operator_record import CellKey

MORE_KEYS = ("more keys per block: longer S, or fewer blocks that each wait for the memory",)


class AboutDecodeAttention(About):
    """Title, labels and advice of decode attention."""

    name = "decode_attention"
    title = "decode attention"
    picture = "attention"
    counted = "K and V once; block: and the projections' weights"
    unit = "tensor_core"
    axis = Axis(key="seq_len", symbol="S", at_least=4)
    scopes: Mapping[str, str] = {"core": "without projections", "block": "with its projections"}
    usual_share_of_peak = (0.003, 0.01)
    advice_by_implementation: Mapping[str, ImplementationAdvice] = {
        "fused": ImplementationAdvice(fused=True, improvements=MORE_KEYS),
        "fused_graph": ImplementationAdvice(fused=True, graph=True, improvements=MORE_KEYS),
        "numpy": ImplementationAdvice(improvements=("compiled code instead of NumPy's temporaries",)),
    }

    def label(self, cell: CellKey) -> str:
        return f"{self.series(cell)}, S {cell.shape['seq_len']}"

    def series(self, cell: CellKey) -> str:
        return f"batch {cell.shape['batch']}"

    def advice(self, cell: CellKey, kind: DeviceKind, architecture: Architecture) -> Advice:
        fp32, heads = cell.dtype == COMMON_DTYPE, cell.shape["heads"]
        narrower = has_narrower_dtype(COMMON_DTYPE, architecture.tensor_dtypes)
        tensor_cores = ["tensor cores"] if architecture.tensor_dtypes and fp32 else []
        lower = ["lower precision"] if narrower else []
        # The cache has to be read, but it may have fewer bytes, or serve more queries.
        smaller = ["a smaller dtype of the cache"] if fp32 and narrower else []
        grouped = ["grouped queries (fewer K/V heads)"] if cell.shape.get("kv_heads", heads) == heads else []
        return super().advice(cell, kind, architecture) | {
            "compute": tensor_cores + lower,
            "memory": smaller + grouped,
        }
