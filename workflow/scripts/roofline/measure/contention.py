"""What else ran beside a timed block; a block that was disturbed is timed once more."""

import functools
from collections.abc import Callable
from typing import TypeVar

from roofline.core.contention import Sensitive, disturbances
from roofline.core.device_kinds import KINDS
from roofline.devices import host
from roofline.devices.base import Device
from roofline.records.timing import Contention

T = TypeVar("T")


def recorded(sensitive: Sensitive = "caller", slowness: Callable = lambda timing: timing.median_s) -> Callable:
    """A decorator of functions (device, ...) -> Timing or None: the timing says what else ran beside it."""

    def decorate(timed: Callable) -> Callable:
        @functools.wraps(timed)
        def watched(device: Device, *arguments, **options):
            def block():
                return timed(device, *arguments, **options)

            timing, contention = undisturbed(device, block, slowness, sensitive)
            return timing and timing.model_copy(update={"contention": contention})

        return watched

    return decorate


def undisturbed(
    device: Device, block: Callable[[], T], slowness: Callable[[T], float], sensitive: Sensitive | None = None
) -> tuple[T, Contention]:
    """A block's result and what ran beside it. Where that disturbed it, it runs once more, whatever the reason: the
    second counts where nothing disturbed it, else the faster of both, since what disturbs only slows."""
    kind = KINDS[device.kind]
    sensitive = kind.sensitive if kind.synchronous else sensitive or kind.sensitive
    first, beside = observed(device, block)
    if first is None or not disturbances(beside, sensitive):
        return first, beside
    again, beside_again = observed(device, block)
    if again is None or (disturbances(beside_again, sensitive) and slowness(first) <= slowness(again)):
        again, beside_again = first, beside
    return again, beside_again.model_copy(update={"measured_again": True})


def observed(device: Device, block: Callable[[], T]) -> tuple[T, Contention]:
    processes = [device.other_processes()]
    before = host.usage()
    result = block()
    after = host.usage()
    processes.append(device.other_processes())
    return result, between(before, after, len(host.usable_cpus()), processes)


def between(before: host.Usage, after: host.Usage, cores: int, processes: list[int | None]) -> Contention:
    """What two readings of the host, and the numbers of other processes on the device, say of the time between."""

    def spent(name: str) -> float | None:
        first, last = getattr(before, name), getattr(after, name)
        return None if first is None or last is None else max(0.0, last - first)

    wall_s, own_s, busy_s, waited_s = max(spent("at"), 1e-9), spent("own"), spent("busy"), spent("waited")
    run_s = spent("run")
    told = busy_s is not None and busy_s + spent("idle") > 0  # some containers show a file of zeros
    by_ticks_s = max(0.0, busy_s - own_s - (run_s or 0.0)) if told else None
    exact = before.others is not None and after.others is not None
    others_s = after.others.since(before.others) if exact else by_ticks_s
    return Contention(
        wall_s=wall_s,
        cores=cores,
        own_cores=own_s / wall_s,
        other_cores=None if others_s is None else others_s / wall_s,
        run_cores=None if run_s is None else run_s / wall_s,
        waiting_share=None if waited_s is None else waited_s / max(own_s + waited_s, 1e-9),
        stolen_share=spent("stolen") / wall_s / cores if told else None,
        throttled_share=None if spent("throttled") is None else spent("throttled") / wall_s,
        other_processes=max((count for count in processes if count is not None), default=None),
    )
