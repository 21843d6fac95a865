"""Kernels of a user's own program under the ceilings that were measured of the card: rows of the table."""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from roofline.analysis.results import Results
from roofline.analysis.table import (
    NOT_ARITHMETIC,
    Call,
    ComputeCeiling,
    KernelRoof,
    MemoryCeiling,
    PlacedKernelGroup,
    PlacedProfile,
    PlacedQuantity,
    Roofline,
)
from roofline.core import placing
from roofline.core.model import COMPUTE_BOUND, MEMORY_BOUND
from roofline.devices import memory_ceilings
from roofline.records.profile import KernelLaunches, ProfileRecord

Ceiling = ComputeCeiling | MemoryCeiling
CACHES = {"l1": "l1_bytes", "l2": "l2_bytes"}
MIX = "read"  # of memory traffic whose reads and writes were not counted apart


def placed(found: Results, table: Roofline) -> list[PlacedProfile]:
    """The reports of a run, each on the first GPU of its card's name that has ceilings."""
    measured = {one.device for one in table.ceilings}
    devices = {one.name: device for device, one in reversed(table.devices.items()) if device in measured}
    return [
        place(record, devices[record.device_name], table.ceilings, table.calls)
        for record in found.profiles.values()
        if record.device_name in devices
    ]


def place(record: ProfileRecord, device: str, ceilings: Iterable[Ceiling], calls: Iterable[Call] = ()) -> PlacedProfile:
    """Every kernel of a report under a GPU's ceilings, those that take most time first."""
    mine = [one for one in ceilings if one.device == device]
    starts = [one.empty_kernel_device_s for one in calls if one.device == device and one.empty_kernel_device_s]
    start_s = max(starts, default=None)  # launched by itself, as under the profiler
    total_s = fsum(fsum(one.duration_s) for one in record.kernels)
    rows = [_row(one, mine, record, start_s, total_s) for one in record.kernels]
    return PlacedProfile(
        name=record.name,
        report=record.report,
        device=device,
        compute_capability=record.compute_capability,
        launches=sum(one.launches for one in rows),
        total_s=total_s,
        start_s=start_s,
        left_out=record.left_out,
        kernels=sorted(rows, key=lambda one: -(one.total_s or 0.0)),
    )


def _row(
    kernel: KernelLaunches,
    ceilings: Sequence[Ceiling],
    record: ProfileRecord,
    start_s: float | None,
    total_s: float,
) -> PlacedKernelGroup:
    launches = len(kernel.launches)
    mine_s = fsum(kernel.duration_s)
    clock = _clock(kernel)
    mean_s = mine_s / launches or None
    by_pipe = [
        (unit, dtype, fsum(counts) / launches)
        for unit, by_dtype in kernel.flops.items()
        for dtype, counts in by_dtype.items()
    ]
    counted = [flops for unit, dtype, flops in by_pipe if (unit, dtype) != NOT_ARITHMETIC]
    flops = fsum(counted) if counted else None
    roofs = [_compute(*one, ceilings, clock, mean_s) for one in by_pipe if one[2]]
    moved = {level: fsum(counts) / launches for level, name in CACHES.items() if (counts := getattr(kernel, name))}
    if "l1" in moved and not placing.l1_is_counted(moved["l1"], moved.get("l2")):
        del moved["l1"]
    roofs += [
        _roof(level, next((one for one in ceilings if one.name == level), None), amount, clock, mean_s)
        for level, amount in moved.items()
    ]
    roofs += _memory(kernel, ceilings, mean_s)
    missing, missing_flops = _missing(kernel, record.pipes)
    issued = fsum(kernel.warp_instructions) / launches if kernel.warp_instructions else None
    least = {
        regime: max((one.least_s for one in of if one.least_s is not None), default=None)
        for regime, of in (
            (COMPUTE_BOUND, [one for one in roofs if one.level == "compute"]),
            (MEMORY_BOUND, [one for one in roofs if one.level != "compute"]),
        )
    }
    complete = set(missing) <= {"instructions"} and not any(one.ceiling is None for one in roofs)
    regime = mean_s and placing.regime(mean_s, start_s, least[COMPUTE_BOUND], least[MEMORY_BOUND], complete)
    limit = next((one for one in roofs if one.least_s is not None and one.least_s == least.get(regime)), None)
    return PlacedKernelGroup(
        name=kernel.name,
        signature=kernel.signature,
        grid=kernel.grid,
        block=kernel.block,
        launches=launches,
        total_s=mine_s if kernel.duration_s else None,
        share_of_time=mine_s / total_s if kernel.duration_s and total_s else None,
        mean_s=mean_s,
        sm_clock_mhz=clock,
        flops=flops,
        attained_tflops=flops / mean_s / 1e12 if flops is not None and mean_s else None,
        intensities={one.level: flops / one.amount for one in roofs if one.level != "compute" and one.amount and flops},
        roofs=roofs,
        issued_share=placing.issued_share(issued, mean_s, clock, record.multiprocessors),
        regime=regime,
        limited_by=limit and limit.ceiling,
        limited_at=limit and limit.level,
        missing=missing,
        missing_flops=missing_flops,
    )


def _clock(kernel: KernelLaunches) -> float | None:
    """Cycles of all launches over their time."""
    if not kernel.sm_clock_mhz or not fsum(kernel.duration_s):
        return None
    cycles = (mhz * seconds for mhz, seconds in zip(kernel.sm_clock_mhz, kernel.duration_s, strict=True))
    return fsum(cycles) / fsum(kernel.duration_s)


def _compute(
    unit: str, dtype: str, flops: float, ceilings: Sequence[Ceiling], clock: float | None, mean_s: float | None
) -> KernelRoof:
    """Under the highest ceiling of the unit and dtype: a product's, or that of multiply-adds in registers."""
    fit = [one for one in ceilings if one.kind == "compute" and (one.unit, one.dtype) == (unit, dtype)]
    best = max(fit, key=lambda one: one.tflops, default=None)
    roof = _roof("compute", best, flops, clock, mean_s)
    return roof.model_copy(update={"unit": unit, "dtype": dtype})


def _memory(kernel: KernelLaunches, ceilings: Sequence[Ceiling], mean_s: float | None) -> list[KernelRoof]:
    """Under the ceiling of its mix of accesses, at whatever clock it ran."""
    launches = len(kernel.launches)
    if kernel.memory_read_bytes and kernel.memory_write_bytes:
        read, written = (fsum(one) / launches for one in (kernel.memory_read_bytes, kernel.memory_write_bytes))
        moved, mix = read + written, placing.mix(read, written)
    elif kernel.memory_bytes:
        moved, mix = fsum(kernel.memory_bytes) / launches, MIX
    else:
        return []
    by_name = {one.name: one for one in ceilings}
    found = next((by_name[name] for name in memory_ceilings("gpu", mix) if name in by_name), None)
    return [_roof("memory", found, moved, None, mean_s)]


def _roof(level: str, ceiling: Ceiling | None, amount: float, clock: float | None, mean_s: float | None) -> KernelRoof:
    if ceiling is None:
        return KernelRoof(level=level, ceiling=None, amount=amount, least_s=None, share=None)
    if ceiling.kind == "compute":
        rate, own_mhz = ceiling.tflops * 1e12, ceiling.clock_mhz
    else:
        rate, own_mhz = ceiling.gb_per_s * 1e9, ceiling.sm_clock_mhz
    scale = placing.clock_scale(clock, own_mhz)
    least_s = amount / (rate * (scale or 1.0))
    return KernelRoof(
        level=level,
        ceiling=ceiling.name,
        amount=amount,
        clock_scale=scale,
        least_s=least_s,
        share=least_s / mean_s if mean_s else None,
    )


def _missing(
    kernel: KernelLaunches, pipes: Mapping[str, list[str]]
) -> tuple[list[PlacedQuantity], dict[str, list[str]]]:
    flops = {unit: [one for one in dtypes if one not in kernel.flops[unit]] for unit, dtypes in pipes.items()}
    flops = {unit: dtypes for unit, dtypes in flops.items() if dtypes}
    there = {
        "time": kernel.duration_s,
        "clock": kernel.sm_clock_mhz,
        "flops": not flops,
        "memory": (kernel.memory_read_bytes and kernel.memory_write_bytes) or kernel.memory_bytes,
        "l2": kernel.l2_bytes,
        "l1": kernel.l1_bytes,
        "instructions": kernel.warp_instructions,
    }
    return [name for name, counts in there.items() if not counts], flops
