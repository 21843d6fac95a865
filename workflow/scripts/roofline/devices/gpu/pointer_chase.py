"""Load latency: a chain of addresses through memory, of which each load waits for the one before."""

from collections.abc import Callable

import numpy

from roofline.core.units import KIB, MIB

LINE_BYTES = 128
# Many laps of `l1`, one of `l2` (which a launch before has brought there); a launch of `hbm` meets no line twice.
LOADS_PER_STEP = {"l1": 1 << 18, "l2": 1 << 14, "hbm": 1 << 12}
CHAIN_L2_SIZES = 8


def make_pointer_chase(device, level: str) -> tuple[Callable[[int], None], int, Callable[[], str]]:
    """A step of dependent 8-byte loads from a level, how many they are, and a check of where they led."""
    l2 = device.last_level_cache_bytes
    room = min(CHAIN_L2_SIZES * l2, device.identity.memory_free_bytes // 8)
    size = {"l1": min(16 * KIB, device.l1_bytes // 4), "l2": min(2 * MIB, l2 // 4), "hbm": room}[level]
    words = device.xp.zeros((size // LINE_BYTES, LINE_BYTES // 8), numpy.uint64)
    links, addresses = shuffle_chain(words.data.ptr, len(words))
    words[...] = device.to_device(links)
    device.xp.zeros(room, numpy.uint8)  # leaves nothing of the chain in the L2
    return make_chase_step(device, words, addresses, LOADS_PER_STEP[level], "chase_l1" if level == "l1" else "chase")


def shuffle_chain(start: int, lines: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The words of `lines` lines from an address on, in each the address of the next; and these in their order."""
    order = numpy.random.default_rng(0).permutation(lines)
    addresses = numpy.uint64(start) + order.astype(numpy.uint64) * numpy.uint64(LINE_BYTES)
    words = numpy.zeros((lines, LINE_BYTES // 8), numpy.uint64)
    words[order, 0] = numpy.roll(addresses, -1)
    return words, addresses


def make_chase_step(device, words, addresses: numpy.ndarray, steps: int, kernel_name: str):
    """What `chain` returns, of a chain that lies in `words`. Each step begins where the one before it ended."""
    kernel, last = device.load_kernel("chase.cu", kernel_name), device.xp.zeros(1, numpy.uint64)

    def step(index: int) -> None:
        kernel((1,), (1,), (words, numpy.uint64(addresses[index * steps % len(addresses)]), numpy.uint32(steps), last))

    def verify() -> str:
        device.poison(last)
        step(0)
        device.synchronize()
        if int(device.to_host(last)[0]) != int(addresses[steps % len(addresses)]):
            raise ArithmeticError("the loads did not lead where the chain leads")
        return "the last address loaded against that of the chain"

    return step, steps, verify
