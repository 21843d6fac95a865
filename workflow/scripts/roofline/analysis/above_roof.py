"""No operator may lie above the roof that was declared for it: those that do, with what is wrong and the evidence."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roofline.analysis.table import AboveRoof, ComputeCeiling, FoundCache, MemoryCeiling, Operator
from roofline.core.formatting import number, traffic
from roofline.devices import kind_of
from roofline.devices.levels import LAST_LEVEL_CACHE, SWEPT_CACHES

ROUNDING = 1e-9
# Too few samples for an interval place a median within 5 % at best; the user's own figure is taken at its word.
WITHOUT_INTERVAL = 1.05


class _Cache(NamedTuple):
    name: str
    gb_per_s: float
    capacity_bytes: float | None


def above_roofs(
    operators: Iterable[Operator],
    ceilings: Iterable[ComputeCeiling | MemoryCeiling],
    levels: Iterable[FoundCache],
    last_level_bytes: Mapping[str, int],
) -> list[AboveRoof]:
    """An entry for every ceiling that an operator exceeds even at the slow end of its interval.

    Both of an operator's latencies count, the caller's and the device's alone: the faster is held against the compute
    and the memory ceiling that the operator names. `last_level_bytes` is the capacity of each device's last cache,
    of whose size a sweep may know too little. Ceilings that were not measured forbid nothing.
    """
    ceilings, levels = list(ceilings), list(levels)
    found = []
    for operator in operators:
        slow_end, seconds, whose = _fastest(operator)
        if not seconds:
            continue
        of_device = {c.name: c for c in ceilings if c.device == operator.device}
        compute, memory = of_device.get(operator.compute_ceiling), of_device.get(operator.memory_ceiling)
        caches = _caches(operator.device, of_device.values(), levels, last_level_bytes)
        tflops, gb_per_s = operator.flops / seconds / 1e12, operator.bytes / seconds / 1e9
        of_peak = tflops / compute.tflops if compute else 0.0
        of_slope = gb_per_s / memory.gb_per_s if memory else 0.0
        entry = {
            "device": operator.device,
            "operator": operator.full_name,
            "record": operator.record,
            "fraction_of_roof": max(of_peak, of_slope),
            "users_own": operator.operator == "operation",
        }
        unsure = operator.latency_ci95_s is None and operator.operator != "operation"
        allowed = (WITHOUT_INTERVAL if unsure else 1 + ROUNDING) * slow_end / seconds
        if of_peak > allowed:
            found_at = f"{number(tflops)} TFLOPS {whose}: {_times(of_peak, compute.name, compute.tflops, 'TFLOPS')}"
            found.append(AboveRoof(**entry, wrong_roof=compute.name, cache=None, evidence=found_at))
        if of_slope > allowed:
            cache = _holder(operator, gb_per_s, caches)
            why = _held(cache) if cache else _not_held(operator, gb_per_s, caches)
            moved = f"{traffic(operator.bytes)} at {number(gb_per_s)} GB/s {whose}"
            found_at = f"{moved}: {_times(of_slope, memory.name, memory.gb_per_s, 'GB/s')}; {why}"
            wrong = {"wrong_roof": None, "cache": cache.name} if cache else {"wrong_roof": memory.name, "cache": None}
            found.append(AboveRoof(**entry, **wrong, evidence=found_at))
    return found


def _fastest(operator: Operator) -> tuple[float | None, float | None, str]:
    """The operator's latency whose interval ends sooner: that slow end and the median in seconds, and whose it is."""
    slow_ends = [
        (interval[1] if interval else latency, latency, whose)
        for latency, interval, whose in (
            (operator.latency_s, operator.latency_ci95_s, "in the caller's time"),
            (operator.device_latency_s, operator.device_latency_ci95_s, "in the device's own time"),
        )
        if latency
    ]
    return min(slow_ends, default=(None, None, ""))


def _caches(
    device: str, ceilings: Iterable, levels: Iterable[FoundCache], last_level_bytes: Mapping[str, int]
) -> list[_Cache]:
    """The caches of a device, from ceilings and from the sweep: the highest bandwidth known of each, its capacity.

    A sweep's capacities may be one core's or one multiprocessor's: of the last level, the whole device's counts.
    """
    named = [(c.level, c.gb_per_s, None) for c in ceilings if c.kind == "memory"]
    named += [(v.name, v.gb_per_s, v.reported_bytes or v.knee_bytes) for v in levels if v.device == device]
    last = LAST_LEVEL_CACHE.get(kind_of(device))
    caches = []
    for cache in sorted({name for name, _, _ in named if name in SWEPT_CACHES}):
        capacities = [capacity or 0 for name, _, capacity in named if name == cache]
        if cache == last:
            capacities.append(last_level_bytes.get(device, 0))
        caches.append(_Cache(cache, max(rate for name, rate, _ in named if name == cache), max(capacities) or None))
    return caches


def _holder(operator: Operator, gb_per_s: float, caches: list[_Cache]) -> _Cache | None:
    """The smallest cache that is fast enough for what was seen and that the operator's bytes fit in.

    Cold operands rotate through several times the last-level cache, so that none holds them, however few they are.
    """
    if operator.cache == "cold":
        return None
    able = [
        cache
        for cache in caches
        if cache.capacity_bytes and operator.bytes <= cache.capacity_bytes and gb_per_s <= cache.gb_per_s
    ]
    return min(able, key=lambda cache: cache.capacity_bytes, default=None)


def _held(cache: _Cache) -> str:
    return f"{cache.name} holds {traffic(cache.capacity_bytes)} and gives {number(cache.gb_per_s)} GB/s"


def _not_held(operator: Operator, gb_per_s: float, caches: list[_Cache]) -> str:
    """Why no cache accounts for it."""
    if operator.cache == "cold":
        return "its operands rotate through more than the last-level cache holds"
    largest = max((cache for cache in caches if cache.capacity_bytes), key=lambda c: c.capacity_bytes, default=None)
    if not largest:
        return "no cache of a known size and bandwidth could have held them"
    if operator.bytes > largest.capacity_bytes:
        return f"{largest.name} holds only {traffic(largest.capacity_bytes)}"
    return f"they fit {largest.name}, which gives only {number(largest.gb_per_s)} GB/s"


def _times(fraction: float, name: str, value: float, unit: str) -> str:
    return f"{fraction:.5g} times the {number(value)} {unit} of {name}"
