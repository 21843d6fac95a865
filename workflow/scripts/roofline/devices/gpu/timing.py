"""Time on a GPU: steps between events, steps queued behind a blocking kernel, load without a pause, the clock."""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

# Eager steps launch about ten kernels each; 32 of them stay well under the launch queue's 1024 entries.
STEPS_BEHIND_BLOCK = 32
BLOCK_TIMEOUT_NS = 500_000_000

# Long against the timer's tick; and no longer than the block, at whose end the load falls away.
CLOCK_STRETCH_NS = 200_000
CLOCK_SHARE = 0.9
LOOK_AFTER_S, LOOK_SHARE = 0.15, 3  # quarters


class Timer:
    """Part of the GPU device: steps are functions that are handed their number."""

    def synchronize(self) -> None:
        self.stream.synchronize()

    def step_times(self, step: Callable[[int], object], count: int, first: int = 0) -> list[float]:
        """Seconds from event to event of `count` steps issued one after another, synchronised before and after.

        Steps are numbered from `first` on.
        """
        events = self._take_events(count + 1)
        self.synchronize()
        self._queue(step, first, events)
        self.synchronize()
        return self._elapsed(events)

    def device_times(self, step: Callable[[int], object], count: int, first: int = 0) -> list[float] | None:
        """Seconds of each step on the device alone: queued behind a kernel that holds the stream, then released.

        Steps are numbered from `first` on; a batch that timed out is not repeated but gone past, since its buffers
        are in the cache now. None where the queue could not be filled before the blocking kernel's time-out, even
        with few steps.
        """
        times, batch = [], STEPS_BEHIND_BLOCK
        self._block_for(0)  # loads the kernel, so that nothing is loaded behind a block
        while len(times) < count:
            queued = min(batch, count - len(times))
            behind = self._times_behind_block(step, first, queued)
            first += queued
            if behind is None:
                if batch <= 2:
                    return None
                batch //= 4
            else:
                times += behind
        return times

    def _times_behind_block(self, step, first: int, count: int) -> list[float] | None:
        events = self._take_events(count + 1)
        self.synchronize()
        self._block_for(BLOCK_TIMEOUT_NS)
        self._queue(step, first, events)
        self._release[0] = 1
        self.synchronize()
        return None if self._timed_out[0] else self._elapsed(events)

    def _block_for(self, timeout_ns: int) -> None:
        import numpy

        cupy = self.xp
        if self._blocker is None:
            self._blocker = self.kernel("blocking.cu", "block_stream")
            self._pinned = cupy.cuda.alloc_pinned_memory(8)
            flags = numpy.frombuffer(self._pinned, numpy.uint32, 2)
            self._release, self._timed_out = flags[:1], flags[1:]
        self._release[0] = self._timed_out[0] = 0
        address = self._pinned.ptr
        arguments = (numpy.uint64(address), numpy.uint64(address + 4), numpy.uint64(timeout_ns))
        self._blocker((1,), (1,), arguments)
        if timeout_ns == 0:
            self.synchronize()

    def watched_times(self, step: Callable[[int], object], count: int, first: int, look: Callable) -> list[float]:
        """As step_times; `look` is called while the device runs, three quarters through."""
        events = self._take_events(count + 1)
        self.synchronize()
        self._queue(step, first, events)
        events[LOOK_SHARE * count // 4].synchronize()
        look()
        self.synchronize()
        return self._elapsed(events)

    def load_times(
        self, step: Callable[[int], object], count: int, seconds: float, look: Callable
    ) -> Iterator[tuple[float, float]]:
        """Load without a pause for about so many seconds, in chunks of `count` steps.

        Yields (seconds since the start, seconds per step) of each chunk; `look` is called while one runs. The next
        chunk is queued before the last one is waited for.
        """
        event, elapsed = self.xp.cuda.Event, self.xp.cuda.get_elapsed_time
        self.synchronize()
        start, ends = time.monotonic(), [event()]
        ends[0].record(self.stream)
        while len(ends) > 1 or time.monotonic() - start < seconds:
            while len(ends) < 3 and time.monotonic() - start < seconds:
                for index in range(count):
                    step(index)
                ends.append(event())
                ends[-1].record(self.stream)
            look()
            ends[1].synchronize()
            yield time.monotonic() - start, elapsed(ends[0], ends[1]) / 1e3 / count
            ends.pop(0)

    def clock_of_kernel(self) -> float | None:
        """MHz that the last kernel of ours counted of itself."""
        cycles, nanoseconds = (float(value) for value in self.to_host(self.kernel_clock))
        return cycles / nanoseconds * 1e3 if nanoseconds else None

    def clock_under(self, step: Callable[[int], object], count: int, step_s: float, look: Callable) -> float | None:
        """MHz of the multiprocessors over a block of `count` steps of about `step_s` seconds each.

        A kernel of one thread, on a stream of its own, counts cycles beside the block: after the block, a card
        without load has raised its clock again. The steps go on until they have lasted LOOK_AFTER_S, and `look` is
        called before their end: what NVML reports is tens of milliseconds old.
        """
        import numpy

        reading = self.xp.zeros(2, self.xp.uint64)
        kernel = self.kernel("clock.cu", "count_cycles")
        self.synchronize()
        beside = self.xp.cuda.Stream(non_blocking=True)
        stretch_ns = max(CLOCK_STRETCH_NS, int(CLOCK_SHARE * count * step_s * 1e9))
        kernel((1,), (1,), (numpy.uint64(stretch_ns), reading), stream=beside)
        last = max(count, round(LOOK_AFTER_S / step_s))
        for index in range(last):
            step(index)
            if index == last * LOOK_SHARE // 4:
                near_the_end = self.xp.cuda.Event()
                near_the_end.record(self.stream)
        near_the_end.synchronize()
        look()
        self.synchronize()
        beside.synchronize()
        cycles, nanoseconds = (float(value) for value in self.to_host(reading))
        return cycles / nanoseconds * 1e3

    def while_busy(self, step: Callable[[int], object], step_s: float, seconds: float, look: Callable) -> None:
        """Queue about so many seconds of steps, look while the device runs them, then wait for it."""
        for index in range(max(1, int(seconds / step_s))):
            step(index)
        look()
        self.synchronize()

    def _queue(self, step: Callable[[int], object], first: int, events: list) -> None:
        """An event, then a step and an event for each event that is left."""
        events[0].record(self.stream)
        for index, event in enumerate(events[1:], first):
            step(index)
            event.record(self.stream)

    def _take_events(self, count: int) -> list:
        while len(self._events) < count:
            self._events.append(self.xp.cuda.Event())
        return self._events[:count]

    def _elapsed(self, events: list) -> list[float]:
        elapsed = self.xp.cuda.get_elapsed_time
        return [elapsed(start, end) / 1e3 for start, end in pairwise(events)]
