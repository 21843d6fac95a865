"""NVIDIA GPUs, by CuPy, with NVML for identity and state."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from roofline import datasheets
from roofline.devices import (
    Identity,
    Stream,
    SweepSeries,
    Workload,
    capabilities,
    cuda_launch,
    gpu_fma,
    gpu_gemm,
    gpu_memory,
    nvml,
)
from roofline.devices.gpu_identity import LARGEST_L2_BYTES, discover
from roofline.dtypes import array_dtype
from roofline.records import Product

__all__ = ["KERNELS", "LARGEST_L2_BYTES", "MEMORY_LEVELS", "Device", "discover", "unsupported"]

MEMORY_LEVELS = ("hbm", "d2d", "l2", "l1", "shared", "h2d", "d2h", "sweep")
KERNELS = Path(__file__).parents[1] / "kernels"
COMPILE_OPTIONS = ("-std=c++17",)
INCLUDED = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
# Programmatic dependent launch in captured graphs: the first compute capability and the first CUDA of a driver.
OVERLAPPING, OVERLAPPING_DRIVER = (9, 0), 12030
WIDE_ACCESSES = (10, 0)  # the first compute capability with accesses of 32 bytes

# Eager steps launch about ten kernels each; 32 of them stay well under the launch queue's 1024 entries.
STEPS_BEHIND_BLOCK = 32
BLOCK_TIMEOUT_NS = 500_000_000

# Long against the timer's tick; and no longer than the block, at whose end the load falls away.
CLOCK_STRETCH_NS = 200_000
CLOCK_SHARE = 0.9
LOOK_AFTER_S, LOOK_SHARE = 0.15, 3  # quarters


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why this card has no such compute ceiling, without opening it."""
    return identity.fault or capabilities.unsupported(ceiling, identity.compute_capability)


def kernel_source(name: str) -> str:
    """A source of kernels/ with its own headers put in: CuPy's cache of compiled kernels would not see them change."""
    text = (KERNELS / name).read_text(encoding="utf-8")
    return INCLUDED.sub(lambda header: (KERNELS / header[1]).read_text(encoding="utf-8"), text)


class Device:
    def __init__(self, identity: Identity):
        if identity.fault:
            raise RuntimeError(identity.fault)
        # Only this card, whatever the caller's order of devices: then it is CuPy's device 0.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = identity.uuid
        import cupy

        self.identity = identity
        self.xp = cupy
        self.name = identity.device
        self.kind = "gpu"
        self.capability = tuple(int(part) for part in identity.compute_capability.split("."))
        self.memory_ceilings = ["hbm_read", "d2d"]
        self.memory_level = "hbm"
        self.cache_ceilings, self.cache_level = ["l2"], "l2"
        self.properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.multiprocessors = self.properties["multiProcessorCount"]
        self.max_threads = self.properties["maxThreadsPerMultiProcessor"]
        driver = cupy.cuda.runtime.driverGetVersion()
        self.overlaps = self.capability >= OVERLAPPING and driver >= OVERLAPPING_DRIVER
        self.vector_bytes = 32 if self.capability >= WIDE_ACCESSES else 16  # as kernels/memory.cu has it
        self.last_level_cache_bytes = self.properties["l2CacheSize"]
        # CUDA does not tell the L1's size; it is the same store as shared memory.
        self.l1_bytes = self.properties["sharedMemPerMultiprocessor"]
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        visible = nvml.visible_gpus() if identity.nvml and nvml.start() else []
        self._handle = next((handle for handle in visible if _uuid(handle) == identity.uuid), None)
        self._events: list = []
        self._modules: dict = {}
        self._blocker = None
        self._words = None
        self._arrays = None
        # What our kernels tell: cycles and nanoseconds; the sum of what they read, where `tell` is not 0.
        self.kernel_clock = cupy.zeros(2, cupy.uint64)
        self.total, self.tell = cupy.zeros(1, cupy.uint32), cupy.zeros(1, cupy.uint32)

    # -- what it is

    def hardware(self) -> dict:
        properties = self.properties
        return {
            "compute_capability": self.identity.compute_capability,
            "multiprocessors": properties["multiProcessorCount"],
            **nvml.facts(self._handle),
            "l2_bytes": properties["l2CacheSize"],
            "shared_memory_per_block_bytes": properties["sharedMemPerBlock"],
            "shared_memory_per_block_optin_bytes": properties["sharedMemPerBlockOptin"],
            "shared_memory_per_multiprocessor_bytes": properties["sharedMemPerMultiprocessor"],
            "registers_per_multiprocessor": properties["regsPerMultiprocessor"],
            "warp_size": properties["warpSize"],
            "max_threads_per_multiprocessor": properties["maxThreadsPerMultiProcessor"],
        }

    def software(self) -> dict:
        cuda = self.xp.cuda
        return {
            **self.identity.software,
            "driver": self.identity.driver,
            "cuda_of_driver": _dotted(cuda.runtime.driverGetVersion()),
            "cuda_runtime": _dotted(cuda.runtime.runtimeGetVersion()),
            "nvrtc": ".".join(str(part) for part in cuda.nvrtc.getVersion()),
            "cublas_loaded": str(cuda.cublas.getVersion(cuda.device.get_cublas_handle())),
        }

    def vendor(self, hardware: dict, datasheets_path: str) -> dict:
        """The datasheet's figures by the card's exact name, else the architecture's formula."""
        return datasheets.vendor_figures(
            datasheets.load(datasheets_path),
            name=self.identity.name,
            compute_capability=self.identity.compute_capability,
            multiprocessors=hardware["multiprocessors"],
            memory_bytes=self.identity.memory_total_bytes,
            sm_clock_max_mhz=hardware["sm_clock_max_mhz"],
            memory_clock_max_mhz=hardware["memory_clock_max_mhz"],
            memory_bus_width_bits=hardware["memory_bus_width_bits"],
            mig=hardware["mig_slice"],
        )

    def unsupported(self, ceiling: str) -> str | None:
        return unsupported(self.identity, ceiling)

    def compute_unit(self, ceiling: str) -> str:
        """Tensor cores or CUDA cores: which this card has for a ceiling, at the rate that its datasheet counts."""
        return capabilities.compute_unit(ceiling, self.identity.compute_capability)

    def compute_ceiling(self, dtype: str) -> str:
        return dtype

    def widened(self, array):
        """The array itself: a GPU computes in its dtypes. But CuPy multiplies no stacks of bf16 matrices."""
        return array.astype(self.xp.float32) if array.ndim > 2 and array.dtype == array_dtype("bf16") else array

    def emulation_note(self, dtype: str) -> str | None:
        return (
            "eager: CuPy multiplies no stacks of bf16 matrices; they are fp32 in every step"
            if dtype == "bf16"
            else None
        )

    # -- arrays

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int):
        """Standard normal random numbers drawn on the device, in pieces so that no fp32 copy of the whole exists."""
        cupy = self.xp
        random = cupy.random.RandomState(seed)
        values = cupy.empty(shape, array_dtype(dtype))
        flat = values.reshape(-1)
        for start in range(0, flat.size, 1 << 26):
            piece = flat[start : start + (1 << 26)]
            piece[...] = random.standard_normal(piece.size, cupy.float64 if dtype == "fp64" else cupy.float32)
        return values

    def copies(self, array, count: int) -> list:
        """One after another in one piece of memory: a thousand allocations would take longer than the copying."""
        found = self.xp.empty((count, *array.shape), array.dtype)
        found[...] = array
        return list(found)

    def array(self, host_array):
        return self.xp.asarray(host_array)

    def to_host(self, array):
        return self.xp.asnumpy(array)

    def synchronize(self) -> None:
        self.stream.synchronize()

    # -- time

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

        Yields (seconds since the start, seconds a step) of each chunk; `look` is called while one runs. The next chunk
        is queued before the last one is waited for.
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
        called before their end: what NVML tells is tens of milliseconds old.
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

    def kernel(self, source: str, name: str, defines: tuple[str, ...] = ()):
        """A kernel of kernels/, compiled for this card, with macros as the compiler's options define them."""
        if (source, defines) not in self._modules:
            options = COMPILE_OPTIONS + defines
            self._modules[source, defines] = self.xp.RawModule(code=kernel_source(source), options=options)
        return self._modules[source, defines].get_function(name)

    def graph(self, kernel, grid: tuple, block: tuple, calls: list[tuple], shared_bytes: int):
        """A CUDA graph of one kernel's launches, one after another, each with its arguments.

        Where the card has programmatic dependent launch, each may begin while the one before it ends: the kernel itself
        waits where it must.
        """
        kernel.compile()
        self.stream.begin_capture()
        try:
            for arguments in calls:
                if self.overlaps:
                    cuda_launch.overlapping(kernel.kernel.ptr, self.stream.ptr, grid, block, arguments, shared_bytes)
                else:
                    kernel(grid, block, arguments, shared_mem=shared_bytes)
        except RuntimeError:
            with contextlib.suppress(Exception):  # the first fault is the one to tell
                self.stream.end_capture()
            raise
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return graph

    def state(self) -> dict:
        return nvml.state(self._handle)

    def kernel_of(self, step: Callable[[int], object]) -> dict:
        """The name of the kernel that a step runs, by CUPTI where it loads; a separate run that nothing times."""
        from roofline.devices import cupti

        return cupti.kernel_of(lambda: (step(0), self.synchronize()))

    # -- ceilings

    def lab_product(self, dtype: str, size: int, seed: int) -> Workload | None:
        return None if dtype.endswith("_fma") else gpu_gemm.lab_product(self, dtype, size, seed)

    def peak_candidates(self, ceiling: str, size: int, most_flops: float, seed: int) -> Iterator[Workload]:
        if ceiling.endswith("_fma"):
            return iter(gpu_fma.candidates(self, ceiling, seed))
        return gpu_gemm.candidates(self, ceiling, size, most_flops, seed)

    def peak_workload(self, ceiling: str, size: int, product: Product, seed: int) -> Workload:
        if ceiling.endswith("_fma"):
            return gpu_fma.again(self, ceiling, product, seed)
        return gpu_gemm.again(self, ceiling, size, product, seed)

    def beside(self, ceiling: str, product: Product, seed: int) -> Iterator[list[Workload]]:
        if ceiling.endswith("_fma") or product.library != "cuBLASLt":
            return iter(())
        return gpu_gemm.beside(self, ceiling, product, seed)

    def product_of_shape(self, dtype: str, shape: dict[str, int]) -> Workload:
        found = next(gpu_gemm.of_shape(self, dtype, shape, seed=9), None)
        return found or gpu_gemm.lab_product(self, dtype, shape["m"], seed=9)

    def streams(self, level: str, size_bytes: int | None) -> list[Stream]:
        return gpu_memory.streams(self, level, size_bytes)

    def sweeps(self, points_an_octave: int) -> list[SweepSeries]:
        return gpu_memory.sweeps(self, points_an_octave)

    # -- memory

    def shared_arrays(self, size: int, make: Callable):
        """One set of arrays of this size for all who ask."""
        if self._arrays is None or self._arrays.size != size:
            self._arrays = make()
        return self._arrays

    def cache_words(self, size_bytes: int):
        """The first bytes of one array of 32-bit words, which grows with what is asked for."""
        if self._words is None or self._words.nbytes < size_bytes:
            self._words = self.normal((size_bytes // 4,), "fp32", seed=0)
        return self._words[: size_bytes // 4]

    def pinned_array(self, size_bytes: int):
        import numpy

        memory = self.xp.cuda.alloc_pinned_memory(size_bytes)
        return numpy.frombuffer(memory, numpy.uint32, size_bytes // 4)


def _uuid(handle) -> str | None:
    import pynvml

    return nvml.ask(pynvml.nvmlDeviceGetUUID, handle)


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
