"""Time on a GPU: steps between events, steps queued behind a blocking kernel, load without a pause, the clock."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy

# Eager steps launch about ten kernels each; 32 of them stay well under the launch queue's 1024 entries.
STEPS_BEHIND_HOLD = 32  # while more than eight are left, the card fetches commands of later ones next to each
BLOCK_TIMEOUT_NS = 500_000_000
LATE_SHARE = 0.001  # beyond this a block is timed again: the host may have been busy

READ_AFTER_QUARTERS = 3  # quarters of a block
CHUNKS_AHEAD = 4  # of load: a host that is late by less leaves no gap
KEPT_CLOCK_MARKS = CHUNKS_AHEAD + 1  # of the clocks that are kept: of the chunks ahead, and the end of the last one
SHORTEST_CLOCK_SPAN_NS = (
    200_000  # between two marks: long against the tick of the device's timer, a microsecond on some cards
)


class CudaTimer:
    """Part of the GPU device: steps are functions that are handed their number."""

    def synchronize(self) -> None:
        self.stream.synchronize()

    def time_steps(
        self, step: Callable[[int], object], count: int, first: int = 0, read_during: Callable | None = None
    ) -> list[float]:
        """Seconds from event to event of `count` steps issued one after another, synchronised before and after.

        Steps are numbered from `first` on. `read_during` is called while the device runs, three quarters through.
        """
        events = self._take_events(count + 1)
        self.synchronize()
        self._queue_clock_mark(0)
        self._queue_steps(step, first, events)
        self._queue_clock_mark(1)
        if read_during:
            events[READ_AFTER_QUARTERS * count // 4].synchronize()
            read_during()
        self.synchronize()
        return self._elapsed_seconds(events)

    def time_steps_on_device(
        self, step: Callable[[int], object], count: int, first: int = 0, at_once: int | None = None
    ) -> list[float] | None:
        """Seconds of each step on the device alone: queued, at most `at_once` together, behind a kernel that holds the
        stream, then released. A batch that timed out is gone past, since its buffers are in the cache now. None if the
        queue cannot be filled before the blocking kernel's time-out, even with few steps.
        """
        times, batch = [], at_once or STEPS_BEHIND_HOLD
        self._hold_stream(0)  # loads the kernel, so that nothing is loaded behind a block
        while len(times) < count:
            queued = min(batch, count - len(times))
            behind = self._time_behind_hold(step, first, queued)
            first += queued
            if behind is None:
                if batch <= 2:
                    return None
                batch //= 4
            else:
                times += behind
        return times

    def measure_timer_ratio(self) -> float:
        """The host's clock over the events', for a block of half a second. A busy host looks at its clock late: of up
        to three blocks the least counts."""
        ratio = math.inf
        for _ in range(3):
            ratio = min(ratio, self._timer_ratio()) if ratio > 1 + LATE_SHARE else ratio
        return ratio

    def _timer_ratio(self) -> float:
        events = self._take_events(2)
        self._hold_stream(0)
        start = time.monotonic()
        events[0].record(self.stream)
        self._hold_stream(BLOCK_TIMEOUT_NS)
        events[1].record(self.stream)
        self.synchronize()
        return (time.monotonic() - start) / self._elapsed_seconds(events)[0]

    def _time_behind_hold(self, step, first: int, count: int) -> list[float] | None:
        events = self._take_events(count + 1)
        self.synchronize()
        self._hold_stream(BLOCK_TIMEOUT_NS)
        self._queue_steps(step, first, events)
        self._release[0] = 1
        self.synchronize()
        return None if self._timed_out[0] else self._elapsed_seconds(events)

    def _hold_stream(self, timeout_ns: int) -> None:
        cupy = self.xp
        if self._blocker is None:
            self._blocker = self.load_kernel("stream_hold.cu", "block_stream")
            self._pinned = cupy.cuda.alloc_pinned_memory(8)
            flags = numpy.frombuffer(self._pinned, numpy.uint32, 2)
            self._release, self._timed_out = flags[:1], flags[1:]
        self._release[0] = self._timed_out[0] = 0
        address = self._pinned.ptr
        arguments = (numpy.uint64(address), numpy.uint64(address + 4), numpy.uint64(timeout_ns))
        self._blocker((1,), (1,), arguments)
        if timeout_ns == 0:
            self.synchronize()

    def time_load_chunks(
        self, step: Callable[[int], object], count: int, seconds: float, singly: int = 0
    ) -> Iterator[tuple[float, list[float], float | None]]:
        """Load without a pause for about so many seconds, in chunks of `count` steps, CHUNKS_AHEAD of them queued.

        Yields (seconds since the start, seconds per step, MHz) of each chunk: of the first `singly` chunks the seconds
        of each step, of the others their mean alone.
        """
        queued: deque[list] = deque()
        self.synchronize()
        start, number, last = time.monotonic(), 0, self._mark_with_event(0)
        while queued or time.monotonic() - start < seconds:
            while len(queued) < CHUNKS_AHEAD and time.monotonic() - start < seconds:
                events = [last]
                for index in range(count):
                    step(index)
                    if number < singly and index < count - 1:
                        events.append(self._record_event())
                number += 1
                last = self._mark_with_event(number)
                queued.append([*events, last])
            events = queued.popleft()
            events[-1].synchronize()
            times = self._elapsed_seconds(events)
            done = number - len(queued)
            each_s = times if len(times) == count else [times[0] / count]
            yield time.monotonic() - start, each_s, self._clock_mhz(done - 1, done)

    def kernel_clock_mhz(self) -> float | None:
        """MHz that the last kernel of ours counted of itself."""
        cycles, nanoseconds = (float(value) for value in self.to_host(self.kernel_clock))
        return cycles / nanoseconds * 1e3 if nanoseconds else None

    def block_clock_mhz(self) -> float | None:
        """MHz of the multiprocessors over the last step_times; None where that was too short."""
        return self._clock_mhz(0, 1)

    def _mark_with_event(self, place: int):
        """The clocks marked, then an event."""
        self._queue_clock_mark(place)
        return self._record_event()

    def _record_event(self):
        event = self.xp.cuda.Event()
        event.record(self.stream)
        return event

    def _queue_clock_mark(self, place: int) -> None:
        """Queue a reading of every multiprocessor's cycles and nanoseconds. The host reads them without a copy."""
        if self._marks is None:
            self._marker = self.load_kernel("clock.cu", "mark_clocks")
            self._marks_memory = self.xp.cuda.alloc_pinned_memory(KEPT_CLOCK_MARKS * self.multiprocessors * 16)
            self._marks = numpy.frombuffer(self._marks_memory, numpy.int64, KEPT_CLOCK_MARKS * self.multiprocessors * 2)
            self._marks = self._marks.reshape(KEPT_CLOCK_MARKS, self.multiprocessors, 2)
        self._marks[place % KEPT_CLOCK_MARKS] = 0
        address = self._marks_memory.ptr + place % KEPT_CLOCK_MARKS * self.multiprocessors * 16
        self._marker((self.multiprocessors,), (1,), (numpy.uint64(address),))

    def _clock_mhz(self, first: int, last: int) -> float | None:
        """The median over the multiprocessors that both marks are of."""
        before, after = self._marks[first % KEPT_CLOCK_MARKS], self._marks[last % KEPT_CLOCK_MARKS]
        cycles, nanoseconds = (after - before)[(before[:, 1] > 0) & (after[:, 1] > 0)].T
        if not len(nanoseconds) or nanoseconds.min() < SHORTEST_CLOCK_SPAN_NS:
            return None
        return float(statistics.median(cycles / nanoseconds * 1e3))

    def look_while_busy(
        self, step: Callable[[int], object], step_s: float, seconds: float, read_during: Callable
    ) -> None:
        """Queue about so many seconds of steps, look while the device runs them, then wait for it."""
        for index in range(max(1, int(seconds / step_s))):
            step(index)
        read_during()
        self.synchronize()

    def _queue_steps(self, step: Callable[[int], object], first: int, events: list) -> None:
        """An event, then a step and an event for each event that is left."""
        events[0].record(self.stream)
        for index, event in enumerate(events[1:], first):
            step(index)
            event.record(self.stream)

    def _take_events(self, count: int) -> list:
        while len(self._events) < count:
            self._events.append(self.xp.cuda.Event())
        return self._events[:count]

    def _elapsed_seconds(self, events: list) -> list[float]:
        elapsed = self.xp.cuda.get_elapsed_time
        return [elapsed(start, end) / 1e3 for start, end in pairwise(events)]
