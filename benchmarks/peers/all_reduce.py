"""All-reduces of bf16 between two GPUs by PyTorch: NCCL, and the one-shot and two-shot kernels of symmetric memory.

A process for each card. In graphs 64 all-reduces (4 from 64 MiB on) over four buffers are replayed between events after
an untimed replay; eager ones are called one after another. The later card counts. `make` gives ours on the same cards.
"""

import json
import os
import statistics
from collections.abc import Callable
from itertools import pairwise

import timing

SIZES = tuple(1 << power for power in range(10, 31, 2))
LARGEST_SYMMETRIC = 1 << 28
LAUNCHES, LONG_LAUNCHES, LONG_BYTES = 64, 4, 1 << 26
REPLAYS, BUFFERS = 8, 4
KERNELS = ("one_shot_all_reduce", "two_shot_all_reduce_")


def time_all_reduces(torch, queue: Callable[[int], object], launches: int, graph: bool) -> float:
    """Return the seconds of one all-reduce: the median of replays, of the later card."""
    distributed, stream = torch.distributed, torch.cuda.Stream()

    def queue_all() -> None:
        for index in range(launches):
            queue(index)

    run = queue_all
    with torch.cuda.stream(stream):
        queue(0)
    torch.cuda.synchronize()
    distributed.barrier()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            queue_all()
        run = captured.replay
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    torch.cuda.synchronize()
    distributed.barrier()
    with torch.cuda.stream(stream):
        for event in events:
            run()
            event.record()
    torch.cuda.synchronize()
    times_ms = [start.elapsed_time(end) for start, end in pairwise(events)]
    later = torch.tensor([statistics.median(times_ms)], device="cuda")
    distributed.all_reduce(later, op=distributed.ReduceOp.MAX)
    return later.item() / 1e3 / launches


def time_size(torch, size: int) -> dict:
    """Return the seconds of an all-reduce of a size by each way."""
    from torch.distributed import _symmetric_memory as symmetric

    launches = LONG_LAUNCHES if size >= LONG_BYTES else LAUNCHES
    group, row = torch.distributed.group.WORLD.group_name, {"size_bytes": size}
    plain = [torch.randn(size // 2, dtype=torch.bfloat16, device="cuda") for _ in range(BUFFERS)]
    for name, graph in (("nccl_graph_s", True), ("nccl_eager_s", False)):
        row[name] = time_all_reduces(torch, lambda i: torch.distributed.all_reduce(plain[i % BUFFERS]), launches, graph)
    if size <= LARGEST_SYMMETRIC:
        shared = [symmetric.empty(size // 2, dtype=torch.bfloat16, device="cuda").normal_() for _ in range(BUFFERS)]
        for buffer in shared:
            symmetric.rendezvous(buffer, group)
        for kernel in KERNELS:
            reduce = getattr(torch.ops.symm_mem, kernel)
            seconds = time_all_reduces(
                torch, lambda i, reduce=reduce: reduce(shared[i % BUFFERS], "sum", group), launches, True
            )
            row[f"{kernel.rstrip('_')}_s"] = seconds
    return row


def measure(rank: int, path: str, short: bool) -> None:
    torch = timing.pytorch()
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    rows = [time_size(torch, size) for size in (SIZES[:3] if short else SIZES)]
    if rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version()))
        facts = {"pytorch": torch.__version__, "nccl": version, "card": torch.cuda.get_device_name(), "rows": rows}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    asked = timing.parser(__doc__).parse_args()
    timing.pytorch().multiprocessing.spawn(measure, (str(asked.output), asked.short), nprocs=2)
