"""Between two GPUs: copies by the driver, and kernels of one that read and write the other's memory.

One way and both ways at once, where both directions are added up; and what 8 bytes take. docs/running.md.
"""

from collections.abc import Callable

import numpy

from roofline.core.terms import UnsupportedError
from roofline.core.units import GIB, MIB
from roofline.devices.base import BandwidthBenchmark
from roofline.devices.gpu import hbm_benchmarks
from roofline.devices.gpu.pointer_chase import LINE_BYTES, make_chase_step, shuffle_chain

LARGEST_BYTES = GIB  # beyond it, what it takes to begin and to end no longer shows: 10 us of 2.7 ms on an H200
SHARE_OF_FREE = 64  # of which an array takes one at most
GRIDS = tuple((threads, depth, whole) for depth in (4, 1) for threads in (512, 1024, 256) for whole in (True, False))
CHAIN_BYTES, CHAIN_STEPS = 2 * MIB, 4096  # a chain that one page of memory and the L2 hold
COPIED_BYTES = 8


class PeerPair:
    """A device and its peer, and the streams between them. Raises Unsupported where one may not access the other."""

    def __init__(self, device, size_bytes: int | None):
        _require_access(device)
        free = min(device.identity.memory_free_bytes, device.peer.memory_free_bytes)
        size = (
            (size_bytes or min(LARGEST_BYTES, free // SHARE_OF_FREE))
            // hbm_benchmarks.ROUND_BYTES
            * hbm_benchmarks.ROUND_BYTES
        )
        self.device, self.size, self.path = device, size, device.describe_peer_path()
        self.near, self.far = _Endpoint(device, 0, size), _Endpoint(device, 1, size)

    def bandwidth_benchmarks(self) -> list[BandwidthBenchmark]:
        """One way, from the device or by its kernels; then both ways at once."""
        name = f"p2p_{self.device.peer.device}"
        return [
            self._stream(f"{name}{way}{'_both' if both else ''}", one, both)
            for way, one in (("", _DriverCopy), ("_read", _PeerRead), ("_write", _PeerWrite))
            for both in (False, True)
        ]

    def _stream(self, name: str, way: type, both: bool) -> BandwidthBenchmark:
        there, back = way(self.near, self.far), way(self.far, self.near)
        ways = [there, back] if both else [there]
        grids = {grid: self._at_once(step, back.steps[grid]) if both else step for grid, step in there.steps.items()}

        def verify(grid: str) -> str:
            return self._checked(grids[grid], ways)

        summed = ", both directions at once, of which this is the sum" if both else ""
        return BandwidthBenchmark(
            name=name,
            level="p2p",
            mix=way.mix,
            both_ways=both,
            counting_rule=f"{way.counted}, {self.size:,} bytes in one direction{summed}",
            counted_bytes=len(ways) * self.size,
            steps_by_grid=grids,
            verify=verify,
            nvlink_share=self._share(len(ways)),
        )

    def _checked(self, step: Callable, ways: list) -> str:
        for one in ways:
            one.prepare()
        self._synchronize()
        step(0)
        self._synchronize()
        said = [one.check() for one in ways]
        return said[0]

    def _synchronize(self) -> None:
        for card in (self.near, self.far):
            card.stream.synchronize()

    def _share(self, directions: int) -> float | None:
        links, active = self.path["nvlinks"], self.device.read_hardware()["nvlinks_active"]
        return directions * links / active if links and active else None

    def _at_once(self, there: Callable, back: Callable) -> Callable[[int], None]:
        """A step of both: the peer's begins with ours, and the step ends with the last of them."""
        near, far = self.near, self.far
        begun, ended = near.event(), far.event()

        def step(index: int) -> None:
            begun.record(near.stream)
            with far:
                far.stream.wait_event(begun)
                back(index)
                ended.record(far.stream)
            there(index)
            near.stream.wait_event(ended)

        return step

    def chase(self) -> tuple[Callable[[int], None], int, Callable[[], str]]:
        """A step, how many loads it makes one after another in the peer's memory, and a check of where they led."""
        with self.far as far:
            words = far.device.xp.zeros((CHAIN_BYTES // LINE_BYTES, LINE_BYTES // 8), numpy.uint64)
            links, addresses = shuffle_chain(words.data.ptr, len(words))
            words[...] = far.device.to_device(links)
            far.stream.synchronize()
        return make_chase_step(self.device, words, addresses, CHAIN_STEPS, "chase")

    def small_copy(self) -> tuple[Callable[[int], None], Callable[[], str]]:
        """A step that copies 8 bytes to the peer, and a check of them."""
        way = _DriverCopy(self.near, self.far, COPIED_BYTES)
        (step,) = way.steps.values()
        return step, lambda: self._checked(step, [way])


def _require_access(device) -> None:
    """CUDA would copy by way of the host where it may not access the peer, and would not tell."""
    runtime = device.xp.cuda.runtime
    if runtime.getDeviceCount() < 2:
        raise UnsupportedError(f"CUDA shows this process only one of {device.name} and {device.peer.device}")
    if not (runtime.deviceCanAccessPeer(0, 1) and runtime.deviceCanAccessPeer(1, 0)):
        raise UnsupportedError(
            f"{device.name} and {device.peer.device} may not access one another's memory, and copies would go through "
            "the host"
        )
    if device.peer.compute_capability != device.identity.compute_capability:
        raise UnsupportedError(f"{device.name} and {device.peer.device} are of different compute capabilities")
    for card, other in ((0, 1), (1, 0)):
        with device.xp.cuda.Device(card):
            runtime.deviceEnablePeerAccess(other)


class _Endpoint:
    """One of both: what is sent from it (`out`), what arrives (`into`), and its stream. Within `with` it is CUDA's
    current device."""

    def __init__(self, device, number: int, size: int):
        self.device, self.number, self.size = device, number, size
        self._cuda_device = device.xp.cuda.Device(number)
        self.stream = device.stream
        with self:
            if number:
                self.stream = device.xp.cuda.Stream(non_blocking=True)
                self.stream.use()
            self.out = device.normal((size // 4,), "fp32", seed=number)
            self.into = device.xp.zeros_like(self.out)
            self.clock = device.xp.zeros(2, device.xp.uint64)
            self.word_sum, self.report_sum = (device.xp.zeros(1, device.xp.uint32) for _ in range(2))

    def __enter__(self):
        self._cuda_device.__enter__()
        return self

    def __exit__(self, *error):
        self._cuda_device.__exit__(*error)

    def event(self):
        with self:
            return self.device.xp.cuda.Event(disable_timing=True)

    def launch(self, kernel, blocks: int, threads: int, arguments: tuple) -> None:
        with self:
            kernel((blocks,), (threads,), arguments, stream=self.stream)

    def fill(self, array, byte: int) -> None:
        with self:
            array.data.memset_async(byte, array.nbytes, self.stream)

    def write_pattern(self, array, start: int) -> None:
        with self:
            kernel = self.device.load_kernel("memory.cu", "write_1")
        vectors = numpy.uint64(array.nbytes // self.device.vector_bytes)
        arguments = (array, vectors, numpy.uint32(start), self.clock)
        self.launch(kernel, 8 * self.device.multiprocessors, 256, arguments)


class _DriverCopy:
    """The driver's copies, issued by the card that sends."""

    mix, counted = "copy", "copied by the driver"

    def __init__(self, card: _Endpoint, other: _Endpoint, size: int | None = None):
        self._card, self._other, self._size = card, other, size or card.size
        self.steps = {"the driver's copy": self._step}

    def _step(self, index: int) -> None:
        card, other = self._card, self._other
        copy = card.device.xp.cuda.runtime.memcpyPeerAsync
        copy(other.into.data.ptr, other.number, card.out.data.ptr, card.number, self._size, card.stream.ptr)

    def prepare(self) -> None:
        """Other random numbers from each card than any that were there; nothing of them where they are to arrive."""
        with self._card as card:
            card.device.fill_normal(card.out, "fp32", card.number + 2)
        self._other.fill(self._other.into, 0xFF)

    def check(self) -> str:
        with self._other as other:
            words = self._size // 4
            expected = other.device.normal((words,), "fp32", self._card.number + 2)
            if not hbm_benchmarks.have_same_bits(other.device, expected, other.into[:words]):
                raise ArithmeticError("what was copied to the peer differs from its source")
        return "every byte that arrived compared with the same random numbers drawn there"


class _PeerKernel:
    """Kernels of one card on an array of the other's."""

    name: str

    def __init__(self, card: _Endpoint, other: _Endpoint):
        self._card, self._other, self._start = card, other, hbm_benchmarks.PATTERN_START + card.number
        device, most = card.device, card.device.max_threads
        shapes = [
            (hbm_benchmarks.BLOCK_PER_TILE if whole else most // threads, threads, depth)
            for threads, depth, whole in GRIDS
        ]
        arguments = self.arguments(numpy.uint64(card.size // device.vector_bytes))
        with card:
            grids = hbm_benchmarks.list_grids(device, self.name, card.size, shapes)
        self.steps = {name: self._step(*grid, arguments) for name, grid in grids.items()}

    def _step(self, kernel, blocks: int, threads: int, arguments: tuple) -> Callable[[int], None]:
        return lambda index: self._card.launch(kernel, blocks, threads, arguments)


class _PeerRead(_PeerKernel):
    name = mix = "read"
    counted = "of the other card's memory read by a kernel"

    def arguments(self, vectors) -> tuple:
        card = self._card
        return self._other.out, vectors, card.word_sum, card.report_sum, card.clock

    def prepare(self) -> None:
        """A pattern in the other card's memory that is not the one of the other direction."""
        self._other.write_pattern(self._other.out, self._start)
        self._card.fill(self._card.word_sum, 0)
        self._card.fill(self._card.report_sum, 1)

    def check(self) -> str:
        with self._card as card:
            card.fill(card.report_sum, 0)
            found = int(card.device.to_host(card.word_sum)[0])
        if found != hbm_benchmarks.pattern_sum(card.size // 4, self._start):
            raise ArithmeticError("the words read from the peer do not add up to what was written there")
        return "the sum of every word read against the sum of what the other card had written there"


class _PeerWrite(_PeerKernel):
    name = mix = "write"
    counted = "of the other card's memory written by a kernel"

    def arguments(self, vectors) -> tuple:
        return self._other.into, vectors, numpy.uint32(self._start), self._card.clock

    def prepare(self) -> None:
        self._other.fill(self._other.into, 0xFF)

    def check(self) -> str:
        with self._other as other:
            expected = other.device.xp.zeros_like(other.into)
            other.write_pattern(expected, self._start)
            if not hbm_benchmarks.have_same_bits(other.device, expected, other.into):
                raise ArithmeticError("what was written to the peer's memory differs from what must be there")
        return "every word that arrived compared with the same pattern written by the other card"
