"""The step of a trace: what ran on the GPU from its first event to the next step's, and the gaps between."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from trace_calls import COLLECTIVE
from trace_events import Event, Trace

LAUNCH, WAITED = "gaps between launches", "gaps after the host waited for the GPU"
NEVER_0 = 1e-6  # us, for what is divided by
NEXT_TO_COPY, QUEUED = "gaps next to copies", "gaps between kernels that were queued"


@dataclass(frozen=True)
class TraceSteps:
    """Seconds. `places` are those of its events."""

    name: str  # empty: the trace has no steps
    steps: int
    events: int  # of all steps, and before and after them
    seconds: float
    profiled_s: float  # differs from `seconds` if the program stored what a step takes without the profiler
    busy_s: float  # at least one stream was
    gaps: dict[str, float]
    collective_s: float
    exposed_s: float  # of collectives, while nothing else ran
    places: list[int]


def step_of(trace: Trace, events: Sequence[Event]) -> TraceSteps:
    """The median step, without the first and the last, which no other ends; the whole trace if it has no steps."""
    spans = _spans(trace, events)
    middle = spans[1:-1] or spans[1:] or spans
    _, start, end, name = median_low((after - first, first, after, name) for first, after, name in middle)
    places = [place for place, one in enumerate(events) if start <= one.start < end]
    mine = [events[place] for place in places]
    others = [one for one in mine if not COLLECTIVE.search(one.name)]
    collective = [one for one in mine if COLLECTIVE.search(one.name)]
    busy_s, others_s, collective_s = (covered_s(some, end) for some in (mine, others, collective))
    profiled_s = (end - start) / 1e6
    seconds = max(busy_s, trace.step_s if trace.step_s and name else profiled_s)
    gaps = {LAUNCH: 1e-12}
    for kind, width in _gaps(trace, [*mine, *events[places[-1] + 1 :][:1]]):
        gaps[kind] = gaps.get(kind, 0.0) + width / 1e6
    scale, exposed_s = (seconds - busy_s) / sum(gaps.values()), busy_s - others_s  # the profiler widens gaps
    gaps = {kind: scale * width for kind, width in gaps.items()}
    return TraceSteps(name, len(spans), len(events), seconds, profiled_s, busy_s, gaps, collective_s, exposed_s, places)


def _spans(trace: Trace, events: Sequence[Event]) -> list[tuple[float, float, str]]:
    """Start, end and name of each step: from the first event that it launched to that of the next."""
    steps, first, last = sorted(trace.steps), {}, 0.0
    for one in events:
        launch = trace.launches.get(one.correlation)
        number = bisect_right(steps, launch.start, key=lambda one: one.start) - 1 if launch else -1
        if number >= 0 and launch.start <= steps[number].end:
            first.setdefault(number, (one.start, steps[number].name))
            last = max(last, one.end + NEVER_0)
    if not first:
        return [(events[0].start, max(one.end for one in events) + NEVER_0, "")]
    return [(start, end, name) for (start, name), (end, _) in pairwise([*sorted(first.values()), (last, "")])]


def _gaps(trace: Trace, events: Sequence[Event]) -> Iterable[tuple[str, float]]:
    """A gap is between launches if the next event's launch ended after the GPU had finished what it had."""
    waits, before = sorted(one.end for one in trace.launches.values() if "Synchronize" in one.name), events[0]
    for one in events:
        launch = trace.launches.get(one.correlation)
        if one.start > before.end and launch and launch.end > before.end and one.correlation != before.correlation:
            place = bisect_right(waits, before.end)
            waited = place < len(waits) and waits[place] <= launch.start
            yield WAITED if waited else LAUNCH, one.start - before.end
        elif one.start > before.end:
            yield NEXT_TO_COPY if "gpu_memcpy" in (one.kind, before.kind) else QUEUED, one.start - before.end
        before = max(before, one, key=lambda one: one.end)


def covered_s(events: Sequence[Event], until: float) -> float:
    """Seconds in which any of them ran, of events sorted by start."""
    covered, reached = 0.0, 0.0
    for one in events:
        covered += max(0.0, min(one.end, until) - max(one.start, reached))
        reached = max(reached, one.end)
    return covered / 1e6


def shared_s(events: Sequence[Event]) -> list[float]:
    """Of each the seconds in which another ran too, of events sorted by start; of three at once only two are seen."""
    found, longest = [0.0] * len(events), 0
    for place, one in enumerate(events[1:], 1):
        shared = max(0.0, min(one.end, events[longest].end) - one.start) / 1e6
        found[place] += shared
        found[longest] += shared
        longest = max(longest, place, key=lambda place: events[place].end)
    return found
