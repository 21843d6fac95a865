"""What row normalisation costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.base import Constant, Constants

H200_RUN = "of other operators, runs on an H200 with 16 host cores, 2026-11, before the one at hand"
RULE = "rule of thumb"

GPU: Constants = {
    "array_operation_s": Constant(19e-6, f"19 to 26 us, {H200_RUN}", "host: an operation of CuPy from Python"),
    "array_kernel_s": Constant(3e-6, H200_RUN, "a small kernel after another in a stream"),
    "kernel_launch_s": Constant(
        7e-6, f"an empty kernel takes 7.1 us, {H200_RUN}", "host: a kernel launched from Python"
    ),
    "graph_launch_s": Constant(12e-6, H200_RUN, "host: a graph launched from Python, for all its nodes"),
    "kernel_start_s": Constant(5.0e-6, H200_RUN, "a kernel with next to nothing to read, with an event on either side"),
    "graph_node_s": Constant(1.8e-6, H200_RUN, "the same as one of many nodes of a graph"),
    "stream_share": Constant(
        0.92,
        "35.9 us less a node's 1.8 at 16384 x 1024 by torch.compile's kernel, an H200",
        "of the memory ceiling that long streams attain",
    ),
    "reread_s_per_byte": Constant(1 / 9.2e12, "the L2's reads, an H200", "a row read again, from a cache"),
    "pass_s_per_byte": Constant(1 / 4.3e12, H200_RUN, "a pass over an array between operations"),
}
CPU: Constants = {
    "array_operation_s": Constant(2e-6, f"{RULE}, 1 to 3 us", "one small NumPy call"),
    "run_s": Constant(
        12e-6, "one row on one core takes 21 to 23 us, a server of 2 cores, 2026-11", "a compiled loop, begun and ended"
    ),
    "thread_s": Constant(10e-6, RULE, "work handed to one more thread"),
    "core_array_s_per_byte": Constant(1 / 5e9, RULE, "one core's passes over NumPy's temporaries"),
    "core_copy_s_per_byte": Constant(
        1 / 11.7e9, "a copy by C and OpenMP on one thread, a 16-core host", "one core reads and writes memory"
    ),
    "stream_share": Constant(0.7, RULE, "of the copy ceiling, where stores read the lines that they write first"),
}
CONSTANTS = {"gpu": GPU, "cpu": CPU}
