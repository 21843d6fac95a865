"""What RMSNorm and a product cost beside their work: the constants of their prediction, each with its source."""

from roofline.operators.constants import FITTED, LIMIT, Constant, Constants, of_gpu_host, of_host

GPU: Constants = {
    **of_gpu_host("product_call_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s"),
    "event_s": Constant(
        3.36e-06,
        FITTED,
        "an event on either side of a step",
    ),
    "fused_start_s": Constant(
        2.55e-06,
        FITTED,
        "fused, in a graph where each application waits: its start, the first of W, and the last",
        "an empty kernel there: 0.7 us",
    ),
    "overlapped_start_s": Constant(
        1.79e-06,
        FITTED,
        "the same where each begins while the one before it ends",
    ),
    "norm_before_s": Constant(8.85e-07, FITTED, "the norm's kernel before the product's, which fetches W meanwhile"),
    "stream_share": Constant(
        0.857,
        FITTED,
        "of the memory ceiling at which the fused kernel reads",
    ),
    "shared_memory_s_per_byte": Constant(
        5e-12,
        FITTED,
        "W and x through a multiprocessor's shared memory",
    ),
    "l2_s_per_byte": Constant(8.6e-14, "measured: level l2 of an H200, 2026-11", "W and x on their way to all blocks"),
    "exchange_s_per_byte": Constant(4.14e-11, FITTED, "a block's sums, handed to another block"),
    "norm_kernel_s": Constant(1.39e-06, FITTED, "RMSNorm alone, in a graph"),
    "product_start_s": Constant(
        2.89e-06,
        FITTED,
        "a library's product of few rows, beside W",
    ),
    "product_s_per_column": Constant(9.49e-10, FITTED, "its sums along W, which no number of blocks shortens"),
    "product_stream_share": Constant(0.96, LIMIT, "of the memory ceiling at which the library reads W"),
}
CPU: Constants = of_host(
    "array_operation_s",
    "fp16_convert_s_per_element",
    "bf16_convert_s_per_element",
    "fresh_page_s_per_byte",
    "product_read_s_per_byte",
    "pack_s_per_element",
    "row_s_per_element",
)
CONSTANTS = {"gpu": GPU, "cpu": CPU}
