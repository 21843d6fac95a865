"""Between two GPUs: copies by the driver, and kernels of one that read and write the other's memory.

One way and both ways at once, where both directions are added up; and what 8 bytes take. docs/running.md.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy

from roofline.core.dtypes import COMMON_DTYPE
from roofline.core.levels import PEER
from roofline.core.terms import AccessPattern, UnsupportedError
from roofline.core.units import GIB, MIB
from roofline.devices.base import BandwidthBenchmark, Identity, PointerChase, Step
from roofline.devices.gpu import hbm_benchmarks
from roofline.devices.gpu.cuda_arrays import ONE_PASS_BLOCKS_PER_SM, ONE_PASS_THREADS
from roofline.devices.gpu.pointer_chase import allocate_chain, make_chase_step

if TYPE_CHECKING:
    import cupy

    from roofline.devices.gpu.gpu_device import GpuDevice

# In a larger array the beginning and end of a transfer no longer show: 10 us of 2.7 ms on an H200.
LARGEST_BYTES = GIB
SHARE_OF_FREE = 64  # an array takes one part in so many of free memory at most
# (vectors in flight, threads of a block, whether there is a block for each tile)
GRIDS = tuple(itertools.product((4, 1), (512, 1024, 256), (True, False)))
CHAIN_BYTES, CHAIN_STEPS = 2 * MIB, 4096  # a chain that one page of memory and the L2 hold
COPIED_BYTES = 8


class PeerPair:
    """A device and its peer, and the benchmarks between them: `local` is the device, `remote` its peer.

    Raises UnsupportedError where one may not access the other's memory.
    """

    def __init__(self, device: "GpuDevice", size_bytes: int | None):
        self.peer = allow_access(device)
        free = min(device.identity.memory_free_bytes, self.peer.memory_free_bytes)
        size = size_bytes or min(LARGEST_BYTES, free // SHARE_OF_FREE)
        self.size = size // hbm_benchmarks.ROUND_BYTES * hbm_benchmarks.ROUND_BYTES
        self.device, self.path = device, device.describe_peer_path()
        self.local, self.remote = _Endpoint(device, 0, self.size), _Endpoint(device, 1, self.size)

    def bandwidth_benchmarks(self) -> list[BandwidthBenchmark]:
        """Return the benchmarks of copies, reads and writes: from the device or by its kernels, then both ways at
        once."""
        name = f"p2p_{self.peer.device}"
        return [
            self._benchmark(f"{name}{suffix}{'_both' if both_ways else ''}", transfer, both_ways)
            for suffix, transfer in (("", _DriverCopy), ("_read", _PeerRead), ("_write", _PeerWrite))
            for both_ways in (False, True)
        ]

    def _benchmark(self, name: str, transfer: type["_Transfer"], both_ways: bool) -> BandwidthBenchmark:
        outward, inward = transfer(self.local, self.remote), transfer(self.remote, self.local)
        if both_ways:
            transfers, summed = [outward, inward], ", both directions at once, of which this is the sum"
            steps = {grid: self._both_directions_step(step, inward.steps[grid]) for grid, step in outward.steps.items()}
        else:
            transfers, summed, steps = [outward], "", outward.steps
        return BandwidthBenchmark(
            name=name,
            level=PEER,
            mix=transfer.mix,
            both_ways=both_ways,
            counting_rule=f"{transfer.counted}, {self.size:,} bytes in one direction{summed}",
            counted_bytes=len(transfers) * self.size,
            steps_by_grid=steps,
            verify=lambda grid: self._run_checked(steps[grid], transfers),
            nvlink_share=self._nvlink_share(len(transfers)),
        )

    def _run_checked(self, step: Step, transfers: list["_Transfer"]) -> str:
        """Run a step of transfers on fresh memory and return what was compared. Raises ArithmeticError."""
        for transfer in transfers:
            transfer.prepare()
        self._synchronize()
        step(0)
        self._synchronize()
        texts = [transfer.check() for transfer in transfers]
        return texts[0]

    def _synchronize(self) -> None:
        for card in (self.local, self.remote):
            card.stream.synchronize()

    def _nvlink_share(self, directions: int) -> float | None:
        """Return the NVLinks that the transfers use over those of the device in one direction; None for PCIe."""
        links, active = self.path["active_nvlinks"], self.device.read_hardware()["nvlinks_active"]
        return directions * links / active if links and active else None

    def _both_directions_step(self, outward: Step, inward: Step) -> Step:
        """Return a step of both directions: the peer's begins with ours, and the step ends with the later of them."""
        local, remote = self.local, self.remote
        begun, ended = local.make_event(), remote.make_event()

        def step(index: int) -> None:
            begun.record(local.stream)
            with remote:
                remote.stream.wait_event(begun)
                inward(index)
                ended.record(remote.stream)
            outward(index)
            local.stream.wait_event(ended)

        return step

    def pointer_chase(self) -> PointerChase:
        """Return a step of dependent loads in the peer's memory, their number, and a check of where they lead."""
        with self.remote as remote:
            words, addresses = allocate_chain(remote.device, CHAIN_BYTES)
            remote.stream.synchronize()
        return make_chase_step(self.device, words, addresses, CHAIN_STEPS, "chase")

    def small_copy_step(self) -> tuple[Step, Callable[[], str]]:
        """Return a step that copies 8 bytes to the peer, and a check of them."""
        copy = _DriverCopy(self.local, self.remote, COPIED_BYTES)
        (step,) = copy.steps.values()
        return step, lambda: self._run_checked(step, [copy])


def allow_access(device: "GpuDevice") -> Identity:
    """Let each of two cards access the other's memory, and return the peer. Raises UnsupportedError where it may not:
    CUDA would copy by way of the host, and would not tell."""
    runtime, peer = device.xp.cuda.runtime, device.peer
    assert peer is not None  # the device was opened with one
    if runtime.getDeviceCount() < 2:
        raise UnsupportedError(f"CUDA shows this process only one of {device.name} and {peer.device}")
    if not (runtime.deviceCanAccessPeer(0, 1) and runtime.deviceCanAccessPeer(1, 0)):
        no_access = "may not access one another's memory, and copies would go through the host"
        raise UnsupportedError(f"{device.name} and {peer.device} {no_access}")
    if peer.compute_capability != device.identity.compute_capability:
        raise UnsupportedError(f"{device.name} and {peer.device} are of different compute capabilities")
    for card, neighbour in ((0, 1), (1, 0)):
        with device.xp.cuda.Device(card):
            runtime.deviceEnablePeerAccess(neighbour)
    return peer


class _Endpoint:
    """One card of a pair: what is sent from it (`sent`), what arrives (`received`), and its stream.

    Within `with` it is CUDA's current device.
    """

    def __init__(self, device: "GpuDevice", number: int, size: int):
        self.device, self.number, self.size = device, number, size
        self._cuda_device = device.xp.cuda.Device(number)
        self.stream = device.stream
        with self:
            if number:
                self.stream = device.xp.cuda.Stream(non_blocking=True)
                self.stream.use()
            self.sent = device.normal((size // 4,), COMMON_DTYPE, seed=number)
            self.received = device.xp.zeros_like(self.sent)
            self.clock = device.xp.zeros(2, device.xp.uint64)
            self.word_sum, self.report_sum = (device.xp.zeros(1, device.xp.uint32) for _ in range(2))

    def __enter__(self) -> "_Endpoint":
        self._cuda_device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._cuda_device.__exit__(*error)

    def make_event(self) -> "cupy.cuda.Event":
        """Return an event of this card, for other streams to wait for."""
        with self:
            return self.device.xp.cuda.Event(disable_timing=True)

    def launch(self, kernel: "cupy.RawKernel", blocks: int, threads: int, arguments: tuple) -> None:
        """Launch a kernel on this card's stream."""
        with self:
            kernel((blocks,), (threads,), arguments, stream=self.stream)

    def fill(self, array: "cupy.ndarray", byte: int) -> None:
        """Queue the filling of an array of this card with one byte."""
        with self:
            array.data.memset_async(byte, array.nbytes, self.stream)

    def write_pattern(self, array: "cupy.ndarray", start: int) -> None:
        """Queue the writing of the words start, start + 1, ... to an array of this card."""
        with self:
            kernel = self.device.load_kernel("memory.cu", "write_1")
        vectors = numpy.uint64(array.nbytes // self.device.vector_bytes)
        arguments = (array, vectors, numpy.uint32(start), self.clock)
        self.launch(kernel, ONE_PASS_BLOCKS_PER_SM * self.device.multiprocessors, ONE_PASS_THREADS, arguments)


class _DriverCopy:
    """The driver's copies, issued by the card that sends."""

    mix: AccessPattern = "copy"
    counted = "copied by the driver"

    def __init__(self, card: _Endpoint, peer: _Endpoint, size: int | None = None):
        self._card, self._peer, self._size = card, peer, size or card.size
        self.steps: dict[str, Step] = {"the driver's copy": self._step}

    def _step(self, index: int) -> None:
        card, peer = self._card, self._peer
        copy = card.device.xp.cuda.runtime.memcpyPeerAsync
        copy(peer.received.data.ptr, peer.number, card.sent.data.ptr, card.number, self._size, card.stream.ptr)

    def prepare(self) -> None:
        """Draw random numbers on the sending card that no check before had, and fill the destination with others."""
        with self._card as card:
            card.device.fill_normal(card.sent, COMMON_DTYPE, card.number + 2)
        self._peer.fill(self._peer.received, 0xFF)

    def check(self) -> str:
        """Return what was compared with the numbers sent. Raises ArithmeticError where the received ones differ."""
        with self._peer as peer:
            words = self._size // 4
            expected = peer.device.normal((words,), COMMON_DTYPE, self._card.number + 2)
            if not hbm_benchmarks.have_same_bits(peer.device, expected, peer.received[:words]):
                raise ArithmeticError("what was copied to the peer differs from its source")
        return "every byte that arrived compared with the same random numbers drawn there"


class _PeerKernel:
    """Kernels of one card on an array of its peer, named by what they do."""

    mix: AccessPattern

    def __init__(self, card: _Endpoint, peer: _Endpoint):
        self._card, self._peer, self._start = card, peer, hbm_benchmarks.PATTERN_START + card.number
        device = card.device
        shapes = []
        for depth, threads, per_tile in GRIDS:
            blocks_per_sm = hbm_benchmarks.BLOCK_PER_TILE if per_tile else device.max_threads // threads
            shapes.append((blocks_per_sm, threads, depth))
        arguments = self.arguments(numpy.uint64(card.size // device.vector_bytes))
        with card:
            grids = hbm_benchmarks.list_grids(device, self.mix, card.size, shapes)
        self.steps = {name: self._launch_step(grid, arguments) for name, grid in grids.items()}

    def arguments(self, vectors: numpy.uint64) -> tuple:
        """Return the arguments of the kernel, which goes over so many vectors."""
        raise NotImplementedError

    def _launch_step(self, grid: hbm_benchmarks.KernelGrid, arguments: tuple) -> Step:
        return lambda index: self._card.launch(*grid, arguments)


class _PeerRead(_PeerKernel):
    """Reads of the peer's memory."""

    mix: AccessPattern = "read"
    counted = "of the other card's memory read by a kernel"

    def arguments(self, vectors: numpy.uint64) -> tuple:
        card = self._card
        return self._peer.sent, vectors, card.word_sum, card.report_sum, card.clock

    def prepare(self) -> None:
        """Write a pattern to the peer's memory that differs from that of the other direction, and clear the sum."""
        self._peer.write_pattern(self._peer.sent, self._start)
        self._card.fill(self._card.word_sum, 0)
        self._card.fill(self._card.report_sum, 1)

    def check(self) -> str:
        """Return what was compared with the sum of the pattern. Raises ArithmeticError where the words read differ."""
        with self._card as card:
            card.fill(card.report_sum, 0)
            word_sum = int(card.device.to_host(card.word_sum)[0])
        if word_sum != hbm_benchmarks.pattern_sum(card.size // 4, self._start):
            raise ArithmeticError("the words read from the peer do not add up to what was written there")
        return "the sum of every word read against the sum of what the other card had written there"


class _PeerWrite(_PeerKernel):
    """Writes to the peer's memory."""

    mix: AccessPattern = "write"
    counted = "of the other card's memory written by a kernel"

    def arguments(self, vectors: numpy.uint64) -> tuple:
        return self._peer.received, vectors, numpy.uint32(self._start), self._card.clock

    def prepare(self) -> None:
        """Fill the peer's memory with bytes that differ from the pattern."""
        self._peer.fill(self._peer.received, 0xFF)

    def check(self) -> str:
        """Return what was compared with the pattern. Raises ArithmeticError where a word that arrived differs."""
        with self._peer as peer:
            expected = peer.device.xp.zeros_like(peer.received)
            peer.write_pattern(expected, self._start)
            if not hbm_benchmarks.have_same_bits(peer.device, expected, peer.received):
                raise ArithmeticError("what was written to the peer's memory differs from what must be there")
        return "every word that arrived compared with the same pattern written by the other card"


# A transfer in one direction, which `card` issues and which reads or writes the memory of `peer`. `steps` are by grid,
# `counted` says what the counted bytes are. `prepare` queues the filling of the source and, with other bytes, of the
# destination; `check` returns what was compared after a step, and raises ArithmeticError where it is wrong.
_Transfer = _DriverCopy | _PeerRead | _PeerWrite
