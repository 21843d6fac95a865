"""Two GPUs in one process: each with its stream, and with access to the other's memory."""

from typing import TYPE_CHECKING, Self

from roofline.core.terms import UnsupportedError
from roofline.devices.base import Identity

if TYPE_CHECKING:
    import cupy

    from roofline.devices.gpu.gpu_device import GpuDevice


def require_access(device: "GpuDevice") -> Identity:
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


class Card:
    """One card of a pair and its stream. Within `with` it is CUDA's current device."""

    def __init__(self, device: "GpuDevice", number: int):
        self.device, self.number = device, number
        self._cuda_device = device.xp.cuda.Device(number)
        self.stream = device.stream
        if number:
            with self:
                self.stream = device.xp.cuda.Stream(non_blocking=True)
                self.stream.use()

    def __enter__(self) -> Self:
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
