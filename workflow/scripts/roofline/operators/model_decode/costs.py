"""What a chain of kernels costs beside its bytes: the constants of its prediction, fitted on Llama-3.2-1B alone."""

from roofline.operators.constants import Constant, Constants, of_gpu_host
from roofline.operators.model_decode.dense import Dense
from roofline.records.prediction import CostTerms

FITTED = "fitted on steps of Llama-3.2-1B on an H200, 2026-11: reference/experiments/predictions/fit_model.py"
KERNELS_A_LAYER, OTHER_KERNELS = 5, 2  # four products and attention; embedding and head
TILE = 128  # outputs of a product that share a read of x, about
NUMBER_BYTES = 2
# One start for products and attention: every layer has as many of both, so no number of layers tells them apart.
GPU: Constants = {
    **of_gpu_host("graph_launch_s"),
    "kernel_start_s": Constant(2e-6, FITTED, "a kernel's start beside the end of the one before it"),
    "x_s_per_byte": Constant(1e-12, FITTED, "x through a multiprocessor, beside the weights"),
    "stream_share": Constant(0.95, FITTED, "of the memory ceiling at which weights, keys and values are read"),
}
CONSTANTS = {"gpu": GPU}


def chain_costs(model: Dense, rows: int, multiprocessors: int) -> CostTerms:
    """Of a step whose products have so many `rows` of x, padded as the kernels have them."""
    of_layer = model.hidden * (model.qkv + model.heads * model.head_size + 3 * model.inner)
    weights = model.layers * of_layer + model.vocabulary * model.hidden
    return CostTerms(
        calls={"graph_launch_s": 1.0},
        start={"kernel_start_s": float(KERNELS_A_LAYER * model.layers + OTHER_KERNELS)},
        extra={"x_s_per_byte": NUMBER_BYTES * weights * rows / TILE / multiprocessors},
        share="stream_share",
    )
