"""Kernels of a user's program under the ceilings that were measured of the card."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf
from typing import Any

import ncu_counts
from collectives import Link

import roofline.api as api

LOCKED = 0.95  # of a ceiling's clock: below it a kernel ran at another clock, by more than clocks wander
PASSED_BY = 0.5  # of what the L2 moves: less through the L1 means that the rest passes it by, as loads by TMA do
MOSTLY = 0.9  # of the bytes: from this on traffic counts as reads alone, or as writes alone
# Of the time: what is missing cannot take longer than a start of half of it, nor than roofs of nearly all of it.
DECISIVE_SHARES = {"overhead": 0.5, "compute": 0.9, "memory": 0.9, "implementation": inf}
CACHES = {"l1": "l1_bytes", "l2": "l2_bytes"}
# Of two numbers in a register; compilers have it convert and make constants too.
PACKED_PIPE = ("cuda_core", next(name for name, row in api.DTYPES.items() if row.numbers_per_instruction > 1))
Ceilings = Sequence[api.Ceiling]
Number = float | None  # None: not known
Launches = Sequence[api.ncu.ProfiledKernel]  # of one kernel with one grid and block
Totals = dict[ncu_counts.Key, float]  # of all these launches


@dataclass(frozen=True)
class LaunchRoof:
    """The least time that one ceiling allows a launch, and its share of the time that the launch took."""

    level: str  # compute, l1, l2, memory, link: between GPUs
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
    """The launches of one kernel with one grid and block. A field is None if the report lacks it."""

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
    roofs: list[LaunchRoof]
    issued_share: float | None = None  # warp instructions over multiprocessors x 4 schedulers x cycles
    regime: str | None
    limited_by: str | None = None  # the ceiling that takes most of the time, if compute or memory is the limit
    limited_at: str | None = None  # its level
    tma_instructions: float | None = None
    missing: list[str] = field(default_factory=list)
    missing_flops: dict[str, list[str]] = field(default_factory=dict)  # dtypes by unit
    least_bytes: float | None = None  # of an operator in a trace: arguments and results once
    saving_s: tuple[float, ...] = ()  # by all launches at the roof, of memory and of the L2 if the bytes fit there

    def roof_at(self, level: str) -> LaunchRoof | None:
        """Return the roof of a level that takes most of the time; None if the kernel has none."""
        roofs = [roof for roof in self.roofs if roof.level == level]
        return max(roofs, key=lambda roof: roof.share or 0.0, default=None)

    @property
    def scaled_from_mhz(self) -> list[float]:
        """The clocks of the ceilings that were scaled to that of the kernel."""
        return [self.sm_clock_mhz / roof.clock_scale for roof in self.roofs if roof.clock_scale]


@dataclass(frozen=True)
class Profile:
    """A report that was placed: its kernels, those with the most total time first."""

    report: str
    device: str
    card: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    launches: int
    total_s: float
    start_s: float | None  # the shortest GPU time of a smallest case, among operators that run without a CUDA graph
    left_out: int
    failed: list[str]  # kernels that the profiler did not count
    uncounted: list[tuple[str, str]]  # units and dtypes of ceilings whose FLOPs this architecture does not count
    kernels: list[Placed]


@dataclass(frozen=True)
class RoofModel:
    """What ceilings say of a launch that takes `mean_s` at a clock."""

    ceilings: Ceilings
    mean_s: Number
    clock_mhz: Number = None  # ceilings that were measured at a higher one are scaled to it, but not those of memory

    def roof_of_flops(self, flops: float, dtype: str, unit: str | None = None) -> LaunchRoof:
        """Return the roof of FLOPs: the highest ceiling of their dtype, on a unit or on any."""
        peaks = [ceiling for ceiling in self.ceilings if ceiling.kind == "compute" and ceiling.dtype == dtype]
        peaks = [peak for peak in peaks if unit in (None, peak.compute_unit)]
        peak = max(peaks, key=lambda peak: peak.tflops, default=None)
        return replace(self._roof("compute", peak, flops), unit=peak.compute_unit if peak else unit, dtype=dtype)

    def roof_of_bytes(self, level: str, moved: float, names: Sequence[str]) -> LaunchRoof:
        """Return the roof of bytes of a level: the first of the ceilings of these names that was measured."""
        measured = (ceiling for name in names for ceiling in self.ceilings if ceiling.name == name)
        return self._roof(level, next(measured, None), moved)

    def roof_of_link(self, moved: float, link: Link, is_all_reduce: bool) -> LaunchRoof:
        """Return the roof of bytes that a link between GPUs carries, of an all-reduce the time that was measured."""
        measured_s = link.all_reduce_s(moved) if is_all_reduce else None
        name = "all_reduce" if measured_s else link.name
        least_s = measured_s or moved / (link.gb_per_s * 1e9)
        return LaunchRoof("link", name, moved, least_s, least_s / self.mean_s if self.mean_s else None)

    def _roof(self, level: str, ceiling: api.Ceiling | None, amount: float) -> LaunchRoof:
        if ceiling is None:
            return LaunchRoof(level, None, amount)
        rate = ceiling.tflops * 1e12 if ceiling.kind == "compute" else ceiling.gb_per_s * 1e9
        scale = None
        clock_mhz = None if level == "memory" else self.clock_mhz
        if clock_mhz and ceiling.sm_clock_mhz and clock_mhz < LOCKED * ceiling.sm_clock_mhz:
            scale = clock_mhz / ceiling.sm_clock_mhz
        least_s = amount / (rate * (scale or 1.0))
        share = least_s / self.mean_s if self.mean_s else None
        sustained_share = None
        if ceiling.kind == "compute" and ceiling.sustained_tflops and share is not None and scale is None:
            sustained_share = share * ceiling.tflops / ceiling.sustained_tflops
        return LaunchRoof(level, ceiling.name, amount, least_s, share, scale, sustained_share=sustained_share)


def find_ceilings(path: str, card: str, run: api.Run) -> tuple[str, Ceilings]:
    """Return the name of the GPU of a run that is a card of this model, and its ceilings.

    Raises UserError if there is none.
    """
    models = {name: device.name for name, device in measured_gpus(run).items()}
    device = next((name for name, model in models.items() if model == card), None)
    if device is None:
        measured = ", ".join(dict.fromkeys(models.values()))
        reason = f"profiled on {card}, but the ceilings are of {measured}; both must be of the same model of card"
        raise api.UserError(f"{path}: {reason}")
    return device, [ceiling for ceiling in run.roofline.ceilings if ceiling.device == device]


def measured_gpus(run: api.Run) -> dict[str, api.DeviceRecord]:
    """Return the GPUs of a run that have ceilings, by name."""
    measured = {ceiling.device for ceiling in run.roofline.ceilings}
    return {name: gpu for name, gpu in run.devices.items() if gpu.device_kind == "gpu" and name in measured}


def place_report(report: api.ncu.NcuReport, run: api.Run) -> Profile:
    """Return every kernel of a report, those that take most time first. Raises UserError for another model of card."""
    device, ceilings = find_ceilings(report.path, report.card.name, run)
    cells = [cell for cell in run.roofline.operators if cell.device == device and not cell.graph]
    start_s = min((cell.start_s for cell in cells if cell.start_s), default=None)
    groups = [(launches, ncu_counts.sum_counts(launches)) for launches in ncu_counts.group_launches(report.kernels)]
    report_s = fsum(totals.get("duration_s", 0.0) for _, totals in groups)
    kernels = [_place_kernel(*group, ceilings, report.card.multiprocessors, start_s, report_s) for group in groups]
    rated = {(ceiling.compute_unit, ceiling.dtype) for ceiling in ceilings if ceiling.kind == "compute"}
    counted = {key for launch in report.kernels for key in launch.counts}
    return Profile(
        report=report.path,
        device=device,
        card=report.card.name,
        compute_capability=report.card.capability,
        multiprocessors=report.card.multiprocessors,
        launches=len(report.kernels),
        total_s=report_s,
        start_s=start_s,
        left_out=report.left_out,
        failed=list(report.failed),
        uncounted=sorted(rated - ncu_counts.flops_counters(report.card.capability).keys() - counted),
        kernels=sorted(kernels, key=lambda kernel: -(kernel.total_s or 0.0)),
    )


def _place_kernel(
    launches: Launches, totals: Totals, ceilings: Ceilings, multiprocessors: int, start_s: Number, report_s: float
) -> Placed:
    first, count, total_s = launches[0], len(launches), totals.get("duration_s")
    mean_s, clock_mhz = (total_s or 0.0) / count or None, _clock_mhz(launches, totals)
    flops = {key: total / count for key, total in totals.items() if isinstance(key, tuple)}
    counted = [amount for pipe, amount in flops.items() if pipe != PACKED_PIPE]
    missing, missing_flops = _missing(first.counts, totals)
    model = RoofModel(ceilings, mean_s, clock_mhz)
    roofs = [model.roof_of_flops(amount, dtype, unit) for (unit, dtype), amount in flops.items() if amount]
    roofs += _memory_roofs(totals, count, model)
    counted_flops = fsum(counted) if counted else None
    fields = rate_launches(count, total_s, report_s, counted_flops, roofs)
    fields |= find_limit(mean_s, roofs, start_s, complete=set(missing) <= {"instructions"})
    fields |= {"name": first.name, "signature": first.signature, "grid": first.grid, "block": first.block}
    fields |= {"sm_clock_mhz": clock_mhz, "missing": missing, "missing_flops": missing_flops}
    if "warp_instructions" in totals and mean_s and clock_mhz:
        issuable = mean_s * api.peak_issue_rate(multiprocessors, clock_mhz)
        fields["issued_share"] = totals["warp_instructions"] / count / issuable
    return Placed(tma_instructions=totals.get("tma_instructions"), **fields)


def rate_launches(
    launches: int, total_s: Number, whole_s: float, flops: Number, roofs: list[LaunchRoof]
) -> dict[str, Any]:
    """Return the fields of a `Placed` that follow from these: share of the time, TFLOPS, intensities.

    `whole_s` is the time of all launches of the report or trace, `flops` and `roofs` are those of one launch.
    """
    mean_s = (total_s or 0.0) / launches or None
    traffic = [roof for roof in roofs if roof.level != "compute" and roof.amount]
    intensities = {roof.level: flops / roof.amount for roof in traffic} if flops else {}
    attained_tflops = flops / mean_s / 1e12 if flops is not None and mean_s else None
    share_of_time = total_s / whole_s if total_s is not None and whole_s else None
    fields = {"launches": launches, "total_s": total_s, "share_of_time": share_of_time, "mean_s": mean_s}
    return fields | {"flops": flops, "attained_tflops": attained_tflops, "intensities": intensities, "roofs": roofs}


def find_limit(mean_s: Number, roofs: list[LaunchRoof], start_s: Number, complete: bool) -> dict[str, str | None]:
    """Return the fields of a `Placed` on what limits a launch.

    `complete` says that no count is missing. The regime is None if the time is unknown, or if what is known leaves room
    for a count or a ceiling that is missing.
    """
    compute = find_slowest(roof for roof in roofs if roof.level == "compute")
    memory = find_slowest(roof for roof in roofs if roof.level != "compute")
    compute_s, memory_s = (roof.least_s if roof else 0.0 for roof in (compute, memory))
    bounds = {"start_s": start_s, "compute_s": compute_s, "memory_s": memory_s}
    regime = api.classify_regime(cpu_time_s=mean_s, gpu_time_s=None, **bounds) if mean_s else None
    is_whole = complete and all(roof.ceiling is not None for roof in roofs)
    if regime and not is_whole and max(start_s or 0.0, compute_s, memory_s) < DECISIVE_SHARES[regime] * mean_s:
        regime = None  # what is missing may take longer
    limit = {"compute": compute, "memory": memory}.get(regime)
    return {"regime": regime, "limited_by": limit and limit.ceiling, "limited_at": limit and limit.level}


def find_slowest(roofs: Iterable[LaunchRoof]) -> LaunchRoof | None:
    """Return the roof that takes the most time; None if none takes any."""
    return max((roof for roof in roofs if roof.least_s), key=lambda roof: roof.least_s, default=None)


def _clock_mhz(launches: Launches, totals: Totals) -> Number:
    """Return the cycles of all launches over their time."""
    if "sm_clock_mhz" not in totals or not totals.get("duration_s"):
        return None
    megacycles = fsum(launch.counts["sm_clock_mhz"] * launch.counts["duration_s"] for launch in launches)
    return megacycles / totals["duration_s"]


def _memory_roofs(totals: Totals, count: int, model: RoofModel) -> Iterable[LaunchRoof]:
    """Yield the roofs of L1, L2 and memory whose bytes are known."""
    moved = {level: totals[name] for level, name in CACHES.items() if name in totals}
    may_use_tma = totals.get("tma_instructions") != 0  # or their number is not known
    if may_use_tma and len(moved) == len(CACHES) and moved["l1"] < PASSED_BY * moved["l2"]:
        del moved["l1"]
    for level, amount in moved.items():
        yield model.roof_of_bytes(level, amount / count, [level])
    read, written = totals.get("memory_bytes"), 0.0
    if totals.keys() >= set(ncu_counts.MEMORY_BYTES):
        read, written = (totals[name] for name in ncu_counts.MEMORY_BYTES)
    if read is not None:
        yield model.roof_of_bytes("memory", (read + written) / count, memory_ceilings(read, written))


def memory_ceilings(read_bytes: float, write_bytes: float) -> list[str]:
    """Return the names of the ceilings of memory that bytes are under by their access pattern, best first."""
    moved, pattern = read_bytes + write_bytes, "copy"
    if read_bytes >= MOSTLY * moved:
        pattern = "read"
    elif write_bytes >= MOSTLY * moved:
        pattern = "write"
    return api.memory_ceilings("gpu", pattern)


def _missing(counts: Iterable[ncu_counts.Key], totals: Totals) -> tuple[list[str], dict[str, list[str]]]:
    """Return the quantities that a report lacks of a kernel, and the dtypes of the FLOPs that it lacks by unit."""
    flops: dict[str, list[str]] = {}
    for unit, dtype in (key for key in counts if isinstance(key, tuple) and key not in totals):
        flops.setdefault(unit, []).append(dtype)
    has_memory = totals.keys() >= set(ncu_counts.MEMORY_BYTES) or "memory_bytes" in totals
    available = {"time": "duration_s" in totals, "clock": "sm_clock_mhz" in totals, "flops": not flops}
    available |= {"memory": has_memory, "l2": "l2_bytes" in totals, "l1": "l1_bytes" in totals}
    available["instructions"] = "warp_instructions" in totals
    return [quantity for quantity, is_available in available.items() if not is_available], flops
