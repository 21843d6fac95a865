"""The model of the report: what terminal, pages and pictures show of a run, selected from the rows of the table."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roofline.core.formatting import capacity, number
from roofline.core.terms import DEVICE_TRAITS, order_devices, select_accelerators
from roofline.report.pyramid import PyramidLayer, build_pyramid
from roofline.table.rows import (
    USERS,
    CellRow,
    CheckResult,
    ComputeCeiling,
    DeviceRow,
    MemoryCeiling,
    Roofline,
    Score,
    case_key,
    count_passed,
)
from roofline.table.scores import score_predictions

WORST = 5  # predictions by name
# The largest fp16 matrix instruction of a compute capability, by its major number: PTX ISA 9.0, sections 9.7.14 to 16.
MMA = {
    "7": "mma.sync m16n8k8",
    "8": "mma.sync m16n8k16",
    "9": "wgmma m64n256k16",
    "10": "tcgen05.mma m256n256k16 (two SMs)",
    "12": "mma.sync m16n8k16",
}
MAIN = ("hbm", "dram")  # levels of device memory


@dataclass(frozen=True)
class OperatorView:
    """An operator on a device."""

    title: str
    name: str
    device: str
    cells: list[CellRow]
    scope: str | None  # the part that is compared: the first that about.py names
    best: CellRow | None  # the sound cell nearest to its roof
    remedies: list[str]  # for the regime that most cells have
    fast: list[CellRow]  # of that scope, sound: the fastest implementation of each case
    slowest: float | None  # the slowest implementation of a case over its fastest, at most


@dataclass(frozen=True)
class DeviceView:
    name: str
    row: DeviceRow
    facts: dict[str, str]
    gemms: list[ComputeCeiling]
    registers: list[ComputeCeiling]
    memory: list[MemoryCeiling]
    layers: list[PyramidLayer]
    operators: list[OperatorView]
    score: Score
    checks: list[CheckResult]
    faulty: bool  # a failed check makes all of its figures doubtful

    @property
    def is_cpu(self) -> bool:
        return not DEVICE_TRAITS[self.row.device_kind].accelerator

    @property
    def compute(self) -> list[ComputeCeiling]:
        return [*self.gemms, *self.registers]

    @property
    def failed(self) -> list[CheckResult]:
        return [one for one in self.checks if one.result == "fail"]

    @property
    def notes(self) -> list[CheckResult]:
        return [one for one in self.checks if one.result == "note"]

    @property
    def passed(self) -> str:
        return count_passed(self.checks)

    def main(self, mix: str) -> MemoryCeiling | None:
        """The ceiling of device memory for a mix of accesses, by all cores."""
        found = (c for c in self.memory if c.level in MAIN and c.mix == mix and c.cores is None)
        return next(found, None)

    @property
    def mma(self) -> str | None:
        """The shape of its matrix instruction."""
        capability = self.row.hardware.get("compute_capability") or ""
        return MMA.get(capability.split(".")[0])

    def ridge(self, c: ComputeCeiling) -> float | None:
        """FLOP/byte at which a compute ceiling meets the slope of memory reads."""
        reads = self.main("read")
        return 1e3 * c.tflops / reads.gb_per_s if reads and not (reads.doubt or c.doubt) else None


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the GPU is in an operator, in fp32."""

    title: str
    pairs: list[tuple[CellRow, CellRow]]  # GPU and CPU, by bytes moved
    ceilings: float | None  # the ratio of the compute ceilings that they stand under

    @property
    def times(self) -> list[float]:
        return [slow.cpu_time_s / fast.cpu_time_s for fast, slow in self.pairs]


class Source(NamedTuple):
    """Where the sources of a run are; each None if not known."""

    commit: str | None
    url: str | None


UNKNOWN = Source(None, None)


@dataclass(frozen=True)
class Reproduction:
    """One cell to repeat, and what it should print."""

    name: str
    row: CellRow
    commands: list[str]
    seconds: float | None  # that this run spent on measuring it, and on the calibration that it needs


@dataclass(frozen=True)
class ReportView:
    table: Roofline
    devices: list[DeviceView]  # GPUs first
    ratios: list[Ratio]
    bandwidths: float | None  # the GPU's memory reads over the CPU's
    worst: list[CellRow]
    predicted: list[CellRow]
    again: Reproduction | None

    @property
    def main(self) -> DeviceView:
        return self.devices[0]

    @property
    def gpus(self) -> list[DeviceView]:
        return [one for one in self.devices if not one.is_cpu]

    @property
    def shown(self) -> list[DeviceView]:
        """One device of each model, for tables that would repeat themselves."""
        return list({one.row.name: one for one in reversed(self.devices)}.values())[::-1]

    @property
    def cpu(self) -> DeviceView | None:
        return next((one for one in self.devices if one.is_cpu), None)

    @property
    def users(self) -> list[CellRow]:
        """The user's own operations."""
        return [cell for cell in self.table.operators if cell.operator == USERS]

    @property
    def passed(self) -> str:
        return count_passed(self.table.checks)


def build_report(table: Roofline, source: Source = UNKNOWN, elapsed_s: Mapping[str, float] | None = None) -> ReportView:
    """`elapsed_s` has the seconds that a record took, by its path."""
    names = [name for name, _ in order_devices(table.devices.items(), lambda item: item[1].device_kind)]
    devices = [_device(name, table) for name in names]
    gpu = next(iter(select_accelerators(names, lambda name: table.devices[name].device_kind)), None)
    by_name = {one.name: one for one in devices}
    ratios, bandwidths = [], None
    if gpu and "cpu" in by_name:
        ratios = [one for name in table.operator_info if (one := _ratio(name, gpu, table))]
        reads = [by_name[name].main("read") for name in (gpu, "cpu")]
        if all(reads) and not any(one.doubt for one in reads):
            bandwidths = reads[0].gb_per_s / reads[1].gb_per_s
    predicted = [cell for cell in table.measured_cells if cell.sealed and cell.sealed.cpu_time_s and cell.cpu_time_s]
    sound = [cell for cell in predicted if not cell.doubt]
    return ReportView(
        table=table,
        devices=devices,
        ratios=ratios,
        bandwidths=bandwidths,
        worst=sorted(sound, key=_factor, reverse=True)[:WORST],
        predicted=predicted,
        again=_again(table, devices[0], source, elapsed_s or {}),
    )


def _device(name: str, table: Roofline) -> DeviceView:
    mine = [c for c in table.ceilings if c.device == name]
    compute = [c for c in mine if c.kind == "compute"]
    views = [_operator(name, operator, table) for operator in table.operator_info]
    return DeviceView(
        name=name,
        row=table.devices[name],
        facts=_facts(table.devices[name]),
        gemms=[c for c in compute if c.workload == "gemm"],
        registers=[c for c in compute if c.workload == "fma"],
        memory=[c for c in mine if c.kind == "memory"],
        layers=build_pyramid(name, table),
        operators=[one for one in views if one],
        score=score_predictions(cell for cell in table.operators if cell.device == name),
        checks=[one for one in table.checks if one.device == name],
        faulty=table.all_doubtful(name),
    )


def _facts(device: DeviceRow) -> dict[str, str]:
    software, hardware = device.software, device.hardware
    known = {
        "measured": device.queried_at[:10],
        "driver": software.get("driver"),
        "CUDA": software.get("cuda_runtime"),
        "memory": capacity(device.memory_total_bytes),
        "multiprocessors": hardware.get("multiprocessors"),
        "cores": hardware.get("cores_usable"),
        "power limit": f"{number(limit)} W" if (limit := hardware.get("power_limit_w")) else None,
        "host": device.host.get("cpu"),
    }
    return {key: str(value) for key, value in known.items() if value}


def _operator(device: str, name: str, table: Roofline) -> OperatorView | None:
    cells = [c for c in table.operators if (c.device, c.operator) == (device, name) and c.cpu_time_s]
    if not cells:
        return None
    sound, scope = [cell for cell in cells if cell.reliable_fraction_of_roof], _scope(cells, table)
    fastest = [*_fastest((cell for cell in sound if cell.scope == scope), _case).values()]
    regimes = [cell.regime for cell in sound if cell.regime]
    usual = max(dict.fromkeys(regimes), key=regimes.count, default=None)
    fast, slow = find_widest_pair(cells) or (None, None)
    # Of the fastest: what these do already is not advised.
    example = next((cell for cell in fastest if cell.regime == usual), None)
    return OperatorView(
        title=table.title(name),
        name=name,
        device=device,
        cells=cells,
        scope=scope,
        best=max(
            (cell for cell in sound if cell.scope == scope),
            key=lambda cell: cell.reliable_fraction_of_roof,
            default=None,
        ),
        remedies=table.remedies(example) if example else [],
        fast=fastest,
        slowest=slow.own_time_s / fast.own_time_s if fast else None,
    )


def _fastest(cells: Iterable[CellRow], case_of: Callable[[CellRow], tuple]) -> dict[tuple, CellRow]:
    found: dict[tuple, CellRow] = {}
    for cell in cells:
        if cell.cpu_time_s < getattr(found.get(case_of(cell)), "cpu_time_s", math.inf):
            found[case_of(cell)] = cell
    return found


def _scope(cells: Sequence[CellRow], table: Roofline) -> str | None:
    there = dict.fromkeys(cell.scope for cell in cells)
    return next((one for one in table.operator_info[cells[0].operator].scopes if one in there), next(iter(there)))


def _case(cell: CellRow) -> tuple:
    return case_key(cell.device, cell)


def find_widest_pair(cells: Iterable[CellRow]) -> list[CellRow]:
    """The fastest and the slowest implementation of the case in which they differ most; empty if no case has two.

    Graphs are compared with graphs, because launches do not belong to a kernel.
    """
    alike: dict[tuple, list[CellRow]] = {}
    for cell in cells:
        if not cell.doubt:
            alike.setdefault((*_case(cell), cell.graph), []).append(cell)
    several = [sorted(mine, key=lambda cell: cell.own_time_s) for mine in alike.values() if len(mine) > 1]
    most = max(several, key=lambda mine: mine[-1].own_time_s / mine[0].own_time_s, default=[])
    return [most[0], most[-1]] if most else []


def _ratio(operator: str, gpu: str, table: Roofline) -> Ratio | None:
    """By the fastest implementation of each case that both have, without doubtful cells."""
    found = {
        device: _fastest(_comparable(table, device, operator), lambda cell: (cell.preset, *sorted(cell.shape.items())))
        for device in (gpu, "cpu")
    }
    pairs = [(cell, found["cpu"][key]) for key, cell in found[gpu].items() if key in found["cpu"]]
    if not pairs:
        return None
    roofs = [table.ceiling(cell.device, cell.compute_ceiling) for cell in pairs[0]]
    known = all(roofs) and pairs[0][0].lower_ceiling == "compute"
    ceilings = roofs[0].tflops / roofs[1].tflops if known else None
    scope = pairs[0][0].scope
    title = f"{table.title(operator)} ({scope})" if scope else table.title(operator)
    return Ratio(title, sorted(pairs, key=lambda pair: pair[0].bytes), ceilings)


def _comparable(table: Roofline, device: str, operator: str) -> list[CellRow]:
    cells = [c for c in table.operators if (c.device, c.operator, c.dtype) == (device, operator, "fp32")]
    return [cell for cell in cells if cell.cpu_time_s and not cell.doubt and cell.scope == _scope(cells, table)]


def _factor(cell: CellRow) -> float:
    """By which the sealed time was missed, whichever way."""
    return math.exp(abs(math.log(cell.sealed.cpu_time_s / cell.cpu_time_s)))


def _again(table: Roofline, of: DeviceView, source: Source, elapsed_s: Mapping[str, float]) -> Reproduction | None:
    """The best case of an operator that is measured by its own job."""
    of_ceilings = {one.record for one in table.ceilings}
    cells = [one.best for one in of.operators if one.best and one.best.record not in of_ceilings]
    best = max(cells, key=lambda cell: cell.reliable_fraction_of_roof, default=None)
    if best is None:
        return None
    commands = [f"git clone {source.url} roofline && cd roofline"] if source.url else []
    commands += [f"git checkout {source.commit}"] if source.commit else []
    needed = [elapsed_s.get(one) for one in (best.record, f"{of.name}/calibration.json")]
    return Reproduction(
        name=table.full_name(best),
        row=best,
        commands=[*commands, f"make cell CELL={best.record.removesuffix('.json')}"],
        seconds=sum(needed) if all(needed) else None,
    )
