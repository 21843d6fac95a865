"""RMSNorm and the product that follows it, as readers see it."""

from collections.abc import Mapping

from roofline.core.terms import Axis
from roofline.operators.about import ONE_FUSED_KERNEL, About, ImplementationAdvice

LARGER_BATCHES = ("more rows of x: larger batches share W",)


class AboutRmsNormMatmul(About):
    """Title, labels and advice of RMSNorm and the product that follows it."""

    name = "rmsnorm_matmul"
    title = "RMSNorm + matmul"
    counted = "W, x, g and y once"
    unit = "tensor_core"
    axis = Axis(key="hidden", symbol="hidden")
    scopes: Mapping[str, str] = {
        "waiting": "each application waits for the one before it",
        "overlapped": "each begins while the one before it ends",
    }
    baselines = ("unfused", "unfused_graph")
    advice_by_implementation: Mapping[str, ImplementationAdvice] = {
        "unfused": ImplementationAdvice(improvements=(ONE_FUSED_KERNEL,)),
        "unfused_graph": ImplementationAdvice(graph=True, improvements=(ONE_FUSED_KERNEL,)),
        "fused": ImplementationAdvice(fused=True, improvements=LARGER_BATCHES),
        "fused_graph": ImplementationAdvice(fused=True, graph=True, improvements=LARGER_BATCHES),
    }
