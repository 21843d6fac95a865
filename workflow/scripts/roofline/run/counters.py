"""Counters of a device: the steps of some cells profiled by Nsight Compute in another process, and the reports read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofline.devices import discovery
from roofline.devices.gpu import counter_names, wall_counts
from roofline.measure import counted_steps, nsight_compute
from roofline.measure.nsight_compute import BadReport, Counted, Refused
from roofline.operators import registry
from roofline.records.counters import CountedCell
from roofline.records.instructions import CountedWall
from roofline.run import profiled

NOT_OF_KERNELS = {
    "dram_read_bytes": "kernels were counted one by one, behind emptied caches, and the cell is warm",
    "dram_write_bytes": "kernels were counted one by one: what each wrote was still in the L2 when it ended",
}
OF_SEVERAL = "kernels were counted one by one, and caches emptied between those of a step"


def probe(program: Path, device: str, folder: Path) -> list[CountedWall]:
    """Count kernels whose counts are known by construction, and nothing else. Raises Refused where that is not
    allowed."""
    report, metrics = folder / "walls.ncu-rep", wall_counts.METRICS
    nsight_compute.profile(program, profiled.__name__, [json.dumps({"device": device})], metrics, report, "kernel")
    try:
        found = [one for kernels in nsight_compute.read_report(report, metrics) for one in kernels]
        return _walls(found)
    except (BadReport, ValueError) as error:
        raise Refused(f"ncu counted nothing: {str(error).replace(f'{folder}/', '')}") from None


def _walls(found: Iterable[Counted]) -> list[CountedWall]:
    return wall_counts.counted([one.values for one in found])


class Found(NamedTuple):
    """What was counted of one task, and the reports that it was read from; why nothing was."""

    cells: list[CountedCell]
    reports: list[Path]
    refused: str | None = None


def count(
    program: Path, device: str, tasks: Sequence[Mapping], capability: tuple[int, int], folder: Path
) -> tuple[list[Found], list[CountedWall]]:
    """The cells of each task (see run/profiled.py), from one process for all and two reports: `folder`/ranges.ncu-rep
    and, for what a range leaves uncounted, `folder`/kernels.ncu-rep; and the walls of the instruction roofline.

    Where that gives nothing, each task is counted by itself, so that one which fails leaves the others.
    """
    operators = registry.registered(sorted({path for task in tasks for path in task["operators"]}))
    wanted = [task for task in tasks if counted_steps.counted(operators[task["operator"]], discovery.kind_of(device))]
    try:
        counted, walls = _count(program, device, wanted, capability, folder) if wanted else ([], [])
    except (Refused, BadReport) as error:
        if len(wanted) < 2 or nsight_compute.PERMISSION.search(str(error)):
            return [Found([], [], str(error)) for _ in tasks], []
        folders = (folder / task["operator"] / task["case"] for task in tasks)
        alone = [count(program, device, [task], capability, one) for task, one in zip(tasks, folders, strict=True)]
        return [found for (found,), _ in alone], next((walls for _, walls in alone if walls), [])
    by_task = iter(counted)
    return [next(by_task) if task in wanted else Found([], []) for task in tasks], walls


def _count(
    program: Path, device: str, tasks: Sequence[Mapping], capability, folder: Path
) -> tuple[list[Found], list[CountedWall]]:
    of_ranges, of_kernels = folder / "ranges.ncu-rep", folder / "kernels.ncu-rep"
    for earlier in (of_ranges, of_kernels):
        earlier.unlink(missing_ok=True)
    metrics, of_range = counter_names.metrics(capability), counter_names.metrics(capability, of_range=True)
    task = {"device": device, "tasks": list(tasks)}
    try:
        in_ranges = _profiled(program, {**task, "walls": True}, of_range, of_ranges, "range")
        refused = None
    except (Refused, BadReport) as error:
        if nsight_compute.PERMISSION.search(str(error)):
            raise
        in_ranges, refused = None, error
    missing = [name for name in metrics if not in_ranges or in_ranges.lacks(name)]
    walls = not in_ranges or any(name not in one.values for one in in_ranges.walls for name in wall_counts.METRICS)
    by_kernel = None
    if missing or walls:
        try:
            # The duration weighs what is a share of the time.
            asked = dict.fromkeys([*missing, counter_names.DURATION, *(wall_counts.METRICS if walls else [])])
            by_kernel = _profiled(program, {**task, "walls": walls}, list(asked), of_kernels, "kernel")
        except (Refused, BadReport) as error:
            if in_ranges is None:
                raise Refused(f"{refused}; kernel by kernel: {error}") from None
            if not any(in_ranges.counted):
                raise Refused(str(error)) from None
    reports = [one.report for one in (in_ranges, by_kernel) if one]
    cells = [_cell(place, in_ranges, by_kernel, capability) for place in range(len((in_ranges or by_kernel).cells))]
    places = iter(cells)
    found = [Found([next(places) for _ in range(number)], reports) for number in (in_ranges or by_kernel).of_tasks]
    return found, _walls((by_kernel if by_kernel and walls else in_ranges).walls)


class Profiled:
    """What was declared of each cell, how many there are of each task, what was counted, by kernel or at once (nothing
    of a cell without a range), and the walls before the first cell."""

    def __init__(self, report: Path, told: list[list[dict]], counted: list[list[Counted]], walls: list[Counted]):
        self.report, self.counted, self.walls = report, counted, walls
        self.cells, self.of_tasks = [cell for cells in told for cell in cells], [len(cells) for cells in told]

    def lacks(self, metric: str) -> bool:
        return any(not ones or any(metric not in one.values for one in ones) for ones in self.counted)


def _profiled(program: Path, task: Mapping, metrics: Sequence[str], report: Path, replay: str) -> Profiled:
    report.parent.mkdir(parents=True, exist_ok=True)
    told = report.with_name(f".{report.name}.json")
    arguments = json.dumps({**task, "replay": replay, "told": str(told)})
    last = ""
    try:
        last = nsight_compute.profile(program, profiled.__name__, [arguments], metrics, report, replay)
        found = [one for spans in nsight_compute.read_report(report, metrics) for one in spans]
        declared = json.loads(told.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BadReport(f"{report}: the program under the profiler failed: {last}") from None
    finally:
        told.unlink(missing_ok=True)
    of_walls = wall_counts.NUMBER if task["walls"] else 0
    walls, by_cell = (found[:of_walls], [[one] for one in found[of_walls:]]) if replay == "range" else split(found)
    launched = [cell["steps"] > 0 for cells in declared for cell in cells]
    if (len(walls), len(by_cell)) != (of_walls, sum(launched)):
        held = f"{len(walls)} walls and {len(by_cell)} profiled cells"
        raise BadReport(f"{report}: it holds {held}, and {of_walls} and {sum(launched)} were launched")
    left = iter(by_cell)
    return Profiled(report, declared, [next(left) if one else [] for one in launched], walls)


def split(kernels: Sequence[Counted]) -> tuple[list[Counted], list[list[Counted]]]:
    """The walls, and the kernels by cell: a marker stands before each cell's."""
    found: list[list[Counted]] = [[]]
    for one in kernels:
        if counted_steps.MARKER in one.name:
            found.append([])
        else:
            found[-1].append(one)
    return found[0], found[1:]


def summed(kernels: Sequence[Counted]) -> dict[str, float]:
    """The values of several kernels together: sums, and of shares the mean, each kernel as long as it took."""
    shares = set(counter_names.SHARES.values()) | {
        name for names in counter_names.SINCE.values() for name in names.values() if not name.endswith(".sum")
    }
    weights = [one.values.get(counter_names.DURATION, 1.0) for one in kernels]
    found = {}
    for name in dict.fromkeys(name for one in kernels for name in one.values):
        values = [one.values.get(name) for one in kernels]
        if None in values:
            continue
        weighted = sum(map(lambda pair: pair[0] * pair[1], zip(values, weights, strict=True)))
        found[name] = weighted / sum(weights) if name in shares and sum(weights) else sum(values)
    return found


def _cell(place: int, in_ranges: Profiled | None, by_kernel: Profiled | None, capability) -> CountedCell:
    """Counted in a range; what is not counted there is taken from single kernels, but for memory traffic, which is
    another behind emptied caches."""
    whole = in_ranges.counted[place] if in_ranges else []
    declared = (in_ranges if whole or not by_kernel else by_kernel).cells[place]
    fields, unknown = counter_names.fields({}, capability, 1)
    if by_kernel:
        kernels = by_kernel.counted[place]
        fields, unknown = counter_names.fields(summed(kernels), capability, by_kernel.cells[place]["steps"])
        for name, why in _not_of_kernels(declared["cache"], len(kernels)).items():
            fields.pop(name, None)
            unknown[name] = why
        fields |= {"kernels": list(dict.fromkeys(one.name for one in kernels))}
        if not whole:
            fields |= {"launches": len(kernels)}
    if whole:
        of_range, lacking = counter_names.fields(whole[0].values, capability, declared["steps"])
        flops = {**fields["flops"], **of_range["flops"]}
        unknown = {name: why for name, why in lacking.items() if name not in fields and name[6:] not in flops}
        fields = {**fields, **of_range, "flops": flops}
    replay = "range" if whole else "kernel"
    return CountedCell(**declared, **fields, replay=replay, not_counted=dict(sorted(unknown.items())))


def _not_of_kernels(cache: str, kernels: int) -> dict[str, str]:
    """Traffic that kernels of a step do not show one by one, with the reason."""
    if cache == "warm":
        return NOT_OF_KERNELS
    reads, writes = NOT_OF_KERNELS
    return {writes: NOT_OF_KERNELS[writes]} | ({reads: OF_SEVERAL} if kernels > 1 else {})
