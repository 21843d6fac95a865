"""What helps an operator in the regime that was found."""

from roofline import model
from roofline.operators import gemm
from roofline.records import ComputeCeiling, Operator

FUSED = ("fused", "fused_graph")
GRAPHS = ("fused_graph",)
NO_LOWER = {"gpu": ("fp8_e4m3", "int8"), "cpu": ("fp32", "fp16", "bf16")}  # a CPU emulates what is narrower than fp32
WORDS = {
    "tensor_cores": "tensor cores",
    "lower_precision": "lower precision",
    "fusion": "operator fusion",
    "smaller_cache_dtype": "a smaller dtype of the cache",
    "grouped_queries": "grouped queries (fewer K/V heads)",
    "cuda_graph": "a CUDA graph",
    "larger_batch": "larger batches",
}


def remedies(operator: Operator, kind: str, ceiling: ComputeCeiling | None) -> list[str]:
    """By the regime found, without what the implementation does already; none where no regime was found."""
    return {
        model.COMPUTE_BOUND: _of_compute,
        model.MEMORY_BOUND: _of_memory,
        model.OVERHEAD_BOUND: _of_overhead,
    }.get(operator.regime, lambda *_: [])(operator, kind, ceiling)


def _of_compute(operator: Operator, kind: str, ceiling: ComputeCeiling | None) -> list[str]:
    on_cuda_cores = kind == "gpu" and ceiling is not None and ceiling.unit == "cuda_core"
    lower = [] if operator.dtype in NO_LOWER[kind] else ["lower_precision"]
    return (["tensor_cores"] if on_cuda_cores else []) + lower


def _of_memory(operator: Operator, kind: str, ceiling: ComputeCeiling | None) -> list[str]:
    """Of fused attention the cache itself is left to be read: in fewer bytes, or for more queries."""
    if operator.implementation not in FUSED:
        return ["fusion"]
    grouped = operator.shape.get("heads") != operator.shape.get("kv_heads")
    return ["smaller_cache_dtype"] * (operator.dtype == "fp32") + ["grouped_queries"] * (not grouped)


def _of_overhead(operator: Operator, kind: str, ceiling: ComputeCeiling | None) -> list[str]:
    graph = kind == "gpu" and operator.implementation not in GRAPHS
    fusion = operator.implementation not in FUSED and operator.operator != gemm.OPERATOR
    return ["cuda_graph"] * graph + ["fusion"] * fusion + ["larger_batch"]
