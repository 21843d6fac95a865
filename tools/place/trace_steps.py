"""The step of a trace: what ran on the GPU between its first kernel and the next step's, and the gaps between."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from trace_calls import COLLECTIVE
from trace_events import GpuEvent, Trace

GAPS = ("launch", "synchronisation", "copy", "dependency")


@dataclass(frozen=True)
class Step:
    """Seconds. `places` are those of its events."""

    name: str | None  # None: the trace has no steps
    steps: int
    seconds: float
    profiled_s: float  # differs from `seconds` if the program stored what a step takes without the profiler
    busy_s: float  # at least one stream was
    gaps: dict[str, float]
    collective_s: float
    exposed_s: float  # of collectives, while nothing else ran
    places: list[int]


def step_of(trace: Trace, events: Sequence[GpuEvent]) -> Step:
    """The median step, without the first; the whole trace if it has no steps. Events are in the order of their start.

    A step lasts from its first kernel to that of the next step; which is the first follows from when it was launched.
    """
    spans = _spans(trace, events)
    later = spans[1:] or spans
    _, start, end, name = median_low([(end - start, start, end, name) for start, end, name in later])
    places = [place for place, one in enumerate(events) if start <= one.start < end]
    mine = [events[place] for place in places]
    kinds = [[one for one in mine if bool(COLLECTIVE.search(one.name)) is which] for which in (True, False)]
    collective, others = (union((one.start, min(one.end, end)) for one in some) for some in kinds)
    together = union([*collective, *others])
    profiled_s, busy_s = (end - start) / 1e6, length(together) / 1e6
    gaps = dict.fromkeys(GAPS, 0.0)
    for kind, width in _gaps(trace, mine):
        gaps[kind] += width / 1e6
    gaps["launch"] += max(0.0, profiled_s - busy_s - sum(gaps.values()))  # from the last kernel to the next step
    seconds = max(trace.step_s or profiled_s, busy_s)
    if idle_s := sum(gaps.values()):  # the profiler widens gaps
        gaps = {kind: (seconds - busy_s) / idle_s * width for kind, width in gaps.items()}
    exposed_s = (length(together) - length(others)) / 1e6
    return Step(
        name or None, len(spans), seconds, profiled_s, busy_s, gaps, length(collective) / 1e6, exposed_s, places
    )


def _spans(trace: Trace, events: Sequence[GpuEvent]) -> list[tuple[float, float, str]]:
    """Start, end and name of each step that launched a kernel."""
    steps, first, last = sorted(trace.steps), {}, {}
    for one in events:
        launch = trace.launches.get(one.correlation)
        number = bisect_right(steps, (launch.start,)) - 1 if launch and one.kind == "kernel" else -1
        if number >= 0 and launch.start <= steps[number][1]:
            first.setdefault(number, one.start)
            last[number] = max(one.end, last.get(number, 0.0))
    if not first:
        return [(events[0].start, max(one.end for one in events), "")]
    starts = [*sorted(first.values()), max(last.values())]
    names = [steps[number][2] for number in sorted(first, key=first.get)]
    return list(zip(starts, starts[1:], names, strict=False))


def _gaps(trace: Trace, events: Sequence[GpuEvent]) -> Iterable[tuple[str, float]]:
    """A gap is between launches if the next event's launch ended after the GPU had finished what it had."""
    waits = sorted(one.end for one in trace.waits)
    last, before = None, None
    for one in events:
        if last is not None and one.start > last:
            launch = trace.launches.get(one.correlation)
            if launch and launch.end > last:
                place = bisect_right(waits, last)
                waited = place < len(waits) and waits[place] <= launch.start
                yield "synchronisation" if waited else "launch", one.start - last
            else:
                yield "copy" if "gpu_memcpy" in (one.kind, before) else "dependency", one.start - last
        if last is None or one.end > last:
            last, before = one.end, one.kind
    return


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def overlaps(events: Sequence[GpuEvent]) -> list[float]:
    """Of each event the time in which another ran too."""
    found, running = [0.0] * len(events), set()
    ends = [(one.start, 1, place) for place, one in enumerate(events)]
    ends = sorted(ends + [(one.end, 0, place) for place, one in enumerate(events)])
    for (now, starts, place), (after, *_) in zip(ends, [*ends[1:], (0.0,)], strict=True):
        (running.add if starts else running.discard)(place)
        for other in running if len(running) > 1 else ():
            found[other] += after - now
    return found
