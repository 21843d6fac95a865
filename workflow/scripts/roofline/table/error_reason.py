"""The reason that the data of a run show for a prediction's error: calls, start, a ceiling, a share of it, cores.

A reason is a measured figure next to the one that the prediction assumed.
"""

import math

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import duration, flops_rate_text, number, percent
from roofline.table.prediction_error import Replay
from roofline.table.rows import Cause, ComputeCeiling, MemoryCeiling

MOST = 0.5  # of the seconds of a cause, which the measured figure accounts for if it is the reason
CLOCKS_DIFFER = 0.01  # a fraction: clocks nearer than that are alike
CORES_BUSY = 0.9  # of the planned ones: with fewer a step on a CPU waits for cores


def explain_cause(
    replay: Replay, cause: Cause, cause_s: float, compute: ComputeCeiling | None, memory: MemoryCeiling | None
) -> str | None:
    """Return what was measured and what had been assumed of a cause of `cause_s` seconds; None if no datum shows it.

    `compute` and `memory` are the ceilings of the cell, None if not measured.
    """
    if cause == "launch":
        return _explain_calls(replay, cause_s)
    if cause == "start":
        return _compare("the smallest case starts in", replay.with_start.start_s, replay.assumed.start_s)
    if cause == "ceiling":
        return _explain_ceiling(replay, cause_s, compute, memory)
    return _explain_share(replay, compute, memory) or _explain_cores(replay, cause_s)


def _compare(words: str, measured_s: float | None, assumed_s: float | None) -> str | None:
    known = measured_s is not None and assumed_s is not None
    return f"{words} {duration(measured_s or 0.0)}, {duration(assumed_s or 0.0)} assumed" if known else None


def _explain_calls(replay: Replay, cause_s: float) -> str | None:
    """Return what calls cost; None if the host took most of the seconds in another way."""
    sealed_s = replay.predict_s(replay.assumed, *replay.promised)
    by_calls_s = replay.predict_s(replay.with_calls, *replay.promised) - sealed_s
    calls = _compare("calls took", replay.with_calls.overhead_s, replay.assumed.overhead_s)
    return calls if by_calls_s / cause_s >= MOST else None


def _explain_ceiling(
    replay: Replay, cause_s: float, compute: ComputeCeiling | None, memory: MemoryCeiling | None
) -> str | None:
    """Return the rate of the ceiling that moved the prediction, with the clock if that is why."""
    tflops, gb_per_s = replay.promised
    sealed_s = replay.predict_s(replay.with_start, tflops, gb_per_s)
    if compute:
        by_compute_s = replay.predict_s(replay.with_start, compute.tflops, gb_per_s) - sealed_s
        if by_compute_s / cause_s >= MOST:
            promised = flops_rate_text(tflops) if tflops else "none"
            rates = f"{flops_rate_text(compute.tflops)}, {promised} promised"
            return f"{compute.name} gives {rates}{_describe_clock(compute)}"
    if memory and gb_per_s:
        return f"{memory.name} gives {number(memory.gb_per_s)} GB/s, {number(gb_per_s)} promised"
    return None


def _describe_clock(ceiling: ComputeCeiling) -> str:
    """The clock of a burst, if that takes more of the datasheet's rate than all else does; else empty."""
    of_datasheet, of_clock = ceiling.burst_fraction_of_datasheet, ceiling.fraction_of_clock
    if ceiling.datasheet_at_least and (of_datasheet or 0) > 1:
        return " by an idle clock"
    if not of_datasheet or not of_clock or of_datasheet / of_clock > of_clock:
        return ""
    limits = throttle_reasons_text(ceiling.burst_throttle_reasons or [])
    return f", at {percent(of_datasheet / of_clock)} of the datasheet's clock{f' ({limits})' if limits else ''}"


def _explain_share(replay: Replay, compute: ComputeCeiling | None, memory: MemoryCeiling | None) -> str | None:
    """Return the share of a rate that the work attained; None if something else than a ceiling limits the work.

    The rate is the measured ceiling, or the promised one if the prediction assumed a share of it.
    """
    costs, measured = replay.with_start, replay.measured
    rates = compute.tflops if compute else None, memory.gb_per_s if memory else None
    tflops, gb_per_s = replay.compared_rates(*rates)
    idle_s = costs.overhead_s if costs.start_s is None else costs.start_s
    work_s = replay.busy_s - costs.extra_s - (idle_s or 0.0)
    compute_s = measured.flops / (tflops * 1e12) if compute and tflops else 0.0
    memory_s = measured.bytes / (gb_per_s * 1e9) if memory and gb_per_s else 0.0
    by_compute_s, by_stream_s = compute_s / costs.compute_share, memory_s / costs.share
    others_s = max(costs.extra_s, costs.floor_s, costs.waits_s, *costs.levels_s.values())
    if others_s >= min(work_s, max(by_compute_s, by_stream_s)):
        return None
    if compute and tflops and by_compute_s > math.hypot(by_stream_s, costs.waits_s):
        if costs.compute_adds:
            work_s = math.sqrt(max(0.0, work_s**2 - by_stream_s**2)) - costs.waits_s
        if work_s <= 0:
            return None
        promised = tflops != compute.tflops
        rate = f"the {flops_rate_text(tflops)} promised" if promised else compute.name
        clocks = _compare_clocks(measured.cpu_time.sm_clock_mhz, None if promised else compute.sm_clock_mhz)
        return _compare_shares(rate, compute_s / work_s, costs.compute_share, clocks)
    if not memory or not gb_per_s:
        return None
    rate = memory.name if gb_per_s == memory.gb_per_s else f"the {number(gb_per_s)} GB/s promised"
    return _compare_shares(rate, memory_s / math.sqrt(work_s**2 - costs.waits_s**2), costs.share)


def _compare_shares(rate: str, attained: float, assumed: float, clocks: str = "") -> str | None:
    return f"{percent(attained)} of {rate}, {percent(assumed)} assumed{clocks}" if attained <= 1 else None


def _compare_clocks(own_mhz: float | None, ceiling_mhz: float | None) -> str:
    """The clock of a cell, and that of its ceiling if one was measured; empty if they are alike, or not known."""
    if not own_mhz or (ceiling_mhz and abs(own_mhz / ceiling_mhz - 1) < CLOCKS_DIFFER):
        return ""
    return f", at {number(own_mhz)} MHz{f', the ceiling at {number(ceiling_mhz)}' if ceiling_mhz else ''}"


def _explain_cores(replay: Replay, cause_s: float) -> str | None:
    """Return how many of its planned cores a slow step on a CPU kept busy; None if it was most of them."""
    planned, contention = replay.measured.plan.get("cores"), replay.measured.cpu_time.contention
    if cause_s < 0 or not planned or not contention or contention.own_cores > CORES_BUSY * planned:
        return None
    return f"{number(contention.own_cores)} of {planned} cores were busy"
