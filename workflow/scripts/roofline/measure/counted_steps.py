"""The steps whose counters are read: each cell set up as it is timed, then launched while the profiler looks on."""

from collections.abc import Callable, Iterator

from roofline.devices.base import Device
from roofline.measure.operator_job import arrays, is_cold, named, rotation
from roofline.operators.base import Implementation, Job, Operator

# A range reads and writes several times the last-level cache: beside that, what is left in it at either end is little.
# A cold cell that does not in so many steps has no range. ncu takes 50 ms for each launch of one.
RANGE_CACHES, FEWEST_CACHES, MOST_STEPS = 8, 4, 16
WARMUP_CACHES = 3
MARKER = "mark_clocks"  # a kernel that stands between two cells there


def counted(operator: Operator, kind: str) -> list[type[Implementation]]:
    """Kernels that fuse the operator, where there are some. Whether the settings have them timed does not matter: a
    graph runs the same ones, and the profiler does not count graphs."""
    eager = [one for one in operator.implementations_on(kind) if not one.graph]
    return [one for one in eager if one.fused] or eager


def cells(operator: Operator, device: Device, job: Job, cold: bool) -> Iterator[tuple[Implementation, str | None]]:
    """Every cell of a job with its scopes, on the inputs that it is timed on."""
    for case in job.cases:
        own = operator.ready_cells(device, case)
        if own is None:
            chosen = [one for one in counted(operator, device.kind) if not one.unsupported(device, case)]
            if not chosen:
                continue
            shared, copies = arrays(operator, device, case, rotation(operator, device, case, chosen, cold))
            own = (one.prepared(operator, device, case, shared, copies) for one in chosen)
        for cell in own:
            yield from ((cell, scope) for scope in cell.scopes)


def launch(operator: Operator, device: Device, job: Job, cold: bool, replay: str) -> list[dict]:
    """Launch all cells under the profiler, each in a range of its own, where it has one; or all kernels in one, a
    marker before each cell's. Returns what was declared of each, in the same order, and in how many steps it was
    counted."""
    told = []
    for cell, scope in cells(operator, device, job, cold):
        moved, cache_bytes = operator.bytes(cell.case, scope), device.last_level_cache_bytes
        reads_memory = is_cold(cell, scope)
        step, steps = cell.step(scope), 1
        if replay == "range":
            steps = _reaching(RANGE_CACHES * cache_bytes, moved)
            steps = 0 if reads_memory and steps * moved < FEWEST_CACHES * cache_bytes else steps
        if steps:
            _profile(device, step, _reaching(WARMUP_CACHES * cache_bytes, moved), steps, replay)
        told.append(
            declared(operator, cell, scope, reads_memory)
            | {
                "steps": steps,
                "written_caches": steps * operator.written_bytes(cell.case, scope) / cache_bytes,
            }
        )
    return told


def _reaching(wanted_bytes: int, moved: int) -> int:
    return max(1, min(MOST_STEPS, -(-wanted_bytes // max(1, moved))))


def _profile(device: Device, step: Callable[[int], object], warmup: int, steps: int, replay: str) -> None:
    for index in range(warmup):
        step(index)

    def queue():
        for index in range(warmup, warmup + steps):
            step(index)

    device.profile(queue, marked=replay == "kernel")


def declared(operator: Operator, cell: Implementation, scope: str | None, cold: bool) -> dict:
    case, written = cell.case, operator.written_bytes(cell.case, scope)
    own, kept = cell.executed_flops(scope), cell.kept_reads(scope)
    return {
        **named(cell, scope, cold),
        "declared_read_bytes": operator.bytes(case, scope) - written,
        "declared_write_bytes": written,
        "kept_read_bytes": kept.bytes if kept else 0,
        "kept_read_why": kept.why if kept else None,
        "declared_flops": operator.flops(case, scope),
        "kernel_flops": own.flops if own else None,
        "kernel_flops_why": own.why if own else None,
    }
