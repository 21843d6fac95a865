"""Kernels of a user's program under the ceilings that were measured of the card."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum

import ncu_counts

from roofline.api import ComputeCeiling, MemoryCeiling, Run, UserError, memory_ceilings, ncu, peak_issue_rate
from roofline.api import classify_regime as found_regime

LOCKED = 0.95  # of a ceiling's clock: below it a kernel ran at another clock, by more than clocks wander
PASSED_BY = 0.5  # of what the L2 moves: less through the L1 means that the rest passes it by, as loads by TMA do
MOSTLY = 0.9  # of the bytes: from this on traffic counts as reads alone, or as writes alone
CACHES = {"l1": "l1_bytes", "l2": "l2_bytes"}
FP16_PIPE = ("cuda_core", "fp16")  # compilers have it convert and make constants too
Ceiling = ComputeCeiling | MemoryCeiling


@dataclass(frozen=True)
class Roof:
    """What one ceiling allows a launch."""

    level: str  # compute, l1, l2, memory
    ceiling: str | None  # None: not measured
    amount: float  # FLOPs or bytes of a launch, on average
    least_s: float | None = None  # amount over the ceiling
    share: float | None = None  # of the time that a launch took
    clock_scale: float | None = None  # of a launch at a lower clock: what the ceiling was multiplied by
    unit: str | None = None  # of a compute ceiling
    dtype: str | None = None
    sustained_share: float | None = None  # of what a compute ceiling sustains


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The launches of one kernel with one grid and block. None: the report lacks it."""

    name: str
    signature: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    launches: int
    total_s: float | None
    share_of_time: float | None
    mean_s: float | None
    sm_clock_mhz: float | None = None
    flops: float | None  # of a launch, without those of the fp16 pipe
    attained_tflops: float | None
    intensities: dict[str, float]  # FLOPs per byte of each level
    roofs: list[Roof]
    issued_share: float | None = None  # warp instructions over multiprocessors x 4 schedulers x cycles
    regime: str | None
    limited_by: str | None  # the ceiling that takes most of the time, if compute or memory is the limit
    limited_at: str | None  # its level
    tma_instructions: float | None = None
    missing: list[str] = field(default_factory=list)
    missing_flops: dict[str, list[str]] = field(default_factory=dict)  # dtypes by unit
    least_bytes: float | None = None  # of an operator in a trace: arguments and results once
    saving_s: tuple[float, ...] = ()  # by all launches at the roof, of memory and of the L2 if the bytes fit there

    def roof_at(self, level: str) -> Roof | None:
        """The roof of a level that takes most of the time."""
        mine = [one for one in self.roofs if one.level == level]
        return max(mine, key=lambda one: one.share or 0.0, default=None)


@dataclass(frozen=True)
class Profile:
    """A report: its kernels by total time."""

    report: str
    device: str
    card: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    launches: int
    total_s: float
    start_s: float | None  # the smallest case of an operator, without a graph
    left_out: int
    failed: list[str]  # kernels that the profiler did not count
    uncounted: list[tuple[str, str]]  # units and dtypes of ceilings whose FLOPs this architecture does not count
    kernels: list[Placed]


def device_of(path: str, card: str, run: Run) -> str:
    """The GPU of a run that is a card of this model. Raises UserError."""
    names = {name: run.devices[name].name for name in gpus(run)}
    found = next((device for device, name in names.items() if name == card), None)
    if found is None:
        known = ", ".join(dict.fromkeys(names.values()))
        raise UserError(
            f"{path}: profiled on {card}, but the ceilings are of {known}; both must be of the same model of card"
        )
    return found


def gpus(run: Run) -> list[str]:
    measured = {one.device for one in run.roofline.ceilings}
    return [name for name, one in run.devices.items() if one.device_kind == "gpu" and name in measured]


def place(report: ncu.NcuReport, run: Run) -> Profile:
    """Every kernel of a report, those that take most time first. Raises UserError for another card."""
    device = device_of(report.path, report.card.name, run)
    ceilings = [one for one in run.roofline.ceilings if one.device == device]
    alone = (one.start_s for one in run.roofline.operators if one.device == device and not one.graph)
    start_s = min(filter(None, alone), default=None)
    groups = ncu_counts.grouped(report.kernels)
    total_s = fsum(one.total("duration_s") or 0.0 for one in groups)
    kernels = [_placed(one, ceilings, report.card.multiprocessors, start_s, total_s) for one in groups]
    rated = {(one.compute_unit, one.dtype) for one in ceilings if one.kind == "compute"}
    return Profile(
        report=report.path,
        device=device,
        card=report.card.name,
        compute_capability=report.card.capability,
        multiprocessors=report.card.multiprocessors,
        launches=len(report.kernels),
        total_s=total_s,
        start_s=start_s,
        left_out=report.left_out,
        failed=report.failed,
        uncounted=sorted(rated - ncu_counts.flops_counted(report.card.capability)),
        kernels=sorted(kernels, key=lambda one: -(one.total_s or 0.0)),
    )


def _placed(
    kernel: ncu_counts.Launches,
    ceilings: Sequence[Ceiling],
    multiprocessors: int,
    start_s: float | None,
    whole_s: float,
) -> Placed:
    total_s, clock = kernel.total("duration_s"), _clock(kernel)
    mean_s = (total_s or 0.0) / kernel.launches or None
    flops = {key: kernel.total(key) / kernel.launches for key in kernel.columns if isinstance(key, tuple)}
    counted = [amount for key, amount in flops.items() if key != FP16_PIPE]
    of_launch = fsum(counted) if counted else None
    roofs = list(_roofs(kernel, flops, ceilings, clock, mean_s))
    missing, missing_flops = _missing(kernel)
    return Placed(
        name=kernel.name,
        signature=kernel.signature,
        grid=kernel.grid,
        block=kernel.block,
        sm_clock_mhz=clock,
        issued_share=_issued_share(kernel, mean_s, clock, multiprocessors),
        tma_instructions=kernel.total("tma_instructions"),
        missing=missing,
        missing_flops=missing_flops,
        **rated(kernel.launches, total_s, whole_s, of_launch, roofs, start_s, set(missing) <= {"instructions"}),
    )


def rated(launches: int, total_s, whole_s: float, flops, roofs: list[Roof], start_s: float | None, whole: bool) -> dict:
    """Fields of a row that follow from others. `whole`: whether its counts are."""
    mean_s = (total_s or 0.0) / launches or None
    least = {
        "compute": max((one.least_s for one in roofs if one.least_s and one.level == "compute"), default=0.0),
        "memory": max((one.least_s for one in roofs if one.least_s and one.level != "compute"), default=0.0),
    }
    complete = whole and not any(one.ceiling is None for one in roofs)
    seconds = {"cpu_time_s": mean_s, "compute_s": least["compute"], "memory_s": least["memory"]}
    regime = mean_s and found_regime(**seconds, gpu_time_s=None, start_s=start_s)
    if regime == "implementation" and not complete:  # a count is missing, and the others explain too little
        regime = None
    limit = next((one for one in roofs if one.least_s is not None and one.least_s == least.get(regime)), None)
    below = [one for one in roofs if one.level != "compute" and one.amount and flops]
    return {
        "launches": launches,
        "total_s": total_s,
        "share_of_time": total_s / whole_s if total_s is not None and whole_s else None,
        "mean_s": mean_s,
        "flops": flops,
        "attained_tflops": flops / mean_s / 1e12 if flops is not None and mean_s else None,
        "intensities": {one.level: flops / one.amount for one in below},
        "roofs": roofs,
        "regime": regime,
        "limited_by": limit and limit.ceiling,
        "limited_at": limit and limit.level,
    }


def _clock(kernel: ncu_counts.Launches) -> float | None:
    """Cycles of all launches over their time."""
    if "sm_clock_mhz" not in kernel.columns or not kernel.total("duration_s"):
        return None
    pairs = zip(kernel.columns["sm_clock_mhz"], kernel.columns["duration_s"], strict=True)
    return fsum(mhz * seconds for mhz, seconds in pairs) / kernel.total("duration_s")


def _issued_share(kernel: ncu_counts.Launches, mean_s, clock, multiprocessors: int) -> float | None:
    issued = kernel.total("warp_instructions")
    if issued is None or not mean_s or not clock:
        return None
    return issued / kernel.launches / (mean_s * peak_issue_rate(multiprocessors, clock))


def _roofs(kernel: ncu_counts.Launches, flops, ceilings: Sequence[Ceiling], clock, mean_s) -> Iterable[Roof]:
    """FLOPs stand under the highest ceiling of their unit and dtype, bytes of memory under that of their mix."""
    by_name = {one.name: one for one in ceilings}
    for (unit, dtype), amount in flops.items():
        fit = [one for one in ceilings if one.kind == "compute" and (one.compute_unit, one.dtype) == (unit, dtype)]
        if amount:
            best = max(fit, key=lambda one: one.tflops, default=None)
            yield roof_of("compute", best, amount, clock, mean_s, unit, dtype)
    moved = {level: kernel.total(name) for level, name in CACHES.items()}
    by_tma = kernel.total("tma_instructions") != 0  # or not known
    if by_tma and moved["l1"] is not None and moved["l2"] is not None and moved["l1"] < PASSED_BY * moved["l2"]:
        moved["l1"] = None
    for level, amount in moved.items():
        if amount is not None:
            yield roof_of(level, by_name.get(level), amount / kernel.launches, clock, mean_s)
    read, written, either = (kernel.total(f"memory_{which}bytes") for which in ("read_", "write_", ""))
    apart = read is not None and written is not None
    amount, mix = (read + written, mix_of(read, written)) if apart else (either, "read")
    if amount is not None:
        found = next((by_name[name] for name in memory_ceilings("gpu", mix) if name in by_name), None)
        yield roof_of("memory", found, amount / kernel.launches, None, mean_s)


def mix_of(read_bytes: float, write_bytes: float) -> str:
    """The mix of accesses of the memory ceiling to compare with."""
    moved = read_bytes + write_bytes
    if read_bytes >= MOSTLY * moved:
        return "read"
    return "write" if write_bytes >= MOSTLY * moved else "copy"


def roof_of(level: str, ceiling: Ceiling | None, amount: float, clock, mean_s, unit=None, dtype=None) -> Roof:
    """Scaled to the clock of the kernel if that is lower. `clock` is None for memory, which has its own."""
    if ceiling is None:
        return Roof(level, None, amount, unit=unit, dtype=dtype)
    if ceiling.kind == "compute":
        rate, own_mhz = ceiling.tflops * 1e12, ceiling.sm_clock_mhz
    else:
        rate, own_mhz = ceiling.gb_per_s * 1e9, ceiling.sm_clock_mhz
    scaled = clock and own_mhz and clock < LOCKED * own_mhz
    scale = clock / own_mhz if scaled else None
    least_s = amount / (rate * (scale or 1.0))
    share, sustained = least_s / mean_s if mean_s else None, ceiling.kind == "compute" and ceiling.sustained_tflops
    of_sustained = share * ceiling.tflops / sustained if share is not None and sustained and not scaled else None
    return Roof(level, ceiling.name, amount, least_s, share, scale, unit, dtype, of_sustained)


def _missing(kernel: ncu_counts.Launches) -> tuple[list[str], dict[str, list[str]]]:
    there = kernel.columns
    flops: dict[str, list[str]] = {}
    for unit, dtype in kernel.lacking_flops:
        flops.setdefault(unit, []).append(dtype)
    known = {
        "time": "duration_s" in there,
        "clock": "sm_clock_mhz" in there,
        "flops": not flops,
        "memory": {"memory_read_bytes", "memory_write_bytes"} <= there.keys() or "memory_bytes" in there,
        "l2": "l2_bytes" in there,
        "l1": "l1_bytes" in there,
        "instructions": "warp_instructions" in there,
    }
    return [name for name, is_known in known.items() if not is_known], flops
