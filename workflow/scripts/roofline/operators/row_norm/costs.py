"""What row normalisation costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.base import Constant, Constants

H200_RUN = "runs on an H200, 2026-11, before the one at hand"
RULE = "rule of thumb"

GPU: Constants = {
    "array_operation_s": Constant(
        22e-6, f"other operators, 19 to 26 us, {H200_RUN}", "host: a CuPy operation from Python"
    ),
    "array_kernel_s": Constant(2.75e-6, f"array at 1024 x 128, {H200_RUN}", "a small kernel after another in a stream"),
    "kernel_launch_s": Constant(
        7e-6, f"other operators, an empty kernel 7.1 us, {H200_RUN}", "host: a kernel launched from Python"
    ),
    "graph_launch_s": Constant(
        12e-6, f"other operators, {H200_RUN}", "host: a graph launched from Python, for all its nodes"
    ),
    "kernel_start_s": Constant(
        4.5e-6,
        f"welford's four shapes, a line through time over bytes, {H200_RUN}",
        "a kernel, with an event on either side: its start, and the memory's ramp-up and drain",
    ),
    "graph_node_s": Constant(
        1.3e-6, f"welford_graph's four shapes, likewise, {H200_RUN}", "the same as one of many nodes of a graph"
    ),
    "stream_share": Constant(
        0.92,
        f"welford's slope: 88 % of the vendor's bandwidth, 98 % of the measured copy, {H200_RUN}",
        "of the memory ceiling that long streams attain",
    ),
    "naive_wave_s": Constant(
        3.3e-6,
        f"naive, 3.1 to 3.9 us with the transfers, four shapes, {H200_RUN}",
        "a full card of blocks waits for memory and at the barriers of its two sums; of this card",
    ),
    "pass_s_per_byte": Constant(
        1 / 1.4e12,
        f"array, 5 us per MB of the matrix, beside reading and writing it once, {H200_RUN}",
        "a pass over an array between operations: CuPy's sums of rows do not attain the memory's bandwidth",
    ),
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
