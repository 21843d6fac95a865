"""Row normalisation, as readers see it."""

from typing import ClassVar

from roofline.core.terms import BYTES, Axis
from roofline.operators.about import About, Cell, Way

MORE_ROWS = ("larger matrices: more rows than fill the card once",)


class AboutRowNorm(About):
    name = "row_norm"
    title = "row normalisation"
    counted = "each number read once and written once"
    axis = Axis(key=BYTES, symbol="sizes")
    baselines = ("array", "naive", "numpy")
    ways: ClassVar = {
        "naive": Way(
            fused=True,
            improvements=(
                "a row kept in registers instead of read three times",
                "16-byte accesses",
                "warp shuffles",
            ),
        ),
        "welford": Way(fused=True, improvements=MORE_ROWS),
        "welford_graph": Way(fused=True, graph=True, improvements=MORE_ROWS),
        "numpy": Way(improvements=("compiled code instead of NumPy's temporaries",)),
        "compiled": Way(fused=True, improvements=("non-temporal stores",)),
    }

    def label(self, cell: Cell) -> str:
        return f"{cell.shape['rows']} x {cell.shape['columns']}"
