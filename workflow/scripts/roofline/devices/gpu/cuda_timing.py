"""Time on a GPU: steps between events, steps queued behind a kernel that holds the stream, load without a pause, the
clock."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING

import numpy

from roofline.devices.base import LoadChunks, LoadLimit, Step
from roofline.devices.gpu.cuda_arrays import CudaArrays

if TYPE_CHECKING:
    import cupy

# Eager steps launch about ten kernels each; 32 of them stay well under the launch queue's 1024 entries.
STEPS_BEHIND_HOLD = 32  # while more than eight are left, the card fetches commands of later ones next to each
HOLD_TIMEOUT_NS = 500_000_000
LATE_SHARE = 0.001  # beyond this the clocks are compared again: the host may have been busy
CLOCK_COMPARISONS = 3  # of the host's clock with the events', at most

READ_AFTER_QUARTERS = 3  # quarters of the steps of a timed block
CHUNKS_AHEAD = 4  # chunks of load that are queued: a host that is late by less leaves no gap
KEPT_CLOCK_MARKS = CHUNKS_AHEAD + 1  # one for each queued chunk, and the end of the last one that was over
# Between two marks: long against the tick of the device's timer, which is a microsecond on some cards.
SHORTEST_CLOCK_SPAN_NS = 200_000
CLOCK_MARK_BYTES = 16  # cycles and nanoseconds of one multiprocessor, as kernels/clock.cu writes them


class CudaTimer:
    """The timing of one card. A step is a function of its number.

    Events, the kernel that holds the stream and the marks of the clock are made when they are first used.
    """

    def __init__(self, xp: ModuleType, stream: "cupy.cuda.Stream", multiprocessors: int, arrays: CudaArrays):
        """Time steps on a stream by CuPy; `arrays` loads its kernels, and allocates what card and host share."""
        self._cupy, self._stream, self._multiprocessors, self._arrays = xp, stream, multiprocessors, arrays
        self._events: list[cupy.cuda.Event] = []
        self._hold_kernel: cupy.RawKernel | None = None

    def synchronize(self) -> None:
        """Wait until the device's stream is empty."""
        self._stream.synchronize()

    def time_steps(self, step: Step, count: int, first: int = 0, read_during: Callable | None = None) -> list[float]:
        """Return the seconds from event to event of `count` steps issued one after another, and synchronise before and
        after.

        Steps are numbered from `first` on. `read_during` is called while the device runs, three quarters through.
        """
        events = self._take_events(count + 1)
        self.synchronize()
        self.queue_clock_mark(0)
        self._queue_steps(step, first, events)
        self.queue_clock_mark(1)
        if read_during:
            events[READ_AFTER_QUARTERS * count // 4].synchronize()
            read_during()
        self.synchronize()
        return self._elapsed_seconds(events)

    def time_steps_on_device(
        self, step: Step, count: int, first: int = 0, at_once: int | None = None
    ) -> list[float] | None:
        """Return the seconds of each of `count` steps on the device alone.

        They are queued, at most `at_once` (32) together, behind a kernel that holds the stream, then released. The
        numbers of a batch that timed out are not used again, since its buffers are in the cache now. None if the queue
        cannot be filled before the hold's time-out, even with few steps.
        """
        times: list[float] = []
        batch = at_once or STEPS_BEHIND_HOLD
        self._hold_stream(0)  # loads the kernel, so that nothing is loaded behind a hold
        while len(times) < count:
            queued = min(batch, count - len(times))
            batch_times = self._time_behind_hold(step, first, queued)
            first += queued
            if batch_times is None:
                if batch <= 2:
                    return None
                batch //= 4
            else:
                times += batch_times
        return times

    def measure_timer_ratio(self) -> float:
        """Return the host's clock over the events', for a stream held for half a second.

        A busy host looks at its clock late: the least of up to three ratios counts.
        """
        ratio = math.inf
        for _ in range(CLOCK_COMPARISONS):
            ratio = min(ratio, self._timer_ratio())
            if ratio <= 1 + LATE_SHARE:
                break
        return ratio

    def _timer_ratio(self) -> float:
        events = self._take_events(2)
        self._hold_stream(0)
        start = time.monotonic()
        events[0].record(self._stream)
        self._hold_stream(HOLD_TIMEOUT_NS)
        events[1].record(self._stream)
        self.synchronize()
        return (time.monotonic() - start) / self._elapsed_seconds(events)[0]

    def _time_behind_hold(self, step: Step, first: int, count: int) -> list[float] | None:
        events = self._take_events(count + 1)
        self.synchronize()
        self._hold_stream(HOLD_TIMEOUT_NS)
        self._queue_steps(step, first, events)
        self._release[0] = 1
        self.synchronize()
        return None if self._timed_out[0] else self._elapsed_seconds(events)

    def _hold_stream(self, timeout_ns: int) -> None:
        """Queue a kernel that runs until `_release` is set or the time is over, which sets `_timed_out`."""
        if self._hold_kernel is None:
            self._hold_kernel = self._arrays.load_kernel("stream_hold.cu", "block_stream")
            flags = self._arrays.allocate_pinned(8)
            self._release, self._timed_out = flags[:1], flags[1:]
        self._release[0] = self._timed_out[0] = 0
        addresses = (numpy.uint64(flag.ctypes.data) for flag in (self._release, self._timed_out))
        self._hold_kernel((1,), (1,), (*addresses, numpy.uint64(timeout_ns)))
        if timeout_ns == 0:
            self.synchronize()

    def time_load_chunks(self, step: Step, count: int, limit: LoadLimit, chunks_timed_singly: int = 0) -> LoadChunks:
        """Load the device without a pause until `limit`, in chunks of `count` steps, CHUNKS_AHEAD of them queued.

        Yields (seconds since the start, seconds per step, MHz) of each chunk: the seconds of each step for the first
        `chunks_timed_singly` chunks, their mean alone for all later ones.
        """
        queued_chunks: deque[list] = deque()
        self.synchronize()
        start, queued_count, last_event = time.monotonic(), 0, self._mark_with_event(0)
        while queued_chunks or time.monotonic() - start < limit.seconds:
            while len(queued_chunks) < CHUNKS_AHEAD and time.monotonic() - start < limit.seconds:
                events = [last_event]
                for index in range(count):
                    step(index)
                    if queued_count < chunks_timed_singly and index < count - 1:
                        events.append(self._record_event())
                queued_count += 1
                last_event = self._mark_with_event(queued_count)
                queued_chunks.append([*events, last_event])
            events = queued_chunks.popleft()
            events[-1].synchronize()
            times = self._elapsed_seconds(events)
            done_count = queued_count - len(queued_chunks)
            step_times = times if len(times) == count else [times[0] / count]
            yield time.monotonic() - start, step_times, self._clock_mhz(done_count - 1, done_count)

    def block_clock_mhz(self) -> float | None:
        """Return the MHz of the multiprocessors over the last call of `time_steps`; None where that was too short."""
        return self._clock_mhz(0, 1)

    def _mark_with_event(self, mark_number: int) -> "cupy.cuda.Event":
        """Mark the clocks, then return an event recorded after the mark."""
        self.queue_clock_mark(mark_number)
        return self._record_event()

    def _record_event(self) -> "cupy.cuda.Event":
        event = self._cupy.cuda.Event()
        event.record(self._stream)
        return event

    def queue_clock_mark(self, mark_number: int) -> None:
        """Queue a reading of every multiprocessor's cycles and nanoseconds, which the host reads without a copy."""
        mark = self._clock_marks[mark_number % KEPT_CLOCK_MARKS]
        mark[...] = 0
        self._clock_kernel((self._multiprocessors,), (1,), (numpy.uint64(mark.ctypes.data),))

    @cached_property
    def _clock_kernel(self) -> "cupy.RawKernel":
        return self._arrays.load_kernel("clock.cu", "mark_clocks")

    @cached_property
    def _clock_marks(self) -> numpy.ndarray:
        """The cycles and nanoseconds of the last marks, for each multiprocessor, in memory that the card shares."""
        size_bytes = KEPT_CLOCK_MARKS * self._multiprocessors * CLOCK_MARK_BYTES
        words = self._arrays.allocate_pinned(size_bytes).view(numpy.int64)
        return words.reshape(KEPT_CLOCK_MARKS, self._multiprocessors, 2)

    def _clock_mhz(self, first_mark: int, last_mark: int) -> float | None:
        """Return the median MHz of the multiprocessors that both marks have; None where any span is too short."""
        before = self._clock_marks[first_mark % KEPT_CLOCK_MARKS]
        after = self._clock_marks[last_mark % KEPT_CLOCK_MARKS]
        marked_twice = (before[:, 1] > 0) & (after[:, 1] > 0)
        cycles, nanoseconds = (after - before)[marked_twice].T
        if not len(nanoseconds) or nanoseconds.min() < SHORTEST_CLOCK_SPAN_NS:
            return None
        return float(statistics.median(cycles / nanoseconds * 1e3))

    def look_while_busy(self, step: Step, step_s: float, seconds: float, read_during: Callable[[], object]) -> None:
        """Queue about `seconds` of steps of `step_s` each, call `read_during` while the device runs them, then wait."""
        for index in range(max(1, int(seconds / step_s))):
            step(index)
        read_during()
        self.synchronize()

    def _queue_steps(self, step: Step, first: int, events: list["cupy.cuda.Event"]) -> None:
        """Queue the first event, then a step before each further event."""
        events[0].record(self._stream)
        for index, event in enumerate(events[1:], first):
            step(index)
            event.record(self._stream)

    def _take_events(self, count: int) -> list["cupy.cuda.Event"]:
        while len(self._events) < count:
            self._events.append(self._cupy.cuda.Event())
        return self._events[:count]

    def _elapsed_seconds(self, events: list["cupy.cuda.Event"]) -> list[float]:
        elapsed_ms = self._cupy.cuda.get_elapsed_time
        return [elapsed_ms(start, end) / 1e3 for start, end in pairwise(events)]
