"""The model of the report: what terminal, pages and pictures show of a run, selected from the rows of the table."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofline.core.dtypes import COMMON_DTYPE
from roofline.core.formatting import capacity, number, round_ratio
from roofline.core.grouping import group_by
from roofline.core.levels import MAIN_MEMORY
from roofline.core.terms import DEVICE_TRAITS, order_devices
from roofline.operators.about import About
from roofline.report.pyramid import PyramidLayer, build_pyramid
from roofline.table import rows
from roofline.table.rows import CellRow, CheckResult, ComputeCeiling, DeviceRow, MemoryCeiling, Result, Roofline, Score
from roofline.table.scores import score_predictions, select_judged

CODE = ("workflow/", "Snakefile")
WORST_PREDICTIONS = 5  # by name
CHECK_RESULTS: tuple[Result, ...] = ("fail", "note", "pass", "not_applicable")


class MeasuredCell(CellRow):
    """A cell that this run timed, which no operation of the user's own is."""

    cpu_time_s: float
    record: str

    @property
    def own_time_s(self) -> float:
        """The GPU time in seconds, or the CPU time of a cell without a GPU time."""
        return self.gpu_time_s or self.cpu_time_s


class SealedCell(MeasuredCell):
    """A measured cell whose regime and CPU time were sealed before."""

    sealed: rows.CellPrediction
    sealed_cpu_time_s: float
    sealed_cpu_time_error: float


def select_measured(cells: Iterable[CellRow]) -> list[MeasuredCell]:
    """Return the cells that this run timed."""
    return [MeasuredCell(**dict(cell)) for cell in cells if cell.record and cell.cpu_time_s]


def select_sealed(cells: Iterable[MeasuredCell]) -> list[SealedCell]:
    """Return the cells whose CPU time was sealed before."""
    sealed = [(cell, cell.sealed.cpu_time_s) for cell in cells if cell.sealed and cell.sealed.cpu_time_s]
    return [SealedCell(**dict(cell), sealed_cpu_time_s=time_s) for cell, time_s in sealed]


def error_factor(cell: SealedCell) -> float:
    """Return the factor between a predicted CPU time and the measured one, 1 or more."""
    return math.exp(abs(math.log(cell.sealed_cpu_time_s / cell.cpu_time_s)))


def reliable_share(cell: CellRow) -> float:
    """Return the attained fraction of the roof; 0 where none is known that may be relied on."""
    return cell.reliable_fraction_of_roof or 0.0


@dataclass(frozen=True)
class OperatorView:
    """An operator on a device."""

    about: About
    cells: list[MeasuredCell]
    scope: str | None  # the part that is compared: the first that about.py names
    scope_label: str | None  # the same where cells differ in it
    best_cell: MeasuredCell | None  # the sound cell nearest to its roof
    remedies: list[str]  # for the regime that most cells have
    fastest_cells: list[MeasuredCell]  # of that scope, sound: the fastest implementation of each case
    heat_rows: dict[str, list[MeasuredCell]]  # these, by series along the operator's axis, or by case
    sound_cells: list[MeasuredCell]  # those with a share of the roof
    regime_counts: list[tuple[str, int]]  # of those, as pages name them, the most frequent first


@dataclass(frozen=True)
class DeviceView:
    """A device of the run with its ceilings, operators and checks."""

    device: str  # its name in the run, gpu0
    row: DeviceRow  # with the name of its model
    facts: dict[str, str]
    gemms: list[ComputeCeiling]
    registers: list[ComputeCeiling]
    memory: list[MemoryCeiling]
    layers: list[PyramidLayer]
    operators: list[OperatorView]
    score: Score
    checks: list[CheckResult]
    faulty: bool  # a failed check makes all of its figures doubtful, not only those of a few records

    @property
    def exceeded_slopes(self) -> set[str | None]:
        """The names of the memory ceilings that a cell exceeds: they are too low, or a cache held its data."""
        cells = [cell for operator in self.operators for cell in operator.cells if cell.doubt == "impossible"]
        return {cell.memory_ceiling for cell in cells if cell.lower_ceiling == "memory"}

    @property
    def is_cpu(self) -> bool:
        """True for the CPU, false for a GPU."""
        return not DEVICE_TRAITS[self.row.device_kind].accelerator

    @property
    def compute(self) -> list[ComputeCeiling]:
        """All compute ceilings, GEMMs first."""
        return [*self.gemms, *self.registers]

    def checks_with(self, result: Result) -> list[CheckResult]:
        """Return the checks with this result."""
        return [check for check in self.checks if check.result == result]

    def memory_ceiling(self, mix: str) -> MemoryCeiling | None:
        """Return the ceiling of main memory for an access pattern, by all cores; None if it was not measured."""
        wanted = MAIN_MEMORY[self.row.device_kind], mix, None
        return next((row for row in self.memory if (row.level, row.mix, row.cores) == wanted), None)


@dataclass(frozen=True)
class Ratio:
    """The GPU against the CPU in one operator, in fp32."""

    title: str
    pairs: list[tuple[MeasuredCell, MeasuredCell]]  # GPU and CPU, by bytes moved

    @property
    def roof_ratios(self) -> list[float]:
        """The roof on the GPU over that on the CPU, for each pair in which both are sound."""
        sound = [pair for pair in self.pairs if all(cell.reliable_fraction_of_roof for cell in pair)]
        roofs = [(gpu_cell.roof_tflops, cpu_cell.roof_tflops) for gpu_cell, cpu_cell in sound]
        return [round_ratio(gpu_roof / cpu_roof) for gpu_roof, cpu_roof in roofs if gpu_roof and cpu_roof]

    @property
    def cores_used(self) -> list[float]:
        """The cores that each CPU cell kept busy, as far as that is known."""
        return [cpu_cell.cores_used for _, cpu_cell in self.pairs if cpu_cell.cores_used]

    @property
    def speed_ups(self) -> list[float]:
        """CPU time on the CPU over CPU time on the GPU, for each pair."""
        return [round_ratio(cpu_cell.cpu_time_s / gpu_cell.cpu_time_s) for gpu_cell, cpu_cell in self.pairs]

    @property
    def widest_pair(self) -> tuple[MeasuredCell, MeasuredCell]:
        """The pair in which the GPU gains most."""
        return max(self.pairs, key=lambda pair: pair[1].cpu_time_s / pair[0].cpu_time_s)


class Source(NamedTuple):
    """The commit and the repository of a run's sources, each None if not known, and what was replaced since the run."""

    commit: str | None
    url: str | None
    amendments: Sequence[str] = ()  # a line each time
    changed_files: Sequence[str] = ()  # that no commit has


UNKNOWN_SOURCE = Source(None, None)
JobSeconds = Mapping[str, float]  # of each record, by its path


@dataclass(frozen=True)
class Reproduction:
    """One cell to repeat, and what it should print."""

    cell: MeasuredCell
    commands: list[str]
    elapsed_s: float | None  # that this run spent on measuring it, and on the calibration that it needs


@dataclass(frozen=True)
class ReportView:
    """A run as terminal and pages show it."""

    table: Roofline
    devices: list[DeviceView]  # GPUs first
    ratios: list[Ratio]
    worst_cells: list[SealedCell]  # those with the largest errors of prediction, the largest first
    predicted_cells: list[SealedCell]  # with a sealed and a measured time
    reproduction: Reproduction | None
    amendments: Sequence[str]
    changed_code: Sequence[str]  # files that the run was measured by and no commit has

    @property
    def first_device(self) -> DeviceView:
        """The device that pages are about: the first GPU, else the CPU."""
        return self.devices[0]

    @property
    def gpus(self) -> list[DeviceView]:
        """All GPUs of the run."""
        return [device for device in self.devices if not device.is_cpu]

    def group_checks(self) -> list[tuple[list[str], str, list[CheckResult]]]:
        """Return checks by their result, faults first, each with the devices that have the same ones."""
        groups: dict[tuple, tuple[list[str], str, list[CheckResult]]] = {}
        for result in CHECK_RESULTS:
            for device in self.devices:
                checks = device.checks_with(result)
                key = result, *((check.check, check.reason if result != "pass" else "") for check in checks)
                if checks:
                    groups.setdefault(key, ([], result, checks))[0].append(device.device)
        return list(groups.values())

    @property
    def tabulated_devices(self) -> list[DeviceView]:
        """The first GPU and the CPU, for tables that more GPUs would make too long."""
        return [devices[0] for devices in group_by(self.devices, lambda device: device.is_cpu).values()]

    @property
    def cpu(self) -> DeviceView | None:
        """The CPU; None if it was not measured."""
        return next((device for device in self.devices if device.is_cpu), None)


def build_report(table: Roofline, source: Source = UNKNOWN_SOURCE, elapsed_s: JobSeconds | None = None) -> ReportView:
    """Select from the table what terminal and pages show. `elapsed_s` has the seconds of each record, by path."""
    names = order_devices(table.devices, lambda name: table.devices[name].device_kind)
    devices = [_device(name, table) for name in names]
    predicted = select_sealed(select_measured(table.operators))
    judged = select_sealed(select_measured(select_judged(table.operators)))
    worst = sorted(judged, key=error_factor, reverse=True)
    first, last = devices[0], devices[-1]  # GPUs are first, the CPU is last
    compared = last.is_cpu and not first.is_cpu and not (first.faulty or last.faulty)
    return ReportView(
        table=table,
        devices=devices,
        ratios=list(_ratios(first.device, table)) if compared else [],
        worst_cells=worst[:WORST_PREDICTIONS],
        predicted_cells=predicted,
        reproduction=_reproduction(table, devices[0], source, elapsed_s or {}),
        amendments=source.amendments,
        changed_code=[path for path in source.changed_files if path.startswith(CODE)],
    )


def _device(name: str, table: Roofline) -> DeviceView:
    compute = table.compute_ceilings(name)
    device_cells = [cell for cell in table.operators if cell.device == name]
    measured = group_by(select_measured(device_cells), lambda cell: cell.operator)
    return DeviceView(
        device=name,
        row=table.devices[name],
        facts=_facts(table.devices[name]),
        gemms=[ceiling for ceiling in compute if ceiling.workload == "gemm"],
        registers=[ceiling for ceiling in compute if ceiling.workload == "fma"],
        memory=table.memory_ceilings(name),
        layers=build_pyramid(name, table),
        operators=[_operator(measured[operator], table) for operator in table.operator_info if operator in measured],
        score=score_predictions(device_cells),
        checks=[check for check in table.checks if check.device == name],
        faulty=any(failure.device == name and not failure.records for failure in table.doubting_failures),
    )


def _facts(device: DeviceRow) -> dict[str, str]:
    software, hardware = device.software, device.hardware
    facts = {
        "measured": device.queried_at[:10],
        "driver": software.get("driver"),
        "CUDA": software.get("cuda_runtime"),
        "memory": capacity(device.memory_total_bytes),
        "multiprocessors": hardware.get("multiprocessors"),
        "cores": hardware.get("cores_usable"),
        "power limit": f"{number(limit)} W" if (limit := hardware.get("power_limit_w")) else None,
        "host": device.host.get("cpu"),
    }
    return {key: str(value) for key, value in facts.items() if value}


def _operator(cells: list[MeasuredCell], table: Roofline) -> OperatorView:
    scope = compared_scope(cells, table)
    sound = [cell for cell in cells if cell.reliable_fraction_of_roof]
    compared = [cell for cell in sound if cell.scope == scope]
    fastest = list(_fastest(compared, lambda cell: rows.case_key(cell.device, cell)).values())
    regime_counts = Counter(cell.shown_regime for cell in sound if cell.shown_regime).most_common()
    # An example among the fastest, so that nothing is advised that they do already.
    example = next((cell for cell in fastest if regime_counts and cell.shown_regime == regime_counts[0][0]), None)
    about = table.operator_info[cells[0].operator]

    def row_of(cell: CellRow) -> str:
        return f"{cell.dtype} {table.series(cell)}" if about.axis else table.label(cell)

    return OperatorView(
        about=about,
        cells=cells,
        scope=scope,
        scope_label=scope and table.scope_label(cells[0]) and scope,
        best_cell=max(compared, key=reliable_share, default=None),
        remedies=table.remedies(example) if example else [],
        fastest_cells=fastest,
        heat_rows=group_by(fastest, row_of),
        sound_cells=sound,
        regime_counts=regime_counts,
    )


def _fastest(cells: Iterable[MeasuredCell], case_of: Callable[[CellRow], tuple]) -> dict[tuple, MeasuredCell]:
    """The cell with the shortest CPU time of each case."""
    return {case: min(group, key=lambda cell: cell.cpu_time_s) for case, group in group_by(cells, case_of).items()}


def compared_scope(cells: Sequence[CellRow], table: Roofline) -> str | None:
    """Return the first scope that the operator's about.py names and cells have, else that of the first cell."""
    scopes = dict.fromkeys(cell.scope for cell in cells)
    declared = table.operator_info[cells[0].operator].scopes
    return next((scope for scope in declared if scope in scopes), next(iter(scopes)))


def _ratios(gpu: str, table: Roofline) -> Iterator[Ratio]:
    """The fastest implementation of each case that both devices have, by operator, without doubtful cells."""
    for operator in table.operator_info:
        gpu_cells, cpu_cells = _comparable(table, gpu, operator), _comparable(table, "cpu", operator)
        pairs = [(cell, cpu_cells[case]) for case, cell in gpu_cells.items() if case in cpu_cells]
        if pairs:
            yield Ratio(table.title_with_scope(pairs[0][0]), sorted(pairs, key=lambda pair: pair[0].bytes))


def _comparable(table: Roofline, device: str, operator: str) -> dict[tuple, MeasuredCell]:
    """The fastest sound fp32 cell of each preset and shape, in the scope that is compared."""
    wanted = device, operator, COMMON_DTYPE
    cells = [cell for cell in table.operators if (cell.device, cell.operator, cell.dtype) == wanted]
    scope = compared_scope(cells, table) if cells else None
    sound = [cell for cell in select_measured(cells) if not cell.doubt and cell.scope == scope]
    return _fastest(sound, lambda cell: (cell.preset, *sorted(cell.shape.items())))


def _reproduction(table: Roofline, device: DeviceView, source: Source, elapsed_s: JobSeconds) -> Reproduction | None:
    """The best case of an operator that is measured by its own job."""
    ceiling_records = {ceiling.record for ceiling in table.ceilings}
    cells = [operator.best_cell for operator in device.operators if operator.best_cell]
    best = max((cell for cell in cells if cell.record not in ceiling_records), key=reliable_share, default=None)
    if best is None:
        return None
    commands = [f"git clone {source.url} roofline && cd roofline"] if source.url else []
    commands += [f"git checkout {source.commit}"] if source.commit else []
    paths = best.record, f"{device.device}/calibration.json"
    return Reproduction(
        cell=best,
        commands=[*commands, f"make cell CELL={best.record.removesuffix('.json')}"],
        elapsed_s=sum(elapsed_s[path] for path in paths) if all(elapsed_s.get(path) for path in paths) else None,
    )
