"""A GPU, opened by CuPy: what it reports of itself, its ceilings, and the graphs of our kernels."""

import contextlib
import copy
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from roofline.core import levels
from roofline.core.architectures import architecture_of, parse_capability
from roofline.core.dtypes import COMMON_DTYPE, DTYPES
from roofline.core.terms import AccessPattern, ComputeUnit, DeviceKind, UnsupportedError
from roofline.devices import datasheets
from roofline.devices.base import BandwidthBenchmark, CudaDevice, GpuLimits, Identity, PlannedDevice, PointerChase, Step
from roofline.devices.gpu import cache_benchmarks, driver_calls, gpu_fma, hbm_benchmarks, instruction_kernels, nvml
from roofline.devices.gpu.card_pair import require_access
from roofline.devices.gpu.cuda_arrays import CudaArrays
from roofline.devices.gpu.cuda_timing import CudaTimer
from roofline.devices.gpu.energy_kernels import make_energy_kernels
from roofline.devices.gpu.gpu_host_costs import host_cost_benchmarks
from roofline.devices.gpu.kernel_compiler import KernelCompiler
from roofline.devices.gpu.peer_benchmarks import PeerPair

if TYPE_CHECKING:
    from cupy import RawKernel
    from cupy.cuda import Graph, Stream

OVERLAP_DRIVER_CUDA = 12030  # the first CUDA of a driver with programmatic dependent launch in captured graphs
# CUDA's device attributes by their keys in the device record. cudaGetDeviceProperties would query a hundred, which
# takes 0.1 s of each job.
PROPERTIES = {
    "multiprocessors": "MultiProcessorCount",
    "l2_bytes": "L2CacheSize",
    "shared_memory_per_block_bytes": "MaxSharedMemoryPerBlock",
    "shared_memory_per_block_optin_bytes": "MaxSharedMemoryPerBlockOptin",
    "shared_memory_per_multiprocessor_bytes": "MaxSharedMemoryPerMultiprocessor",
    "registers_per_multiprocessor": "MaxRegistersPerMultiprocessor",
    "warp_size": "WarpSize",
    "max_threads_per_multiprocessor": "MaxThreadsPerMultiProcessor",
}


class PlannedGpu:
    """One NVIDIA GPU, whose cells can be planned and whose kernels compiled; it has no context, and runs nothing.

    It is CuPy's device 0 and a `peer` device 1: CUDA_VISIBLE_DEVICES of this process is set. Raises RuntimeError with
    the fault of its identity.
    """

    kind: DeviceKind = "gpu"
    ceiling_kernels = (*gpu_fma.KERNELS, *instruction_kernels.KERNELS, *cache_benchmarks.KERNELS, ("memory.cu", ""))

    def __init__(self, identity: Identity, peer: Identity | None = None):
        if identity.fault:
            raise RuntimeError(identity.fault)
        # Only this card and its peer, as CuPy's devices 0 and 1, whatever order the caller has.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = f"{identity.uuid},{peer.uuid}" if peer else identity.uuid
        import cupy

        self.xp, self.peer = cupy, peer
        runtime = cupy.cuda.runtime
        properties = {
            name: runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), 0) for name in PROPERTIES.values()
        }
        self.set_facts(identity, properties, runtime.driverGetVersion())
        compiler = KernelCompiler(cupy, identity, self.ceiling_kernels)
        self.load_kernel, self.compiled = compiler.load_kernel, compiler.compiled
        self.compile_ahead = compiler.compile_ahead

    def set_facts(self, identity: Identity, properties: dict[str, int], driver_cuda: int) -> None:
        """Set what plans of cells follow from: CUDA's device attributes by name, and the CUDA version of the driver."""
        self.identity, self.name, self.properties = identity, identity.device, properties
        self.capability = parse_capability(identity.require_capability())
        self.architecture = architecture_of(self.capability)
        self.memory_level = levels.MAIN_MEMORY[self.kind]
        self.cache_ceilings, self.cache_level = [levels.LAST_CACHE], levels.LAST_CACHE
        self.multiprocessors = properties["MultiProcessorCount"]
        self.max_threads = properties["MaxThreadsPerMultiProcessor"]
        self.supports_overlap = self.architecture.clusters and driver_cuda >= OVERLAP_DRIVER_CUDA
        self.is_hopper = self.architecture.wgmma
        self.vector_bytes = self.architecture.access_bytes  # as in kernels/memory.cu
        self.last_level_cache_bytes = properties["L2CacheSize"]
        # CUDA does not report the L1's size; L1 and shared memory are parts of one store.
        self.l1_bytes = properties["MaxSharedMemoryPerMultiprocessor"]
        self.limits = GpuLimits(
            multiprocessors=self.multiprocessors,
            shared_per_block=properties["MaxSharedMemoryPerBlockOptin"],
            shared_per_sm=self.l1_bytes,
            capability=self.capability,
        )

    def compute_unit(self, ceiling: str) -> ComputeUnit:
        """Return which unit of this card runs a ceiling at the rate that its datasheet counts: "tensor_core" or
        "cuda_core"."""
        return datasheets.TENSOR_CORE if ceiling in self.architecture.tensor_dtypes else datasheets.CUDA_CORE

    def compute_ceiling_name(self, dtype: str, unit: str) -> str:
        """Return the ceiling of an operator: its dtype's GEMM on tensor cores, register-only multiply-adds on CUDA
        cores, those of fp32 for a dtype that has none."""
        if unit == "tensor_core":
            return dtype
        return f"{dtype if DTYPES[dtype].pipe else COMMON_DTYPE}_fma"

    def memory_ceiling_names(self, mix: AccessPattern, cores: int | None = None) -> list[str]:
        """Return the names of the memory ceilings that an access pattern may be under, best first."""
        return levels.memory_ceiling_names(self.kind, mix)

    def emulation_note(self, dtype: str) -> str | None:
        """Return None: a GPU computes in every dtype that it is measured in."""
        return None


class GpuDevice(PlannedGpu):
    """One NVIDIA GPU, opened. Its arrays and its timing are parts of their own, whose methods are methods of it."""

    def __init__(self, identity: Identity, peer: Identity | None = None):
        """Open a GPU, with a peer for what is measured between the two."""
        super().__init__(identity, peer)
        visible = nvml.visible_gpus() if identity.nvml and nvml.initialise() else []
        handles = {nvml.query("DeviceGetUUID", handle): handle for handle in visible}
        self._handle = handles.get(identity.uuid)
        self._peer_handle = handles.get(peer.uuid) if peer else None
        self._number = 0  # of CUDA
        self._make_stream()

    def _make_stream(self) -> None:
        """Make a stream on CUDA's current device, and what works on it: arrays, timing, the reports of kernels."""
        cupy = self.xp
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()

        def load_kernel(*spec: Any) -> Any:
            return self.load_kernel(*spec)  # as it is when the kernel is needed: tests replace it

        arrays = CudaArrays(cupy, self.stream, load_kernel, self.multiprocessors)
        self.normal, self.fill_normal, self.empty = arrays.normal, arrays.fill_normal, arrays.empty
        self.to_device, self.to_host, self.widen = arrays.to_device, arrays.to_host, arrays.widen
        self.poison, self.copy, self.rolled_copies = arrays.poison, arrays.copy, arrays.rolled_copies
        self.count_differences = arrays.count_differences
        self.triad_arrays, self.cache_buffer = arrays.triad_arrays, arrays.cache_buffer
        self.launch_one_pass, self.allocate_pinned = arrays.launch_one_pass, arrays.allocate_pinned
        self.timer = timer = CudaTimer(cupy, self.stream, self.multiprocessors, arrays)
        self.synchronize, self.look_while_busy = timer.synchronize, timer.look_while_busy
        self.time_steps, self.time_steps_on_device = timer.time_steps, timer.time_steps_on_device
        self.time_load_chunks, self.block_clock_mhz = timer.time_load_chunks, timer.block_clock_mhz
        self.measure_timer_ratio = timer.measure_timer_ratio
        # What our kernels report: cycles and nanoseconds; the sum of what they read, where `report_sum` is not 0.
        self.kernel_clock = cupy.zeros(2, cupy.uint64)
        self.word_sum, self.report_sum = cupy.zeros(1, cupy.uint32), cupy.zeros(1, cupy.uint32)

    def current(self) -> AbstractContextManager:
        """Return a block within which this card is CUDA's current device, as it must be where methods of a peer run."""
        return self.xp.cuda.Device(self._number)

    @cache  # noqa: B019 the device lives as long as its process
    def open_peer(self) -> "GpuDevice":
        """Open the peer on another stream and return it. From then on each card may access the other's memory.

        Raises UnsupportedError where it may not.
        """
        peer = copy.copy(self)
        peer.identity, peer.peer, peer._number = require_access(self), self.identity, 1
        peer.name = peer.identity.device
        peer._handle, peer._peer_handle = self._peer_handle, self._handle
        with peer.current():
            peer._make_stream()
        return peer

    # -- what it is

    def read_hardware(self) -> dict:
        return {
            "compute_capability": self.identity.compute_capability,
            **{key: self.properties[name] for key, name in PROPERTIES.items()},
            **nvml.read_facts(self._handle),
        }

    def read_software(self) -> dict:
        cuda = self.xp.cuda
        return {
            **self.identity.software,
            "driver": self.identity.driver,
            "cuda_of_driver": _dotted_version(cuda.runtime.driverGetVersion()),
            "cuda_runtime": _dotted_version(cuda.runtime.runtimeGetVersion()),
            "nvrtc": ".".join(str(part) for part in cuda.nvrtc.getVersion()),
            "cublas_loaded": str(cuda.cublas.getVersion(cuda.device.get_cublas_handle())),
        }

    def datasheet_figures(self, hardware: dict, datasheets_path: str) -> dict:
        """Return the datasheet's figures by the card's exact name, else those of its architecture's formula."""
        return datasheets.datasheet_figures(datasheets.read_datasheets(datasheets_path), self.identity, hardware)

    def read_state(self) -> dict:
        """Return clocks, power, temperature, throttle reasons and other processes, as NVML reports them now."""
        return nvml.read_state(self._handle)

    def read_energy_j(self) -> float | None:
        return nvml.read_energy_j(self._handle)

    def read_power_w(self) -> float | None:
        """Return the watts that NVML reports now, or their average where it has no other reading."""
        return nvml.read_power(self._handle)["power_w"]

    def read_memory_errors(self) -> dict:
        """Return the counts of memory errors that NVML reports now, by their keys in the device record."""
        return nvml.read_memory_errors(self._handle)

    def read_host_link(self) -> dict:
        """Return generation and width of the PCIe link now."""
        return nvml.read_host_link(self._handle)

    def count_other_processes(self) -> int | None:
        """Return the other processes on this card or on its peer, whichever has more; None if neither can be read."""
        counts = [nvml.count_other_processes(handle) for handle in (self._handle, self._peer_handle) if handle]
        return max((count for count in counts if count is not None), default=None)

    def describe_peer_path(self) -> dict:
        """Return how this card and its peer are connected, by the fields of the record Peer."""
        return nvml.describe_path(self._handle, self._peer_handle)

    def identify_kernel(self, step: Step) -> dict:
        """Return the name of the longest kernel of a step, which runs once more under CUPTI, outside all timing."""

        def run() -> None:
            step(0)
            self.synchronize()

        return driver_calls.identify_kernel(run)

    def run_under_profiler(self, queue: Callable[[], object]) -> None:
        """Run what a function queues under a profiler, after a kernel of ours that marks its beginning."""
        runtime = self.xp.cuda.runtime
        self.timer.queue_clock_mark(0)  # compiles the kernel before the profiler looks
        self.synchronize()
        runtime.profilerStart()
        self.timer.queue_clock_mark(0)
        queue()
        self.synchronize()
        runtime.profilerStop()

    def kernel_clock_mhz(self) -> float | None:
        """Return the MHz that the last kernel of ours counted while it ran."""
        cycles, nanoseconds = (float(value) for value in self.to_host(self.kernel_clock))
        return cycles / nanoseconds * 1e3 if nanoseconds else None

    # -- ceilings

    def bandwidth_benchmarks(self, target: str, size_bytes: int | None) -> list[BandwidthBenchmark]:
        """Return the benchmarks of a target. Raises UnsupportedError where this architecture lacks its level."""
        if levels.TARGETS[target].needs_clusters and not self.architecture.clusters:
            raise UnsupportedError(f"compute capability {self.identity.compute_capability} has no clusters of blocks")
        if target in cache_benchmarks.BENCHMARKS:
            return cache_benchmarks.BENCHMARKS[target](self)
        return hbm_benchmarks.BENCHMARKS[target](self, size_bytes)

    def open_peer_pair(self, size_bytes: int | None) -> PeerPair:
        """Return this card and its peer, with arrays of `size_bytes` on both; None: as large as needed.

        Raises UnsupportedError where one may not access the other's memory.
        """
        return PeerPair(self, size_bytes)

    def pointer_chase(self, target: str) -> PointerChase | None:
        make_chase = {**cache_benchmarks.CHASES, **hbm_benchmarks.CHASES}.get(target)
        return make_chase(self) if make_chase else None

    # Functions of other modules whose first argument is the device.
    candidate_fma_workloads = gpu_fma.candidate_fma_workloads
    rebuild_fma_workload = gpu_fma.rebuild_fma_workload
    sweep_benchmarks = cache_benchmarks.sweep_benchmarks
    host_cost_benchmarks = host_cost_benchmarks
    make_energy_kernels = make_energy_kernels
    make_issue_kernels = instruction_kernels.make_issue_kernels
    make_access_limit_kernels = instruction_kernels.make_access_limit_kernels

    # -- graphs

    def capture_launches(
        self, kernel: "RawKernel", grid: tuple, block: tuple, launches: list[tuple], shared_bytes: int
    ) -> "Graph":
        """Return a CUDA graph of launches of a kernel, one for each tuple of arguments.

        Each may begin before the last one ends.
        """
        launch = self.make_launcher(kernel, grid, block, shared_bytes, overlap=True)

        def queue() -> None:
            for arguments in launches:
                launch(arguments)

        return self.capture_graph(queue)

    def make_launcher(
        self, kernel: "RawKernel", grid: tuple, block: tuple, shared_bytes: int, overlap: bool
    ) -> Callable[[tuple], None]:
        """Return a function that launches a kernel with a tuple of arguments.

        With `overlap`, and on a card and driver that support it, a launch may begin before the previous one ends.
        """
        handle = kernel.kernel.ptr
        if overlap and self.supports_overlap:
            return lambda arguments: driver_calls.launch_overlapped(
                handle, self.stream.ptr, grid, block, arguments, shared_bytes
            )
        return lambda arguments: kernel(grid, block, arguments, shared_mem=shared_bytes)

    def capture_graph(self, queue: Callable[[], object], stream: "Stream | None" = None) -> "Graph":
        """Return a CUDA graph of what a function queues on a stream (the device's own), which runs nothing meanwhile.

        CuPy refuses to call cuBLAS during a capture; cuBLASLt and kernels of ours may be queued.
        """
        stream = stream or self.stream
        stream.use()  # else what CuPy launches would run elsewhere, and the graph be empty
        stream.begin_capture()
        try:
            queue()
        except Exception:
            with contextlib.suppress(Exception):  # report the first fault, not one that follows from it
                stream.end_capture()
            raise
        graph = stream.end_capture()
        graph.upload(stream)
        return graph


def open_device(identity: Identity, peer: Identity | None = None) -> CudaDevice:
    """Open a GPU, with a peer for what is measured between the two."""
    return GpuDevice(identity, peer)


def plan_device(identity: Identity) -> PlannedDevice:
    """Return a GPU without a context, which its other processes would notice."""
    return PlannedGpu(identity)


def _dotted_version(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
