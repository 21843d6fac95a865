"""What RMSNorm and a product cost beside their work: the constants of their prediction, each with its source."""

from roofline.operators.base import Constant, Constants

H200 = "an H200, 2026-11"
SERVER = "NumPy at batch 1, hidden 4096, on one core of a server, 2026-11"

GPU: Constants = {
    "array_operation_s": Constant(26e-6, f"runs on {H200}", "host: an operation of CuPy issued from Python"),
    "kernel_launch_s": Constant(9e-6, f"runs on {H200}", "host: a kernel launched from Python"),
    "graph_launch_s": Constant(12e-6, f"runs on {H200}", "host: a graph launched from Python"),
    "event_s": Constant(
        3.2e-6,
        f"5.0 us of a kernel with nothing to read, against 1.8 us as one of many nodes of a graph: {H200}",
        "an event on either side of a step",
    ),
    "fused_start_s": Constant(
        3.0e-6,
        f"batch 1, hidden 2048, 4096, 8192: 5.4, 10.5, 33.4 us, {H200}",
        "fused, in a graph where each kernel waits: its start, the first of W, and the last",
        "an empty kernel there: 0.7 us",
    ),
    "overlapped_start_s": Constant(
        2.0e-6,
        f"the same where kernels overlap: 3.5, 10.1, 32.3 us, {H200}",
        "the same where each begins while the one before it ends",
    ),
    "stream_share": Constant(
        0.92,
        "the same: beside its start, W at 4400 of 4800 GB/s",
        "of the memory ceiling at which the fused kernel reads",
    ),
    "shared_memory_s_per_byte": Constant(
        1 / 145e9,
        f"batch 128, hidden 2048, 4096, 8192: 8.1, 14.6, 41.5 us, {H200}",
        "W and x through a multiprocessor's shared memory, at 0.65 of 128 bytes a cycle",
    ),
    "exchange_s_per_byte": Constant(
        1 / 25e9, "the same: beside start and shared memory", "a block's sums, handed to another block or warpgroup"
    ),
    "norm_kernel_s": Constant(1.6e-6, f"batch 1 to 128, {H200}", "RMSNorm alone, in a graph"),
    "product_start_s": Constant(
        3.8e-6,
        f"batch 1, with RMSNorm, hidden 2048, 4096, 8192: 7.1, 14.2, 35 to 39 us, {H200}",
        "a library's product of few rows, beside W",
    ),
    "product_stream_share": Constant(
        0.89, "the same: beside that, W at 4270 of 4800 GB/s", "of the memory ceiling at which the library reads W"
    ),
}
CPU: Constants = {
    "array_operation_s": Constant(2e-6, "rule of thumb, 1 to 3 us", "one small NumPy call"),
    "fp16_widen_s_per_element": Constant(
        3.5e-9, SERVER, "a weight widened to fp32 by one core, stored, and read by the product"
    ),
    "bf16_widen_s_per_element": Constant(1.2e-9, SERVER, "the same of bf16"),
}
CONSTANTS = {"gpu": GPU, "cpu": CPU}
