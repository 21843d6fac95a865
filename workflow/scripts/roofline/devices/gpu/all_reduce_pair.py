"""All-reduce of bf16 between a GPU and its peer: kernels/all_reduce.cu in CUDA graphs, one on each card.

Both cards are in this process. Modules, arrays and graphs are on both before either begins: a card that waits for the
other could hold up what is still to be loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy

from roofline.core.all_reduce_model import SIZES
from roofline.core.units import MIB
from roofline.devices.gpu import driver_calls
from roofline.devices.gpu.card_pair import Card, require_access
from roofline.devices.gpu.cuda_arrays import ONE_PASS_BLOCKS_PER_SM, ONE_PASS_THREADS

if TYPE_CHECKING:
    import cupy

    from roofline.devices.gpu.gpu_device import GpuDevice

DTYPE, ITEM_BYTES, VECTOR_BYTES = "bf16", 2, 16
SHARE_OF_FREE = 64  # a size takes at most this part of free memory, and all arrays ten times as much
BUFFERS = 4  # that launches use in turn
LAUNCHES, LONG_LAUNCHES, LONG_BYTES = 64, BUFFERS, 64 * MIB  # of a replay, and from which size on only LONG_LAUNCHES
THREADS = (64, 128, 256, 512, 1024)
BLOCKS_PER_SM = 16  # that every card with bf16 holds at once
TOLERANCE = 2.0**-8  # the largest relative error of a sum that is rounded once
SOURCE = "all_reduce.cu"

Kernel = Literal["one_shot", "two_shot"]
Launch = Callable[[int], None]  # with the number of the launch, so that it can rotate among buffers


@dataclass(frozen=True)
class Grid:
    """A kernel with the grid that both cards launch."""

    kernel: Kernel
    blocks: int
    threads: int


class ComparedSums(NamedTuple):
    """The largest relative error of all sums, and a checksum of each result of each card."""

    largest_relative_error: float
    checksums: list[int]


class _Member(Card):
    """One of the two cards, with its inputs, results and slots; `failed` is set after a wait of a second."""

    def __init__(self, device: "GpuDevice", number: int, largest_bytes: int):
        super().__init__(device, number)
        xp, items = device.xp, largest_bytes // ITEM_BYTES
        with self:
            seeds = range(BUFFERS * number, BUFFERS * (number + 1))
            self.inputs = [device.normal((items,), DTYPE, seed) for seed in seeds]
            self.results = [device.empty((items,), DTYPE) for _ in seeds]
            self.slots = device.empty((2 * items,), DTYPE)
            self.failed, self.worst = xp.zeros(1, xp.uint32), xp.zeros(1, xp.uint32)
            self.differing, self.checksum = xp.zeros(1, xp.uint64), xp.zeros(1, xp.uint64)
            self.waits = xp.zeros(LAUNCHES, xp.uint64)
            # Of each block, over all launches of all grids. They outlive every graph that refers to them.
            blocks = BLOCKS_PER_SM * device.multiprocessors
            self.launched, self.flags = (xp.zeros(blocks, xp.uint32) for _ in range(2))
        self.fill(self.slots, 0xFF)

    def read(self, array: "cupy.ndarray") -> numpy.ndarray:
        """Return an array of this card on the host."""
        with self:
            return self.device.to_host(array)

    def launch_overlapped(self, kernel: "cupy.RawKernel", grid: Grid, arguments: tuple) -> None:
        """Launch a kernel that may begin before the last one ends, where the card supports that."""
        if not self.device.supports_overlap:
            self.launch(kernel, grid.blocks, grid.threads, arguments)
            return
        with self:
            handle, stream = kernel.kernel.ptr, self.stream.ptr
            driver_calls.launch_overlapped(handle, stream, (grid.blocks,), (grid.threads,), arguments, 0)


class PairOfGraphs:
    """A graph on each of two cards, replayed together: `launches` all-reduces each."""

    def __init__(self, cards: Sequence[Card], graphs: Sequence["cupy.cuda.Graph"], launches: int):
        self._cards, self._graphs, self.launches = cards, graphs, launches

    def replay(self) -> None:
        """Queue a replay on both cards."""
        for card, graph in zip(self._cards, self._graphs, strict=True):
            with card:
                graph.launch(card.stream)

    def time_replays(self, count: int, read_during: Callable[[], object] = lambda: None) -> list[float]:
        """Return the seconds of one all-reduce in each of `count` replays, by the card that takes longer.

        They follow an untimed one, in which the cards meet. `read_during` is called while the cards run.
        """
        events = [self._make_events(card, count + 1) for card in self._cards]
        for index in range(count + 1):
            self.replay()
            for card, of_card in zip(self._cards, events, strict=True):
                with card:
                    of_card[index].record(card.stream)
        read_during()
        for card in self._cards:
            card.stream.synchronize()
        elapsed_ms = self._cards[0].device.xp.cuda.get_elapsed_time
        spans = [[elapsed_ms(start, end) for start, end in pairwise(of_card)] for of_card in events]
        return [max(of_replay) / 1e3 / self.launches for of_replay in zip(*spans, strict=True)]

    @staticmethod
    def _make_events(card: Card, count: int) -> list["cupy.cuda.Event"]:
        with card:
            return [card.device.xp.cuda.Event() for _ in range(count)]


class AllReducePair:
    """A device and its peer with inputs, results and slots for all-reduces of those `sizes` that memory allows.

    Raises UnsupportedError where one may not access the other's memory.
    """

    def __init__(self, device: "GpuDevice"):
        peer = require_access(device)
        free_bytes = min(device.identity.memory_free_bytes, peer.memory_free_bytes)
        self.sizes = [size for size in SIZES if size <= free_bytes // SHARE_OF_FREE]
        self.device, self.names = device, (device.name, peer.device)
        self.cards = [_Member(device, number, self.sizes[-1]) for number in (0, 1)]
        self._kernels: dict[tuple[str, int], cupy.RawKernel] = {}
        for card in self.cards:
            for name in ("one_shot", "two_shot", "check_sums"):
                with card:
                    self._kernels[name, card.number] = kernel = device.load_kernel(SOURCE, name)
                    assert kernel.kernel.ptr, "it is loaded on this card now"
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for both cards. Raises TimeoutError with the name of a card that the other waited for in vain."""
        for card in self.cards:
            card.stream.synchronize()
        for card, name, other in zip(self.cards, self.names, reversed(self.names), strict=True):
            if card.read(card.failed)[0]:
                raise TimeoutError(f"{other} did not answer {name} within a second of an all-reduce")

    def list_grids(self, size: int) -> list[Grid]:
        """Return the grids that an all-reduce of so many bytes is tried with: all blocks fit on the card at once."""
        grids = []
        vectors_of: dict[Kernel, int] = {"one_shot": size // VECTOR_BYTES, "two_shot": size // VECTOR_BYTES // 2}
        for kernel, vectors in vectors_of.items():
            for threads in THREADS:
                fitting = min(self.device.max_threads // threads, BLOCKS_PER_SM) * self.device.multiprocessors
                grids.append(Grid(kernel, min(-(-vectors // threads), fitting), threads))
        smallest = min(THREADS)
        return [grid for grid in grids if grid.blocks > 1 or grid.threads in (smallest, size // VECTOR_BYTES)]

    def make_launches(self, grid: Grid, size: int) -> list[Launch]:
        """Return for each card a function that launches the all-reduce of so many bytes.

        All launches of one grid, on both cards, end before those of another begin.
        """
        vectors = size // VECTOR_BYTES

        def launch(number: int, index: int) -> None:
            card, peer = self.cards[number], self.cards[1 - number]
            buffer, own = index % BUFFERS, (card.launched, card.failed)
            given, result = card.inputs[buffer], card.results[buffer]
            if grid.kernel == "one_shot":
                slots = card.slots, peer.slots, numpy.uint32(card.slots.nbytes // 2 // VECTOR_BYTES)
                arguments = (given, result, numpy.uint32(vectors), *slots, *own, card.waits)
            else:
                part = [numpy.uint32(vectors * (number + place) // 2) for place in (0, 1)]
                arrays = given, peer.inputs[buffer], result, peer.results[buffer]
                arguments = (*arrays, *part, card.flags, peer.flags, *own)
            card.launch_overlapped(self._kernels[grid.kernel, number], grid, arguments)

        return [partial(launch, card.number) for card in self.cards]

    def capture(self, queues: Sequence[Callable[[], object]], launches: int) -> PairOfGraphs:
        """Return graphs of what a function for each card queues: `launches` all-reduces."""
        graphs = []
        for card, queue in zip(self.cards, queues, strict=True):
            with card:
                graphs.append(self.device.capture_graph(queue, card.stream))
        self.synchronize()
        return PairOfGraphs(self.cards, graphs, launches)

    def capture_launches(self, launches: Sequence[Launch], count: int) -> PairOfGraphs:
        """Return graphs of `count` launches, by a function for each card."""

        def queue(launch: Launch) -> None:
            for index in range(count):
                launch(index)

        return self.capture([partial(queue, launch) for launch in launches], count)

    def poison(self) -> None:
        """Overwrite all results with bytes that no sum has."""
        for card in self.cards:
            for result in card.results:
                card.fill(result, 0xFF)
        self.synchronize()

    def check(self, size: int) -> ComparedSums:
        """Compare all results, of so many bytes, with sums in fp64, and those of one card with the other's.

        Raises ArithmeticError if a sum is not rounded to nearest, or if the cards differ.
        """
        self.synchronize()
        checksums, largest = [], 0.0
        blocks = ONE_PASS_BLOCKS_PER_SM * self.device.multiprocessors
        for card, peer in (self.cards, reversed(self.cards)):
            card.fill(card.worst, 0)
            card.fill(card.differing, 0)
            for index in range(BUFFERS):
                card.fill(card.checksum, 0)
                arrays = card.inputs[index], peer.inputs[index], card.results[index], peer.results[index]
                arguments = (*arrays, numpy.uint32(size // VECTOR_BYTES), card.worst, card.differing, card.checksum)
                card.launch(self._kernels["check_sums", card.number], blocks, ONE_PASS_THREADS, arguments)
                checksums.append(int(card.read(card.checksum)[0]))
            largest = max(largest, float(card.read(card.worst).view(numpy.float32)[0]))
            if largest > TOLERANCE:
                raise ArithmeticError(f"an all-reduce of {size} bytes differs from its fp64 sum by {largest:.2g}")
            if card.read(card.differing)[0]:
                raise ArithmeticError(f"an all-reduce of {size} bytes gives {' and '.join(self.names)} other numbers")
        return ComparedSums(largest, checksums)

    def read_waits(self) -> list[tuple[int, int]]:
        """Return the cycles that each card waited for the other's first packet in the last launches of `one_shot`."""
        own, other = (map(int, card.read(card.waits)) for card in self.cards)
        return list(zip(own, other, strict=True))


def launches_of(size: int) -> int:
    """Return how many all-reduces of so many bytes a replay has."""
    return LONG_LAUNCHES if size >= LONG_BYTES else LAUNCHES
