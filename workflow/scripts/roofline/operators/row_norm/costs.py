"""What row normalisation costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.constants import FITTED, Constant, Constants, of_gpu_host, of_host

GPU: Constants = {
    **of_gpu_host("array_operation_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s"),
    "array_kernel_s": Constant(2.19e-06, FITTED, "a small kernel after another in a stream"),
    "kernel_start_s": Constant(
        4.46e-06,
        FITTED,
        "a kernel, with an event on either side: its start, and the memory's ramp-up and drain",
    ),
    "graph_node_s": Constant(1.37e-06, FITTED, "the same as one of many nodes of a graph"),
    "stream_share": Constant(
        0.844,
        FITTED,
        "of the memory ceiling that long streams attain",
    ),
    "naive_wave_s": Constant(
        2.48e-06,
        FITTED,
        "a full card of blocks waits for memory and at the barriers of its two sums; of this card",
    ),
    "row_s_per_column": Constant(3.2e-10, FITTED, "a block goes through its row, piece by piece"),
    "reread_s_per_byte": Constant(8.65e-14, FITTED, "naive's second and third pass over a row, from the cache"),
    "mean_s_per_column": Constant(1.12e-08, FITTED, "CuPy's mean of rows, however few: one number after another"),
    "pass_s_per_byte": Constant(
        6.9e-13,
        FITTED,
        "a pass over an array between operations: CuPy's sums of rows do not attain the memory's bandwidth",
    ),
}
CPU: Constants = of_host(
    "array_operation_s",
    "core_operation_s",
    "handover_s",
    "thread_s",
    "loop_s",
    "loop_thread_s",
    "pass_s_per_byte",
    "memory_pass_s_per_byte",
    "fresh_page_s_per_byte",
    "copy_s_per_byte",
)
CONSTANTS = {"gpu": GPU, "cpu": CPU}
