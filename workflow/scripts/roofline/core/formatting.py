"""Numbers as people read them, the same in every table, sentence and picture."""

from collections.abc import Iterable
from math import floor, log10

from roofline.core.terms import BYTES_AXIS_KEY, CACHE_LEVELS, Axis


def number(value: float) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 12.3, 123, 1234."""
    if value <= 0:
        return "0"
    digits = max(0, 2 - floor(log10(value)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def percent(share: float) -> str:
    """A share in percent, two significant digits below 10 %: 77 %, 3.1 %, 0.31 %."""
    return f"{percent_digits(share)} %"


def percent_digits(share: float) -> str:
    """A share in percent without the sign: 77, 3.1, 0.31."""
    value = 100 * share
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.{max(1, 1 - floor(log10(value)))}f}" if value > 0 else "0"


def mark_doubtful(text: str, doubtful: object) -> str:
    """A figure, marked where it is not to be relied on."""
    return f"{text}*" if doubtful else text


def duration(seconds: float) -> str:
    """A time in the unit that reads best: 12.3 us, 4.56 ms, 7.89 s."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def traffic_text(count: float) -> str:
    """Bytes moved, in decimal units as bandwidths count them: 12.3 kB, 4.56 MB, 7.89 GB."""
    return _in_units(count, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)))


def capacity(count: float) -> str:
    """Bytes of a memory, in binary units as caches are sized: 256 KiB, 51 MiB, 1.5 GiB."""
    return _in_units(count, (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)))


def join_words(items: Iterable) -> str:
    """a, b and c; empty if there are none."""
    *others, last = [*map(str, items)] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def count_words(count: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def regime_text(regime: str) -> str:
    """memory-bound; limited by the implementation."""
    return "limited by the implementation" if regime == "implementation" else f"{regime}-bound"


def regime_key(regime: str, level: str | None) -> str:
    """memory: hbm; overhead."""
    return f"{regime}: {level}" if level else regime


def flops_unit(dtype: str) -> str:
    """TFLOPS, or for integers TOPS."""
    return "TOPS" if dtype.startswith("int") else "TFLOPS"


def flops_rate_text(tflops: float) -> str:
    """491 GFLOPS, 3.05 TFLOPS."""
    return _in_units(tflops * 1e12, (("TFLOPS", 1e12), ("GFLOPS", 1e9), ("MFLOPS", 1e6)), "FLOPS")


def issue_rate_text(warp_instructions_per_s: float) -> str:
    """1045 G warp instructions/s."""
    return f"{number(warp_instructions_per_s / 1e9)} G warp instructions/s"


def picojoules(joules: float) -> str:
    """The picojoules of one FLOP or byte, without the unit: 0.85."""
    return number(1e12 * joules)


def _in_units(count: float, units: Iterable[tuple[str, float]], one: str = "bytes") -> str:
    for unit, size in units:
        if count >= size:
            return f"{number(count / size)} {unit}"
    return f"{number(count)} {one}"


def axis_value_text(axis: Axis, place: float) -> str:
    """A place on an operator's axis."""
    return traffic_text(place) if axis.key == BYTES_AXIS_KEY else str(place)


def plateau_label(name: str | None, knee_bytes: int | None) -> str:
    """Of a level that matches nothing that the device reports: the last one, which has no knee, is the memory."""
    return level_label(name) if name else ("unnamed" if knee_bytes else "memory")


def level_label(name: str) -> str:
    """L1 for l1: a level of caches, and what is named after one, as people write it."""
    return name[0].upper() + name[1:] if name.split("_")[0] in CACHE_LEVELS else name
