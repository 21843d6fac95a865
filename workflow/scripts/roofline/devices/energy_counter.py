"""The energy counter of a device, which a thread reads while something runs.

NVML's counter ticks every 100 ms. Reading it every 2 ms finds both ends; NVML's power readings are a second method.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile, pairwise
from threading import Event, Thread
from typing import NamedTuple

PERIOD_S = 0.002  # between two looks
PROMPT_S = 0.01  # between two looks, if the thread did not wait


class Look(NamedTuple):
    at: float  # time.monotonic()
    joules: float  # since the driver was loaded
    power_w: float | None


@contextmanager
def watched(device) -> Iterator[list[Look]]:
    """Read while the block runs; nothing without a counter."""
    looks: list[Look] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(PERIOD_S) and (seen := device.energy()):
            looks.append(Look(time.monotonic(), *seen))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def ticks(looks: Sequence[Look], start: float, end: float) -> list[Look]:
    """Looks between two moments that found the counter changed, the first and the last of them promptly."""
    within = [look for look in looks if start < look.at <= end]
    changes = [(earlier, later) for earlier, later in pairwise(within) if later.joules != earlier.joules]
    for _ in range(2):
        changes = [*dropwhile(lambda change: change[1].at - change[0].at > PROMPT_S, reversed(changes))]
    return [later for _, later in changes]
