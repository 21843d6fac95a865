"""The step of a trace: what ran on the GPU from its first event to the next step's, and the gaps between."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_high, median_low

from collectives import is_collective
from trace_events import Event, Trace

LAUNCH, WAITED = "gaps between launches", "gaps after the host waited for the GPU"
NEXT_TO_COPY, QUEUED = "gaps next to copies", "gaps between kernels that were queued"
LOST = "gaps in which the profiler lost kernels"
KERNEL_LAUNCH = re.compile("LaunchKernel|LaunchCooperativeKernel|GraphLaunch")
NEVER_0 = 1e-6  # us, for what is divided by
HOLE_US = 1000.0  # a shorter gap may be the GPU's own
WHOLE = 0.5  # of the events of the median step: one with fewer was not recorded whole


Span = tuple[float, float, str]  # start, end and name of a step


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

    @property
    def lost_s(self) -> float:
        """The seconds of gaps in which the profiler lost kernels."""
        return self.gaps.get(LOST, 0.0)


def find_step(trace: Trace, events: Sequence[Event]) -> TraceSteps:
    """Return the median step of the events of one GPU, which are sorted by start.

    The first step and the last, which no other ends, are left out if there are others, and so are steps that were not
    recorded whole. Without steps, return the whole trace. The profiler widens gaps: if the program stored the time of a
    step without it, they are scaled to that time.
    """
    spans = _spans(trace, events)
    _, start, end, name = median_low(
        (end - start, start, end, name) for start, end, name in _whole_spans(spans, events)
    )
    places = [place for place, event in enumerate(events) if start <= event.start < end]
    step_events = [events[place] for place in places]
    collectives = [event for event in step_events if is_collective(event.name)]
    non_collective_s = covered_s([event for event in step_events if not is_collective(event.name)], end)
    busy_s = covered_s(step_events, end)
    profiled_s = (end - start) / 1e6
    seconds = trace.step_s if trace.step_s and name else profiled_s
    # With the event after the step: the gap before it is the step's too.
    gaps = _gap_seconds(trace, events[places[0] : places[-1] + 2], max(0.0, seconds - busy_s))
    collective_s, exposed_s = covered_s(collectives, end), busy_s - non_collective_s
    return TraceSteps(name, len(spans), len(events), seconds, profiled_s, busy_s, gaps, collective_s, exposed_s, places)


def _whole_spans(spans: Sequence[Span], events: Sequence[Event]) -> Sequence[Span]:
    """Return the steps that count: without the ends, or else the last whole one."""
    starts = [event.start for event in events]
    counts = {span: bisect_left(starts, span[1]) - bisect_left(starts, span[0]) for span in spans}
    least = WHOLE * median_high(counts.values())
    whole = [span for span in spans if counts[span] >= least]
    inner = [span for span in whole if span not in (spans[0], spans[-1])]
    return inner or whole[-1:]


def _spans(trace: Trace, events: Sequence[Event]) -> list[Span]:
    """Return start, end and name of each step: from the first event that it launched to that of the next."""
    steps = sorted(trace.steps, key=lambda step: step.start)
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
    lost_starts = _list_lost_launches(trace)
    gaps = Counter({LAUNCH: 1e-12})  # never 0 in all
    before = events[0]
    for event in events:
        if event.start > before.end:
            kind = _classify_gap(trace, before, event, wait_ends, lost_starts)
            gaps[kind] += (event.start - before.end) / 1e6
        before = max(before, event, key=lambda event: event.end)
    scale = idle_s / gaps.total()
    return {kind: scale * seconds for kind, seconds in gaps.items()}


def _classify_gap(
    trace: Trace, before: Event, after: Event, wait_ends: Sequence[float], lost_starts: Sequence[float]
) -> str:
    earlier, launch = trace.launches.get(before.correlation), trace.launches.get(after.correlation)
    is_same = after.correlation == before.correlation  # one graph
    if launch and after.start - before.end > HOLE_US:
        count = bisect_left(lost_starts, launch.start) - bisect_right(lost_starts, earlier.start if earlier else 0.0)
        is_queued = "GraphLaunch" in launch.name and launch.end <= before.end
        if is_same or is_queued or count > 0:
            return LOST
    if launch and launch.end > before.end and not is_same:
        place = bisect_right(wait_ends, before.end)
        host_waited = place < len(wait_ends) and wait_ends[place] <= launch.start
        return WAITED if host_waited else LAUNCH
    return NEXT_TO_COPY if "gpu_memcpy" in (after.kind, before.kind) else QUEUED


def _list_lost_launches(trace: Trace) -> list[float]:
    """Return when the kernels were launched that the trace lacks; those of a capture run later, in a graph."""
    recorded = {event.correlation for event in trace.gpu}
    captures = 0
    lost_starts = []
    for launch in sorted(trace.launches.values(), key=lambda launch: launch.start):
        if "StreamBeginCapture" in launch.name or "StreamEndCapture" in launch.name:
            captures += 1 if "Begin" in launch.name else -1
        elif not captures and launch.correlation not in recorded and KERNEL_LAUNCH.search(launch.name):
            lost_starts.append(launch.start)
    return lost_starts


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
