"""Counters of three representative cells, each a step under Nsight Compute in another process, and its report read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from roofline.core.terms import UnsupportedError, UserError
from roofline.devices.base import Device
from roofline.devices.discovery import discover
from roofline.devices.gpu import counter_names
from roofline.measure import ncu
from roofline.measure.operator_job import cell_identity, choose_copy_count, is_cold, make_inputs
from roofline.operators.base import Implementation, Job, Operator
from roofline.records.counters_record import CountedCell

PROFILED_PROGRAM = Path(__file__).parents[2] / "counter_program.py"
MARKER_KERNEL = "mark_clocks"  # a kernel that is before each cell's
SEVERAL_KERNELS_REASON = "kernels are counted one by one, and caches emptied between those of a step"


# ---------------------------------------------------------------- which cells


def choose_representative_jobs(jobs: Iterable[tuple[Operator, Job]]) -> list[tuple[str, Job]]:
    """Of jobs of one case each those with the most FLOPs per byte, the most bytes read, and the most bytes written;
    each with the rule of its operator."""
    left, found = [(operator, job, _job_amounts(operator, job)) for operator, job in jobs], []
    for place in range(3):
        if left:
            best = max(left, key=lambda one: one[2][place])
            left.remove(best)
            found.append((best[0].rule, best[1]))
    return found


def _job_amounts(operator: Operator, job: Job) -> tuple[float, int, int]:
    """FLOPs per byte, bytes read, and bytes written."""
    case, scope = job.cases[0], operator.first_scope
    moved, written = operator.bytes(case, scope), operator.written_bytes(case, scope)
    return operator.flops(case, scope) / max(1, moved), moved - written, written


# ---------------------------------------------------------------- under the profiler


def launch_profiled(operator: Operator, device: Device, job: Job, cold: bool) -> dict | None:
    """Launch a step of a job's cell under the profiler, on the inputs that it is timed on. Returns what is declared of
    it; None if the device has no implementation."""
    cell = _profiled_cell(operator, device, job, cold)
    if cell is None:
        return None
    scope = cell.scopes[0]
    step = cell.step(scope)
    step(0)
    device.run_under_profiler(lambda: step(1))
    written, own = operator.written_bytes(cell.case, scope), cell.executed_flops(scope)
    return {
        **cell_identity(cell, scope, is_cold(cell, scope)),
        "declared_read_bytes": operator.bytes(cell.case, scope) - written,
        "declared_write_bytes": written,
        "declared_flops": operator.flops(cell.case, scope),
        "formula_flops_by_pipe": own.flops if own else None,
        "formula_flops_reason": own.why if own else None,
    }


def _profiled_cell(operator: Operator, device: Device, job: Job, cold: bool) -> Implementation | None:
    """The last of the operator's fused kernels, if it has any, whatever implementations are timed. The profiler does
    not count graphs, which run the same kernels."""
    (case,) = job.cases
    ready = operator.ready_cells(device, case)
    if ready is not None:
        return list(ready)[-1]
    possible = [one for one in operator.implementations_on(device.kind) if not one.unsupported(device, case)]
    eager = [one for one in possible if not one.graph]
    fused = [one for one in eager if one.fused] or eager
    if not fused:
        return None
    shared, copies = make_inputs(operator, device, case, choose_copy_count(operator, device, case, fused[-1:], cold))
    return fused[-1].make_prepared(operator, device, case, shared, copies)


# ---------------------------------------------------------------- and from outside


def count_cells(program: Path, device: str, tasks: Sequence[Mapping], report: Path) -> list[CountedCell | None]:
    """The cell of each task (see counter_program.py) in one process; None if the device has no implementation.

    Raises Unsupported if counters may not be read, or if the process fails.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    capability = tuple(int(part) for part in discover()[device].compute_capability.split("."))
    metrics = counter_names.all_metrics(capability)
    last = ncu.profile(program, PROFILED_PROGRAM, json.dumps({"device": device, "tasks": list(tasks)}), metrics, report)
    try:
        declared = json.loads(last)
    except ValueError:
        raise UnsupportedError(f"the program under the profiler failed: {last}") from None
    try:
        kernels = ncu.read_report(report, lambda value, _: {name: value(name) for name in metrics}).kernels
    except UserError as error:
        raise UnsupportedError(f"ncu counted nothing: {error}") from None
    of_cells = (list(group) for marker, group in groupby(kernels, lambda one: MARKER_KERNEL in one.name) if not marker)
    return [_counted_cell(one, next(of_cells), capability) if one else None for one in declared]


def _counted_cell(declared: dict, kernels: list[ncu.ProfiledKernel], capability: tuple[int, int]) -> CountedCell:
    fields, unknown = counter_names.counted_fields(sum_counts([one.counts for one in kernels]), capability)
    if len(kernels) > 1 and fields.pop("dram_read_bytes", None) is not None:
        unknown["dram_read_bytes"] = SEVERAL_KERNELS_REASON
    names = list(dict.fromkeys(one.name for one in kernels))
    return CountedCell(**declared, **fields, kernels=names, not_counted=dict(sorted(unknown.items())))


def sum_counts(kernels: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """The counts of several kernels together: sums, and of shares the mean, each kernel as long as it took."""
    seconds, found = [one[counter_names.DURATION_METRIC] for one in kernels], {}
    for name in kernels[0]:
        values = [one[name] for one in kernels]
        if None in values:
            continue
        if name.endswith(".sum"):
            found[name] = sum(values)
        elif None not in seconds:
            found[name] = sum(map(float.__mul__, values, seconds)) / sum(seconds)
    return found
