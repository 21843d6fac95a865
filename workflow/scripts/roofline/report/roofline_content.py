"""What a roofline shows of a device: slopes, roofs, and dots with labels. Matplotlib and Plotly draw the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

from roofline.core.formatting import axis_value_text, mark_doubtful, number, percent
from roofline.core.terms import BYTES_AXIS_KEY, DeviceKind, order_devices
from roofline.operators.about import About
from roofline.report.pyramid import ALL_CORES, CACHES
from roofline.report.words import LEVELS, datasheet_word, format_percent_span, format_shares
from roofline.table.rows import USERS, CellRow, ComputeCeiling, MemoryCeiling, Roofline

COPY, CUDA_CORES = "d2d", "fp32_fma"
MAIN = ("hbm", "dram")
SETTLED = 0.99  # of the burst: a sustained rate above it is named, but not drawn
SMALL = 10.0  # TFLOPS: devices below are shown in GFLOPS
NEAR = 1.25  # dots of one series within this factor share a label


@dataclass(frozen=True)
class Line:
    """A slope or a roof."""

    name: str
    value: float  # GB/s or TFLOPS
    label: str
    main: bool = False  # the memory slope that most cells stand under
    dtype: str = ""
    fma: bool = False  # a register-only kernel's
    sustained: float | None = None


class Segment(NamedTuple):
    """A line between two intensities (FLOP/byte) at two heights (TFLOPS)."""

    line: Line
    kind: str  # slope, burst or sustained
    xs: tuple[float, float]
    ys: tuple[float, float]


@dataclass(frozen=True)
class Dot:
    intensity: float  # FLOP/byte
    tflops: float
    label: str
    dtype: str
    kind: str  # what its marker means
    hollow: bool = False
    crossed: bool = False
    predicted: float | None = None  # TFLOPS, as sealed
    cell: CellRow | None = None


@dataclass(frozen=True)
class RooflineContent:
    device: str
    title: str
    promised: str  # whose figures the roofs are compared with
    slopes: list[Line]  # the steepest first
    roofs: list[Line]  # the highest first
    dots: list[Dot]

    @property
    def scale(self) -> float:
        """From TFLOPS to the unit that is shown."""
        return _scale([roof.value for roof in self.roofs])

    @property
    def unit(self) -> str:
        return "TFLOPS" if self.scale == 1.0 else "GFLOPS"

    def ridges(self) -> list[float]:
        return [roof.value * 1e3 / slope.value for roof in self.roofs for slope in self.slopes]

    def segments(self, x0: float, x1: float, y0: float = 0.0) -> Iterator[Segment]:
        """Slopes up to the highest roof, then roofs from the steepest slope on."""
        top = max((roof.value for roof in self.roofs), default=inf)
        for slope in self.slopes:
            rate = slope.value / 1e3
            xs = max(x0, y0 / rate), min(x1, top / rate)
            yield Segment(slope, "slope", xs, (rate * xs[0], rate * xs[1]))
        for roof in self.roofs:
            for kind, value in (("burst", roof.value), ("sustained", roof.sustained)):
                if value:
                    start = min(max(x0, 1e3 * value / self.slopes[0].value), x1 / 10) if self.slopes else x0
                    yield Segment(roof, kind, (start, x1), (value, value))


def build_content(roofline: Roofline, device: str, cells: Sequence[CellRow], by_rate: bool = False) -> RooflineContent:
    """`by_rate`: one operator's picture, dots by implementation and labelled with their FLOP rate."""
    ceilings = [one for one in roofline.ceilings if one.device == device]
    compute = [one for one in ceilings if one.kind == "compute"]
    under = {cell.compute_ceiling for cell in cells}
    shown = [c for c in compute if c.name in under or (not by_rate and (c.workload == "gemm" or c.name == CUDA_CORES))]
    roofs = [_roof(one, _scale([c.tflops for c in shown])) for one in shown]
    slopes = _slopes(roofline, device, {cell.memory_ceiling for cell in cells})
    placed = [cell for cell in cells if _height(cell) and cell.intensity_flops_per_byte]
    rates = {id(cell): f"{roofline.label(cell)}: {number(1e3 * _height(cell))} GFLOPS" for cell in placed}
    labels = rates if by_rate else _labels(placed, roofline)
    dots = [_dot(cell, labels.get(id(cell), ""), roofline, by_rate) for cell in placed]
    return RooflineContent(
        device=device,
        title=roofline.devices[device].name,
        promised=datasheet_word(roofline.devices[device]),
        slopes=sorted(slopes, key=lambda one: -one.value),
        roofs=sorted(roofs, key=lambda one: -one.value),
        dots=dots,
    )


def _scale(tflops: Sequence[float]) -> float:
    return 1.0 if max(tflops, default=SMALL) >= SMALL else 1e3


def _roof(c: ComputeCeiling, scale: float) -> Line:
    rates = [mark_doubtful(number(scale * c.burst_tflops), c.doubt)]
    rates += [number(scale * c.sustained_tflops)] if c.sustained_tflops else []
    promised = f" ({format_shares(c)})" if format_shares(c) else ""
    label = f"{c.name} {' / '.join(rates)}{promised}"
    lower = c.sustained_tflops if (c.sustained_tflops or 0) < SETTLED * c.tflops else None
    return Line(c.name, c.tflops, label, dtype=c.dtype, fma=c.workload == "fma", sustained=lower)


def _slopes(roofline: Roofline, device: str, under: set[str | None]) -> Iterable[Line]:
    """Those that cells stand under, the copy on the device, and the caches."""
    found = [one for one in roofline.ceilings if one.device == device and one.kind == "memory"]
    main = _main(found, [cell for cell in roofline.operators if cell.device == device])
    for one in found:
        if one.name in under or one.name in (COPY, *CACHES) or one is main:
            words = f"{_level(one)} {mark_doubtful(number(one.gb_per_s), one.doubt)} GB/s"
            if one is main and one.fraction_of_datasheet and not one.doubt:
                words += f" ({percent(one.fraction_of_datasheet)})"
            yield Line(one.name, one.gb_per_s, words, main=one is main)
    known = {one.name for one in found}
    for sweep in roofline.sweeps:  # caches that only the sweep knows, as on a CPU
        if (sweep.device, sweep.series) != (device, ALL_CORES):
            continue
        for plateau in sweep.plateaus:
            if plateau.name in CACHES and plateau.name not in known:
                title = LEVELS.get(plateau.name, plateau.name.upper())
                yield Line(plateau.name, plateau.gb_per_s, f"{title} {number(plateau.gb_per_s)} GB/s")


def _main(found: Sequence[MemoryCeiling], cells: Sequence[CellRow]) -> MemoryCeiling | None:
    """The slope of the whole memory that most cells stand under, else that of reads."""
    whole = [one for one in found if one.level in MAIN and one.cores is None]
    under = [cell.memory_ceiling for cell in cells]
    return max(whole, key=lambda one: (under.count(one.name), one.mix == "read"), default=None)


def _level(one: MemoryCeiling) -> str:
    if one.name == COPY:
        return "device-to-device copy"
    words = LEVELS.get(one.level, one.level)
    words += f" {one.mix}" if one.level in MAIN else ""
    return words + (f", {'one core' if one.cores == 1 else f'{one.cores} cores'}" if one.cores else "")


def _height(cell: CellRow) -> float | None:
    """What was not measured is at its roof."""
    return cell.roof_tflops if cell.attained_tflops is None else cell.attained_tflops


# ---------------------------------------------------------------- dots


def choose_dots(roofline: Roofline, device: str) -> list[CellRow]:
    """The cells with a dot in roofline.png: the best implementation of each operator and dtype; of it every case if
    its share of the peak matters (decode attention), else the best case; all operations of the user."""
    found = []
    mine = [cell for cell in roofline.operators if cell.device == device]
    for name, dtype in dict.fromkeys((cell.operator, cell.dtype) for cell in mine):
        alike = [cell for cell in mine if (cell.operator, cell.dtype) == (name, dtype)]
        if name == USERS:
            found += alike
            continue
        about = roofline.operator_info[name]
        scope = next((one for one in about.scopes if any(cell.scope == one for cell in alike)), alike[0].scope)
        best = _best([cell for cell in alike if cell.scope == scope])
        fastest = max(best, key=lambda cell: cell.reliable_fraction_of_roof or 0.0)
        found += best if about.usual_share_of_peak else [fastest]
    return found


def _best(cells: Sequence[CellRow]) -> list[CellRow]:
    """The cells of the implementation with the largest median share."""
    ways: dict[str, list[CellRow]] = {}
    for cell in cells:
        ways.setdefault(cell.implementation, []).append(cell)
    return max(ways.values(), key=lambda mine: median(cell.reliable_fraction_of_roof or 0.0 for cell in mine))


def _dot(cell: CellRow, label: str, roofline: Roofline, by_rate: bool) -> Dot:
    way = None if cell.operator == USERS else cell.implementation
    name = "your operations" if cell.operator == USERS else roofline.title(cell.operator)
    sealed = cell.sealed and cell.sealed.cpu_time_s
    return Dot(
        intensity=cell.intensity_flops_per_byte,
        tflops=_height(cell),
        label=label,
        dtype=cell.dtype,
        kind=cell.implementation if by_rate else ", ".join(filter(None, [name, cell.scope, way])),
        hollow=cell.attained_tflops is None,
        crossed=bool(cell.doubt),
        predicted=cell.flops / sealed / 1e12 if sealed and cell.flops and cell.attained_tflops else None,
        cell=cell,
    )


def _labels(cells: Sequence[CellRow], roofline: Roofline) -> dict[int, str]:
    """Shares by the id of the cell; neighbours of one series, or of one operator in two dtypes, share a label."""
    several = [mine for mine in group_series(cells, roofline) if len(mine) > 1]
    apart: dict[tuple, list[CellRow]] = {}
    for (cell,) in (mine for mine in group_series(cells, roofline) if len(mine) == 1):
        key = (id(cell),) if cell.operator == USERS else (cell.operator, round(cell.intensity_flops_per_byte, 2))
        apart.setdefault(key, []).append(cell)
    groups = [group for series in (*several, *apart.values()) for group in _groups(series)]
    along = {id(cell): series for series in several for cell in series}
    return {id(group[len(group) // 2]): _words(group, roofline, along.get(id(group[0]))) for group in groups}


def group_series(cells: Iterable[CellRow], roofline: Roofline) -> list[list[CellRow]]:
    """Cells that differ along the axis of their operator alone, in its order."""
    found: dict[tuple, list[tuple[float, int, CellRow]]] = {}
    for place, cell in enumerate(cells):
        about = roofline.operator_info.get(cell.operator)
        along = about.axis and cell.axis_value(about.axis) if about else None
        what = place if along is None else about.series(cell)
        key = cell.device, cell.operator, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, what
        found.setdefault(key, []).append((along or 0, place, cell))
    return [[cell for *_, cell in sorted(mine, key=lambda one: one[:2])] for mine in found.values()]


def _groups(series: Sequence[CellRow]) -> list[list[CellRow]]:
    groups: list[list[CellRow]] = []
    for cell in sorted(series, key=_height):
        if not groups or _height(cell) >= NEAR * _height(groups[-1][0]):
            groups.append([])
        groups[-1].append(cell)
    return groups


def _words(group: Sequence[CellRow], roofline: Roofline, series: list[CellRow] | None) -> str:
    """batch 1, S 128: 4.6 % (0.20 %), in brackets of the peak; GEMM fp16, bf16 96–97 %."""
    about, share = roofline.operator_info.get(group[0].operator), _span(one.reliable_fraction_of_roof for one in group)
    if about is None:
        return " ".join(filter(None, [group[0].name, share]))
    if not series:
        return f"{about.title} {', '.join(dict.fromkeys(cell.dtype for cell in group))} {share or '*'}"
    sizes = sorted(one.axis_value(about.axis) for one in group)
    places = [axis_value_text(about.axis, size) for size in sizes]
    if 2 < len(places) == sum(sizes[0] <= one.axis_value(about.axis) <= sizes[-1] for one in series):
        places = [f"{places[0]}–{places[-1]}"]
    where = f"{about.axis.symbol} {', '.join(places)}"
    peaks = {one.name for one in roofline.ceilings if one.device == group[0].device and not one.doubt}
    sound = [one for one in group if one.reliable_fraction_of_roof and one.compute_ceiling in peaks]
    peak = _span(one.fraction_of_compute_peak for one in sound) if about.usual_share_of_peak else ""
    words = ", ".join(filter(None, [about.series(group[0]), where]))
    dtype = "" if roofline.ceiling(group[0].device, group[0].dtype) else f"{group[0].dtype} "
    return f"{dtype}{words}: {share or '*'}" + (f" ({peak})" if peak else "")


def _span(shares: Iterable[float | None]) -> str:
    known = [share for share in shares if share]
    return format_percent_span(known).replace(" to ", "–") if known else ""


def picture_names(devices: Mapping[str, DeviceKind]) -> dict[str, list[str]]:
    """The files of each device's roofline: roofline.png and .svg of the first GPU, else of the CPU."""
    ordered = order_devices(devices, lambda device: devices[device])
    stems = {device: "roofline" if device == ordered[0] else f"roofline_{device}" for device in ordered}
    return {device: [f"{stem}.png", f"{stem}.svg"] for device, stem in stems.items()}


def is_roofline(about: About) -> bool:
    """An operator whose cases differ in bytes alone has one intensity: its picture is a roofline."""
    return bool(about.axis and about.axis.key == BYTES_AXIS_KEY)
