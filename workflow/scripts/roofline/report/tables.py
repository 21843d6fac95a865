"""The ceilings and the levels of a device as rows of words, the same on the screen and on every page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.formatting import capacity, flops_unit, level_words, number, percent
from roofline.core.statistics import half_width
from roofline.core.throttling import limiting_words
from roofline.records.roofline import ComputeCeiling, FoundCache, MemoryCeiling, Roofline

SERIES = {  # of a sweep: whose bandwidth it is
    "through L1": "one multiprocessor, through L1",
    "past L1": "the device, past L1",
    "one_core": "one core",
    "all_cores": "all cores, each its own set",
}
NO_REASON, NOT_REPORTED = "none reported", "not reported"
FEW_SAMPLES = "* too few independent samples for an interval"


@dataclass(frozen=True)
class Row:
    """One ceiling. What is not known, or does not apply, is empty."""

    name: str
    unit: str  # TFLOPS, TOPS or GB/s
    measured: str
    interval: str  # of the median, 95 %: how far it reaches; none of too few independent samples
    sustained: str
    vendor: str  # the vendor's figure; of a CPU's peak the formula's
    of_vendor: str
    of_clock: str  # of what the multiprocessors could do at the clock that was measured
    limited_by: str


@dataclass(frozen=True)
class LevelRow:
    """One level that the sweep found."""

    name: str
    gb_per_s: str
    knee: str
    reported: str
    series: str


def compute_rows(roofline: Roofline, device: str) -> list[Row]:
    return [_row(c) for c in roofline.ceilings if c.device == device and c.kind == "compute"]


def memory_rows(roofline: Roofline, device: str) -> list[Row]:
    return [_row(c) for c in roofline.ceilings if c.device == device and c.kind == "memory"]


def level_rows(roofline: Roofline, device: str) -> list[LevelRow]:
    return [_level_row(level) for level in roofline.levels if level.device == device]


def limited_by(reasons: list[str], throttled: bool | None) -> str:
    """NVML's throttle reasons in words."""
    words = limiting_words(reasons)
    if not words:
        return NOT_REPORTED if throttled is None and not reasons else NO_REASON
    return f"{words}, throughout" if throttled else words


def starred(text: str, interval) -> str:
    """A figure, marked where it has too few samples for an interval."""
    return text if interval else f"{text}*"


def span(values: Sequence[float]) -> str:
    """Sorted numbers in few words: 0.5 and 1; 12 to 172 where there are more."""
    shown = list(dict.fromkeys(map(number, values)))
    return " to ".join([shown[0], shown[-1]]) if len(shown) > 2 else " and ".join(shown)


def spans_percent(shares: Iterable[float]) -> str:
    """The least and the largest share: 87 to 96 %, or 87 %."""
    shares = sorted(shares)
    low, high = percent(shares[0]), percent(shares[-1])
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def level_name(name: str | None, knee_bytes: int | None) -> str:
    """Of a level that matches nothing that the device reports: the last one, which has no knee, is the memory."""
    return level_words(name) if name else ("unnamed" if knee_bytes else "memory")


def series_words(series: str) -> str:
    return SERIES.get(series, series.replace("_", " "))


def _row(ceiling: ComputeCeiling | MemoryCeiling) -> Row:
    if ceiling.kind == "compute":
        value, vendor = ceiling.tflops, ceiling.vendor_tflops
        sustained, of_clock = ceiling.sustained_tflops, ceiling.fraction_of_clock
        unit = flops_unit(ceiling.name)
    else:
        value, vendor, sustained, of_clock = ceiling.gb_per_s, ceiling.vendor_gb_per_s, None, None
        unit = "GB/s"
    return Row(
        name=level_words(ceiling.name),
        unit=unit,
        measured=number(value),
        interval=f"± {percent(half_width(value, ceiling.ci95))}" if ceiling.ci95 else "none",
        sustained=number(sustained) if sustained else "",
        vendor=number(vendor) if vendor else "",
        of_vendor=percent(ceiling.fraction_of_vendor) if ceiling.fraction_of_vendor else "",
        of_clock=percent(of_clock) if of_clock else "",
        limited_by=limited_by(ceiling.held_back_by, ceiling.throttled),
    )


def _level_row(level: FoundCache) -> LevelRow:
    return LevelRow(
        name=level_name(level.name, level.knee_bytes),
        gb_per_s=number(level.gb_per_s),
        knee=capacity(level.knee_bytes) if level.knee_bytes else "",
        reported=capacity(level.reported_bytes) if level.reported_bytes else "",
        series=series_words(level.series),
    )
