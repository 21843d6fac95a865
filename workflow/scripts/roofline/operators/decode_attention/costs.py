"""What decode attention costs beside its work: the constants of its prediction, each with its source."""

from roofline.operators.base import Constants

H200_RUN = "runs on an H200 with 16 host cores, 2026-11, before the one at hand"
TWO_CORES = "two cores of a server, 2026-11"
CORE_BYTES = 4 << 20  # so small a cell is read by one core of a CPU, and one of so many times as much by so many cores
CORE_RATE = 10e9  # bytes/s that one core reads: rule of thumb, as devices promise it

GPU: Constants = {
    # What the calls of a step cost the host, in seconds.
    "eager_core_call_s": (8 * 30e-6, f"8 array operations, counted in the code, of 19 to 60 us: {H200_RUN}"),
    "eager_block_call_s": (12 * 30e-6, f"12 array operations, counted in the code, of 19 to 60 us: {H200_RUN}"),
    "fused_core_call_s": (9e-6, "an empty kernel with nine arguments takes 7.1 us per launch from Python"),
    "fused_graph_core_call_s": (12e-6, "one launch of a graph from Python, for all its layers"),
    # What the device takes where there is next to nothing to do, in seconds.
    "eager_core_start_s": (18e-6, f"S = 128 at batch 1 in fp32, {H200_RUN}"),
    "eager_block_start_s": (30e-6, f"S = 128 at batch 1 in fp32, {H200_RUN}"),
    "fused_core_start_s": (5.0e-6, f"S = 1 at batch 1, with an event per step, {H200_RUN}"),
    "fused_graph_core_start_s": (1.8e-6, f"S = 1 at batch 1, {H200_RUN}"),
    "join_splits_s": (1.7e-6, f"splits of S joined, against none: {H200_RUN}"),
    # A block waits for the memory once per tile of keys, however short.
    "tile_s": (0.5e-6, f"S = 256 against 128 at batch 1, {H200_RUN}"),
    # Blocks that do not fit the card at once come in waves, each of which waits for the memory anew.
    "wave_s": (2.2e-6, f"2720 blocks of a few keys each take 11.3 us in 5.2 waves: {H200_RUN}"),
    # The share of the memory ceiling that long steps attain.
    "eager_fp32_share": (0.28, f"batch 256, S 512 and 1024, {H200_RUN}"),
    "eager_fp16_share": (0.05, f"batch 256, S 512 and 1024, {H200_RUN}"),
    "eager_bf16_share": (0.05, "taken to be fp16's"),
    "fused_share": (0.95, f"1 GB and more, {H200_RUN}"),
}
CPU_SHARES = {
    "fp32": (0.8, TWO_CORES),
    "fp16": (0.25, f"converting takes three times as long as reading: {TWO_CORES}"),
    "bf16": (0.5, f"converting takes as long as reading: {TWO_CORES}"),
}
CPU: Constants = {
    "numpy_core_call_s": (25e-6, "S = 1 at batch 1 on a server of 16 cores, 2026-11"),
    "numpy_block_call_s": (120e-6, "S = 1 at batch 1 on a server of 16 cores, 2026-11"),
    **{f"numpy_{dtype}_share": share for dtype, share in CPU_SHARES.items()},
    **{
        f"numpy_{dtype}_core_s_per_byte": (
            1 / (CORE_RATE * share),
            f"one core at the share above of 10 GB/s; up to {CORE_BYTES >> 20} MiB, batch 1 at S = 1024 in fp32, one "
            "core reads: a server of 16 cores, 2026-11",
        )
        for dtype, (share, _) in CPU_SHARES.items()
    },
}
CONSTANTS = {"gpu": GPU, "cpu": CPU}
