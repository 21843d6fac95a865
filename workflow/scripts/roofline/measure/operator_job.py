"""One job of an operator: every case, implementation and scope of it predicted, checked, then timed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from roofline.core.grouping import group_by
from roofline.core.terms import DEVICE_TRAITS, Array
from roofline.devices.base import Device, Step
from roofline.measure import lock
from roofline.measure.protocol import TimingBudget, scale_to_application, time_caller, time_device, time_device_checked
from roofline.measure.undisturbed import StateLog
from roofline.operators.base import Case, Implementation, Job, Operator, count_rotation_copies
from roofline.operators.predicting import Seals, is_cold, is_cold_cell, make_entry
from roofline.records.base import copy_fields
from roofline.records.operator_record import Measurement, PredictedCell
from roofline.records.timing_record import Timing

SMALLEST_BUDGET, SMALLEST_BLOCKS = TimingBudget(warmup=10, iterations=40, time_budget_s=0.2), 3
SHARED_SEED, SMALLEST_SEED, INPUTS_SEED = 1, 7, 11


@dataclass(frozen=True)
class JobPlan:
    """A job of an operator on a device: by which implementations and in which scopes (None: all), with cold or warm
    inputs."""

    operator: Operator
    device: Device
    job: Job
    implementation_names: list[str] | None
    cold: bool
    scopes: list[str] | None = None

    def scopes_of(self, implementation: type[Implementation]) -> list[str | None]:
        """Return the scopes in which an implementation is measured."""
        offered = implementation.scopes_on(self.device)
        return [scope for scope in offered if self.scopes is None or scope in self.scopes]

    def cases(self) -> Iterator[tuple[Case, list[type[Implementation]], int]]:
        """Yield each case that the device computes, by which implementations, and the number of copies of inputs."""
        operator, device = self.operator, self.device
        variants = operator.implementations_on(device.kind, self.implementation_names)
        for case in self.job.cases:
            implementations = [variant for variant in variants if not skip_reason(operator, variant, device, case)]
            if implementations:
                yield case, implementations, self.choose_copy_count(case, implementations)

    def choose_copy_count(self, case: Case, implementations: list[type[Implementation]]) -> int:
        """Return the number of copies of the inputs: one if they are to be warm, else as many as make them cold."""
        if not self.cold:
            return 1
        rotated_bytes = self.operator.rotated_bytes(case, self.operator.first_scope)
        least_copies = count_rotation_copies(rotated_bytes, self.device.last_level_cache_bytes)
        return max(implementation.copies_wanted(case, least_copies) for implementation in implementations)


class Overhead(NamedTuple):
    """CPU and GPU seconds of a step of the smallest case; None where they are not known."""

    cpu_s: float | None = None
    gpu_s: float | None = None


def measure_job(plan: JobPlan, seals: Seals, budget: TimingBudget) -> list[Measurement]:
    """Return every measurement of a job.

    Raises ArithmeticError for a wrong result, and RuntimeError, which names the cell, where one fails otherwise. Errors
    of making the inputs, such as MemoryError, are raised as they are.
    """
    operator, device = plan.operator, plan.device
    overheads: dict[tuple, dict[str | None, Overhead]] = {}
    measurements: list[Measurement] = []
    for case, implementations, copy_count in plan.cases():
        shared, copies = make_inputs(operator, device, case, copy_count)
        references: dict = {}
        for implementation in implementations:
            try:
                key = implementation, repr(operator.smallest(case))
                if key not in overheads:
                    overheads[key] = _measure_overheads(plan, case, implementation)
                cell = implementation.make_prepared(operator, device, case, shared, copies)
                cell.references = references
                for scope in plan.scopes_of(implementation):
                    overhead = overheads[key].get(scope, Overhead())
                    measurements.append(_measure_cell(cell, scope, seals, budget, overhead))
                del cell
            except ArithmeticError:  # it names the cell already
                raise
            except Exception as error:
                raise RuntimeError(f"{operator.name}, {implementation.name}, {case}: {_first_line(error)}") from error
        del shared, copies, references  # before the next case's are made
    return measurements


def list_kernels(plan: JobPlan) -> set[tuple]:
    """Return the kernels of a job's cells and of the smallest cases, as far as they are known without arrays."""
    kernels: set[tuple] = set()
    for case, implementations, _ in plan.cases():
        sizes = [size for size in (case, plan.operator.smallest(case)) if size]
        for implementation in implementations:
            for size in sizes:
                with contextlib.suppress(Exception):  # what is wrong shows when the cell is prepared
                    kernels |= {*implementation(plan.operator, plan.device, size).kernels()}
    return kernels


def predict_job(plan: JobPlan, seals: Seals) -> list[PredictedCell]:
    """Return the cells that `measure_job` will measure, as the seals predict them, without arrays.

    If a user's implementation needs arrays for that, or fails, its cells hold the reason.
    """
    operator, device = plan.operator, plan.device
    cells: list[PredictedCell] = []
    for case, implementations, copy_count in plan.cases():
        for implementation in implementations:
            scopes = plan.scopes_of(implementation)
            try:
                cell = implementation(operator, device, case, copy_count)
                cells += [predict_planned_cell(cell, scope, seals, is_cold_cell(cell, scope)) for scope in scopes]
            except Exception as error:
                for scope in scopes:
                    cold = is_cold(operator, device, case, copy_count, scope)
                    identity = cell_identity(operator, implementation.name, case, scope, cold)
                    cells.append(PredictedCell(**identity, sealed=None, reason=_first_line(error)))
    return cells


def predict_variations(plan: JobPlan, seals: Seals) -> list[PredictedCell]:
    """Return, for each variation of a job's first case, the cell that is predicted to be the fastest."""
    variations = plan.operator.variations(plan.job.cases[0])
    cells = predict_job(replace(plan, job=replace(plan.job, cases=tuple(variations))), seals)
    timed = [(cell.sealed.cpu_time_s, cell) for cell in cells if cell.sealed and cell.sealed.cpu_time_s]
    by_case = group_by(timed, lambda pair: (pair[1].dtype, *pair[1].shape.values()))
    return [min(pairs, key=lambda pair: pair[0])[1] for pairs in by_case.values()]


def predict_planned_cell(cell: Implementation, scope: str | None, seals: Seals, cold: bool) -> PredictedCell:
    """Return a planned cell as the seals predict it: its measurement will carry the same numbers. Nothing is timed."""
    identity = cell_identity(cell.operator, cell.name, cell.case, scope, cold)
    entry = make_entry(cell, scope, seals, cold)
    return PredictedCell(**identity, sealed=entry.predict(seals.device), entry=entry)


def skip_reason(operator: Operator, implementation: type[Implementation], device: Device, case: Case) -> str | None:
    """Return in one line why a device cannot compute a case by an implementation; None where it can."""
    return implementation.unsupported(device, case) or operator.unsupported(device, case)


def list_skipped(plan: JobPlan) -> list[str]:
    """Return a line for each implementation that skips cases of the job, and each of its reasons."""
    lines = []
    for implementation in plan.operator.implementations_on(plan.device.kind, plan.implementation_names):
        for case in plan.job.cases:
            if reason := skip_reason(plan.operator, implementation, plan.device, case):
                lines.append(f"{implementation.name} skipped: {reason}")
    return list(dict.fromkeys(lines))


def _first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def make_inputs(operator: Operator, device: Device, case: Case, copy_count: int) -> tuple[dict, list[dict]]:
    """Return the shared inputs, and `copy_count` copies of the inputs that rotate."""
    shared = operator.shared_inputs(device, case, SHARED_SEED)
    return shared, operator.rotated_inputs(device, case, INPUTS_SEED, copy_count)


def _measure_overheads(plan: JobPlan, case: Case, implementation: type[Implementation]) -> dict[str | None, Overhead]:
    """Return the overhead of a call by scope, timed where there is next to nothing to do."""
    operator, device = plan.operator, plan.device
    smallest = operator.smallest(case)
    if smallest is None:
        return {}
    shared = operator.shared_inputs(device, smallest, SHARED_SEED)
    copies = operator.rotated_inputs(device, smallest, SMALLEST_SEED, 1)
    cell = implementation.make_prepared(operator, device, smallest, shared, copies)
    return {scope: _time_smallest(device, cell.step(scope), cell.per_call) for scope in plan.scopes_of(implementation)}


def _time_calls(device: Device, step: Step, budget: TimingBudget, checked_s: float | None = None) -> Timing:
    """Return the CPU time of a step, while no other job on this host times calls or transfers."""
    with lock.hold_locks([lock.HOST_PATH_LOCK] if DEVICE_TRAITS[device.kind].accelerator else []):
        return time_caller(device, step, budget, checked_s)


def _time_smallest(device: Device, step: Step, per_call: int) -> Overhead:
    """Return the median CPU and GPU seconds of one application, from the fastest of several blocks."""
    blocks = [_time_calls(device, step, SMALLEST_BUDGET) for _ in range(SMALLEST_BLOCKS)]
    cpu_time = min(blocks, key=lambda timing: timing.median_s)
    gpu_time = time_device(device, step, cpu_time, time_budget_s=SMALLEST_BUDGET.time_budget_s)
    return Overhead(cpu_time.median_s / per_call, gpu_time.median_s / per_call if gpu_time else None)


def _measure_cell(
    cell: Implementation, scope: str | None, seals: Seals, budget: TimingBudget, overhead: Overhead
) -> Measurement:
    operator, device = cell.operator, cell.device
    declared = declare_cell(cell, scope, seals, is_cold_cell(cell, scope))
    check, checked_s = operator.check(cell, scope)
    step, log = ResultKeeper(cell.step(scope)), StateLog(device)
    log.read("before")
    budget = replace(budget, least_samples=operator.least_samples(cell.case))
    cpu_time = _time_calls(device, step, budget, checked_s)
    gpu_time, doubts = time_device_checked(device, step, cpu_time, time_budget_s=budget.time_budget_s)
    cpu_time = scale_to_application(cpu_time, cell.per_call)
    gpu_time = gpu_time and scale_to_application(gpu_time, cell.per_call)
    log.read("after")
    after = operator.compare(cell, scope, step.index, step.result)
    return Measurement(
        **declared,
        check=check.model_copy(update={"relative_error_after": after.relative_error}),
        cpu_time=cpu_time,
        gpu_time=gpu_time,
        overhead_s=_cap_overhead(overhead.cpu_s, cpu_time),
        start_s=_cap_overhead(overhead.gpu_s, gpu_time),
        remarks=doubts,
        states=log.states,
    )


class ResultKeeper:
    """A step that keeps the last result and its index, to be compared once all is timed."""

    def __init__(self, step: Step):
        self._step, self.index = step, 0
        self.result: Array = None

    def __call__(self, index: int) -> None:
        self.index, self.result = index, self._step(index)


def _cap_overhead(overhead_s: float | None, timing: Timing | None) -> float | None:
    """Return the overhead of a call, at most the time of the cell's step, which is one such call too."""
    return overhead_s if overhead_s is None or timing is None else min(overhead_s, timing.median_s)


def declare_cell(cell: Implementation, scope: str | None, seals: Seals, cold: bool) -> dict:
    """Return the fields of a Measurement that hold before anything is timed: counts, roofs, the sealed prediction."""
    entry = make_entry(cell, scope, seals, cold)
    return {
        **cell_identity(cell.operator, cell.name, cell.case, scope, cold),
        **copy_fields(entry, "flops", "bytes", "compute_ceiling", "memory_ceilings", "memory_level", "costs"),
        "level_bytes": cell.level_bytes(scope),
        "level_ceilings": cell.level_ceilings,
        "sealed": entry.predict(seals.device),
        "entry_sha256": entry.sha256,
        "per_call": cell.per_call,
        "plan": cell.plan(),
    }


def cell_identity(
    operator: Operator, implementation_name: str, case: Case, scope: str | None, cold: bool
) -> dict[str, Any]:
    """Return the fields of a CellRecord, which distinguish a cell from others in every record of it."""
    return {
        "operator": operator.name,
        "implementation": implementation_name,
        **copy_fields(case, "preset", "dtype", "shape"),
        "scope": scope,
        "cache": "cold" if cold else "warm",
    }
