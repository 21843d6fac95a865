"""Why a cell took longer or shorter than was sealed, from what was measured alone.

The sealed prediction is made again, each time with one more assumption replaced by what this run measured: what the
calls cost, what it costs to start, the compute ceiling, the memory ceiling. What a replacement moves, in seconds, is
that cause's part of the error; what is left then is the calls' where the device waits for them, else the share that the
cell attained of its roof. So the parts add up to the error. The cause is the largest part in the error's own direction,
if it and the figures that it is told by account for at least half of the error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from roofline.analysis.collect import measured_costs
from roofline.analysis.table import ComputeCeiling, GapPart, MemoryCeiling, Operator
from roofline.core import model, regimes
from roofline.core.disturbance import limiting_words
from roofline.core.formatting import duration, number, percent
from roofline.core.prediction import Costs, predict_cell
from roofline.records.compute import PeakFlops
from roofline.records.operator import Measurement
from roofline.records.prediction import PredictionRecord, PromisedCeiling

# Of the measured time: a gap within it needs no cause, since a median wanders as far.
CLOSE = 0.01
ALL = 0.995
# A cause is named where it accounts for so much of an error, and the clock where it does of what a ceiling lacks.
HALF = 0.5
# The device waits for its caller where it alone takes less than so much of the caller's time.
BUSY = 0.8
UNEXPLAINED = "not explained by what was measured"
RULE_OF_THUMB = "rule of thumb"  # how a source begins that is no datasheet


@dataclass(frozen=True)
class Evidence:
    """One operator with what was assumed of it, and what was measured beside it. What there is none of is None."""

    operator: Operator
    measured: Measurement
    seal: PredictionRecord
    constants: Mapping[str, float]
    compute: ComputeCeiling | None
    memory: MemoryCeiling | None
    peak: PeakFlops | None

    @property
    def assumed(self) -> Costs:
        return self.measured.costs.costs(self.constants)

    @property
    def synchronous(self) -> bool:
        """Whether calls come before the device's work and not beside it."""
        return self.operator.device_latency_s is None

    @property
    def start_s(self) -> float:
        """What the same code takes on the smallest case, as far as that was measured; a CPU's calls are its start."""
        return (self.measured.overhead_s if self.synchronous else self.measured.device_overhead_s) or 0.0

    @property
    def assumed_start_s(self) -> float:
        return (self.assumed.call_s if self.synchronous else self.assumed.start_s) or 0.0

    @property
    def working_s(self) -> float:
        """What the device takes; where it is its own caller, all."""
        return self.operator.latency_s if self.synchronous else self.operator.device_latency_s

    @property
    def waits(self) -> bool:
        """Whether the device waits for its caller."""
        return not self.synchronous and self.working_s < BUSY * self.operator.latency_s

    @property
    def compute_s(self) -> float:
        return self.operator.flops / (self.compute.tflops * 1e12) if self.compute else 0.0

    @property
    def memory_s(self) -> float:
        return self.operator.bytes / (self.memory.gb_per_s * 1e9) if self.memory else 0.0

    @property
    def by_compute(self) -> bool:
        """Whether the model's work is compute, and not the memory at the share that it takes of it."""
        return self.compute_s / self.assumed.compute_share >= self.memory_s / self.assumed.share

    @property
    def roof_s(self) -> float:
        """What the ceiling allows that is the model's roof."""
        return self.compute_s if self.by_compute else self.memory_s

    @property
    def roof(self) -> str | None:
        """The name of that ceiling."""
        ceiling = self.compute if self.by_compute else self.memory
        return ceiling.name if ceiling else None

    @property
    def started_s(self) -> float:
        """What the work took once it had started."""
        return self.working_s - self.start_s

    @property
    def expected_s(self) -> float:
        """The same by the model under these ceilings, fixed extra work included."""
        return self.assumed.extra_s + self.assumed.work_s(self.compute_s, self.memory_s)

    @property
    def promised_peak(self) -> PromisedCeiling | None:
        mine = [c for c in self.seal.ceilings if c.kind == "compute" and c.name == self.measured.compute_ceiling]
        return next(iter(mine), None)

    @property
    def promised_memory(self) -> PromisedCeiling | None:
        promised = {c.name: c for c in self.seal.ceilings if c.kind == "memory"}
        declared = [promised[name] for name in self.measured.memory_ceilings if name in promised]
        return next(iter([*declared, *promised.values()]), None)


def parts(evidence: Evidence) -> list[GapPart]:
    """Seconds by cause, in the order of the replacements; they add up to measured minus sealed."""
    assumed, measured = evidence.assumed, measured_costs(evidence.measured, evidence.constants)
    peak = evidence.promised_peak.tflops if evidence.promised_peak else None
    gb_per_s = evidence.promised_memory.gb_per_s if evidence.promised_memory else None
    with_calls = assumed if measured.call_s is None else replace(assumed, call_s=measured.call_s)
    with_start = with_calls if measured.start_s is None else replace(with_calls, start_s=measured.start_s)
    measured_peak = evidence.compute.tflops if evidence.compute else peak
    measured_gb_per_s = evidence.memory.gb_per_s if evidence.memory else gb_per_s
    chain = [
        ("calls", _latency(evidence, with_calls, peak, gb_per_s)),
        ("start", _latency(evidence, with_start, peak, gb_per_s)),
        ("compute_ceiling", _latency(evidence, with_start, measured_peak, gb_per_s)),
        ("memory_ceiling", _latency(evidence, with_start, measured_peak, measured_gb_per_s)),
        ("calls" if evidence.waits else "share_of_roof", evidence.operator.latency_s),
    ]
    moved: dict[str, float] = {}
    before = _latency(evidence, assumed, peak, gb_per_s)
    for cause, after in chain:
        moved[cause] = moved.get(cause, 0.0) + after - before
        before = after
    return [GapPart(cause=cause, seconds=seconds) for cause, seconds in moved.items()]


def _latency(evidence: Evidence, costs: Costs, peak: float | None, gb_per_s: float | None) -> float:
    predicted = predict_cell(
        flops=evidence.operator.flops,
        traffic_bytes=evidence.operator.bytes,
        peak_tflops=peak,
        bandwidth_gb_per_s=gb_per_s,
        costs=costs,
    )
    return predicted.latency_s or 0.0


def cause_of(evidence: Evidence, found: list[GapPart]) -> str:
    """What moved the time most in the direction of the gap, if that is at least half of it."""
    gap_s = math.fsum(part.seconds for part in found)
    if abs(gap_s) <= CLOSE * evidence.operator.latency_s:
        return "close"
    largest = max(found, key=lambda part: part.seconds / gap_s)
    cause = largest.cause
    if cause == "share_of_roof" and not evidence.roof_s:  # no ceiling was measured that sets its time
        return "unexplained"
    if min(largest.seconds / gap_s, _told_s(evidence, largest) / gap_s) < HALF:
        return "unexplained"
    if cause == "share_of_roof":
        return "own_clock" if gap_s > 0 and _slower_than_its_ceiling(evidence) else cause
    if cause == "compute_ceiling" and _slower_than_promised(evidence):
        return "clock"
    return cause


def _told_s(evidence: Evidence, part: GapPart) -> float:
    """What a cause's own figures amount to: what the other parts leave over may contradict them."""
    if part.cause == "share_of_roof":
        return evidence.started_s - evidence.expected_s
    if part.cause == "calls" and evidence.waits:
        return evidence.operator.latency_s - (evidence.assumed.call_s or 0.0)
    return part.seconds


def _slower_than_promised(evidence: Evidence) -> bool:
    """Whether the clock counted under the ceiling's load accounts for what the ceiling lacks of the promise."""
    ceiling, promised = evidence.compute, evidence.promised_peak
    if not (evidence.peak and evidence.peak.clock_mhz and ceiling.clock_tflops and promised):
        return False
    return _accounts_for(ceiling.clock_tflops / promised.tflops, ceiling.tflops / promised.tflops)


def _slower_than_its_ceiling(evidence: Evidence) -> bool:
    """Whether a compute-bound cell ran at a lower clock than its ceiling did, and lacks as much."""
    clock = evidence.measured.sm_clock_mhz
    if not clock or not evidence.peak or not evidence.peak.clock_mhz or not evidence.by_compute:
        return False
    return _accounts_for(clock / evidence.peak.clock_mhz, evidence.compute_s / evidence.working_s)


def _accounts_for(ratio: float, whole: float) -> bool:
    return 0 < ratio < 1 and 0 < whole < 1 and math.log(ratio) <= HALF * math.log(whole)


# ---------------------------------------------------------------- words


def sentence(evidence: Evidence, cause: str) -> str:
    """The error in one sentence; where the regime was predicted wrongly, with what decided it."""
    say = {
        "close": lambda _: "close enough: nothing to explain",
        "calls": _calls,
        "start": _start,
        "clock": _clock,
        "own_clock": _own_clock,
        "compute_ceiling": _compute_ceiling,
        "memory_ceiling": _memory_ceiling,
        "share_of_roof": _share_of_roof,
        "unexplained": lambda _: UNEXPLAINED,
    }
    return say[cause](evidence) + _regime_clause(evidence)


def _calls(evidence: Evidence) -> str:
    o, assumed = evidence.operator, f"{duration(evidence.assumed.call_s)} assumed"
    if evidence.waits:
        times = number(o.latency_s / o.device_latency_s)
        return (
            f"the calls cost {duration(o.latency_s)} ({assumed}) and the device waits for them: "
            f"{times} times its {duration(o.device_latency_s)}"
        )
    calls_s = evidence.measured.overhead_s
    if evidence.synchronous and calls_s < o.latency_s:
        return f"the calls cost {duration(calls_s)} of the {duration(o.latency_s)} ({assumed})"
    return f"the calls cost {duration(calls_s)} ({assumed})"


def _start(evidence: Evidence) -> str:
    started, whole = evidence.start_s, evidence.working_s
    of_whole = f" of the device's {duration(whole)}" if started < whole else ""
    return f"starting the same code takes {duration(started)}{of_whole} ({duration(evidence.assumed_start_s)} assumed)"


def _clock(evidence: Evidence) -> str:
    ceiling, promised, clock_mhz = evidence.compute, evidence.promised_peak, evidence.peak.clock_mhz
    required_mhz = clock_mhz * promised.tflops / ceiling.clock_tflops
    return (
        f"the ceiling's clock was {clock_mhz:.0f} MHz{_under(ceiling.burst_limited_by or [])}; "
        f"the {_promised_by(promised)}'s {number(promised.tflops)} TFLOPS require {required_mhz:.0f} MHz"
    )


def _own_clock(evidence: Evidence) -> str:
    own, of_ceiling = evidence.measured.sm_clock_mhz, evidence.peak.clock_mhz
    reasons = [reason for state in evidence.measured.states for reason in state.throttle_reasons or []]
    return f"its clock was {own:.0f} MHz{_under(reasons)}, and {of_ceiling:.0f} MHz under its ceiling's load"


def _under(reasons: list[str]) -> str:
    words = limiting_words(reasons)
    return f" ({words})" if words else ""


def _compute_ceiling(evidence: Evidence) -> str:
    ceiling = evidence.compute
    return f"{_promise(evidence.promised_peak, 'TFLOPS')}; {ceiling.name} measured {number(ceiling.tflops)}"


def _memory_ceiling(evidence: Evidence) -> str:
    ceiling = evidence.memory
    return f"{_promise(evidence.promised_memory, 'GB/s')}; {ceiling.name} measured {number(ceiling.gb_per_s)}"


def _promise(promised: PromisedCeiling | None, unit: str) -> str:
    if not promised:
        return f"no figure in {unit} was assumed"
    figure = f"{number(promised.tflops or promised.gb_per_s)} {unit}"
    if promised.source.startswith(RULE_OF_THUMB):
        return f"{figure} was assumed by {RULE_OF_THUMB}"
    return f"the {_promised_by(promised)} gives {figure}"


def _promised_by(promised: PromisedCeiling) -> str:
    return "formula" if promised.derived else "datasheet"


def _share_of_roof(evidence: Evidence) -> str:
    roof_s, started, whole, left = evidence.roof_s, evidence.start_s, evidence.working_s, evidence.started_s
    who = "it" if evidence.synchronous else "the device"
    if left <= 0:
        return f"{who} takes {duration(whole)}, no longer than the same code takes to start ({duration(started)})"
    if evidence.by_compute and evidence.compute.no_ratio:
        return f"no share of {evidence.roof}: {evidence.compute.no_ratio}"
    if left < roof_s <= whole and not evidence.synchronous:
        return (
            f"{who} takes {duration(whole)}: starting the same code takes {duration(started)}, some of it beside the "
            f"work, since the other {duration(left)} are less than {evidence.roof} allows"
        )
    if started >= whole / 2:
        than = f"{number(left / roof_s)} times what" if left > roof_s else "less than"
        return (
            f"{who} takes {duration(whole)}: starting the same code takes {duration(started)} of it, and the other "
            f"{duration(left)} are {than} {evidence.roof} allows"
        )
    expected = roof_s / evidence.expected_s
    taken = "all of it" if expected > ALL else percent(expected)
    return f"{'after launch: ' if started else ''}{percent(roof_s / left)} of {evidence.roof} (model: {taken})"


def _regime_clause(evidence: Evidence) -> str:
    named, found = evidence.measured.predicted.regime, evidence.operator.regime
    if found is None or named == found:
        return ""
    return f"; predicted {named} and found {found}, since {_turned_on(evidence, named, found)}"


def _turned_on(evidence: Evidence, named: str, found: str) -> str:
    o = evidence.operator
    if {named, found} <= {model.COMPUTE_BOUND, model.MEMORY_BOUND}:
        ridge = model.ridge_point(evidence.compute.tflops * 1e12, evidence.memory.gb_per_s * 1e9)
        return f"the ridge point is at {number(ridge)} FLOP/byte and the cell at {number(o.intensity_flops_per_byte)}"
    overhead_s = regimes.overhead(latency_s=o.latency_s, device_latency_s=o.device_latency_s, start_s=evidence.start_s)
    roof_s = max(evidence.compute_s, evidence.memory_s)
    of_overhead, of_roof = percent(overhead_s / o.latency_s), percent(roof_s / o.latency_s)
    return f"overheads take {of_overhead} of the time and the roof {of_roof}"
