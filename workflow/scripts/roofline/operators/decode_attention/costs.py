"""What decode attention costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.base import Constants

H200_RUN = "runs on an H200 with 16 host cores, 2026-11, before the one at hand"
SERVER = "runs on servers of 16 cores, 2026-11, before the one at hand"
CORE_BYTES = 4 << 20  # so small a cell is read by one core of a CPU, and one of so many times as much by so many cores

GPU: Constants = {
    # What the calls of a step cost the host, in seconds.
    "array_operation_s": (26e-6, f"an operation of CuPy issued from Python, 20 to 45 us by the host: {H200_RUN}"),
    "kernel_launch_s": (9e-6, "a kernel with nine arguments launched from Python; an empty one takes 7.1 us"),
    "graph_launch_s": (12e-6, "one launch of a graph from Python, for all its layers"),
    # What the device takes where there is next to nothing to do, in seconds.
    "array_kernel_s": (2.6e-6, f"a small kernel after another in a stream, 7 to 17 of them: {H200_RUN}"),
    "kernel_start_s": (5.0e-6, f"fused, S = 1 at batch 1, with an event per step, {H200_RUN}"),
    "graph_node_s": (1.8e-6, f"fused_graph, S = 1 at batch 1, {H200_RUN}"),
    "join_splits_s": (1.7e-6, f"splits of S joined, against none: {H200_RUN}"),
    # A block waits for the memory once per tile of keys, however short.
    "memory_wait_s": (0.5e-6, f"a tile more: S = 256 against 128 at batch 1, {H200_RUN}"),
    # Blocks that do not fit the card at once come in waves, each of which waits for the memory anew.
    "wave_s": (2.2e-6, f"2720 blocks of a few keys each take 11.3 us in 5.2 waves: {H200_RUN}"),
    # A library's product of stacked matrices with a column each, however fast the memory is. Fitted to one card.
    "fp32_column_product_s_per_element": (2.85e-12, f"eager, batch 256, S 512 and 1024, {H200_RUN}"),
    "fp16_column_product_s_per_element": (7.7e-12, f"eager, batch 256, S 512 and 1024, {H200_RUN}"),
    # Passes of array operations over what they write for one another.
    "pass_s_per_byte": (1 / 4.3e12, f"a copy in memory, 4.3 TB/s: {H200_RUN}"),
    "stream_share": (0.95, f"of the memory ceiling, from 1 GB on, fused, {H200_RUN}"),
}
CPU: Constants = {
    "array_calls_s": (25e-6, f"NumPy's calls of a core; S = 1 at batch 1, {SERVER}"),
    "projection_calls_s": (47e-6, f"of a projection; S = 1 at batch 1, block against core, {SERVER}"),
    "stream_share": (0.6, f"of the memory ceiling, products by NumPy's BLAS, fp32 at batch 256, {SERVER}"),
    "core_read_s_per_byte": (1 / 9e9, "one core of a 16-core host reads 9.6 GB/s, by C and OpenMP, 2026-11"),
    # Numbers that are widened go through the caches again and again.
    "core_pass_s_per_byte": (1 / 60e9, f"one core, fp16 at batch 1, {SERVER}"),
    "shared_cache_s_per_byte": (1 / 160e9, f"all cores together, fp16 at batch 256, {SERVER}"),
    "projection_s_per_flop": (1 / 120e9, f"thin products on all cores; block against core at batch 256, {SERVER}"),
}
CONSTANTS = {"gpu": GPU, "cpu": CPU}
