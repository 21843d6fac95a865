"""NVIDIA GPUs, by CuPy, with NVML for identity and state."""

import ctypes
import os
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from roofline import datasheets
from roofline.devices import CopyPath, Identity, nvml
from roofline.dtypes import array_dtype

COPY_LEVELS = ("d2d", "h2d", "d2h")
KERNELS = Path(__file__).parents[1] / "kernels"
COMPILE_OPTIONS = ("-std=c++17",)
CUPY_OF_CUDA = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
OLDEST_DRIVER = {12: "525", 13: "580"}
GEMM_DTYPES = {"fp64": "6.0", "fp32": "3.0", "fp16": "5.3", "bf16": "8.0"}
TENSOR_CORE_DTYPES = {"fp16": (7, 0), "bf16": (8, 0)}
FP64_TENSOR_CORES = ((8, 0), (9, 0), (10, 0), (10, 3))  # 8.6, 8.9, 12.0 and their like have a token path only

# NVML does not tell the L2's size; until CUDA does, no card's is larger.
LARGEST_L2_BYTES = 192 << 20

# Eager steps launch about ten kernels each; 32 of them stay well under the launch queue's 1024 entries.
STEPS_BEHIND_BLOCK = 32
BLOCK_TIMEOUT_NS = 500_000_000

# Long against the timer's tick; and no longer than the block, at whose end the load falls away.
CLOCK_STRETCH_NS = 200_000
CLOCK_SHARE = 0.9


def discover() -> list[Identity]:
    """The visible GPUs in PCI order, by NVML; none where no driver answers.

    A card that CUDA sees and NVML does not is one with a fault, not one that is passed over.
    """
    if not nvml.start():
        return [_without_nvml()] if _cuda_answers() else []
    import pynvml

    versions = _library_versions()
    no_cupy = cupy_fault(versions, nvml.cuda_version_of_driver(), nvml.driver_version())
    untold = "NVML does not tell this card's compute capability or memory; set 'devices: [cpu]' in config/config.yaml"
    found = []
    for handle in nvml.visible_gpus():
        memory = nvml.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        capability = nvml.capability(handle)
        found.append(
            Identity(
                device=f"gpu{len(found)}",
                kind="gpu",
                name=nvml.ask(pynvml.nvmlDeviceGetName, handle) or "unknown GPU",
                uuid=nvml.ask(pynvml.nvmlDeviceGetUUID, handle) or "unknown",
                driver=nvml.driver_version(),
                setting=nvml.setting(handle),
                memory_total_bytes=memory.total if memory else 0,
                memory_free_bytes=memory.free if memory else 0,
                compute_capability=capability,
                last_level_cache_bytes=LARGEST_L2_BYTES,
                software=versions,
                fault=no_cupy or (None if capability and memory else untold),
            )
        )
    return found


def _without_nvml() -> Identity:
    return Identity(
        device="gpu0",
        kind="gpu",
        name="unknown GPU",
        uuid="unknown",
        driver=None,
        memory_total_bytes=0,
        memory_free_bytes=0,
        fault="a CUDA driver answers here and NVML (libnvidia-ml.so.1) does not: start the container with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility, reboot after a driver upgrade, or set 'devices: [cpu]'",
    )


def _cuda_answers() -> bool:
    """Whether CUDA's own driver sees a card."""
    try:
        cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
        return cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def cupy_fault(versions: dict[str, str | None], driver_cuda: int | None, driver: str | None) -> str | None:
    """Why CuPy cannot use this driver, and the remedy, in one line; None where it can."""
    driver_major = driver_cuda // 1000 if driver_cuda else None
    if driver_major and driver_major < min(CUPY_OF_CUDA):
        return (
            f"the NVIDIA driver {driver} runs CUDA {driver_major} at most and CuPy needs 12: install driver "
            f"{OLDEST_DRIVER[12]} or newer, or set 'devices: [cpu]' in config/config.yaml"
        )
    best = max(cuda for cuda in CUPY_OF_CUDA if not driver_major or cuda <= driver_major)
    if not versions["cupy"]:
        return (
            f"CuPy is not installed: pip install -r envs/cuda{min(CUPY_OF_CUDA)}.txt (or run make), or set "
            "'devices: [cpu]' in config/config.yaml"
        )
    built_for = next((cuda for cuda, name in CUPY_OF_CUDA.items() if name == versions["cupy_package"]), None)
    if built_for and driver_major and built_for > driver_major:
        return (
            f"{versions['cupy_package']} needs CUDA {built_for} (driver {OLDEST_DRIVER[built_for]} or newer) and the "
            f"driver {driver} runs CUDA {driver_major}: pip uninstall {versions['cupy_package']}, then "
            f"pip install -r envs/cuda{best}.txt (or make CUDA={best})"
        )
    return None


def _library_versions() -> dict[str, str | None]:
    package = next((name for name in (*CUPY_OF_CUDA.values(), "cupy") if _version(name)), None)
    return {
        "cupy": _version(package) if package else None,
        "cupy_package": package,
        "cublas": _cublas_version(package),
        "numpy": _version("numpy"),
    }


def _cublas_version(cupy_package: str | None) -> str | None:
    """Of the wheel that goes with this CuPy; both may be installed."""
    wheels = {"cupy-cuda12x": ["nvidia-cublas-cu12"], "cupy-cuda13x": ["nvidia-cublas"]}
    found = [_version(wheel) for wheel in wheels.get(cupy_package, ["nvidia-cublas-cu12", "nvidia-cublas"])]
    return next((version for version in found if version), None) or _version_on_disk("cublas")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _version_on_disk(library: str) -> str | None:
    """The version in the file name of a library that no package manager of Python brought."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return Path(load_nvidia_dynamic_lib(library).abs_path).resolve().name.partition(".so.")[2] or None
    except Exception:
        return None


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
        self.properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.last_level_cache_bytes = self.properties["l2CacheSize"]
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._handle = next(h for h in nvml.visible_gpus() if _uuid(h) == identity.uuid)
        self._events: list = []
        self._blocker = None

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

    def unsupported(self, dtype: str) -> str | None:
        if dtype not in GEMM_DTYPES:
            return f"cupy.matmul has no {dtype}"
        needed = GEMM_DTYPES[dtype]
        if self.capability < tuple(int(part) for part in needed.split(".")):
            return f"compute capability {self.identity.compute_capability}, {dtype} needs {needed}"
        return None

    def compute_unit(self, dtype: str) -> str:
        """Tensor cores or CUDA cores: which this card has for a dtype, at the rate that its datasheet counts."""
        if dtype == "fp64":
            return "tensor_core" if self.capability in FP64_TENSOR_CORES else "cuda_core"
        first = TENSOR_CORE_DTYPES.get(dtype)
        return "tensor_core" if first and self.capability >= first else "cuda_core"

    def compute_ceiling(self, dtype: str) -> str:
        return dtype

    def widened(self, array):
        """The array itself: a GPU computes in the dtypes that it has."""
        return array

    def emulation_note(self, dtype: str) -> str | None:
        return None

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
        events[0].record(self.stream)
        for index in range(count):
            step(first + index)
            events[index + 1].record(self.stream)
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
        events[0].record(self.stream)
        for index in range(count):
            step(first + index)
            events[index + 1].record(self.stream)
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

    def clock_under(self, step: Callable[[int], object], count: int, step_s: float, look: Callable) -> float | None:
        """MHz of the multiprocessors over a block of `count` steps of about `step_s` seconds each.

        A kernel of one thread, on a stream of its own, counts cycles beside the block: after the block, a card
        without load has raised its clock again. `look` is called while the device still runs.
        """
        import numpy

        reading = self.xp.zeros(2, self.xp.uint64)
        kernel = self.kernel("clock.cu", "count_cycles")
        self.synchronize()
        beside = self.xp.cuda.Stream(non_blocking=True)
        stretch_ns = max(CLOCK_STRETCH_NS, int(CLOCK_SHARE * count * step_s * 1e9))
        kernel((1,), (1,), (numpy.uint64(stretch_ns), reading), stream=beside)
        for index in range(count):
            step(index)
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

    def _take_events(self, count: int) -> list:
        while len(self._events) < count:
            self._events.append(self.xp.cuda.Event())
        return self._events[:count]

    def _elapsed(self, events: list) -> list[float]:
        elapsed = self.xp.cuda.get_elapsed_time
        return [elapsed(start, end) / 1e3 for start, end in pairwise(events)]

    def kernel(self, source: str, name: str):
        """A kernel of kernels/, compiled for this card."""
        return self.xp.RawModule(code=(KERNELS / source).read_text(), options=COMPILE_OPTIONS).get_function(name)

    def state(self) -> dict:
        return nvml.state(self._handle)

    def kernel_of(self, step: Callable[[int], object]) -> dict:
        """The name of the kernel that a step runs, by CUPTI where it loads; a separate run that nothing times."""
        from roofline.devices import cupti

        return cupti.kernel_of(lambda: (step(0), self.synchronize()))

    # -- memory

    def copy_path(self, level: str, size_bytes: int) -> CopyPath:
        return self._device_copy(size_bytes) if level == "d2d" else self._host_copy(level, size_bytes)

    def _device_copy(self, size_bytes: int) -> CopyPath:
        source = self.normal((size_bytes // 4,), "fp32", seed=0)
        destination = self.xp.zeros_like(source)
        return CopyPath(
            level="hbm",
            counted="bytes read plus bytes written, by the driver's own copy",
            counted_bytes=2 * source.nbytes,
            step=lambda index: destination.data.copy_from_device_async(source.data, source.nbytes, self.stream),
            verify=lambda: _require_equal(self._same_bits(source, destination)),
        )

    def _same_bits(self, source, destination) -> bool:
        differences = self.xp.zeros(1, self.xp.uint64)
        words = self.xp.uint64(source.nbytes // 4)
        blocks = 8 * self.properties["multiProcessorCount"]
        self.kernel("compare.cu", "count_differences")((blocks,), (256,), (source, destination, words, differences))
        return int(differences[0]) == 0

    def _host_copy(self, level: str, size_bytes: int) -> CopyPath:
        import numpy

        pinned, returned = (self._pinned_array(size_bytes) for _ in range(2))
        pinned[:] = numpy.resize(numpy.random.default_rng(0).integers(0, 2**32, 1 << 20, numpy.uint32), pinned.size)
        on_device = self.xp.zeros(pinned.size, numpy.uint32)

        def to_device(index=0):
            on_device.data.copy_from_host_async(pinned.ctypes.data, pinned.nbytes, self.stream)

        def to_host(index=0):
            on_device.data.copy_to_host_async(returned.ctypes.data, returned.nbytes, self.stream)

        if level == "d2h":
            to_device()

        def verify() -> str:
            if level == "h2d":
                to_host()
            self.synchronize()
            return _require_equal(numpy.array_equal(pinned, returned))

        return CopyPath(
            level="pcie",
            counted="bytes transferred, once, from or to pinned memory",
            counted_bytes=pinned.nbytes,
            step=to_device if level == "h2d" else to_host,
            verify=verify,
        )

    def _pinned_array(self, size_bytes: int):
        import numpy

        memory = self.xp.cuda.alloc_pinned_memory(size_bytes)
        return numpy.frombuffer(memory, numpy.uint32, size_bytes // 4)


def _uuid(handle) -> str | None:
    import pynvml

    return nvml.ask(pynvml.nvmlDeviceGetUUID, handle)


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _require_equal(equal: bool) -> str:
    if not equal:
        raise ArithmeticError("the copy differs from its source")
    return "every byte of the destination compared with the source"
