"""One compute ceiling: the reference GEMM, a search for the fastest product, three blocks of it, and sustained load."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.repeatability import MOST_CEILING_SPREAD, relative_spread
from roofline.core.terms import DEVICE_TRAITS, UnsupportedError
from roofline.devices import datasheets
from roofline.devices.base import Device, Workload
from roofline.measure import search, sustained
from roofline.measure.investigation import LOW_PEAK_SHARE, investigate
from roofline.measure.operator_job import Seals, declare_cell
from roofline.measure.protocol import OPENING_METHOD, make_timing, time_caller, time_device_checked
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S, StateLog, flag_throttled, throttle_reasons_if_known
from roofline.operators.gemm.operator import Gemm, workloads_module
from roofline.records.compute import (
    Candidate,
    KernelIdentity,
    NotRepeated,
    PeakFlops,
    Sustained,
    WorkloadBlock,
    WorkloadSpec,
)
from roofline.records.device_record import DeviceRecord
from roofline.records.operator_record import Measurement
from roofline.records.timing_record import Check, Search

# Every block starts alike and ends before the power limit acts, 30 to 60 ms after the start on an H100.
REST_S, WARM_UP_STEPS, LEAD_STEPS = 0.1, 3, 1  # 0.3 and 0.6 s of rest give the same on an H100. LEAD: a queue's first
SHORT_REST_S = 0.05  # before finalists, and before register-only kernels, which reach no power limit
BLOCK_STEPS, BLOCK_S, MOST_STEPS = 10, 0.01, 200  # whichever of the first two is longer
BLOCKS = 3
LONGEST_WORKLOAD_S = {"gpu": 0.03 / BLOCK_STEPS, "cpu": 0.2}  # of a product, or a GPU's reference
FINALIST_SHARE = 0.95  # of the most FLOPs per cycle in a short trial: these shapes are tried by whole blocks
FINALISTS = 2  # shapes; in 167 searches on H100s no third one won
SECOND_BLOCK_SHARE = 0.99  # of the fastest finalist: these get a second block
EQUAL_RATE_SHARE = 0.997  # of the best register-only kernel: those that reach it keep their order
MOST_REPEATED = 3  # candidates whose blocks may disagree
HOLD_S = 1.5 * THROTTLE_REPORT_LAG_S  # that a short register-only kernel goes on, read three quarters through
MOST_BLOCK_S = 10.0  # of a block on a slow card
REGISTER_BUDGET_S = 0.15  # of a block of a CPU's register-only loops: some 30 samples


class RegisterWorkloads:
    """The kernels that work in registers alone, offered with the interface of a module of GEMM workloads."""

    @staticmethod
    def reference_workload(device: Device, ceiling: str, size: int, seed: int) -> None:
        """Return None: these kernels have no size to compare at."""

    @staticmethod
    def own_reference_workloads(device: Device, ceiling: str, size: int, seed: int) -> list[Workload]:
        """Return no workload, as there is no reference."""
        return []

    @staticmethod
    def candidate_workloads(
        device: Device, ceiling: str, size: int, most_flops: float, seed: int
    ) -> Iterable[Workload]:
        """Return the kernels of this ceiling that the search tries."""
        return device.candidate_fma_workloads(ceiling, seed)

    @staticmethod
    def rebuild_workload(device: Device, ceiling: str, size: int, product: WorkloadSpec, seed: int) -> Workload:
        """Return the kernel that a record describes."""
        return device.rebuild_fma_workload(ceiling, product, seed)

    @staticmethod
    def variant_workloads(device: Device, ceiling: str, product: WorkloadSpec, seed: int) -> list[Workload]:
        """Return no workload: a register kernel has one arithmetic."""
        return []


class CeilingTarget(NamedTuple):
    """A ceiling to find, and the workloads that reach it; candidates follow from `size`."""

    device: Device
    ceiling: str
    size: int
    products: Any


@dataclass(frozen=True)
class RepeatedWorkload:
    """A product, its blocks, and what sustained load leaves of it."""

    device: Device
    workload: Workload
    blocks: list[WorkloadBlock]
    load: Sustained | None = None
    variants: Sequence[WorkloadBlock] = ()
    not_repeated: Sequence[NotRepeated] = ()

    @property
    def agrees(self) -> bool:
        return relative_spread([block.tflops for block in self.blocks]) <= MOST_CEILING_SPREAD[self.device.kind]


def measure_compute_ceiling(
    device: Device, record: DeviceRecord, seals: Seals, ceiling, sizes, warmup, iterations, time_budget_s, sustained_s
) -> tuple[PeakFlops, list[Measurement]]:
    """The ceiling, and the reference GEMM as an operator under it; next to it ours, where there is one.

    `sizes`: for the candidates, and of the reference.

    Register-only kernels get no sustained load: on an H200 they draw 380 to 520 of 700 W. CPUs get none.
    """
    options = {"warmup": warmup, "iterations": iterations, "time_budget_s": time_budget_s, "rest_s": REST_S}
    products = RegisterWorkloads if ceiling in REGISTER_ONLY_DTYPES else workloads_module(device)
    target, what = CeilingTarget(device, ceiling, sizes[0], products), (device, ceiling, sizes[1], 1)
    first = products.reference_workload(*what)
    reference = _measure_as_operator(device, seals, first, ceiling, **options) if first else None
    ours = [
        _measure_as_operator(device, seals, one, ceiling, **options) for one in products.own_reference_workloads(*what)
    ]
    candidates, searched = _rank_candidates(target, reference, time_budget_s)
    if not first:
        options |= {"rest_s": SHORT_REST_S, "time_budget_s": min(time_budget_s, REGISTER_BUDGET_S)}
    loaded = first and DEVICE_TRAITS[device.kind].reports_power
    found = _repeat_fastest(target, candidates, options, sustained_s if loaded else None)
    cells = [reference, *ours] if reference else []
    return _peak_record(record, target, found, candidates, searched, reference, time_budget_s), cells


def _repeat_fastest(
    target: CeilingTarget, candidates: list[Candidate], options: dict, sustained_s: float | None
) -> RepeatedWorkload:
    """The fastest candidate whose blocks agree, or else the fastest; with its variants. The fastest has two tries."""
    device, tried = target.device, []
    for candidate in candidates[:1] + candidates[:MOST_REPEATED]:
        workload = target.products.rebuild_workload(*target[:3], candidate.product, 5)
        found = RepeatedWorkload(device, workload, [_time_block(device, workload, options) for _ in range(BLOCKS - 1)])
        if found.agrees:
            found = _add_third_block(found, options, sustained_s)
        tried.append(found)
        if found.agrees:
            break
    if not found.agrees:
        found = tried[0] if len(tried[0].blocks) == BLOCKS else _add_third_block(tried[0], options, sustained_s)
    ways = target.products.variant_workloads(device, target.ceiling, found.workload.product, 7)
    variants = [_time_fastest_block(device, some, options) for some in ways]
    return replace(
        found,
        variants=[block for block in variants if block],
        not_repeated=[
            NotRepeated(product=one.workload.product, repeats_tflops=[block.tflops for block in one.blocks])
            for one in tried
            if one.workload.product != found.workload.product
        ],
    )


def _add_third_block(found: RepeatedWorkload, options: dict, sustained_s: float | None) -> RepeatedWorkload:
    """With a third block, which is the opening of sustained load if there is one."""
    device, workload, blocks = found.device, found.workload, found.blocks
    if not sustained_s:
        return replace(found, blocks=[*blocks, _time_block(device, workload, options)])
    _rest_and_warm_up(device, workload)
    load = sustained.measure_sustained(device, workload, sustained_s, blocks[0].timing.median_s)
    opening = load.first_products_s[LEAD_STEPS:][: len(blocks[0].timing.samples_s)] if load else []
    if not opening:
        return replace(found, load=load)
    timing = make_timing(OPENING_METHOD, WARM_UP_STEPS + LEAD_STEPS, len(opening), opening)
    timing = timing.model_copy(update={"contention": load.contention})
    check = blocks[0].check.model_copy(update={"relative_error_after": workload.compare().relative_error})
    third = _block_record(device, workload, check, timing, [], None)  # the load counts clocks by chunks
    return replace(found, load=load, blocks=[*blocks, third])


def _peak_record(
    record: DeviceRecord,
    target: CeilingTarget,
    found: RepeatedWorkload,
    candidates: list[Candidate],
    searched: Search,
    reference: Measurement | None,
    time_budget_s: float,
) -> PeakFlops:
    device, ceiling, load, peak = target.device, target.ceiling, found.load, record.datasheet.peaks.get(target.ceiling)
    median = sorted(found.blocks, key=lambda one: one.tflops)[len(found.blocks) // 2]
    counted = [block for block in found.blocks if block.sm_clock_mhz]
    clocked = min(counted, key=lambda block: abs(block.tflops - median.tflops), default=median)
    reports = any(state.throttle_reasons is not None for block in found.blocks for state in block.states)
    burst_throttle_reasons = None
    if not reference and DEVICE_TRAITS[device.kind].reports_power:
        burst_throttle_reasons = throttle_reasons_if_known(_hold_load(device, found.workload, median), HOLD_S)
    kernel = KernelIdentity(
        **device.identify_kernel(found.workload.step)
    )  # after all timing: a profiler may stay in the process
    tflops = max(median.tflops, load.tflops if load else 0.0)
    investigation = None
    if (
        reference
        and peak
        and DEVICE_TRAITS[device.kind].peaks_by == "datasheet"
        and tflops < LOW_PEAK_SHARE * peak.tflops
    ):
        investigation = investigate(device, ceiling, median.tflops, load, record.datasheet, kernel, time_budget_s)
    throttled = any(block.timing.all_throttled for block in found.blocks) or bool(load and load.all_throttled)
    starved, points = (load.starved_points, len(load.curve)) if load else (0, 0)
    idle = f"the host left the device without work in {starved} of {points} moments of load, which do not count"
    clock_tflops = _clock_tflops(peak, record, clocked.sm_clock_mhz)
    return PeakFlops(
        workload="gemm" if reference else "fma",
        compute_unit="cuda_core" if reference and kernel.tensor_cores is False else device.compute_unit(ceiling),
        tflops=tflops,
        reference_tflops=_caller_tflops(reference) if reference else None,
        burst_tflops=median.tflops,
        sustained_tflops=load.tflops if load else None,
        datasheet_tflops=peak.tflops if peak else None,
        sm_clock_mhz=clocked.sm_clock_mhz,
        fraction_of_clock=clocked.tflops / clock_tflops if clock_tflops else None,
        inputs=median.inputs,
        throttle_reasons=sorted({*(burst_throttle_reasons or []), *(load.throttle_reasons if load else [])}),
        burst_throttle_reasons=burst_throttle_reasons,
        sustained_throttle_reasons=load.throttle_reasons if load and reports else None,
        all_throttled=throttled if reports else None,
        remarks=[idle] if starved else [],
        search=searched,
        candidates=candidates,
        not_repeated=found.not_repeated,
        repeats=found.blocks,
        sustained=load,
        variants=found.variants,
        kernel=kernel,
        investigation=investigation,
    )


def _measure_as_operator(
    device: Device, seals: Seals, workload: Workload, dtype: str, rest_s: float, **options
) -> Measurement:
    """A product as an operator under its roof, with its own prediction."""
    cell = Gemm().make_cell(device, dtype, workload)
    declared = declare_cell(cell, None, seals, cold=False)
    check, latency, states, _ = _time_checked(device, workload, rest_s, **options)
    on_device, doubts = time_device_checked(
        device, workload.step, latency, time_budget_s=options["time_budget_s"], rest=lambda: _rest(device, rest_s)
    )
    return Measurement(
        **declared,
        check=check.model_copy(update={"relative_error_after": workload.compare().relative_error}),
        cpu_time=latency,
        gpu_time=on_device,
        overhead_s=None,
        remarks=doubts,
        states=states,
    )


def _caller_tflops(measured: Measurement) -> float:
    return measured.flops / measured.cpu_time.median_s / 1e12


def _rank_candidates(
    target: CeilingTarget, reference: Measurement | None, time_budget_s: float
) -> tuple[list[Candidate], Search]:
    """What was tried: the finalists, the fastest first, then the others by FLOPs per counted cycle, which need no rest.

    A product that draws less power runs at a higher clock, so finalists are ordered by FLOP/s of blocks. Without a
    counted clock, as on a CPU, FLOP/s order them all.
    """
    device = target.device
    longest = LONGEST_WORKLOAD_S[device.kind] * (_caller_tflops(reference) * 1e12 if reference else 0.0)
    most = max(longest, reference.flops) if reference and device.kind == "gpu" else longest
    ways = list(target.products.candidate_workloads(*target[:3], most, 3))
    tried, searched = _try_workloads(device, ways, time_budget_s)
    counted = reference and tried[0].clock_mhz
    rates = {place: _time_block_tflops(device, tried[place]) for place in choose_finalists(tried)} if counted else {}
    for place in [place for place, rate in rates.items() if rate >= SECOND_BLOCK_SHARE * max(rates.values())]:
        rates[place] = (rates[place] + _time_block_tflops(device, tried[place])) / 2
    found = [
        Candidate(
            product=one.way.product,
            flops=one.way.flops,
            trial_tflops=rates.get(place, one.way.flops / one.seconds / 1e12),
            flops_per_cycle=_flops_per_cycle(one) if one.clock_mhz else None,
        )
        for place, one in enumerate(tried)
    ]
    best = EQUAL_RATE_SHARE * max(map(_flops_per_cycle, tried))
    order = sorted(
        range(len(tried)), key=lambda place: (-rates.get(place, 0), -min(best, _flops_per_cycle(tried[place])))
    )
    return [found[place] for place in order], searched


def _try_workloads(device: Device, ways: list, budget_s: float) -> tuple[list[search.CandidateTrial], Search]:
    tried, searched = search.try_candidates(device, ways, lambda way: way.step, budget_s, work_of=lambda way: way.flops)
    if not all(trial.clock_mhz for trial in tried):
        tried = [trial._replace(clock_mhz=None) for trial in tried]
    return tried, searched


def _flops_per_cycle(trial: search.CandidateTrial) -> float:
    """FLOPs per cycle; per microsecond where no clock was counted."""
    return trial.way.flops / trial.seconds / 1e6 / (trial.clock_mhz or 1)


def choose_finalists(tried: list[search.CandidateTrial]) -> list[int]:
    """Places of each leading shape's most FLOPs per cycle and of its shortest trial, in which power counts too."""
    of_shape: dict[tuple, list[int]] = {}
    for place in sorted(range(len(tried)), key=lambda place: -_flops_per_cycle(tried[place])):
        of_shape.setdefault(tuple(tried[place].way.product.shape.values()), []).append(place)
    shapes = list(of_shape.values())[:FINALISTS]
    near = [
        same
        for same in shapes
        if _flops_per_cycle(tried[same[0]]) >= FINALIST_SHARE * _flops_per_cycle(tried[shapes[0][0]])
    ]
    pairs = [(same[0], min(same, key=lambda place: tried[place].seconds)) for same in near]
    return [*dict.fromkeys(place for pair in pairs for place in pair)]


def _time_block_tflops(device: Device, trial: search.CandidateTrial) -> float:
    """TFLOPS, after a short rest."""
    _rest_and_warm_up(device, trial.way, SHORT_REST_S)
    times = device.time_steps(trial.way.step, LEAD_STEPS + _steps_per_block(trial.seconds))[LEAD_STEPS:]
    return trial.way.flops * len(times) / sum(times) / 1e12


def _time_fastest_block(device: Device, ways: list, options: dict) -> WorkloadBlock | None:
    """A block of the fastest of these; None if the library runs none."""
    try:
        tried, _ = _try_workloads(device, ways, options["time_budget_s"] / 2)
    except UnsupportedError:
        return None
    return _time_block(device, max(tried, key=_flops_per_cycle).way, options)


def _steps_per_block(seconds: float) -> int:
    """Of a block on a GPU, of steps that take so long."""
    return min(MOST_STEPS, max(BLOCK_STEPS, math.ceil(BLOCK_S / seconds)))


def _time_block(device: Device, workload: Workload, options: dict) -> WorkloadBlock:
    """One block, after the same start as all, of a result that was checked. On a GPU `options` give the rest alone."""
    if not DEVICE_TRAITS[device.kind].synchronous:
        *_, step_s = device.time_steps(workload.step, 2)
        options = options | dict(
            warmup=WARM_UP_STEPS, iterations=_steps_per_block(step_s), time_budget_s=MOST_BLOCK_S, lead=LEAD_STEPS
        )
    return _block_record(device, workload, *_time_checked(device, workload, **options))


def _block_record(
    device: Device, workload: Workload, check: Check, latency, states: list, sm_clock_mhz
) -> WorkloadBlock:
    # Other guests of a CPU's host slow single products.
    seconds = (
        latency.median_s if DEVICE_TRAITS[device.kind].synchronous else sum(latency.samples_s) / len(latency.samples_s)
    )
    return WorkloadBlock(
        product=workload.product,
        inputs=workload.inputs,
        flops=workload.flops,
        check=check,
        timing=latency,
        tflops=workload.flops / seconds / 1e12,
        states=states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _time_checked(device: Device, workload: Workload, rest_s: float, **options):
    """Check, timing, states and clock (of the kernel or the block) of a block after a rest; compared before and after.

    Raises ArithmeticError for a wrong result.
    """
    began = time.monotonic()
    check = workload.run_and_check()
    checked_s = time.monotonic() - began if DEVICE_TRAITS[device.kind].synchronous else None  # it ran the product too
    _rest(device, rest_s)
    log = StateLog(device)
    log.read("before")
    latency = time_caller(device, workload.step, checked_s=checked_s, **options)
    sm_clock_mhz = workload.clock_mhz() or latency.sm_clock_mhz
    log.read("after")
    check = check.model_copy(update={"relative_error_after": workload.compare().relative_error})
    return check, flag_throttled(latency, log.states), log.states, sm_clock_mhz


def _hold_load(device: Device, workload: Workload, block: WorkloadBlock) -> list:
    """Readings under as long a load as NVML needs to report what limits it."""
    log, count = StateLog(device), max(1, round(HOLD_S / block.timing.median_s))
    device.time_steps(workload.step, count, 0, lambda: log.read("during"))
    return log.states


def _rest_and_warm_up(device: Device, workload: Workload, rest_s: float = REST_S) -> None:
    _rest(device, rest_s)
    device.time_steps(workload.step, WARM_UP_STEPS)


def _rest(device: Device, seconds: float) -> None:
    device.synchronize()
    if DEVICE_TRAITS[device.kind].reports_power:
        time.sleep(seconds)


def _clock_tflops(peak, record: DeviceRecord, clock_mhz: float | None) -> float | None:
    if not (peak and peak.operations_per_clock_per_multiprocessor and clock_mhz):
        return None
    rate, multiprocessors = peak.operations_per_clock_per_multiprocessor, record.hardware["multiprocessors"]
    return datasheets.clock_peak_tflops(rate, multiprocessors, clock_mhz)
