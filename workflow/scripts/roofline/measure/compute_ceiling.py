"""One compute ceiling: the reference GEMM, a search for the fastest product, three blocks of it, and sustained load."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType

from roofline.core.disturbance import collect_throttle_reasons
from roofline.core.dtypes import REGISTER_ONLY_DTYPES
from roofline.core.grouping import group_by
from roofline.core.repeatability import relative_spread
from roofline.core.statistics import FEWEST_SAMPLES
from roofline.core.terms import DEVICE_TRAITS, UnsupportedError
from roofline.devices import datasheets
from roofline.devices.base import Device, Workload, is_gpu
from roofline.measure import search, sustained
from roofline.measure.investigation import LOW_PEAK_SHARE, investigate
from roofline.measure.operator_job import declare_cell
from roofline.measure.protocol import OPENING_METHOD, TimingBudget, make_timing, time_caller, time_device_checked
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S, StateLog, flag_throttled
from roofline.operators.gemm.operator import Gemm, workloads_module
from roofline.operators.predicting import Seals
from roofline.records import compute
from roofline.records.base import copy_fields
from roofline.records.compute import Candidate, NotRepeated, PeakFlops, Sustained, WorkloadBlock, WorkloadSpec
from roofline.records.device_record import DatasheetPeak, DeviceRecord
from roofline.records.operator_record import Measurement
from roofline.records.timing_record import Check, Search, Timing

# Every block starts alike and ends before the power limit acts, 30 to 60 ms after the start on an H100.
REST_S, WARM_UP_STEPS = 0.1, 3  # 0.3 and 0.6 s of rest give the same on an H100
LEAD_STEPS = 1  # the first steps of a queue, which do not count
SHORT_REST_S = 0.05  # before finalists, and before register-only kernels, which reach no power limit
BLOCK_STEPS, BLOCK_S, MOST_STEPS = 5, 0.01, 200  # whichever of the first two is longer: on an H200 10 to 15 ms
BLOCKS = 3
REFERENCE_BLOCK_S = 0.025  # of the reference GEMM, whose samples are taken in several blocks with rests between them
# Candidates take no longer, or no longer than the reference GEMM on a GPU, where those of two dtypes are slow.
LONGEST_SLOW_WORKLOAD_S, SLOW_DTYPES = 3e-3, ("fp64", "fp32")
FINALIST_SHARE = 0.95  # of the most FLOPs per cycle in a short trial: such shapes are tried by whole blocks
FINALISTS = 2  # shapes of the most FLOPs per cycle, and as many of the longest k, which draw the least power
SECOND_BLOCK_SHARE = 0.99  # of the fastest finalist's rate: such finalists get a second block
MOST_REPEATED = 3  # candidates whose blocks may disagree
HOLD_S = 1.5 * THROTTLE_REPORT_LAG_S  # of load by a short register-only kernel, read three quarters through
MOST_BLOCK_S = 10.0  # of a block on a slow card
REGISTER_BUDGET_S = 0.15  # for a block of a CPU's register-only loops: some 30 samples
REFERENCE_SEED, CANDIDATES_SEED, REPEATS_SEED, VARIANTS_SEED = 1, 3, 5, 7

WorkloadTrial = search.CandidateTrial[Workload]


@dataclass(frozen=True)
class CeilingTarget:
    """A compute ceiling to find, in blocks of this budget; for GEMMs on a GPU `sustained_s` seconds of load follow.

    The candidates' shapes follow from `size`, that of a square GEMM. The reference GEMM is of `reference_size`. With
    two `loads` the runner-up is put under load too, and the higher rate counts.
    """

    device: Device
    record: DeviceRecord
    ceiling: str
    size: int
    reference_size: int
    budget: TimingBudget
    sustained_s: float | None
    loads: int = 1  # products that are put under load: the fastest, and others of another shape

    @cached_property
    def gemms(self) -> ModuleType | None:
        """The module of its GEMMs; None if the device's register-only kernels reach it."""
        return None if self.ceiling in REGISTER_ONLY_DTYPES else workloads_module(self.device)

    def references(self) -> Iterator[Workload]:
        """Yield the reference GEMM, then the kernels of ours that compute it. Register-only kernels have none."""
        if self.gemms:
            device, ceiling, size = self.device, self.ceiling, self.reference_size
            yield self.gemms.reference_workload(device, ceiling, size, REFERENCE_SEED)
            yield from self.gemms.own_reference_workloads(device, ceiling, size, REFERENCE_SEED)

    def candidates(self, reference: Measurement | None) -> Iterable[Workload]:
        """Return the workloads that the search tries; the rate of the reference limits the size of GEMMs."""
        if not self.gemms or not reference:
            return self.device.candidate_fma_workloads(self.ceiling, CANDIDATES_SEED)
        most_flops = _most_flops(self, reference)
        return self.gemms.candidate_workloads(self.device, self.ceiling, self.size, most_flops, CANDIDATES_SEED)

    def rebuild(self, spec: WorkloadSpec) -> Workload:
        """Return the candidate that a record describes, on new numbers."""
        if not self.gemms:
            return self.device.rebuild_fma_workload(self.ceiling, spec, REPEATS_SEED)
        return self.gemms.rebuild_workload(self.device, self.ceiling, self.size, spec, REPEATS_SEED)

    def variants(self, reference: Measurement | None) -> Iterable[list[Workload]]:
        """Return the candidates for each variant of a GEMM: another output or accumulation."""
        if not self.gemms or not reference:
            return []
        most_flops = _most_flops(self, reference)
        return self.gemms.variant_workloads(self.device, self.ceiling, self.size, most_flops, VARIANTS_SEED)


@dataclass(frozen=True)
class RepeatedWorkload:
    """A workload, its blocks, and the sustained load that followed them."""

    target: CeilingTarget
    workload: Workload
    blocks: list[WorkloadBlock]
    load: Sustained | None = None
    variants: Sequence[WorkloadBlock] = ()
    not_repeated: Sequence[NotRepeated] = ()

    @property
    def blocks_agree(self) -> bool:
        """True if the TFLOPS of the blocks lie within 2 % of one another on a GPU, 20 % on a CPU."""
        spread = relative_spread([block.tflops for block in self.blocks]) or 0.0
        return spread <= DEVICE_TRAITS[self.target.device.kind].most_ceiling_spread


def measure_compute_ceiling(target: CeilingTarget, seals: Seals) -> tuple[PeakFlops, list[Measurement]]:
    """Measure one compute ceiling. Return its record, and as cells the reference GEMM and our kernels of its size.

    Register-only kernels get no sustained load: on an H200 they draw 380 to 520 of 700 W. CPUs get none. Raises
    UnsupportedError where nothing runs, and ArithmeticError for a wrong result.
    """
    references, reference, cells = target.references(), None, []
    if reference_workload := next(references, None):  # its arrays stay until the end
        reference = _measure_as_operator(target, seals, reference_workload)
        cells = [reference, *(_measure_as_operator(target, seals, workload) for workload in references)]
    candidates, search_record = _rank_candidates(target, reference)
    repeated = _load_runners_up(_repeat_fastest(target, candidates), candidates)
    variants = [_time_fastest_block(target, workloads) for workloads in target.variants(reference)]
    repeated = replace(repeated, variants=[block for block in variants if block])
    return _peak_record(repeated, candidates, search_record, reference), cells


# ---------------------------------------------------------------- blocks of the fastest candidates


def _repeat_fastest(target: CeilingTarget, candidates: list[Candidate]) -> RepeatedWorkload:
    """Return the fastest candidate whose blocks agree, else the fastest."""
    attempts: list[RepeatedWorkload] = []
    for candidate in [candidates[0], *candidates[:MOST_REPEATED]]:  # the fastest one twice
        workload = target.rebuild(candidate.product)
        repeated = RepeatedWorkload(target, workload, [_time_block(target, workload) for _ in range(BLOCKS - 1)])
        if repeated.blocks_agree:
            repeated = _add_third_block(repeated)
        attempts.append(repeated)
        if repeated.blocks_agree:
            break
    if not repeated.blocks_agree:
        repeated = attempts[0]
        if len(repeated.blocks) < BLOCKS:
            repeated = _add_third_block(repeated)
    spec = repeated.workload.product
    not_repeated = [
        NotRepeated(product=attempt.workload.product, repeats_tflops=[block.tflops for block in attempt.blocks])
        for attempt in attempts
        if attempt.workload.product != spec
    ]
    return replace(repeated, not_repeated=not_repeated)


def _load_runners_up(repeated: RepeatedWorkload, candidates: list[Candidate]) -> RepeatedWorkload:
    """Put the fastest candidates of other shapes under load too, as the target asks for, and keep the highest rate."""
    target, device = repeated.target, repeated.target.device
    by_shape = group_by(candidates, lambda candidate: str(candidate.product.shape))
    shape = str(repeated.workload.product.shape)
    runners_up = [group[0] for key, group in by_shape.items() if key != shape] if repeated.load else []
    for candidate in runners_up[: target.loads - 1]:
        assert repeated.load and target.sustained_s and is_gpu(device), "GPUs alone are put under load"
        workload = target.rebuild(candidate.product)
        workload.run_and_check()
        _rest_and_warm_up(device, workload, REST_S)
        work = sustained.LoadedWork(workload.step, workload.flops, workload.product)
        step_s = workload.flops / candidate.trial_tflops / 1e12
        load = sustained.measure_sustained(device, work, target.sustained_s, step_s)
        workload.compare()
        if load and load.tflops > repeated.load.tflops:
            repeated = replace(repeated, load=load)
    return repeated


def _add_third_block(repeated: RepeatedWorkload) -> RepeatedWorkload:
    """Add a third block, which is the opening of sustained load if there is one."""
    target, workload, blocks = repeated.target, repeated.workload, repeated.blocks
    device = target.device
    if not target.gemms or not target.sustained_s or not is_gpu(device):
        return replace(repeated, blocks=[*blocks, _time_block(target, workload)])
    _rest_and_warm_up(device, workload, REST_S)
    step_s, steps = blocks[0].timing.median_s, len(blocks[0].timing.samples_s)
    work = sustained.LoadedWork(workload.step, workload.flops, workload.product)
    load = sustained.measure_sustained(device, work, target.sustained_s, step_s)
    if not load or not (opening := load.first_products_s[LEAD_STEPS:][:steps]):
        return replace(repeated, load=load)
    timing = make_timing(OPENING_METHOD, WARM_UP_STEPS + LEAD_STEPS, len(opening), opening)
    timing = timing.model_copy(update={"contention": load.contention})
    differing = {
        "check": _with_error_after(blocks[0].check, workload),
        "timing": timing,
        "tflops": _block_tflops(device, workload, timing),
        "states": [],
        "sm_clock_mhz": None,  # the load counts clocks by chunks
    }
    return replace(repeated, load=load, blocks=[*blocks, blocks[0].model_copy(update=differing)])


# ---------------------------------------------------------------- records


def _peak_record(
    repeated: RepeatedWorkload, candidates: list[Candidate], search_record: Search, reference: Measurement | None
) -> PeakFlops:
    target, load = repeated.target, repeated.load
    device, datasheet = target.device, target.record.datasheet
    peak = datasheet.peaks.get(target.ceiling)
    median = sorted(repeated.blocks, key=lambda block: block.tflops)[len(repeated.blocks) // 2]
    burst_throttle_reasons = None
    if not reference and DEVICE_TRAITS[device.kind].reports_power:
        burst_throttle_reasons = _read_limits_under_load(device, repeated.workload, median)
    # After all timing of candidates: a profiler may stay in the process.
    kernel = compute.KernelIdentity(**device.identify_kernel(repeated.workload.step))
    tflops = max(median.tflops, load.tflops if load else 0.0)
    reports = any(state.throttle_reasons is not None for block in repeated.blocks for state in block.states)
    clock_block = _clock_block(repeated.blocks, median)
    all_throttled = any(block.timing.all_throttled for block in repeated.blocks) or bool(load and load.all_throttled)
    measured = PeakFlops(
        workload="gemm" if reference else "fma",
        compute_unit="cuda_core" if reference and kernel.tensor_cores is False else device.compute_unit(target.ceiling),
        tflops=tflops,
        reference_tflops=_caller_tflops(reference) if reference else None,
        burst_tflops=median.tflops,
        sustained_tflops=load.tflops if load else None,
        datasheet_tflops=peak.tflops if peak else None,
        sm_clock_mhz=clock_block.sm_clock_mhz,
        fraction_of_clock=_fraction_of_clock(peak, target.record, clock_block),
        inputs=median.inputs,
        throttle_reasons=sorted({*(burst_throttle_reasons or []), *(load.throttle_reasons if load else [])}),
        burst_throttle_reasons=burst_throttle_reasons,
        sustained_throttle_reasons=load.throttle_reasons if load and reports else None,
        all_throttled=all_throttled if reports else None,
        remarks=_remarks(load),
        search=search_record,
        candidates=candidates,
        not_repeated=repeated.not_repeated,
        repeats=repeated.blocks,
        sustained=load,
        variants=repeated.variants,
        kernel=kernel,
        investigation=None,
    )
    datasheet_peak = peak if DEVICE_TRAITS[device.kind].peaks_by == "datasheet" else None
    if reference and datasheet_peak and tflops < LOW_PEAK_SHARE * datasheet_peak.tflops:
        investigation = investigate(device, target.ceiling, measured, datasheet, target.budget.time_budget_s)
        measured = measured.model_copy(update={"investigation": investigation})
    return measured


def _clock_block(blocks: Sequence[WorkloadBlock], median: WorkloadBlock) -> WorkloadBlock:
    """Return the block with a counted clock whose rate is nearest the median block's; that one if none has a clock."""
    blocks_with_clock = [block for block in blocks if block.sm_clock_mhz]
    return min(blocks_with_clock, key=lambda block: abs(block.tflops - median.tflops), default=median)


def _remarks(load: Sustained | None) -> list[str]:
    if load is None or not load.starved_points:
        return []
    starved, points = load.starved_points, len(load.curve)
    return [f"the host left the device without work in {starved} of {points} moments of load, which do not count"]


def _fraction_of_clock(peak: DatasheetPeak | None, record: DeviceRecord, block: WorkloadBlock) -> float | None:
    """Return a block's rate over what the units can do at its clock; None where their rate or clock is not known."""
    rate = peak and peak.operations_per_clock_per_multiprocessor
    if not rate or not block.sm_clock_mhz:
        return None
    return block.tflops / datasheets.clock_peak_tflops(rate, record.hardware["multiprocessors"], block.sm_clock_mhz)


def _measure_as_operator(target: CeilingTarget, seals: Seals, workload: Workload) -> Measurement:
    """Measure a GEMM as an operator under its roof, with its own prediction."""
    device, budget_s = target.device, target.budget.time_budget_s
    cell = Gemm().make_cell(device, target.ceiling, workload)
    declared = declare_cell(cell, None, seals, cold=False)
    block = _time_checked(target, workload, replace(target.budget, longest_block_s=REFERENCE_BLOCK_S))
    gpu_time, doubts = time_device_checked(
        device,
        workload.step,
        block.timing,
        # Of which half is spent: at most a block, but enough samples to conclude from.
        time_budget_s=min(budget_s, 2 * max(REFERENCE_BLOCK_S, FEWEST_SAMPLES * block.timing.median_s)),
        rest=lambda: _rest(device, REST_S),
    )
    return Measurement(
        **declared,
        check=_with_error_after(block.check, workload),
        cpu_time=block.timing,
        gpu_time=gpu_time,
        overhead_s=None,
        remarks=doubts,
        states=block.states,
    )


def _caller_tflops(measurement: Measurement) -> float:
    return measurement.flops / measurement.cpu_time.median_s / 1e12


# ---------------------------------------------------------------- the search


def _rank_candidates(target: CeilingTarget, reference: Measurement | None) -> tuple[list[Candidate], Search]:
    """Return the candidates tried: the finalists, the fastest first, then the others by FLOPs per counted cycle.

    FLOPs per cycle need no rest. A GEMM that draws less power runs at a higher clock, so finalists are ordered by the
    FLOP/s of blocks. Without a counted clock, as on a CPU, FLOP/s order them all.
    """
    device = target.device
    trials, search_record = _try_workloads(device, list(target.candidates(reference)), target.budget.time_budget_s)
    finalist_tflops: dict[int, float] = {}  # by index of the trial
    if reference and trials[0].clock_mhz:
        finalist_tflops = _time_finalists(device, trials)
    candidates = []
    for index, trial in enumerate(trials):
        product, flops = trial.candidate.product, trial.candidate.flops
        tflops = finalist_tflops.get(index, flops / trial.seconds / 1e12)
        rate = _flops_per_cycle(trial) if trial.clock_mhz else None
        candidates.append(Candidate(product=product, flops=flops, trial_tflops=tflops, flops_per_cycle=rate))
    equal_rate = search.EQUAL_WORKLOAD_SHARE * max(map(_flops_per_cycle, trials))

    def rank(index: int) -> tuple[float, float]:
        return -finalist_tflops.get(index, 0), -min(equal_rate, _flops_per_cycle(trials[index]))

    order = sorted(range(len(trials)), key=rank)
    return [candidates[index] for index in order], search_record


def _most_flops(target: CeilingTarget, reference: Measurement) -> float:
    """Return the FLOPs of the largest candidates: those that take the longest allowed at the rate of the reference."""
    on_gpu = target.device.kind == "gpu"
    slow = on_gpu and target.ceiling in SLOW_DTYPES
    longest_s = LONGEST_SLOW_WORKLOAD_S if slow else DEVICE_TRAITS[target.device.kind].longest_workload_s
    most_flops = longest_s * _caller_tflops(reference) * 1e12
    return max(most_flops, reference.flops) if on_gpu else most_flops


def _try_workloads(device: Device, workloads: list[Workload], budget_s: float) -> tuple[list[WorkloadTrial], Search]:
    """Return the trials of workloads, which all have a counted clock or none has."""
    trials, search_record = search.try_candidates(
        device, workloads, lambda workload: workload.step, budget_s, work_of=lambda workload: workload.flops
    )
    if not all(trial.clock_mhz for trial in trials):
        trials = [trial._replace(clock_mhz=None) for trial in trials]
    return trials, search_record


def _flops_per_cycle(trial: WorkloadTrial) -> float:
    """Return FLOPs per cycle; per microsecond where no clock was counted."""
    return trial.candidate.flops / trial.seconds / 1e6 / (trial.clock_mhz or 1)


def choose_finalists(trials: list[WorkloadTrial]) -> list[int]:
    """Return the indices of two trials for each leading shape, each once.

    They are the trial of the most FLOPs per cycle, and the shortest, in which power counts too. The shapes of the
    longest k lead too: they draw less power, which a short trial does not show.
    """
    by_rate = sorted(range(len(trials)), key=lambda index: -_flops_per_cycle(trials[index]))
    trials_by_shape = group_by(by_rate, lambda index: tuple(trials[index].candidate.product.shape.values()))
    least_rate = FINALIST_SHARE * _flops_per_cycle(trials[by_rate[0]])
    shapes = list(trials_by_shape)
    longest_k = sorted(shapes, key=lambda shape: -shape[-1])
    finalists = []
    for trials_of_shape in (
        trials_by_shape[shape] for shape in dict.fromkeys(shapes[:FINALISTS] + longest_k[:FINALISTS])
    ):
        most_per_cycle = trials_of_shape[0]
        if _flops_per_cycle(trials[most_per_cycle]) >= least_rate:
            shortest = min(trials_of_shape, key=lambda index: trials[index].seconds)
            finalists += [most_per_cycle, shortest]
    return list(dict.fromkeys(finalists))


def _time_finalists(device: Device, trials: list[WorkloadTrial]) -> dict[int, float]:
    """Return the TFLOPS of a block of each finalist by its index, the mean of two blocks for the fastest."""
    tflops = {index: _time_block_tflops(device, trials[index]) for index in choose_finalists(trials)}
    least_tflops = SECOND_BLOCK_SHARE * max(tflops.values())
    for index in [index for index, rate in tflops.items() if rate >= least_tflops]:
        tflops[index] = (tflops[index] + _time_block_tflops(device, trials[index])) / 2
    return tflops


# ---------------------------------------------------------------- one block


def _time_block_tflops(device: Device, trial: WorkloadTrial) -> float:
    """Return the TFLOPS of a block after a short rest."""
    workload = trial.candidate
    _rest_and_warm_up(device, workload, SHORT_REST_S)
    samples = device.time_steps(workload.step, LEAD_STEPS + _steps_per_block(trial.seconds))[LEAD_STEPS:]
    return workload.flops * len(samples) / sum(samples) / 1e12


def _time_fastest_block(target: CeilingTarget, workloads: list[Workload]) -> WorkloadBlock | None:
    """Return a block of the fastest of some workloads, by a search of their own; None if the library runs none."""
    try:
        trials, _ = _try_workloads(target.device, workloads, target.budget.time_budget_s / 2)
    except UnsupportedError:
        return None
    tflops = _time_finalists(target.device, trials)
    return _time_block(target, trials[max(tflops, key=lambda index: tflops[index])].candidate)


def _steps_per_block(step_s: float) -> int:
    """Return the number of steps, of `step_s` seconds each, in a block on a GPU."""
    return min(MOST_STEPS, max(BLOCK_STEPS, math.ceil(BLOCK_S / step_s)))


def _time_block(target: CeilingTarget, workload: Workload) -> WorkloadBlock:
    """Return one block, after the same start as all, of a result that was checked.

    The target's budget is that of a CPU's blocks alone.
    """
    budget = target.budget
    if not DEVICE_TRAITS[target.device.kind].synchronous:
        *_, step_s = target.device.time_steps(workload.step, 2)
        budget = TimingBudget(WARM_UP_STEPS, _steps_per_block(step_s), MOST_BLOCK_S, lead_steps=LEAD_STEPS)
    elif not target.gemms:
        budget = replace(budget, time_budget_s=min(budget.time_budget_s, REGISTER_BUDGET_S))
    return _time_checked(target, workload, budget)


def _block_tflops(device: Device, workload: Workload, timing: Timing) -> float:
    samples_s, seconds = timing.samples_s, timing.median_s
    if not DEVICE_TRAITS[device.kind].synchronous:  # other guests of a CPU's host slow single steps
        seconds = sum(samples_s) / len(samples_s)
    return workload.flops / seconds / 1e12


def _with_error_after(check: Check, workload: Workload) -> Check:
    """Return the check with the error of what the timed steps left."""
    return check.model_copy(update={"relative_error_after": workload.compare().relative_error})


def _time_checked(target: CeilingTarget, workload: Workload, budget: TimingBudget) -> WorkloadBlock:
    """Time a block after a rest, with the clock of the kernel or the block. The result is compared before and after.

    Raises ArithmeticError for a wrong result.
    """
    device, start = target.device, time.monotonic()
    check = workload.run_and_check()
    # On a synchronous device the check ran the workload too, and may have been the warm-up.
    checked_s = time.monotonic() - start if DEVICE_TRAITS[device.kind].synchronous else None
    _rest(device, REST_S if target.gemms else SHORT_REST_S)
    log = StateLog(device)
    log.read("before")
    timing = time_caller(device, workload.step, budget, checked_s, rest=lambda: _rest(device, SHORT_REST_S))
    sm_clock_mhz = workload.clock_mhz() or timing.sm_clock_mhz
    log.read("after")
    return WorkloadBlock(
        **copy_fields(workload, "product", "inputs", "flops"),
        check=_with_error_after(check, workload),
        timing=flag_throttled(timing, log.states),
        tflops=_block_tflops(device, workload, timing),
        states=log.states,
        sm_clock_mhz=sm_clock_mhz,
    )


def _read_limits_under_load(device: Device, workload: Workload, block: WorkloadBlock) -> list[str] | None:
    """Return the throttle reasons under as long a load as NVML needs to report them; None if it reports none."""
    log, count = StateLog(device), max(1, round(HOLD_S / block.timing.median_s))
    device.time_steps(workload.step, count, 0, lambda: log.read("during"))
    reported = [state.throttle_reasons for state in log.states if state.throttle_reasons is not None]
    return collect_throttle_reasons(reported) if reported else None


def _rest_and_warm_up(device: Device, workload: Workload, rest_s: float) -> None:
    _rest(device, rest_s)
    device.time_steps(workload.step, WARM_UP_STEPS)


def _rest(device: Device, seconds: float) -> None:
    device.synchronize()
    if DEVICE_TRAITS[device.kind].reports_power:
        time.sleep(seconds)
