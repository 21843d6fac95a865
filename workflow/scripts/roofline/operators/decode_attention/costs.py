"""What decode attention costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.constants import FITTED, Constant, Constants, of_gpu_host, of_host

CORE_BYTES = 4 << 20  # so small a cell is read by one core of a CPU, and one of so many times as much by so many cores

GPU: Constants = {
    **of_gpu_host("array_operation_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s"),
    "array_kernel_s": Constant(2.77e-06, FITTED, "a small kernel after another in a stream"),
    "kernel_start_s": Constant(5.45e-06, FITTED, "a kernel with nothing to read, with an event on either side"),
    "graph_node_s": Constant(
        1.92e-06,
        FITTED,
        "the same as one of many nodes of a graph",
        "1.3 us per launch in a graph on an H100 (Look Ma, No Bubbles); empty: 0.78 us",
    ),
    "join_splits_s": Constant(1.74e-06, FITTED, "partial results joined by the last"),
    "memory_wait_s": Constant(6e-07, FITTED, "a block's wait for memory, once per tile of keys"),
    "block_s": Constant(2.87e-09, FITTED, "a block's launch, of many with next to nothing to read"),
    "wave_s": Constant(
        2.37e-06,
        FITTED,
        "a wave of blocks that did not fit the card at once waits for the memory anew",
    ),
    "fp32_column_product_s_per_element": Constant(
        2.73e-12,
        FITTED,
        "cuBLAS' products of stacked matrices with a column each, however fast the memory; of this card",
    ),
    "fp16_column_product_s_per_element": Constant(8.06e-12, FITTED, "the same in fp16; of this card"),
    "fp32_projection_s_per_element": Constant(4.63e-12, FITTED, "a library's product of few rows by weights, in fp32"),
    "fp16_projection_s_per_element": Constant(1.22e-12, FITTED, "the same in fp16"),
    "pass_s_per_byte": Constant(7.71e-13, FITTED, "a pass over an array between operations"),
    "stream_share": Constant(
        0.917,
        FITTED,
        "of the memory ceiling that a long stream of reads attains",
        "decode attention 37 to 90 % of HBM on Hopper cards (FlashMLA 84 to 90 %); 92 % on an RTX 4090 (calm)",
    ),
}
CPU: Constants = of_host(
    "array_operation_s",
    "core_operation_s",
    "handover_s",
    "thread_s",
    "product_read_s_per_byte",
    "fp16_read_s_per_element",
    "bf16_read_s_per_element",
    "softmax_s_per_score",
    "row_product_s_per_byte",
    "projection_s_per_flop",
)
CONSTANTS = {"gpu": GPU, "cpu": CPU}
