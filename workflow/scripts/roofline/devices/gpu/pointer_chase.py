"""Load latency: a chain of addresses through memory, in which each load needs the result of the previous one."""

from typing import TYPE_CHECKING

import numpy

from roofline.core.terms import Array
from roofline.devices.base import PointerChase, Step

if TYPE_CHECKING:
    from roofline.devices.gpu.gpu_device import GpuDevice

LINE_BYTES = 128
WORD_BYTES = 8  # an address
CHAIN_L2_SIZES = 8


def evicting_bytes(device: "GpuDevice") -> int:
    """Return the size of a chain that leaves nothing of itself in the L2."""
    return min(CHAIN_L2_SIZES * device.last_level_cache_bytes, device.identity.memory_free_bytes // 8)


def make_pointer_chase(device: "GpuDevice", size: int, loads: int, kernel_name: str = "chase") -> PointerChase:
    """Return a step of `loads` dependent 8-byte loads from a chain of `size` bytes, their number, and a check."""
    words, addresses = allocate_chain(device, size)
    device.xp.zeros(evicting_bytes(device), numpy.uint8)  # leaves nothing of the chain in the L2
    return make_chase_step(device, words, addresses, loads, kernel_name)


def allocate_chain(device: "GpuDevice", size: int) -> tuple[Array, numpy.ndarray]:
    """Return an array of `size` bytes on CUDA's current device that holds a chain, and the chain's addresses in their
    order."""
    words = device.xp.zeros((size // LINE_BYTES, LINE_BYTES // WORD_BYTES), numpy.uint64)
    links, addresses = shuffle_chain(words.data.ptr, len(words))
    words[...] = device.to_device(links)
    return words, addresses


def shuffle_chain(start: int, lines: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the words of `lines` lines from an address on, each line beginning with the address of the next line of
    the chain; and the addresses of the lines in the chain's order."""
    order = numpy.random.default_rng(0).permutation(lines)
    addresses = numpy.uint64(start) + order.astype(numpy.uint64) * numpy.uint64(LINE_BYTES)
    words = numpy.zeros((lines, LINE_BYTES // WORD_BYTES), numpy.uint64)
    words[order, 0] = numpy.roll(addresses, -1)
    return words, addresses


def make_chase_step(device: "GpuDevice", words: Array, addresses: Array, loads: int, kernel_name: str) -> PointerChase:
    """Return a step of `loads` loads along a chain in `words`, their number, and a check of where they lead.

    Each step begins where the previous one ended. The check raises ArithmeticError.
    """
    kernel, last_address = device.load_kernel("chase.cu", kernel_name), device.xp.zeros(1, numpy.uint64)

    def step(index: int) -> None:
        first_address = numpy.uint64(addresses[index * loads % len(addresses)])
        kernel((1,), (1,), (words, first_address, numpy.uint32(loads), last_address))

    return step, loads, lambda: require_chain_end(device, step, last_address, addresses[loads % len(addresses)])


def require_chain_end(device: "GpuDevice", step: Step, last_address: Array, expected: numpy.uint64) -> str:
    """Run a step from the chain's beginning, and return what was compared. Raises ArithmeticError if it led astray."""
    device.poison(last_address)
    step(0)
    device.synchronize()
    if int(device.to_host(last_address)[0]) != int(expected):
        raise ArithmeticError("the loads did not lead where the chain leads")
    return "the last address loaded against that of the chain"
