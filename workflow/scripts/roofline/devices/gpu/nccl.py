"""NVIDIA's library of collectives (NCCL), by CuPy: all-reduces of bf16 in CUDA graphs, and one after another."""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from roofline.core.terms import UnsupportedError
from roofline.devices.gpu.all_reduce_pair import BUFFERS, ITEM_BYTES, AllReducePair, PairOfGraphs, launches_of

if TYPE_CHECKING:
    import cupy

BF16 = 9  # ncclBfloat16, which CuPy has no name for


def load_nccl() -> ModuleType:
    """Return CuPy's interface to NCCL. Raises UnsupportedError where the library is not installed."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        load_nvidia_dynamic_lib("nccl")
        from cupy.cuda import nccl
    except Exception as error:
        raise UnsupportedError(f"NCCL is not installed ({type(error).__name__})") from None
    if not nccl.available:
        raise UnsupportedError("this CuPy has no NCCL")
    return nccl


def version_text(nccl: ModuleType) -> str:
    """Return the version of the library, such as 2.28.9."""
    version = nccl.get_version()
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class NcclPair:
    """The communicators of both cards of a pair, in this process. Raises UnsupportedError where NCCL makes none."""

    def __init__(self, nccl: ModuleType, pair: AllReducePair):
        self._nccl, self._pair = nccl, pair
        try:
            self._communicators = nccl.NcclCommunicator.initAll([card.number for card in pair.cards])
            self._queue(pair.sizes[0], 1)  # they are connected when they are first used
        except RuntimeError as error:  # CuPy derives its own from that
            raise UnsupportedError(f"NCCL refuses these cards: {error}") from None

    def capture(self, size: int) -> PairOfGraphs:
        """Return graphs of NCCL's all-reduces of so many bytes, from the inputs of the pair to its results."""
        cards, launches = self._pair.cards, launches_of(size)
        self._queue(size, 1)  # what it allocates, it allocates now
        self._pair.synchronize()
        for card in cards:
            with card:
                card.stream.begin_capture()
        self._queue(size, launches)
        graphs = []
        for card in cards:
            with card:
                graphs.append(card.stream.end_capture())
                graphs[-1].upload(card.stream)
        return PairOfGraphs(cards, graphs, launches)

    def _queue(self, size: int, launches: int) -> None:
        for index in range(launches):
            self._nccl.groupStart()
            for card, communicator in zip(self._pair.cards, self._communicators, strict=True):
                buffer = index % BUFFERS
                with card:
                    queue_all_reduce(
                        self._nccl, communicator, card.inputs[buffer], card.results[buffer], size, card.stream
                    )
            self._nccl.groupEnd()

    def close(self) -> None:
        """Give back the memory and threads of the communicators."""
        for communicator in self._communicators:
            communicator.destroy()


def queue_all_reduce(
    nccl: ModuleType,
    communicator: "cupy.cuda.nccl.NcclCommunicator",
    given: "cupy.ndarray",
    result: "cupy.ndarray",
    size: int,
    stream: "cupy.cuda.Stream",
) -> None:
    """Queue the all-reduce of the first `size` bytes of an array on a stream of the current card."""
    communicator.allReduce(given.data.ptr, result.data.ptr, size // ITEM_BYTES, BF16, nccl.NCCL_SUM, stream.ptr)


def time_eager(
    nccl: ModuleType, xp: ModuleType, identifier: bytes, rank: int, sizes: Sequence[int], blocks: int
) -> list[list[float]]:
    """Return, for each size, the seconds of one all-reduce in each of `blocks` blocks, on CUDA's current device.

    The process of the other card calls this too. Calls are issued one after another between two events.
    """
    communicator, times = nccl.NcclCommunicator(2, identifier, rank), []
    stream, items = xp.cuda.Stream(non_blocking=True), max(sizes) // ITEM_BYTES
    inputs, results = ([xp.zeros(items, xp.uint16) for _ in range(BUFFERS)] for _ in range(2))
    xp.cuda.runtime.deviceSynchronize()
    for size in sizes:
        samples, launches = [], launches_of(size)
        for _ in range(blocks + 1):  # the first warms up
            start, end = xp.cuda.Event(), xp.cuda.Event()
            start.record(stream)
            for index in range(launches):
                buffer = index % BUFFERS
                queue_all_reduce(nccl, communicator, inputs[buffer], results[buffer], size, stream)
            end.record(stream)
            stream.synchronize()
            samples.append(xp.cuda.get_elapsed_time(start, end) / 1e3 / launches)
        times.append(samples[1:])
    return times
