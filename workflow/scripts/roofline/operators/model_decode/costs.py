"""What a chain of kernels costs beside its bytes: the constants of its prediction, taken from Llama-3.2-1B alone."""

from roofline.operators.constants import Constant, Constants, of_gpu_host
from roofline.operators.model_decode.dense import Dense
from roofline.operators.rmsnorm_matmul.hopper import FEW_ROWS
from roofline.records.prediction import CostTerms

FITTED = "fitted on steps of Llama-3.2-1B on an H200, 2026-11: reference/experiments/predictions/fit_model.py"
HEAD = "measured: the head of Llama-3.2-1B, its largest product, on an H200, 2026-11"
PRODUCTS_A_LAYER = 4
KERNELS_A_LAYER, OTHER_KERNELS = PRODUCTS_A_LAYER + 1, 2  # products and attention; embedding and head
# One start for products and attention: every layer has as many of both, so no number of layers tells them apart.
GPU: Constants = {
    **of_gpu_host("graph_launch_s"),
    "kernel_start_s": Constant(2.78e-6, FITTED, "a kernel's start beside the end of the one before it"),
    "row_s": Constant(
        3.58e-8, FITTED, "each row of x of a product of many rows: sums that blocks exchange, and results"
    ),
    "stream_share": Constant(0.94, HEAD, "of the memory ceiling at which weights, keys and values are read"),
}
CONSTANTS = {"gpu": GPU}


def chain_costs(model: Dense, rows: int) -> CostTerms:
    """Of a step whose products have so many `rows` of x, padded as the kernels have them."""
    many = (PRODUCTS_A_LAYER * model.layers + 1) * rows if rows > FEW_ROWS else 0
    return CostTerms(
        calls={"graph_launch_s": 1.0},
        start={"kernel_start_s": float(KERNELS_A_LAYER * model.layers + OTHER_KERNELS)},
        extra={"row_s": float(many)} if many else {},
        share="stream_share",
    )
