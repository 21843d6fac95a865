"""The ceilings and the levels of a device as rows of words, the same on the screen and on every page."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from roofline.core.disturbance import limiting_words
from roofline.core.formatting import (
    capacity,
    counted,
    flops_unit,
    level_name,
    level_words,
    listed,
    number,
    percent,
    starred,
)
from roofline.core.statistics import few, half_width
from roofline.core.terms import KINDS
from roofline.devices.levels import MAIN_ROOFS
from roofline.table.rows import USERS, Cell, CheckResult, ComputeCeiling, Device, MemoryCeiling, Plateau, Roofline

SERIES = {  # of a sweep: whose bandwidth it is
    "through L1": "one multiprocessor, through L1",
    "past L1": "the device, past L1",
    "one_core": "one core",
    "all_cores": "all cores, each its own set",
}
ENGINES = {"tensor_core": "tensor", "cuda_core": "CUDA", "cpu": "vector"}
USUAL_OPERANDS = "standard normal numbers, rounded to"
NO_REASON, NOT_REPORTED = "none reported", "not reported"
DOUBTFUL = "* few samples, throttled, disturbed, or contradicted: nothing is concluded from it"
RANKED = ("hbm_read", "hbm_copy")  # next to the GEMMs
COPIES_MORE = 1.05  # times what reads move: from there on it is said
ALONE = 1.15  # times what one core reads: below it it is said


@dataclass(frozen=True)
class Row:
    """One ceiling. What is not known, or does not apply, is empty."""

    name: str
    unit: str  # TFLOPS, TOPS or GB/s
    measured: str  # of compute the burst
    samples: str
    interval: str  # of the median, 95 %: how far it reaches; none of too few independent samples
    sustained: str
    vendor: str  # the vendor's figure; of a CPU's peak the formula's
    of_vendor: str  # of compute the burst's share and the sustained one's
    of_clock: str  # of what the multiprocessors could do at the clock that was measured
    limited_by: str
    reference: str = ""  # of compute: what a plain GEMM call reaches


@dataclass(frozen=True)
class ArithmeticRow:
    """How a ceiling multiplies, or what else the device has for its dtype."""

    name: str
    sums: str  # what products are added up in
    result: str
    operands: str  # empty where they are normal numbers rounded to the dtype, or the ceiling's
    engine: str
    burst: str
    of_ceiling: str  # the burst over the ceiling's; empty of the ceiling itself


@dataclass(frozen=True)
class LevelRow:
    """One level that the sweep found."""

    name: str
    gb_per_s: str
    knee: str
    reported: str
    series: str


def compute_rows(roofline: Roofline, device: str) -> list[Row]:
    return [_compute_row(c) for c in roofline.ceilings if c.device == device and c.kind == "compute"]


def arithmetic_rows(roofline: Roofline, device: str) -> list[ArithmeticRow]:
    """Each compute ceiling, and below it its variants."""
    found = [c for c in roofline.ceilings if c.device == device and c.kind == "compute"]
    return [row for c in found for row in _arithmetic_rows(c)]


def memory_rows(roofline: Roofline, device: str) -> list[Row]:
    return [_memory_row(c) for c in roofline.ceilings if c.device == device and c.kind == "memory"]


def rank_words(roofline: Roofline, device: str) -> str:
    """Among 9 known H200s: 1st in hbm_read, 3rd in fp16; empty if no other card is known."""
    ranked = [one for one in roofline.ceilings if one.device == device and one.rank and one.known_cards]
    shown = [one for one in ranked if one.name in RANKED or (one.kind == "compute" and one.method == "gemm")]
    ranks = [f"{_ordinal(one.rank)} in {one.name}" for one in shown]
    most = max((one.known_cards for one in shown), default=0)
    name = roofline.devices[device].name.removeprefix("NVIDIA ")
    return f"Among {most} known {name}s: {', '.join(ranks)}." if ranks else ""


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def level_rows(roofline: Roofline, device: str) -> list[LevelRow]:
    return [_level_row(level) for level in roofline.levels if level.device == device]


def limited_by(reasons: list[str], throttled: bool | None) -> str:
    """NVML's throttle reasons in words."""
    words = limiting_words(reasons)
    if not words:
        return NOT_REPORTED if throttled is None and not reasons else NO_REASON
    return f"{words}, throughout" if throttled else words


def told_apart(burst: list[str] | None, sustained: list[str] | None, both: list[str], throttled: bool | None) -> str:
    """What limited the burst and what the sustained load, where the record tells them apart."""
    if burst is None and sustained is None:
        return limited_by(both, throttled)
    words = {"burst": limiting_words(burst or []), "sustained": limiting_words(sustained or [])}
    if sustained is None or words["burst"] == words["sustained"]:
        return limited_by(burst or sustained or [], throttled)
    return ", ".join(f"{when}: {reasons}" for when, reasons in words.items() if reasons)


def within_run(cells: Iterable[Cell]) -> str:
    """How many samples the times of cells rest on, and how far their intervals reach."""
    cells = [cell for cell in cells if cell.cpu_time_s]
    counts = sorted(cell.samples for cell in cells if cell.samples)
    widths = [half_width(cell.cpu_time_s, cell.cpu_time_ci95_s) for cell in cells if cell.cpu_time_ci95_s]
    told = [f"n {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"] if counts else []
    without = f"none for {len(cells) - len(widths)} of {len(cells)}" if len(widths) < len(cells) else ""
    told += [f"within-run 95 %: {', '.join(filter(None, [f'± {spans_percent(widths)}' if widths else '', without]))}"]
    return "; ".join(told)


def span(values: Sequence[float]) -> str:
    """Sorted numbers in few words: 0.5 and 1; 12 to 172 where there are more."""
    shown = list(dict.fromkeys(map(number, values)))
    return " to ".join([shown[0], shown[-1]]) if len(shown) > 2 else " and ".join(shown)


def spans_percent(shares: Iterable[float]) -> str:
    """The least and the largest share: 87 to 96 %, or 87 %."""
    shares = sorted(shares)
    low, high = percent(shares[0]), percent(shares[-1])
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def series_words(series: str) -> str:
    return SERIES.get(series, series.replace("_", " "))


def above_roof(cell: Cell, roofline: Roofline) -> str:
    """What lies above its roof, and what may be wrong."""
    cause = "a ceiling is too low, or a cache held its data"
    if cell.operator == USERS:
        cause = "its counts or its time, both the user's own, do not fit the ceilings"
    return f"{roofline.full_name(cell)} at {percent(cell.above_roof)} of it: {cause}."


def without_roof(roofline: Roofline, device: str) -> list[str]:
    """How many cells of a device have no roof, of which operators, by the reason."""
    found = [one for one in roofline.operators if one.device == device and one.no_roof]
    lines = []
    for why in dict.fromkeys(one.no_roof for one in found):
        mine = [roofline.title(one.operator) for one in found if one.no_roof == why]
        lines.append(f"Without a roof: {counted(len(mine), 'cell')} of {listed(dict.fromkeys(mine))} ({why})")
    return lines


def main_memory_ceiling(
    ceilings: Iterable[ComputeCeiling | MemoryCeiling], operators: Iterable[Cell]
) -> MemoryCeiling | None:
    """A device's roof of memory: the one that most operators stand under, on however many cores, or else would."""
    there = {c.name: c for c in ceilings if c.kind == "memory"}
    whole = {(c.level, c.mix): name for name, c in there.items() if c.cores is None}
    under = [there[o.memory_ceiling] for o in operators if o.memory_ceiling in there]
    named = [c.name if c.cores is None else whole.get((c.level, c.mix), "") for c in under]
    found = [name for name in named if name in there] or [name for name in MAIN_ROOFS if name in there][:1]
    return there[max(found, key=found.count)] if found else None


def promised(device: Device) -> str:
    """Whose figures a device is compared with: the formula's for a CPU and for a card that no datasheet is of."""
    return "formula" if device.by_formula else KINDS[device.kind].peaks_by


def fail_lines(failed: Iterable[CheckResult]) -> list[str]:
    """What failed, a line each, as every page, picture and command tells it."""
    return [f"FAIL, {one.device}: {one.reason}" for one in failed]


def measure_again(records: Iterable[str]) -> str:
    """The command that measures these records, and what follows from them, once more."""
    paths = shlex.join(f"results/{path}" for path in dict.fromkeys(records))
    return shlex.join(["make", f"ARGS=--forcerun {paths}"])


def remarks(ceilings: Sequence[ComputeCeiling | MemoryCeiling]) -> list[str]:
    """Where the reference GEMM and its ceiling are of unlike operands, where a product makes no ratio, and where copies
    move more than reads, or all cores hardly more than one."""
    rates = {c.name: c.gb_per_s for c in ceilings if c.kind == "memory"}
    read, copy = (rates.get(f"dram_{mix}") for mix in ("read", "copy"))
    said = [
        f"{c.name}: the reference GEMM has other operands than its ceiling, whose product gives "
        f"{number(c.on_reference_inputs_tflops)} {flops_unit(c.name)} on those"
        for c in ceilings
        if c.kind == "compute" and c.on_reference_inputs_tflops
    ]
    said += [f"No ratios are reported for {c.name}: {c.doubt}" for c in ceilings if c.kind == "compute" and c.doubt]
    if read and copy and copy > COPIES_MORE * read:
        said.append(
            f"dram_copy moves {number(copy / read)} times what dram_read does: no read-only loop of this run got more "
            "out of this memory, and operators that only read stand under dram_read"
        )
    one_core = rates.get("dram_read_one_core")
    if read and one_core and read < ALONE * one_core:
        said.append(
            f"All cores read {number(read / one_core)} times what one does: one takes about all that this memory "
            "gives, or the host ran them on one core then, and another run may read more"
        )
    return said


def vendor_words(c: ComputeCeiling) -> str:
    """The vendor's figure, or the formula's, which may be too low."""
    return f"{'at least ' if c.datasheet_at_least else ''}{number(c.datasheet_tflops)}" if c.datasheet_tflops else ""


def of_vendor(c: ComputeCeiling) -> str:
    """The shares of burst and sustained: 79, 67 %; none of a product that is divided by nothing."""
    if c.doubt:
        return ""
    rates = [c.burst_tflops, *([c.sustained_tflops] if c.sustained_tflops else [])]
    shares = [percent(rate / c.datasheet_tflops) for rate in rates] if c.datasheet_tflops else []
    at_most = "at most " if c.datasheet_at_least and shares else ""
    return at_most + ", ".join([*(share.removesuffix(" %") for share in shares[:-1]), *shares[-1:]])


def _compute_row(c: ComputeCeiling) -> Row:
    return Row(
        unit=flops_unit(c.name),
        measured=starred(number(c.burst_tflops), c.doubt),
        sustained=number(c.sustained_tflops) if c.sustained_tflops else "",
        vendor=vendor_words(c),
        of_vendor=of_vendor(c),
        of_clock=percent(c.fraction_of_clock) if c.fraction_of_clock else "",
        reference=number(c.reference_tflops) if c.reference_tflops else "",
        limited_by=told_apart(c.burst_limited_by, c.sustained_limited_by, c.limited_by, c.throttled),
        **_common(c, c.tflops),
    )


def _arithmetic_rows(c: ComputeCeiling) -> Iterator[ArithmeticRow]:
    ways = [
        (c.accumulation, c.output, c.inputs, c.burst_tflops, c.samples),
        *((v.accumulation, v.output, v.inputs, v.tflops, v.samples) for v in c.variants),
    ]
    for place, (sums, result, operands, tflops, samples) in enumerate(ways):
        yield ArithmeticRow(
            name=f"{c.name}, also" if place else c.name,
            sums=sums,
            result=result,
            operands="" if place and operands == c.inputs else _unusual(operands, c),
            engine=ENGINES[c.unit],
            burst=starred(number(tflops), few(samples) if place else c.doubt),
            of_ceiling=percent(tflops / c.burst_tflops) if place else "",
        )


def _unusual(operands: str, c: ComputeCeiling) -> str:
    """Operands in words, without what follows a semicolon, which says why; empty where all are the usual ones."""
    every = [c.inputs, *(v.inputs for v in c.variants)]
    return "" if all(one.startswith(USUAL_OPERANDS) for one in every) else operands.partition(";")[0]


def _memory_row(c: MemoryCeiling) -> Row:
    return Row(
        unit="GB/s",
        measured=starred(number(c.gb_per_s), c.doubt),
        sustained="",
        vendor=number(c.datasheet_gb_per_s) if c.datasheet_gb_per_s else "",
        of_vendor=percent(c.fraction_of_datasheet) if c.fraction_of_datasheet and not c.doubt else "",
        of_clock="",
        limited_by=limited_by(c.limited_by, c.throttled),
        **_common(c, c.gb_per_s),
    )


def _common(c: ComputeCeiling | MemoryCeiling, value: float) -> dict[str, str]:
    return {
        "name": level_words(c.name),
        "samples": str(c.samples or ""),
        "interval": f"± {percent(half_width(value, c.ci95))}" if c.ci95 else "none",
    }


def _level_row(level: Plateau) -> LevelRow:
    return LevelRow(
        name=level_name(level.name, level.knee_bytes),
        gb_per_s=number(level.gb_per_s),
        knee=capacity(level.knee_bytes) if level.knee_bytes else "",
        reported=capacity(level.reported_bytes) if level.reported_bytes else "",
        series=series_words(level.series),
    )
