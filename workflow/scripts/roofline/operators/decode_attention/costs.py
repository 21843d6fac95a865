"""What decode attention costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.base import Constant, Constants

H200_RUN = "runs on an H200 with 16 host cores, 2026-11, before the one at hand"
SERVER = "runs on servers of 16 cores, 2026-11, before the one at hand"
CORE_BYTES = 4 << 20  # so small a cell is read by one core of a CPU, and one of so many times as much by so many cores

GPU: Constants = {
    "array_operation_s": Constant(
        26e-6, H200_RUN, "host: an operation of CuPy issued from Python", "20 to 45 us by host"
    ),
    "kernel_launch_s": Constant(
        9e-6,
        "an empty kernel with nine arguments takes 7.1 us",
        "host: a kernel launched from Python",
        "5.3 us back to back",
    ),
    "graph_launch_s": Constant(12e-6, H200_RUN, "host: a graph launched from Python, for all its layers"),
    "array_kernel_s": Constant(2.6e-6, f"7 to 17 of them, {H200_RUN}", "a small kernel after another in a stream"),
    "kernel_start_s": Constant(
        5.0e-6, f"fused, S = 1 at batch 1, {H200_RUN}", "a kernel with nothing to read, with an event on either side"
    ),
    "graph_node_s": Constant(
        1.8e-6,
        f"fused_graph, S = 1 at batch 1, {H200_RUN}",
        "the same as one of many nodes of a graph",
        "1.3 us per launch in a graph on an H100 (Look Ma, No Bubbles); empty: 0.78 us",
    ),
    "join_splits_s": Constant(1.7e-6, f"with splits against without, {H200_RUN}", "partial results joined by the last"),
    "memory_wait_s": Constant(
        0.5e-6, f"S = 256 against 128 at batch 1, {H200_RUN}", "a block's wait for memory, once per tile of keys"
    ),
    "wave_s": Constant(
        2.2e-6,
        f"2720 blocks of a few keys each take 11.3 us in 5.2 waves: {H200_RUN}",
        "a wave of blocks that did not fit the card at once waits for the memory anew",
    ),
    "fp32_column_product_s_per_element": Constant(
        2.85e-12,
        f"eager, batch 256, S 512 and 1024, {H200_RUN}",
        "cuBLAS' products of stacked matrices with a column each, however fast the memory; of this card",
    ),
    "fp16_column_product_s_per_element": Constant(
        7.7e-12, f"eager, batch 256, S 512 and 1024, {H200_RUN}", "the same in fp16; of this card"
    ),
    "pass_s_per_byte": Constant(1 / 4.3e12, f"a copy in memory, {H200_RUN}", "a pass over an array between operations"),
    "stream_share": Constant(
        0.95,
        f"fused, from 1 GB on, {H200_RUN}",
        "of the memory ceiling that a long stream of reads attains",
        "decode attention 37 to 90 % of HBM on Hopper cards (FlashMLA 84 to 90 %); 92 % on an RTX 4090 (calm)",
    ),
}
CPU: Constants = {
    "array_calls_s": Constant(25e-6, f"S = 1 at batch 1, {SERVER}", "NumPy's calls of attention"),
    "projection_calls_s": Constant(47e-6, f"S = 1 at batch 1, block against core, {SERVER}", "those of a projection"),
    "stream_share": Constant(
        0.6,
        f"fp32 at batch 256, {SERVER}",
        "of the memory ceiling that NumPy's products attain",
        "65 to 97 % of the measured ceiling in a compiled engine (llama-roofline)",
    ),
    "core_read_s_per_byte": Constant(1 / 9e9, "9.6 GB/s by C and OpenMP, a 16-core host", "one core reads memory"),
    "core_pass_s_per_byte": Constant(
        1 / 60e9, f"fp16 at batch 1, {SERVER}", "one core's passes over numbers that it widens, in its caches"
    ),
    "shared_cache_s_per_byte": Constant(
        1 / 160e9, f"fp16 at batch 256, {SERVER}", "all cores' passes in the cache that they share"
    ),
    "projection_s_per_flop": Constant(
        1 / 120e9,
        f"block against core at batch 256, {SERVER}",
        "thin products by NumPy on all cores",
    ),
}
CONSTANTS = {"gpu": GPU, "cpu": CPU}
