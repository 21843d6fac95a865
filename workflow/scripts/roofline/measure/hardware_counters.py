"""Counters of a cell of each operator, each a step under Nsight Compute in another process, and its report read."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from roofline.core.architectures import Capability, parse_capability
from roofline.core.terms import UnsupportedError, UserError
from roofline.devices.base import CudaDevice, is_gpu
from roofline.devices.discovery import discover
from roofline.devices.gpu import counter_names
from roofline.measure import ncu
from roofline.measure.operator_job import JobPlan, cell_identity, make_inputs
from roofline.operators.base import Implementation
from roofline.operators.predicting import is_cold_cell
from roofline.records.counters_record import CountedCell

PROFILED_PROGRAM = Path(__file__).parents[2] / "counter_program.py"
MARKER_KERNEL = "mark_clocks"  # launched before the kernels of each cell
SEVERAL_KERNELS_REASON = "kernels are counted one by one, and caches emptied between those of a step"


# ---------------------------------------------------------------- under the profiler


def launch_profiled(plan: JobPlan, every: bool) -> list[dict]:
    """Launch a step of the cell of a GPU's job under the profiler, on the inputs that it is timed on: of the operator's
    last fused kernel, or of its last implementation where it has none; of `every` implementation if asked for.

    Return for each the fields of CountedCell that are declared rather than counted; none if the device has no
    implementation, or is no GPU.
    """
    device = plan.device
    # By map, which lets go of a cell, and with it of its inputs, before the next is made.
    return list(map(partial(_launch_cell, device), _profiled_cells(plan, every))) if is_gpu(device) else []


def _launch_cell(device: CudaDevice, cell: Implementation) -> dict:
    operator, case, scope = cell.operator, cell.case, cell.scopes[0]
    step = cell.step(scope)
    step(0)
    device.run_under_profiler(lambda: step(1))
    written, executed = operator.written_bytes(case, scope), cell.executed_flops(scope)
    return {
        **cell_identity(operator, cell.name, case, scope, is_cold_cell(cell, scope)),
        "declared_read_bytes": operator.bytes(case, scope) - written,
        "declared_write_bytes": written,
        "declared_flops": operator.flops(case, scope),
        "formula_flops_by_pipe": executed.flops if executed else None,
        "formula_flops_reason": executed.why if executed else None,
    }


def _profiled_cells(plan: JobPlan, every: bool) -> Iterator[Implementation]:
    """Yield the cells to profile, one after the other, since each holds its inputs.

    The settings do not matter. Graphs are left out, since the profiler does not count them: they run the same kernels.
    """
    operator, device, (case,) = plan.operator, plan.device, plan.job.cases
    ready = operator.ready_cells(device, case)
    if ready is not None:
        yield from ready if every else list(ready)[-1:]
        return
    variants = operator.implementations_on(device.kind)
    without_graph = [variant for variant in variants if not variant.graph and not variant.unsupported(device, case)]
    fused = [variant for variant in without_graph if variant.fused]
    for profiled in without_graph if every else (fused or without_graph)[-1:]:
        count = plan.choose_copy_count(case, [profiled])
        yield profiled.make_prepared(operator, device, case, *make_inputs(operator, device, case, count))


# ---------------------------------------------------------------- and from outside


def count_cells(program: Path, device: str, tasks: Sequence[Mapping], report: Path) -> list[list[CountedCell]]:
    """Count the cells of each task (see counter_program.py) in one process; none if the device has no implementation.

    `program` is ncu, which writes `report`. Raises UnsupportedError if counters may not be read, or the process fails.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    capability = parse_capability(discover()[device].require_capability())
    metrics = counter_names.all_metrics(capability)
    argument = json.dumps({"device": device, "tasks": list(tasks)})
    last_line = ncu.profile(program, PROFILED_PROGRAM, argument, metrics, report)
    try:
        declared = json.loads(last_line)
    except ValueError:
        raise UnsupportedError(f"the program under the profiler failed: {last_line}") from None
    try:
        kernels = ncu.read_report(report, lambda value, _: {name: value(name) for name in metrics}).kernels
    except UserError as error:
        raise UnsupportedError(f"ncu counted nothing: {error}") from None
    # The kernels of a cell are a run of kernels that are not the marker.
    runs = groupby(kernels, key=lambda kernel: MARKER_KERNEL in kernel.name)
    kernels_of_cells = (list(run) for is_marker, run in runs if not is_marker)
    return [[_counted_cell(fields, next(kernels_of_cells), capability) for fields in of_task] for of_task in declared]


def _counted_cell(declared: dict, kernels: list[ncu.ProfiledKernel], capability: Capability) -> CountedCell:
    counts = sum_counts([kernel.counts for kernel in kernels])
    fields, unknown = counter_names.counted_fields(counts, capability)
    if len(kernels) > 1 and fields.pop("dram_read_bytes", None) is not None:
        unknown["dram_read_bytes"] = SEVERAL_KERNELS_REASON
    names = list(dict.fromkeys(kernel.name for kernel in kernels))
    return CountedCell(**declared, **fields, kernels=names, not_counted=dict(sorted(unknown.items())))


def sum_counts(kernels: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """Return the counts of several kernels together: sums, and of shares the mean weighted by the kernels' durations.

    A metric that was not counted for every kernel is left out.
    """
    seconds = [duration for counts in kernels if (duration := counts[counter_names.DURATION_METRIC]) is not None]
    sums: dict[str, float] = {}
    for name in kernels[0]:
        values = [value for counts in kernels if (value := counts[name]) is not None]
        if len(values) < len(kernels):
            continue
        if name.endswith(".sum"):
            sums[name] = sum(values)
        elif len(seconds) == len(kernels):
            weighted = [value * duration for value, duration in zip(values, seconds, strict=True)]
            sums[name] = sum(weighted) / sum(seconds)
    return sums


def require_counters(program: Path, devices: Iterable[str]) -> None:
    """Raise UserError with the devices whose counters may not be read."""
    faults = []
    for device in devices:
        with tempfile.TemporaryDirectory() as folder:
            try:
                count_cells(program, device, [], Path(folder, "kernels.ncu-rep"))
            except UnsupportedError as error:
                faults.append(f"counters: required, and refused on {device}: {error}")
    if faults:
        raise UserError(faults)
