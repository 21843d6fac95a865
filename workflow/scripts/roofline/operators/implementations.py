"""The classes that compute decode attention, by the names of the settings."""

from roofline.operators.attention_eager import Eager
from roofline.operators.attention_fused import Fused, FusedGraph
from roofline.operators.decode_attention import Cell, Shape

MADE_BY = {"eager": Eager, "fused": Fused, "fused_graph": FusedGraph}


def make_cell(device, implementation: str, shape: Shape, dtype: str, layer, hidden, **options) -> Cell:
    """A cell of an implementation: one shape and dtype on a device, with its buffers; see Cell."""
    if implementation == "numpy":
        from roofline.operators.attention_numpy import AllCores  # with NumPy, whose threads a device sets up first

        return AllCores(device, shape, dtype, layer, hidden, **options)
    return MADE_BY[implementation](device, shape, dtype, layer, hidden, **options)
