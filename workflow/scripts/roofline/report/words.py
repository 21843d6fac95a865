"""Figures of the table in a few words, the same on the screen and on every page."""

from collections.abc import Iterable, Sequence

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import join_words, mark_doubtful, number, percent, regime_text
from roofline.table.rows import CellRow, CheckResult, ComputeCeiling, DeviceRow, MemoryCeiling, Roofline

LEVELS = {
    "hbm": "HBM",
    "dram": "memory",
    "l2": "L2",
    "l1": "L1",
    "shared": "shared memory",
    "pcie": "host link",
    "p2p": "other GPUs",
}
CAUSES = {
    "launch": "launch overhead",
    "start": "start-up time",
    "ceiling": "a ceiling that is not the datasheet's",
    "share": "a share of the roof other than assumed",
}
MANY = 9.995  # errors from here on are shown as a factor
RANKED = ("hbm_read", "hbm_copy")  # next to the GEMMs


def format_span(values: Iterable[float], unit: str = "") -> str:
    """The least and the largest: 12 to 172; 12 if they are alike."""
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(map(number, (ordered[0], ordered[-1])))) + unit if ordered else "-"


def format_percent_span(shares: Iterable[float]) -> str:
    """The least and the largest share: 87 to 96 %, or 87 %."""
    ordered = sorted(shares)
    if not ordered:
        return "-"
    low, high = percent(ordered[0]), percent(ordered[-1])
    return high if low == high else f"{low.removesuffix(' %')} to {high}"


def datasheet_word(device: DeviceRow) -> str:
    """Whose figures a device is compared with: a formula's for a CPU, and for a card without a datasheet."""
    return device.peaks_by


def format_shares(c: ComputeCeiling) -> str:
    """Burst and sustained over the datasheet: 81/69 %; empty if doubtful."""
    if c.doubt:
        return ""
    shares = [share for share in (c.burst_fraction_of_datasheet, c.sustained_fraction_of_datasheet) if share]
    return "/".join(percent(share).removesuffix(" %") for share in shares) + " %" if shares else ""


def format_limits(c: ComputeCeiling | MemoryCeiling) -> str:
    """NVML's throttle reasons under load, in words; empty if none."""
    words = throttle_reasons_text(c.throttle_reasons)
    return f"{words}, throughout" if c.all_throttled and words else words


def describe_standing(roofline: Roofline, device: str) -> str:
    """Other H200s (11): fp16 3rd–5th of 12, median 776 (763–803); empty if none is known."""
    mine = [one for one in roofline.ceilings if one.device == device and one.standing]
    shown = [one for one in mine if one.name in RANKED or (one.kind == "compute" and one.workload == "gemm")]
    most, name = max((one.standing.others for one in shown), default=0), roofline.devices[device].name
    words = "; ".join(f"{one.name} {format_rank(one)}" for one in shown)
    return f"Other known {name.removeprefix('NVIDIA ')}s ({most}): {words}." if shown else ""


def format_rank(c: ComputeCeiling | MemoryCeiling) -> str:
    """3rd–5th of 12, median 776 (763–803); of few other cards without the place; empty if none is known."""
    if not (at := c.standing):
        return ""
    places = dict.fromkeys(_ordinal(one) for one in (at.rank, at.rank_at_worst) if one)
    place = f"{'–'.join(places)} of {at.others + 1}, " if places else ""
    return f"{place}median {number(at.median)} ({number(at.lowest)}–{number(at.highest)})"


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"


def format_picojoules(c: ComputeCeiling | MemoryCeiling) -> str:
    """Per FLOP or byte under sustained load, idle power included; empty if unknown."""
    each = c.energy and (c.energy.joules_per_flop or c.energy.joules_per_byte)
    return number(1e12 * each) if each else ""


def describe_energy(roofline: Roofline, device: str) -> str:
    """What the figures of energy are of, and why there are none; empty without sustained load."""
    found = {one.name: one.energy for one in roofline.ceilings if one.device == device and one.energy}
    measured, missing = [one for one in found.values() if not one.reason], {}
    for name, one in found.items():
        if one.reason:
            missing.setdefault(one.reason, []).append(name)
    words, row = [], roofline.devices[device]
    if measured:
        celsius = format_span(one.temperature_c for one in measured if one.temperature_c)
        limit = row.hardware.get("power_limit_w")
        of = f"{row.name.removeprefix('NVIDIA ')} {measured[0].counter_scope}"
        words.append(f"of the whole {of} under sustained load, idle power included")
        words.append(f"{celsius} °C" + (f", limit {number(limit)} W" if limit else ""))
    if row.idle_power_w:
        at = f" at {number(row.idle_sm_clock_mhz)} MHz" if row.idle_sm_clock_mhz else ""
        words.append(f"idle {number(row.idle_power_w)} W{at}")
    words += [f"no figure of {join_words(names)}: {why}" for why, names in missing.items()]
    return f"Energy: {'; '.join(words)}." if words else ""


def regime_counts(cells: Sequence[CellRow]) -> str:
    """34 overhead-bound, 16 memory-bound; the most frequent first."""
    found = [cell.regime for cell in cells if cell.regime]
    order = sorted(dict.fromkeys(found), key=found.count, reverse=True)
    return ", ".join(f"{found.count(one)} {regime_text(one)}" for one in order)


def format_rate(gb_per_s: float) -> str:
    return f"{number(gb_per_s / 1e3)} TB/s" if gb_per_s >= 1e3 else f"{number(gb_per_s)} GB/s"


def format_bandwidth(c: MemoryCeiling) -> str:
    """4692 (98 %): GB/s and the share of the datasheet."""
    share = f" ({percent(c.fraction_of_datasheet)})" if c.fraction_of_datasheet and not c.doubt else ""
    return f"{mark_doubtful(number(c.gb_per_s), c.doubt)}{share}"


def format_error(share: float | None) -> str:
    """An error in percent, or as a factor if it is large."""
    if share is None:
        return "-"
    size = f"{abs(share):.0f} times" if abs(share) >= MANY else percent(abs(share))
    return f"{'-' if share < 0 else '+'}{size}"


def describe_score(score) -> str:
    alone, found = score.baseline_tally, f"median error {_close(score)} within 1.25x"
    return f"{found} (baseline: {_close(alone)})" if alone else found


def _close(score) -> str:
    return f"{percent(score.median_cpu_time_error)}, {score.times_close} of {score.cell_count}"


def format_failures(failed: Iterable[CheckResult]) -> list[str]:
    """What failed, a line each, as every page, picture and command shows it."""
    return [f"FAIL, {one.device}: {one.reason}" for one in failed]


def describe_skipped(roofline: Roofline, device: str) -> list[str]:
    """What was asked for and the device lacks, each reason once."""
    reasons: dict[str, list[str]] = {}
    for row in roofline.skipped:
        if row.device == device:
            reason = row.reason.replace(f" {row.name} ", " such ") if row.kind == "peak_flops" else row.reason
            reasons.setdefault(reason, []).append(row.name)
    return [f"{join_words(names)}: {reason}" for reason, names in reasons.items()]
