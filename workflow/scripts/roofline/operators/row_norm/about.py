"""Row normalisation, as readers see it."""

from collections.abc import Mapping

from roofline.core.terms import BYTES_AXIS_KEY, Axis
from roofline.operators.about import About, ImplementationAdvice
from roofline.records.operator_record import CellKey

FASTER_THAN_NAIVE = ("a row kept in registers instead of read three times", "16-byte accesses", "warp shuffles")
MORE_ROWS = ("larger matrices: more rows than fill the card once",)


class AboutRowNorm(About):
    """The text of row normalisation."""

    name = "row_norm"
    title = "row normalisation"
    counted = "each number read once and written once"
    axis = Axis(key=BYTES_AXIS_KEY, symbol="sizes")
    baselines = ("array", "naive", "numpy")
    advice_by_implementation: Mapping[str, ImplementationAdvice] = {
        "naive": ImplementationAdvice(fused=True, improvements=FASTER_THAN_NAIVE),
        "welford": ImplementationAdvice(fused=True, improvements=MORE_ROWS),
        "welford_graph": ImplementationAdvice(fused=True, graph=True, improvements=MORE_ROWS),
        "numpy": ImplementationAdvice(improvements=("compiled code instead of NumPy's temporaries",)),
        "compiled": ImplementationAdvice(fused=True, improvements=("non-temporal stores",)),
    }

    def label(self, cell: CellKey) -> str:
        return f"{cell.shape['rows']} x {cell.shape['columns']}"
