"""What a roofline shows of a device: slopes, roofs, and dots with labels. Matplotlib and Plotly draw the same."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

from roofline.core.formatting import axis_value_text, flops_rate_text, mark_doubtful, number, percent
from roofline.core.grouping import group_by
from roofline.core.levels import DRIVER_COPY, LEVEL_TITLES, MAIN_MEMORY
from roofline.core.terms import CACHE_LEVELS, DeviceKind, order_devices
from roofline.report.palette import SERIES_COLOURS, assign_in_turn
from roofline.report.pyramid import cache_plateaus, describe_plateau
from roofline.report.report_model import compared_scope, reliable_share
from roofline.report.words import describe_libraries, format_percent_span, format_shares
from roofline.table.rows import USERS, CellRow, ComputeCeiling, DeviceRow, MemoryCeiling, Roofline

CUDA_CORES_CEILING = "fp32_fma"
LAB_IMPLEMENTATIONS = {"cupy.matmul": ("fp16", "fp32"), "eager": ("fp16",)}  # CuPy's arrays, in the lab's dtypes
SUSTAINED_AS_BURST = 0.99  # of the burst: a sustained rate above it is named, but not drawn
GFLOPS_BELOW = 10.0  # TFLOPS: devices below are shown in GFLOPS
SHARED_LABEL_RATIO = 1.25  # dots of one series within this factor share a label


@dataclass(frozen=True)
class Slope:
    """A memory ceiling as a line."""

    gb_per_s: float
    label: str
    emphasised: bool = False  # the one that most cells stand under


@dataclass(frozen=True)
class Roof:
    """A compute ceiling as a line."""

    ceiling: ComputeCeiling
    label: str

    def rates(self) -> Iterator[tuple[str, float]]:
        """Yield the kind and the height (TFLOPS) of each of its lines."""
        burst, sustained = self.ceiling.tflops, self.ceiling.sustained_tflops
        yield "burst", burst
        if sustained and sustained < SUSTAINED_AS_BURST * burst:
            yield "sustained", sustained


# A line, its kind (slope, burst or sustained), and two intensities (FLOP/byte) and two heights (TFLOPS) of it.
Segment = tuple[Slope | Roof, str, tuple[float, float], tuple[float, float]]


class Label(NamedTuple):
    """The text next to a dot."""

    text: str = ""
    has_peak_share: bool = False  # in brackets


@dataclass(frozen=True)
class Dot:
    """A cell at its intensity and its attained rate, or at its roof if it was not measured."""

    intensity_flops_per_byte: float
    tflops: float
    label: str
    kind: str  # what its marker means
    hollow: bool
    has_peak_share: bool  # in its label
    sealed_tflops: float | None
    cell: CellRow
    colour: str | None  # that of the dtype without one


@dataclass(frozen=True)
class RooflineContent:
    """All that is drawn of a device."""

    device: str
    row: DeviceRow
    slopes: list[Slope]  # the steepest first
    roofs: list[Roof]  # the highest first
    dots: list[Dot]
    scale: float  # from TFLOPS to the unit that is shown
    libraries: str  # whose products the roofs are

    @property
    def unit(self) -> str:
        """The unit that is shown."""
        return "TFLOPS" if self.scale == 1.0 else "GFLOPS"

    def crossings(self) -> list[float]:
        """Return the intensities (FLOP/byte) at which slopes cross roofs."""
        return [roof.ceiling.tflops * 1e3 / slope.gb_per_s for roof in self.roofs for slope in self.slopes]

    def segments(self, x0: float, x1: float, y0: float = 0.0) -> Iterator[Segment]:
        """Yield slopes up to the highest roof, then roofs from the steepest slope on.

        `x0` and `x1` are the intensities at which the picture begins and ends, `y0` is its lowest rate in TFLOPS.
        """
        top = max((roof.ceiling.tflops for roof in self.roofs), default=inf)
        for slope in self.slopes:
            rate = slope.gb_per_s / 1e3
            start, end = max(x0, y0 / rate), min(x1, top / rate)
            yield slope, "slope", (start, end), (rate * start, rate * end)
        for roof in self.roofs:
            for kind, tflops in roof.rates():
                start = min(max(x0, 1e3 * tflops / self.slopes[0].gb_per_s), x1 / 10) if self.slopes else x0
                yield roof, kind, (start, x1), (tflops, tflops)


def build_content(roofline: Roofline, device: str, cells: Sequence[CellRow], by_rate: bool = False) -> RooflineContent:
    """Return slopes (GB/s), roofs (TFLOPS) and dots of one device.

    `by_rate` is for the picture of one operator: dots are marked by implementation and labelled with FLOP rates.
    """
    drawn = _drawn_ceilings(roofline, device, cells, by_rate)
    highest = max((ceiling.tflops for ceiling in drawn), default=GFLOPS_BELOW)
    scale = 1.0 if highest >= GFLOPS_BELOW else 1e3
    slopes = _slopes(roofline, device, {cell.memory_ceiling for cell in cells})
    placed = [cell for cell in cells if _height(cell) and _intensity(cell)]
    if by_rate:
        labels = {id(cell): _rate_label(cell, roofline) for cell in placed}
    else:
        labels = _share_labels(placed, roofline)
    colours = assign_in_turn((cell.implementation for cell in placed), SERIES_COLOURS) if by_rate else {}
    return RooflineContent(
        device=device,
        row=roofline.devices[device],
        slopes=sorted(slopes, key=lambda slope: -slope.gb_per_s),
        roofs=[_roof(ceiling, scale) for ceiling in sorted(drawn, key=lambda ceiling: -ceiling.tflops)],
        dots=[_dot(cell, labels.get(id(cell), Label()), roofline, colours.get(cell.implementation)) for cell in placed],
        scale=scale,
        libraries=describe_libraries(roofline, device),
    )


def _drawn_ceilings(roofline: Roofline, device: str, cells: Sequence[CellRow], by_rate: bool) -> list[ComputeCeiling]:
    """Compute ceilings that cells stand under; in the picture of a device also all GEMMs and fp32 on CUDA cores."""
    names = {cell.compute_ceiling for cell in cells}
    ceilings = roofline.compute_ceilings(device)
    if not by_rate:
        names |= {CUDA_CORES_CEILING, *(ceiling.name for ceiling in ceilings if ceiling.workload == "gemm")}
    return [ceiling for ceiling in ceilings if ceiling.name in names]


def _roof(ceiling: ComputeCeiling, scale: float) -> Roof:
    rates = [number(scale * rate) for rate in (ceiling.sustained_tflops, ceiling.burst_tflops) if rate]
    label = f"{ceiling.name} {mark_doubtful(' / '.join(rates), ceiling.doubt)}"
    shares = format_shares(ceiling)
    return Roof(ceiling, f"{label} ({shares})" if shares else label)


def _slopes(roofline: Roofline, device: str, under: set[str | None]) -> Iterable[Slope]:
    """The slopes that cells stand under, the copy on the device, and the caches."""
    ceilings = roofline.memory_ceilings(device)
    emphasised = _most_used(ceilings, [cell for cell in roofline.operators if cell.device == device])
    for ceiling in ceilings:
        if ceiling.name in under or ceiling.name in (DRIVER_COPY, *CACHE_LEVELS) or ceiling is emphasised:
            words = f"{_slope_title(ceiling)} {mark_doubtful(number(ceiling.gb_per_s), ceiling.doubt)} GB/s"
            if ceiling is emphasised and ceiling.fraction_of_datasheet and not ceiling.doubt:
                words += f" ({percent(ceiling.fraction_of_datasheet)})"
            yield Slope(ceiling.gb_per_s, words, emphasised=ceiling is emphasised)
    names = {ceiling.name for ceiling in ceilings}
    for plateau in cache_plateaus(roofline, device):
        if plateau.name not in names:  # caches that only the sweep has, as on a CPU
            yield Slope(plateau.gb_per_s, describe_plateau(plateau))


def _most_used(ceilings: Sequence[MemoryCeiling], cells: Sequence[CellRow]) -> MemoryCeiling | None:
    """The slope of main memory, by all cores, that most cells stand under, else that of reads."""
    main = [ceiling for ceiling in ceilings if ceiling.level in MAIN_MEMORY.values() and ceiling.cores is None]
    under = [cell.memory_ceiling for cell in cells]
    return max(main, key=lambda ceiling: (under.count(ceiling.name), ceiling.mix == "read"), default=None)


def _slope_title(ceiling: MemoryCeiling) -> str:
    if ceiling.name == DRIVER_COPY:
        return "device-to-device copy"
    title = LEVEL_TITLES.get(ceiling.level, ceiling.level)
    if ceiling.level in MAIN_MEMORY.values():
        title += f" {ceiling.mix}"
    if ceiling.cores:
        title += ", one core" if ceiling.cores == 1 else f", {ceiling.cores} cores"
    return title


def _height(cell: CellRow) -> float:
    """The attained TFLOPS; the roof of what was not measured; 0 without either."""
    return (cell.roof_tflops or 0.0) if cell.attained_tflops is None else cell.attained_tflops


def _intensity(cell: CellRow) -> float:
    """The FLOP/byte; 0 without traffic, which has no place on the axis."""
    return cell.intensity_flops_per_byte or 0.0


# ---------------------------------------------------------------- dots


def choose_dots(roofline: Roofline, device: str) -> list[CellRow]:
    """Return the cells with a dot in roofline.png.

    These are the cells of the best implementation of each operator and dtype: every case if its share of the peak
    matters (decode attention), else the best case. All operations of the user are among them.
    """
    dots = []
    device_cells = [cell for cell in roofline.operators if cell.device == device]
    for (name, _), cells in group_by(device_cells, lambda cell: (cell.operator, cell.dtype)).items():
        if name == USERS:
            dots += cells
            continue
        compared = compared_scope(cells, roofline)
        best = _best_implementation([cell for cell in cells if cell.scope == compared])
        dots += best if roofline.operator_info[name].usual_share_of_peak else [max(best, key=reliable_share)]
        dots += _array_library_dots([cell for cell in cells if cell.scope == compared and cell not in dots])
    return dots


def _array_library_dots(cells: Sequence[CellRow]) -> list[CellRow]:
    """The cells by CuPy's arrays next to the fastest, as the lab has them: of each series the longest."""
    of_library = [cell for cell in cells if cell.dtype in LAB_IMPLEMENTATIONS.get(cell.implementation, ())]
    by_size = group_by(of_library, lambda cell: (cell.implementation, cell.shape.get("batch")))
    return [max(group, key=lambda cell: cell.flops) for group in by_size.values()]


def _best_implementation(cells: Sequence[CellRow]) -> list[CellRow]:
    """The cells of the implementation with the largest median share."""
    groups = group_by(cells, lambda cell: cell.implementation)
    return max(groups.values(), key=lambda group: median(map(reliable_share, group)))


def _dot(cell: CellRow, label: Label, roofline: Roofline, colour: str | None) -> Dot:
    """A dot; `colour` replaces that of the dtype, which the cells of an operator's picture may share."""
    names = [roofline.title(cell.operator), roofline.scope_label(cell), cell.implementation]
    kind = "your operations" if cell.operator == USERS else ", ".join(filter(None, names))
    return Dot(
        intensity_flops_per_byte=_intensity(cell),
        tflops=_height(cell),
        label=label.text,
        kind=cell.implementation if colour else kind,
        hollow=cell.attained_tflops is None,
        has_peak_share=label.has_peak_share,
        sealed_tflops=cell.sealed_tflops if cell.attained_tflops else None,
        cell=cell,
        colour=colour,
    )


def _rate_label(cell: CellRow, roofline: Roofline) -> Label:
    """The label of a cell in the picture of its operator: 16384 x 1024: 3054 GFLOPS, 2.0x naive."""
    text = f"{roofline.label(cell)}: {flops_rate_text(_height(cell))}"
    for baseline, gain in list(cell.speed_up.items())[-1:]:
        text += f", {number(gain.cpu_time_ratio)}x {baseline}"
    return Label(text)


def _share_labels(cells: Sequence[CellRow], roofline: Roofline) -> dict[int, Label]:
    """Labels with shares by the `id` of their cell; most cells have none.

    Neighbours of one series, or of one operator in two dtypes, share the label of the middle one.
    """
    all_series = group_series(cells, roofline)
    single_cells = [series[0] for series in all_series if len(series) == 1]

    def shared_key(cell: CellRow) -> tuple:
        users = cell.operator == USERS
        return (id(cell),) if users else (cell.operator, round(_intensity(cell), 2))

    labels = {}
    for series in (series for series in all_series if len(series) > 1):
        for group in _neighbours(series):
            labels[id(group[len(group) // 2])] = _series_label(group, series, roofline)
    for alike in group_by(single_cells, shared_key).values():
        for group in _neighbours(alike):
            labels[id(group[len(group) // 2])] = _single_label(group, roofline)
    return labels


def group_series(cells: Iterable[CellRow], roofline: Roofline) -> list[list[CellRow]]:
    """Return the cells in groups that differ along the axis of their operator alone, each in its order."""

    def size(cell: CellRow) -> float:
        about = roofline.operator_info.get(cell.operator)
        return cell.axis_value(about.axis) if about and about.axis else 0

    def key(cell: CellRow) -> tuple:
        series = roofline.series(cell) if size(cell) else id(cell)
        return cell.device, cell.operator, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, series

    return [sorted(series, key=size) for series in group_by(cells, key).values()]


def _neighbours(cells: Iterable[CellRow]) -> list[list[CellRow]]:
    """Groups of cells whose dots are about equally high, the lowest first."""
    groups: list[list[CellRow]] = []
    for cell in sorted(cells, key=_height):
        if not groups or _height(cell) >= SHARED_LABEL_RATIO * _height(groups[-1][0]):
            groups.append([])
        groups[-1].append(cell)
    return groups


def _single_label(cells: Sequence[CellRow], roofline: Roofline) -> Label:
    """The label of cells that belong to no series: GEMM fp16, bf16 96–97 %."""
    about = roofline.operator_info.get(cells[0].operator)
    shares = _format_span(cell.reliable_fraction_of_roof for cell in cells)
    if about is None:
        return Label(" ".join(filter(None, [cells[0].name, shares])))
    if cells[0].implementation in LAB_IMPLEMENTATIONS and about.axis:
        return Label(f"{about.picture} {cells[0].implementation} {roofline.label(cells[0])}: {shares or '*'}")
    dtypes = ", ".join(dict.fromkeys(cell.dtype for cell in cells))
    return Label(f"{about.title} {dtypes} {shares or '*'}")


def _series_label(cells: Sequence[CellRow], series: Sequence[CellRow], roofline: Roofline) -> Label:
    """The label of neighbours of a series: batch 1, S 128: 4.6 % (0.20 %), in brackets of the peak."""
    first, about = cells[0], roofline.operator_info[cells[0].operator]
    assert about.axis  # along which the cells of a series differ
    sizes = sorted(cell.axis_value(about.axis) for cell in cells)
    places = [axis_value_text(about.axis, size) for size in sizes]
    within = sum(sizes[0] <= cell.axis_value(about.axis) <= sizes[-1] for cell in series)
    if len(sizes) > 2 and len(sizes) == within:
        places = [f"{places[0]}–{places[-1]}"]
    name = about.picture.replace("_", " ")
    words = ", ".join(
        filter(None, [f"{name} {roofline.series(first)}".strip(), f"{about.axis.symbol} {', '.join(places)}"])
    )
    dtype = "" if roofline.ceiling(first.device, first.dtype) else f"{first.dtype} "
    shares = _format_span(cell.reliable_fraction_of_roof for cell in cells)
    peak_shares = _format_span(_peak_shares(cells, roofline)) if about.usual_share_of_peak else ""
    text = f"{dtype}{words}: {shares or '*'}"
    return Label(f"{text} ({peak_shares})", has_peak_share=True) if peak_shares else Label(text)


def _peak_shares(cells: Sequence[CellRow], roofline: Roofline) -> list[float | None]:
    """The shares of the compute peak of cells that may be relied on, as may their ceilings."""
    sound = {ceiling.name for ceiling in roofline.ceilings if ceiling.device == cells[0].device and not ceiling.doubt}
    reliable = [cell for cell in cells if cell.reliable_fraction_of_roof and cell.compute_ceiling in sound]
    return [cell.fraction_of_compute_peak for cell in reliable]


def _format_span(shares: Iterable[float | None]) -> str:
    """The least and the largest share, 96–97 %; empty if none is known."""
    known_shares = [share for share in shares if share]
    return format_percent_span(known_shares, between="–") if known_shares else ""


def picture_names(devices: Mapping[str, DeviceKind]) -> dict[str, list[str]]:
    """Return the files of each device's roofline: roofline.png and .svg of the first GPU, else of the CPU."""
    ordered = order_devices(devices, lambda device: devices[device])
    stems = {device: "roofline" if device == ordered[0] else f"roofline_{device}" for device in ordered}
    return {device: [f"{stem}.png", f"{stem}.svg"] for device, stem in stems.items()}
