"""A model's decode step, as readers see it."""

from typing import ClassVar

from roofline.core.axis import Axis
from roofline.operators.about import About, Way


class AboutModelDecode(About):
    name = "model_decode"
    title = "a model's decode step"
    counted = "weights without the embedding table, and K/V, once"
    unit = "tensor_core"
    axis = Axis(key="batch", symbol="batch")
    ways: ClassVar = {
        "chain": Way(fused=True, graph=True, improvements=("larger batches share the weights", "narrower weights")),
    }
