"""The CPU, by NumPy and its BLAS, on every core that this process may use."""

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from roofline import host
from roofline.devices import CopyPath, Identity
from roofline.dtypes import ITEM_BYTES, array_dtype

COPY_LEVELS = ("dram_copy",)
NATIVE_DTYPES = ("fp64", "fp32")
UNLISTED_CACHE_BYTES = 256 << 20  # where the kernel lists no caches: more than most CPUs have


def discover() -> list[Identity]:
    import psutil

    return [
        Identity(
            device="cpu",
            kind="cpu",
            name=host.cpu_name(),
            uuid=f"{host.usable_cores()}-cores-{platform.machine()}",
            driver=None,
            memory_total_bytes=psutil.virtual_memory().total,
            memory_free_bytes=host.memory_available_bytes(),
            last_level_cache_bytes=_last_level_cache_bytes(),
            software={"numpy": metadata.version("numpy")},
        )
    ]


class Device:
    def __init__(self, identity: Identity):
        self.cores = host.use_all_cores()
        import numpy
        import threadpoolctl

        # The variables come too late for a BLAS that something else has loaded before.
        threadpoolctl.threadpool_limits(self.cores, "blas")
        self.identity = identity
        self.xp = numpy
        self.name = identity.device
        self.kind = "cpu"
        self.memory_ceilings = ["dram_copy"]
        self.memory_level = "dram"
        self.last_level_cache_bytes = identity.last_level_cache_bytes
        self._pool = ThreadPoolExecutor(self.cores)

    # -- what it is

    def hardware(self) -> dict:
        """Model, cores, SIMD and caches; the clock is the one that the formula of the peak uses."""
        import cpuinfo

        described = cpuinfo.get_cpu_info()
        return {
            "architecture": platform.machine(),
            "cores_of_the_machine": os.cpu_count(),
            "cores_usable": self.cores,
            "cores_physical": host.physical_cores(),
            **clock(described),
            **simd_units(set(described.get("flags", ())), platform.machine(), _cpu_family()),
            "caches_bytes": _cache_bytes(),
        }

    def software(self) -> dict:
        """NumPy, its BLAS and the threads that it really uses."""
        import threadpoolctl

        blas = next((lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"), {})
        return {
            "numpy": self.xp.__version__,
            "blas": blas.get("internal_api"),
            "blas_version": blas.get("version"),
            "blas_threads": str(blas.get("num_threads")),
            "blas_architecture": blas.get("architecture"),
        }

    def vendor(self, hardware: dict, datasheets_path: str) -> dict:
        """Theoretical peaks by formula: CPUs have no datasheet here, and no bandwidth is promised."""
        clock_mhz = hardware["clock_mhz"]
        source = (
            f"{clock_mhz or 0:.0f} MHz ({hardware['clock_source']}) x {hardware['cores_physical']} cores x "
            f"{hardware['simd_bits']}-bit {hardware['simd']} x {hardware['fma_flops']} FLOPs x "
            f"{hardware['vector_ports']} ports (assumed)"
        )
        figure = {
            "unit": "cpu",
            "operations_per_clock_per_multiprocessor": None,
            "source": source,
            "verified": False,
            "derived": True,
        }
        return {
            "match": "formula",
            "entry": None,
            "reason": "a CPU's peak is clock x cores x SIMD lanes x FMA x ports",
            "boost_clock_mhz": clock_mhz,
            "tensor_clock_mhz": None,
            "rate_class": None,
            "l2_bytes": hardware["caches_bytes"].get("l2"),
            "power_limit_w": None,
            "peaks": {
                dtype: {"tflops": peak_formula_tflops(hardware, ITEM_BYTES[dtype]), **figure}
                for dtype in NATIVE_DTYPES
                if clock_mhz
            },
            "absent": {},
            "bandwidth": None,
        }

    def unsupported(self, dtype: str) -> str | None:
        if dtype in NATIVE_DTYPES:
            return None
        return f"NumPy has no {dtype} arithmetic of its own on the CPU, it converts; a ceiling would mislead"

    def compute_unit(self, dtype: str) -> str:
        return "cpu"

    def compute_ceiling(self, dtype: str) -> str:
        """The ceiling that an operator of a dtype stands under: emulated dtypes compute in fp32."""
        return dtype if dtype in NATIVE_DTYPES else "fp32"

    def widened(self, array):
        """A dtype that the CPU lacks, converted to fp32 for the computation; others as they are."""
        return array.astype(self.xp.float32) if array.dtype.itemsize < 4 else array

    def emulation_note(self, dtype: str) -> str | None:
        if dtype in NATIVE_DTYPES:
            return None
        return f"{dtype} is emulated: converted to fp32 in every step, computed, and rounded back"

    # -- arrays

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int):
        """Standard normal random numbers, drawn in parallel, rounded to the dtype; the same for any core count."""
        numpy = self.xp
        values = numpy.empty(shape, array_dtype(dtype))
        flat = values.reshape(-1)
        pieces = range(0, flat.size, 1 << 20)
        seeds = numpy.random.SeedSequence(seed).spawn(len(pieces))

        def fill(start, piece_seed):
            piece = flat[start : start + (1 << 20)]
            piece[:] = numpy.random.Generator(numpy.random.SFC64(piece_seed)).standard_normal(
                piece.size, dtype=numpy.float64 if dtype == "fp64" else numpy.float32
            )

        list(self._pool.map(fill, pieces, seeds))
        return values

    def array(self, host_array):
        return host_array

    def to_host(self, array):
        return array

    def synchronize(self) -> None:
        pass

    # -- time

    def step_times(self, step: Callable[[int], object], count: int, first: int = 0) -> list[float]:
        """Seconds of each of `count` steps, called one after another, with numbers from `first` on."""
        stamps = [time.perf_counter_ns()]
        for index in range(first, first + count):
            step(index)
            stamps.append(time.perf_counter_ns())
        return [(end - start) / 1e9 for start, end in pairwise(stamps)]

    def device_times(self, step: Callable[[int], object], count: int, first: int = 0) -> None:
        """None: the CPU is its own caller, there is no launch gap to leave out."""
        return None

    def clock_under(self, step: Callable[[int], object], count: int, step_s: float, look: Callable) -> None:
        """None: a CPU does not tell its clock under load."""

    def while_busy(self, step: Callable[[int], object], step_s: float, seconds: float, look: Callable) -> None:
        """Nothing: a CPU tells nothing that must be read under load."""

    def state(self) -> dict:
        return {}

    def kernel_of(self, step: Callable[[int], object]) -> dict:
        return {"name": None, "tensor_cores": None, "how_known": "a BLAS does not tell which kernel it chose"}

    # -- memory

    def copy_path(self, level: str, size_bytes: int) -> CopyPath:
        numpy = self.xp
        source = self.normal((size_bytes // 4,), "fp32", seed=0)
        destination = numpy.empty_like(source)
        self._clear(destination)  # each core touches its pages first: they are on its socket then
        threads = self._fastest_thread_count(source, destination)
        self._clear(destination)  # so that only the timed steps can make it equal
        return CopyPath(
            level="dram",
            counted="bytes read plus bytes written; the write-allocate read of a cached store is not counted",
            counted_bytes=2 * source.nbytes,
            step=lambda index: self._copy(source, destination, threads),
            verify=lambda: _require_equal(numpy.array_equal(source, destination)),
            threads=threads,
        )

    def _copy(self, source, destination, threads: int) -> None:
        pieces = _pieces(source.size, threads)
        list(self._pool.map(lambda piece: self.xp.copyto(destination[piece], source[piece]), pieces))

    def _clear(self, array) -> None:
        list(self._pool.map(lambda piece: array[piece].fill(0), _pieces(array.size, self.cores)))

    def _fastest_thread_count(self, source, destination) -> int:
        candidates = [2**power for power in range(self.cores.bit_length()) if 2**power < self.cores]
        times = {}
        for threads in [*candidates, self.cores]:
            self._copy(source, destination, threads)
            times[threads] = min(self.step_times(lambda _, n=threads: self._copy(source, destination, n), 2))
        return min(times, key=times.get)


def _pieces(size: int, count: int) -> list[slice]:
    return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]


def _require_equal(equal: bool) -> str:
    if not equal:
        raise ArithmeticError("the copy differs from its source")
    return "every byte of the destination compared with the source"


def peak_formula_tflops(hardware: dict, item_bytes: int) -> float:
    """Theoretical peak = clock x cores x SIMD lanes x (2 with fused multiply-add) x ports, in TFLOPS.

    Cores are physical: two threads of one core share its ports.
    """
    lanes = hardware["simd_bits"] // (8 * item_bytes)
    per_clock = hardware["cores_physical"] * lanes * hardware["fma_flops"] * hardware["vector_ports"]
    return hardware["clock_mhz"] * 1e6 * per_clock / 1e12


def simd_units(flags: set[str], machine: str, family: int | None) -> dict:
    """SIMD width, FLOPs a multiply-add and vector ports a core, from the flags that the kernel lists.

    Ports cannot be read from a CPU. Two full-width multiply-add ports is what server cores since Haswell have
    (Fog, The microarchitecture of Intel, AMD and VIA CPUs); AMD's family 25 splits 512-bit operations in two.
    """
    if machine in ("aarch64", "arm64"):
        return {"simd": "NEON", "simd_bits": 128, "fma_flops": 2, "vector_ports": 2, "ports_assumed": True}
    fma = 2 if "fma" in flags else 1
    if "avx512f" in flags:
        ports = 1 if family == 25 else 2
        return {"simd": "AVX-512", "simd_bits": 512, "fma_flops": 2, "vector_ports": ports, "ports_assumed": True}
    if "avx" in flags:
        name = "AVX2" if "avx2" in flags else "AVX"
        return {"simd": name, "simd_bits": 256, "fma_flops": fma, "vector_ports": 2, "ports_assumed": True}
    return {"simd": "SSE2", "simd_bits": 128, "fma_flops": 1, "vector_ports": 2, "ports_assumed": True}


def clock(described: dict) -> dict:
    """The clock of the formula: the highest that the kernel lists, else the one that the CPU reports now."""
    try:
        highest = int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
        return {"clock_mhz": highest / 1e3, "clock_source": "highest clock by the kernel's cpufreq"}
    except (OSError, ValueError):
        hertz = (described.get("hz_actual") or described.get("hz_advertised") or (0, 0))[0]
        source = "clock reported now; the core may boost above it, so a measured peak may exceed the formula's"
        return {"clock_mhz": hertz / 1e6 or None, "clock_source": source}


def _cpu_family() -> int | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(int(line.split(":")[1]) for line in lines if line.startswith("cpu family"))
    except (OSError, StopIteration, ValueError):
        return None


def _last_level_cache_bytes() -> int:
    """Of all last-level caches that the usable cores have: together they keep what all the cores read."""
    found = [_caches(cpu) for cpu in host.usable_cpus()]
    last = max((level for caches in found for level in caches), default=None)
    if last is None:
        return UNLISTED_CACHE_BYTES
    each_once = dict(caches[last] for caches in found if last in caches)
    return sum(each_once.values())


def _cache_bytes() -> dict[str, int]:
    """Sizes by level of the first core's caches."""
    return {level: size for level, (_, size) in _caches(min(host.usable_cpus())).items()}


def _caches(cpu: int) -> dict[str, tuple[str, int]]:
    """Which cores share a core's cache (data or unified) of each level, and its bytes, as the kernel lists them."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = {}
    for folder in sorted((host.CPUS / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            items = ("level", "type", "size", "shared_cpu_list")
            level, kind, size, shared = ((folder / item).read_text().strip() for item in items)
            if kind != "Instruction":
                found[f"l{level}"] = (shared, int(size[:-1]) * units[size[-1]])
        except (OSError, ValueError, KeyError):
            continue
    return found
