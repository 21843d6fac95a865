"""The step of a trace: what ran on the GPU from its first event to the next step's, and the gaps between."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
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
    """The median step of a trace, in seconds, or all of the trace. `places` are those of its events."""

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


def find_step(trace: Trace, events: Sequence[Event]) -> TraceSteps:
    """Return the median step of the events of one GPU, which are sorted by start.

    The first step and the last, which no other ends, are left out if there are others. Without steps, return the whole
    trace. The profiler widens gaps: if the program stored the time of a step without it, they are scaled to that time.
    """
    spans = _spans(trace, events)
    inner_spans = spans[1:-1] or spans[1:] or spans
    _, start, end, name = median_low((end - start, start, end, name) for start, end, name in inner_spans)
    places = [place for place, event in enumerate(events) if start <= event.start < end]
    step_events = [events[place] for place in places]
    collectives = [event for event in step_events if COLLECTIVE.search(event.name)]
    non_collective_s = covered_s([event for event in step_events if not COLLECTIVE.search(event.name)], end)
    busy_s = covered_s(step_events, end)
    profiled_s = (end - start) / 1e6
    seconds = max(busy_s, trace.step_s if trace.step_s and name else profiled_s)
    # With the event after the step: the gap before it is the step's too.
    gaps = _gap_seconds(trace, events[places[0] : places[-1] + 2], seconds - busy_s)
    collective_s, exposed_s = covered_s(collectives, end), busy_s - non_collective_s
    return TraceSteps(name, len(spans), len(events), seconds, profiled_s, busy_s, gaps, collective_s, exposed_s, places)


def _spans(trace: Trace, events: Sequence[Event]) -> list[tuple[float, float, str]]:
    """Return start, end and name of each step: from the first event that it launched to that of the next."""
    steps = sorted(trace.steps)
    first_events: dict[int, tuple[float, str]] = {}  # start of the first event, and name, by the number of the step
    last_end = 0.0
    for event in events:
        launch = trace.launches.get(event.correlation)
        number = bisect_right(steps, launch.start, key=lambda step: step.start) - 1 if launch else -1
        if number >= 0 and launch.start <= steps[number].end:
            first_events.setdefault(number, (event.start, steps[number].name))
            last_end = max(last_end, event.end + NEVER_0)
    if not first_events:
        return [(events[0].start, max(event.end for event in events) + NEVER_0, "")]
    starts = [*sorted(first_events.values()), (last_end, "")]
    return [(start, end, name) for (start, name), (end, _) in pairwise(starts)]


def _gap_seconds(trace: Trace, events: Sequence[Event], idle_s: float) -> dict[str, float]:
    """Return the seconds of the gaps between events by their kind, scaled so that they add up to `idle_s`.

    A gap is between launches if the next event's launch ended after the GPU had finished what it had.
    """
    wait_ends = sorted(launch.end for launch in trace.launches.values() if "Synchronize" in launch.name)
    gaps = Counter({LAUNCH: 1e-12})  # never 0 in all
    before = events[0]
    for event in events:
        launch = trace.launches.get(event.correlation)
        if event.start > before.end:
            if launch and launch.end > before.end and event.correlation != before.correlation:
                place = bisect_right(wait_ends, before.end)
                host_waited = place < len(wait_ends) and wait_ends[place] <= launch.start
                kind = WAITED if host_waited else LAUNCH
            else:
                kind = NEXT_TO_COPY if "gpu_memcpy" in (event.kind, before.kind) else QUEUED
            gaps[kind] += (event.start - before.end) / 1e6
        before = max(before, event, key=lambda event: event.end)
    scale = idle_s / gaps.total()
    return {kind: scale * seconds for kind, seconds in gaps.items()}


def covered_s(events: Sequence[Event], until: float) -> float:
    """Return the seconds in which at least one event ran, up to a moment. Events are sorted by start."""
    covered_us, reached = 0.0, 0.0
    for event in events:
        covered_us += max(0.0, min(event.end, until) - max(event.start, reached))
        reached = max(reached, event.end)
    return covered_us / 1e6


def overlap_s(events: Sequence[Event]) -> list[float]:
    """Return for each event the seconds in which another ran too. Events are sorted by start.

    Of three that run at once only two are seen.
    """
    overlaps = [0.0] * len(events)
    latest = 0  # the event that ends last, of those before
    for place in range(1, len(events)):
        overlap = max(0.0, min(events[place].end, events[latest].end) - events[place].start) / 1e6
        overlaps[place] += overlap
        overlaps[latest] += overlap
        latest = max(latest, place, key=lambda place: events[place].end)
    return overlaps
