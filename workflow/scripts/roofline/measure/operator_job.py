"""One job of an operator: every case, implementation and scope of it predicted, checked, then timed."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roofline.core.terms import DEVICE_TRAITS
from roofline.devices.base import Device
from roofline.measure import lock
from roofline.measure.protocol import scale_to_application, time_caller, time_device, time_device_checked
from roofline.measure.undisturbed import StateLog
from roofline.operators.base import (
    COLD_CACHE_MULTIPLE,
    Case,
    Implementation,
    Job,
    Operator,
    count_rotation_copies,
)
from roofline.records.operator_record import Measurement, PredictedCell
from roofline.records.seal_records import PredictionRecord, predict_sealed
from roofline.records.timing_record import Timing

MOST_REREAD_SHARE = 0.05  # of the bytes of a cold step may come from inputs that do not rotate
SMALLEST_ITERATIONS, SMALLEST_BUDGET_S, SMALLEST_WARMUP, SMALLEST_BLOCKS = 40, 0.2, 10, 3
SHARED_SEED, SMALLEST_SEED, INPUTS_SEED = 1, 7, 11


@dataclass(frozen=True)
class Seals:
    """What was sealed of a device and of an operator."""

    device: PredictionRecord
    constants: Mapping[str, float]


@dataclass(frozen=True)
class Options:
    """How a job is measured: its implementations by name (None: all), cold or warm, and for how long."""

    implementations: list[str] | None
    cold: bool
    warmup: int
    iterations: int
    time_budget_s: float

    @property
    def timing(self) -> dict:
        return {"warmup": self.warmup, "iterations": self.iterations, "time_budget_s": self.time_budget_s}


def measure_job(operator: Operator, device: Device, job: Job, seals: Seals, options: Options) -> list[Measurement]:
    """Every measurement of a job. Raises ArithmeticError for a wrong result, MemoryError and the like as they come."""
    overheads: dict[tuple, dict] = {}
    found: list[Measurement] = []
    for case, chosen, count in plan_cells(operator, device, job, options.implementations, options.cold):
        shared, copies = make_inputs(operator, device, case, count)
        references: dict = {}
        for implementation in chosen:
            with _label_errors(f"{operator.name}, {implementation.name}, {case}"):
                key = implementation, repr(operator.smallest(case))
                if key not in overheads:
                    overheads[key] = _measure_overheads(operator, device, case, implementation)
                cell = implementation.make_prepared(operator, device, case, shared, copies)
                cell.references = references
                found += [
                    _measure_cell(cell, scope, seals, options, *overheads[key].get(scope, (None, None)))
                    for scope in cell.scopes
                ]
                del cell
        del shared, copies, references  # before the next case's are made
    return found


def list_kernels(operator: Operator, device: Device, job: Job, wanted: list[str] | None, cold: bool) -> set[tuple]:
    """Those of a job's cells, and of the smallest cases, as far as they are known before there are arrays."""
    found: set[tuple] = set()
    for case, chosen, _ in plan_cells(operator, device, job, wanted, cold):
        for kind, size in itertools.product(chosen, filter(None, (case, operator.smallest(case)))):
            with contextlib.suppress(Exception):  # what is wrong shows when the cell is prepared
                found |= {*kind(operator, device, size).kernels()}
    return found


def plan_cells(
    operator: Operator, device: Device, job: Job, wanted: list[str] | None, cold: bool
) -> Iterator[tuple[Case, list[type[Implementation]], int]]:
    """What of a job the device computes: each case with its implementations and the number of copies."""
    for case in job.cases:
        every = operator.implementations_on(device.kind, wanted)
        if chosen := [one for one in every if not skip_reason(operator, one, device, case)]:
            yield case, chosen, choose_copy_count(operator, device, case, chosen, cold)


def predict_job(
    operator: Operator, device: Device, job: Job, seals: Seals, wanted: list[str] | None, cold: bool
) -> list[PredictedCell]:
    """What `measure` will say of a job before it times anything, without arrays."""
    return [
        one
        for case, chosen, count in plan_cells(operator, device, job, wanted, cold)
        for implementation in chosen
        for one in _predict_implementation(implementation, operator, device, case, count, seals)
    ]


def _predict_implementation(
    kind: type[Implementation], operator: Operator, device: Device, case: Case, count: int, seals: Seals
) -> list[PredictedCell]:
    """Of a user's implementation that needs arrays, or fails otherwise, the reason instead."""
    try:
        cell = kind(operator, device, case, count)
        return [predict_planned_cell(cell, scope, seals, is_cold(cell, scope)) for scope in cell.scopes]
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        cell = Implementation.__new__(kind)
        Implementation.__init__(cell, operator, device, case, count)
        known = [cell_identity(cell, scope, is_cold(cell, scope)) for scope in kind.scopes]
        return [PredictedCell(**one, sealed=None, reason=reason) for one in known]


def predict_planned_cell(cell: Implementation, scope: str | None, seals: Seals, cold: bool) -> PredictedCell:
    return PredictedCell(**cell_identity(cell, scope, cold), sealed=declare_cell(cell, scope, seals, cold)["sealed"])


def skip_reason(operator: Operator, implementation: type[Implementation], device: Device, case: Case) -> str | None:
    """Why a device cannot compute a case this way, in one line; None where it can."""
    return implementation.unsupported(device, case) or operator.unsupported(device, case)


def list_skipped(operator: Operator, device: Device, job: Job, options: Options) -> list[str]:
    """What of a job the device cannot do, with the reason."""
    reasons = [
        (implementation.name, skip_reason(operator, implementation, device, case))
        for implementation in operator.implementations_on(device.kind, options.implementations)
        for case in job.cases
    ]
    return list(dict.fromkeys(f"{name} skipped: {reason}" for name, reason in reasons if reason))


@contextlib.contextmanager
def _label_errors(what: str) -> Iterator[None]:
    """Put in front of an error which cell it is of. A wrong result names it already."""
    try:
        yield
    except ArithmeticError:
        raise
    except Exception as error:
        raise RuntimeError(f"{what}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from error


def choose_copy_count(
    operator: Operator, device: Device, case: Case, chosen: list[type[Implementation]], cold: bool
) -> int:
    """In how many copies the inputs are made; as many as make them cold."""
    if not cold:
        return 1
    least = count_rotation_copies(operator.rotated_bytes(case, operator.first_scope), device.last_level_cache_bytes)
    return max(implementation.copies_wanted(case, least) for implementation in chosen)


def make_inputs(operator: Operator, device: Device, case: Case, count: int) -> tuple[dict, list[dict]]:
    """The shared inputs, and `count` copies of the others."""
    shared = operator.shared_inputs(device, case, SHARED_SEED)
    return shared, operator.rotated_inputs(device, case, INPUTS_SEED, count)


def _measure_overheads(operator: Operator, device: Device, case: Case, implementation: type[Implementation]) -> dict:
    """What calls cost where there is next to nothing to do, by scope."""
    smallest = operator.smallest(case)
    if smallest is None:
        return {}
    shared = operator.shared_inputs(device, smallest, SHARED_SEED)
    copies = operator.rotated_inputs(device, smallest, SMALLEST_SEED, 1)
    cell = implementation.make_prepared(operator, device, smallest, shared, copies)
    return {scope: _time_smallest(device, cell.step(scope), cell.per_call) for scope in cell.scopes}


def _time_calls(device: Device, step, **options) -> Timing:
    """The caller's time, while no other job on this host times calls or transfers."""
    with lock.hold_locks([lock.HOST_PATH_LOCK] if DEVICE_TRAITS[device.kind].accelerator else []):
        return time_caller(device, step, **options)


def _time_smallest(device: Device, step, per_call: int) -> tuple[float, float | None]:
    """The median of a step by the caller and by the device, for one application, of the fastest of several blocks."""
    options = {"warmup": SMALLEST_WARMUP, "iterations": SMALLEST_ITERATIONS, "time_budget_s": SMALLEST_BUDGET_S}
    blocks = (_time_calls(device, step, **options) for _ in range(SMALLEST_BLOCKS))
    caller = min(blocks, key=lambda one: one.median_s)
    on_device = time_device(device, step, caller, time_budget_s=SMALLEST_BUDGET_S)
    return caller.median_s / per_call, on_device.median_s / per_call if on_device else None


def _measure_cell(
    cell: Implementation, scope: str | None, seals: Seals, options: Options, call_s: float | None, start_s: float | None
) -> Measurement:
    """`call_s` and `start_s`: CPU and GPU seconds of the smallest case."""
    operator, device = cell.operator, cell.device
    declared = declare_cell(cell, scope, seals, is_cold(cell, scope))
    check, checked_s = operator.check(cell, scope)
    step = ResultKeeper(cell.step(scope))
    log = StateLog(device)
    log.read("before")
    least = min(options.iterations, operator.least_samples(cell.case))
    latency = _time_calls(device, step, checked_s=checked_s, least=least, **options.timing)
    device_latency, doubts = time_device_checked(device, step, latency, time_budget_s=options.time_budget_s)
    latency, device_latency = (scale_to_application(one, cell.per_call) for one in (latency, device_latency))
    log.read("after")
    after = operator.compare(cell, scope, step.index, step.result)
    return Measurement(
        **declared,
        check=check.model_copy(update={"relative_error_after": after.relative_error}),
        cpu_time=latency,
        gpu_time=device_latency,
        overhead_s=_cap_overhead(call_s, latency),
        start_s=_cap_overhead(start_s, device_latency),
        remarks=doubts,
        states=log.states,
    )


class ResultKeeper:
    """A step that keeps what it last returned, to be compared once all is timed."""

    def __init__(self, step):
        self._step, self.index, self.result = step, 0, None

    def __call__(self, index: int) -> None:
        self.index, self.result = index, self._step(index)


def _cap_overhead(overhead_s: float | None, whole: Timing | None) -> float | None:
    """What a call costs: the cell's step is one such call too, which can take no longer than the step."""
    return min(overhead_s, whole.median_s) if overhead_s is not None and whole else overhead_s


def declare_cell(cell: Implementation, scope: str | None, seals: Seals, cold: bool) -> dict:
    """What a measurement says before anything is timed: counts, roofs, and the sealed prediction."""
    operator, device, case = cell.operator, cell.device, cell.case
    flops, traffic = operator.flops(case, scope), operator.bytes(case, scope)
    of_device = cold or traffic > device.last_level_cache_bytes or not operator.cached_when_warm
    mix, cores = operator.mix, cell.cores(scope)
    of_memory = device.memory_ceiling_names(mix, cores) if cores else device.memory_ceiling_names(mix)
    ceilings = of_memory if of_device else device.cache_ceilings
    compute_ceiling = device.compute_ceiling_name(case.dtype, operator.unit)
    memory_level = device.memory_level if of_device else device.cache_level
    terms = cell.costs(scope)
    sealed = predict_sealed(
        seals.device,
        seals.constants,
        flops=flops,
        traffic_bytes=traffic,
        compute_ceiling=compute_ceiling,
        memory_ceilings=ceilings,
        memory_level=memory_level,
        terms=terms,
    )
    return {
        **cell_identity(cell, scope, cold),
        "flops": flops,
        "bytes": traffic,
        "compute_ceiling": compute_ceiling,
        "memory_ceilings": ceilings,
        "memory_level": memory_level,
        "level_bytes": cell.level_bytes(scope),
        "costs": terms,
        "sealed": sealed,
        "per_call": cell.per_call,
        "plan": cell.plan(),
    }


def is_cold(cell: Implementation, scope: str | None) -> bool:
    """Whether what a step reads has left the last-level cache since it was read before: the inputs rotate through
    several times its size, and what does not rotate is next to nothing of the bytes counted."""
    operator, case = cell.operator, cell.case
    rotated = cell.count * operator.rotated_bytes(case, operator.first_scope)
    counted = operator.bytes(case, scope)
    read_again = counted - operator.rotated_bytes(case, scope)
    return (
        rotated >= COLD_CACHE_MULTIPLE * cell.device.last_level_cache_bytes
        and read_again <= MOST_REREAD_SHARE * counted
    )


def cell_identity(cell: Implementation, scope: str | None, cold: bool) -> dict:
    """What distinguishes a cell from others, in every record of it."""
    case = cell.case
    return {
        "operator": cell.operator.name,
        "implementation": cell.name,
        "preset": case.preset,
        "scope": scope,
        "dtype": case.dtype,
        "cache": "cold" if cold else "warm",
        "shape": case.shape,
    }
