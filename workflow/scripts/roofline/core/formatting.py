"""Numbers as people read them, the same in every table, sentence and picture."""

from collections.abc import Iterable
from math import floor, log10

from roofline.core.terms import BYTES_AXIS_KEY, CACHE_LEVELS, Axis
from roofline.core.units import GIB, KIB, MIB


def round_ratio(value: float) -> float:
    """Return a ratio with two digits: more do not repeat between two machines' runs."""
    return float(f"{value:.2g}")


def number(value: float) -> str:
    """Return three significant digits without an exponent: 0.0123, 1.23, 12.3, 123, 1234; "0" for a negative one."""
    if value <= 0:
        return "0"
    digits = max(0, 2 - floor(log10(value)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def percent(share: float) -> str:
    """Return a share in percent, with two significant digits below 10 %: 77 %, 3.1 %, 0.31 %."""
    return f"{percent_digits(share)} %"


def percent_digits(share: float) -> str:
    """Return a share in percent without the sign: 77, 3.1, 0.31."""
    value = 100 * share
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.{max(1, 1 - floor(log10(value)))}f}" if value > 0 else "0"


def mark_doubtful(text: str, doubtful: object) -> str:
    """Append an asterisk to a figure that is not to be relied on."""
    return f"{text}*" if doubtful else text


def duration(seconds: float) -> str:
    """Return a time in the unit that reads best: 12.3 us, 4.56 ms, 7.89 s."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def traffic_text(count: float) -> str:
    """Return bytes moved in decimal units, as bandwidths count them: 12.3 kB, 4.56 MB, 7.89 GB."""
    return _in_units(count, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)))


def capacity(count: float) -> str:
    """Return the bytes of a memory in binary units, as caches are sized: 256 KiB, 51 MiB, 1.5 GiB."""
    return _in_units(count, (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)))


def join_words(items: Iterable[object]) -> str:
    """Return the items as one phrase: "a, b and c"; empty without items."""
    *leading, last = [*map(str, items)] or [""]
    return f"{', '.join(leading)} and {last}" if leading else last


def count_words(count: int, noun: str) -> str:
    """Return a count with its noun: "1 job", "2 jobs"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def regime_text(regime: str) -> str:
    """Return a regime in words: "memory-bound", "limited by the implementation"."""
    return {"implementation": "limited by the implementation", "mixed": "mixed"}.get(regime, f"{regime}-bound")


def regime_key(regime: str, level: str | None) -> str:
    """Return a regime with the memory level that sets the time, if any: "memory: hbm", "overhead"."""
    return f"{regime}: {level}" if level else regime


def flops_unit(dtype: str) -> str:
    """Return the unit of a dtype's compute rates: "TOPS" for integers, else "TFLOPS"."""
    return "TOPS" if dtype.startswith("int") else "TFLOPS"


def flops_rate_text(tflops: float) -> str:
    """Return a compute rate in the unit that reads best: 491 GFLOPS, 3.05 TFLOPS."""
    return _in_units(tflops * 1e12, (("TFLOPS", 1e12), ("GFLOPS", 1e9), ("MFLOPS", 1e6)), "FLOPS")


def issue_rate_text(warp_instructions_per_s: float) -> str:
    """Return a rate of warp instructions as text: 1045 G warp instructions/s."""
    return f"{number(warp_instructions_per_s / 1e9)} G warp instructions/s"


def picojoules(joules: float) -> str:
    """Return the picojoules of one FLOP or byte, without the unit: 0.85."""
    return number(1e12 * joules)


def _in_units(count: float, units: Iterable[tuple[str, float]], base_unit: str = "bytes") -> str:
    """Return a count in the first of the units, largest first, of which there is at least one."""
    for unit, size in units:
        if count >= size:
            return f"{number(count / size)} {unit}"
    return f"{number(count)} {base_unit}"


def axis_value_text(axis: Axis, value: float) -> str:
    """Return a value on an operator's axis: traffic in bytes with its unit, any other size as it is."""
    return traffic_text(value) if axis.key == BYTES_AXIS_KEY else str(value)


def plateau_label(name: str | None, knee_bytes: int | None) -> str:
    """Return the label of a plateau by the level it was matched with.

    A plateau without a match is "unnamed"; the last one, which has no knee, is "memory".
    """
    if name:
        return level_label(name)
    return "unnamed" if knee_bytes else "memory"


def level_label(name: str) -> str:
    """Return a level's name, or a name that begins with a cache level, as people write it: L1 for l1."""
    return name[0].upper() + name[1:] if name.split("_")[0] in CACHE_LEVELS else name
