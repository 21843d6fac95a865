"""What a chain of kernels costs beside its bytes: the constants of its prediction, fitted on Llama-3.2-1B alone."""

from roofline.operators.constants import FITTED, Constant, Constants, of_gpu_host

GPU: Constants = {
    **of_gpu_host("graph_launch_s"),
    "product_start_s": Constant(2e-6, FITTED, "a product's start beside the end of the kernel before it"),
    "attention_start_s": Constant(3e-6, FITTED, "the same of attention"),
    "row_s_per_byte": Constant(0.0, FITTED, "x through each multiprocessor, beside the weights"),
    "stream_share": Constant(0.95, FITTED, "of the memory ceiling at which weights and caches are read"),
}
CONSTANTS = {"gpu": GPU}
