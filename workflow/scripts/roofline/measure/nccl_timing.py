"""NCCL's all-reduces next to ours: in graphs of this process, and eager in a process for each card."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from subprocess import PIPE, Popen, TimeoutExpired
from sys import executable
from types import ModuleType

from roofline.core.terms import UnsupportedError
from roofline.devices.gpu.all_reduce_pair import AllReducePair, launches_of
from roofline.devices.gpu.gpu_device import GpuDevice
from roofline.devices.gpu.nccl import NcclPair
from roofline.measure.all_reduce import FEWEST_REPLAYS, time_checked
from roofline.measure.protocol import make_timing
from roofline.records.all_reduce_record import TimedAllReduce

EAGER_METHOD = "a process for each card; calls by CuPy one after another, events around each block; the later card"
PATIENCE_S = 60.0


def measure_in_graphs(device: GpuDevice, pair: AllReducePair, nccl: ModuleType) -> Iterator[TimedAllReduce]:
    """Yield NCCL's all-reduces of each size in graphs. Raises ArithmeticError for a wrong sum."""
    with contextlib.closing(NcclPair(nccl, pair)) as communicators:
        for size in pair.sizes:
            yield time_checked(device, pair, communicators.capture(size), "nccl_graph", size)


class EagerProcesses:
    """A process for each card, which imports what it needs and waits for its input until `measure` is called.

    `program` is workflow/scripts/nccl_server.py. Within `with`; at its end they are gone.
    """

    def __init__(self, program: str, sizes: Sequence[int]):
        self._sizes = sizes
        options = [str(FEWEST_REPLAYS), *map(str, sizes)]
        self._processes = [
            Popen([executable, program, str(rank), *options], stdin=PIPE, stdout=PIPE, text=True) for rank in (0, 1)
        ]

    def __enter__(self) -> "EagerProcesses":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def measure(self, nccl: ModuleType) -> list[TimedAllReduce]:
        """Return the all-reduces of each size. Raises UnsupportedError if a process fails or takes too long."""
        identifier = f"{nccl.get_unique_id().hex()}\n"
        try:
            for process in self._processes:  # each begins as soon as it has its line
                assert process.stdin, "it is a pipe"
                process.stdin.write(identifier)
                process.stdin.flush()
            by_card = [json.loads(process.communicate(timeout=PATIENCE_S)[0]) for process in self._processes]
        except (BrokenPipeError, ValueError, TimeoutExpired):
            raise UnsupportedError("NCCL in a process for each card ended without a result") from None
        timed = []
        for size, *of_cards in zip(self._sizes, *by_card, strict=True):
            samples = [max(both) for both in zip(*of_cards, strict=True)]
            timing = make_timing(EAGER_METHOD, 1, FEWEST_REPLAYS, samples)
            timed.append(
                TimedAllReduce(implementation="nccl_eager", size_bytes=size, launches=launches_of(size), timing=timing)
            )
        return timed
