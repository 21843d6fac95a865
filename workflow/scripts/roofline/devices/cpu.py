"""The CPU, by NumPy and its BLAS, on every core that this process may use."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path

from roofline import host
from roofline.devices import Identity, Stream, SweepSeries, Workload
from roofline.dtypes import ITEM_BYTES, array_dtype
from roofline.measuring import relative_error, require_right
from roofline.operators import gemm
from roofline.records import Check, Product

MEMORY_LEVELS = ("dram", "sweep")
NATIVE_DTYPES = ("fp64", "fp32")
UNLISTED_CACHE_BYTES = 256 << 20  # where the kernel lists no caches: more than most CPUs have
UNLISTED_L2_BYTES = 1 << 20
PIECE_ITEMS = 1 << 20  # of random numbers that one generator draws


def discover(capacities: bool = True) -> list[Identity]:
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


class Timed(float):
    """Seconds that a step found by itself, and hands back: they count, not what its caller saw."""


class Device:
    def __init__(self, identity: Identity):
        self.cores = host.use_all_cores()
        import numpy
        import threadpoolctl

        from roofline.devices.cpu_memory import Workers

        # The variables come too late for a BLAS that something else has loaded before.
        threadpoolctl.threadpool_limits(self.cores, "blas")
        self.identity = identity
        self.xp = numpy
        self.name = identity.device
        self.kind = "cpu"
        self.memory_ceilings = ["dram_read", "dram_copy"]
        self.memory_level = "dram"
        self.cache_ceilings, self.cache_level = [], "dram"  # no stream of a cache, and so no roof for what it holds
        self.last_level_cache_bytes = identity.last_level_cache_bytes
        self.l2_bytes = _cache_bytes().get("l2", UNLISTED_L2_BYTES)  # of one core
        self._blas = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
        cpus = _spread(host.usable_cpus())
        self._workers = Workers(self.cores, cpus if len(cpus) == self.cores else ())  # a quota's cores are any of them

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

    def unsupported(self, ceiling: str) -> str | None:
        return unsupported(self.identity, ceiling)

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

    def on_cores(self, count: int, work: Callable[[int], object]) -> list:
        """The results of work(0), work(1), ... on as many cores, each with a BLAS of one thread; a single one is the
        caller's own. Work is handed out in some tens of microseconds, the BLAS told in about one."""
        for library in self._blas:
            library.set_num_threads(1)
        try:
            return [work(0)] if count == 1 else self._workers.run(count, work)
        finally:
            for library in self._blas:
                library.set_num_threads(self.cores)

    # -- arrays

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int):
        """Standard normal random numbers, drawn in parallel, rounded to the dtype; the same for any core count."""
        numpy = self.xp
        values = numpy.empty(shape, array_dtype(dtype))
        flat = values.reshape(-1)
        starts = range(0, flat.size, PIECE_ITEMS)
        seeds = numpy.random.SeedSequence(seed).spawn(len(starts))

        def fill(worker: int) -> None:
            for start, piece_seed in list(zip(starts, seeds, strict=True))[worker :: self.cores]:
                piece = flat[start : start + PIECE_ITEMS]
                piece[:] = numpy.random.Generator(numpy.random.SFC64(piece_seed)).standard_normal(
                    piece.size, dtype=numpy.float64 if dtype == "fp64" else numpy.float32
                )

        self._workers.run(self.cores, fill)
        return values

    def copies(self, array, count: int) -> list:
        """Made by all cores: it is the first touch of memory that takes time."""
        found = self.xp.empty((count, *array.shape), array.dtype)

        def fill(worker: int) -> None:
            for place in range(worker, count, self.cores):
                found[place] = array

        self._workers.run(self.cores, fill)
        return list(found)

    def array(self, host_array):
        return host_array

    def to_host(self, array):
        return array

    def synchronize(self) -> None:
        pass

    # -- time

    def step_times(self, step: Callable[[int], object], count: int, first: int = 0) -> list[float]:
        """Seconds of each of `count` steps, called one after another, with numbers from `first` on."""
        stamps, told = [time.perf_counter_ns()], []
        for index in range(first, first + count):
            told.append(_told(step(index)))
            stamps.append(time.perf_counter_ns())
        return [own or (end - start) / 1e9 for own, (start, end) in zip(told, pairwise(stamps), strict=True)]

    def watched_times(self, step: Callable[[int], object], count: int, first: int, look: Callable) -> list[float]:
        """As step_times: a CPU tells nothing of itself."""
        return self.step_times(step, count, first)

    def load_times(
        self, step: Callable[[int], object], count: int, seconds: float, look: Callable
    ) -> Iterator[tuple[float, float]]:
        """(seconds since the start, seconds a step) of chunks of `count` steps, for about so many seconds."""
        start = time.monotonic()
        while (at_s := time.monotonic() - start) < seconds:
            each_s = sum(self.step_times(step, count)) / count
            yield at_s + count * each_s, each_s

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

    def streams(self, level: str, size_bytes: int | None) -> list[Stream]:
        from roofline.devices import cpu_memory

        if not size_bytes:
            free = host.memory_available_bytes()
            size_bytes = cpu_memory.automatic_bytes(self.cores, self.last_level_cache_bytes, free)
        # Half of a core's second cache: with the blocks that pass by, the triad's product stays there or next to it.
        block_bytes = _cache_bytes().get("l2", UNLISTED_L2_BYTES) // 2
        return cpu_memory.streams(self._workers, size_bytes, block_bytes)

    def sweeps(self, points_an_octave: int) -> list[SweepSeries]:
        """Sets of one core, and of all cores with one each; where there is one core, these are the same."""
        from roofline.devices import cpu_memory

        each = []
        for readers in sorted({1, self.cores}):
            levels = _cache_bytes(readers)
            near_bytes = levels.get("l2", UNLISTED_L2_BYTES)
            largest_bytes = max(levels.values(), default=UNLISTED_CACHE_BYTES // readers)
            each.append(cpu_memory.Caches(readers, levels, near_bytes, largest_bytes))
        return cpu_memory.sweeps(self._workers, each, host.memory_available_bytes(), points_an_octave)

    # -- products

    def lab_product(self, dtype: str, size: int, seed: int) -> Workload:
        return self._products(dtype, [size], seed)[0]

    def peak_candidates(self, ceiling: str, size: int, most_flops: float, seed: int) -> list[Workload]:
        """Squares of half the size and of twice it, on parts of the same operands: beside the lab's own, whose block
        was timed before.

        Those of more than `most_flops` or of more than half of the free memory are left out.
        """
        free = host.memory_available_bytes()
        sizes = [max(1, size // 2), 2 * size]
        fitting = [
            side
            for side in sizes
            if 2 * gemm.workspace_bytes(side, ceiling) <= free and gemm.flops(side, side, side) <= most_flops
        ]
        return self._products(ceiling, fitting, seed) if fitting else []

    def peak_workload(self, ceiling: str, size: int, product: Product, seed: int) -> Workload:
        """The candidate that is this product, on operands of its own. Raises LookupError where none is."""
        workload = self.lab_product(ceiling, product.shape["m"], seed)
        if workload.product != product:
            raise LookupError(f"NumPy has no {product}")
        return workload

    def beside(self, ceiling: str, product: Product, seed: int) -> list[list[Workload]]:
        """None: NumPy's product has one accumulation and one output for each dtype."""
        return []

    def _products(self, dtype: str, sizes: list[int], seed: int) -> list[Workload]:
        items = max(sizes) ** 2
        a, b = (self.normal((items,), dtype, seed + i) for i in range(2))
        c = self.xp.empty_like(a)
        return [
            _square(*(array[: size**2].reshape(size, size) for array in (a, b, c)), dtype, self._workers)
            for size in sizes
        ]


def _told(result) -> Timed | None:
    return result if isinstance(result, Timed) else None


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why this machine has no such compute ceiling; None where it has. Loads no NumPy."""
    if ceiling in NATIVE_DTYPES:
        return None
    if ceiling.endswith("_fma"):
        return "NumPy has no register-only loop on the CPU"
    return f"NumPy has no {ceiling} arithmetic of its own on the CPU, it converts; a ceiling would mislead"


def _square(a, b, c, dtype: str, workers) -> Workload:
    """C = A B by NumPy's BLAS, of n x n arrays of one dtype."""
    import numpy

    size = len(a)

    def multiply(index: int) -> None:
        numpy.matmul(a, b, out=c)

    def check() -> Check:
        """Sampled rows against float64, summed by NumPy itself: fp64 from the same BLAS would agree with any fault of
        its own. Raises ArithmeticError where they differ."""
        rows = numpy.linspace(0, size - 1, gemm.SAMPLED_ROWS).astype(int)
        c[rows] = numpy.nan  # what is not written shows
        multiply(0)
        sampled = a[rows]

        def columns(worker: int):
            part = slice(size * worker // workers.count, size * (worker + 1) // workers.count)
            return numpy.einsum("ij,jk->ik", sampled, b[:, part], dtype=numpy.float64)

        error = relative_error(c[rows], numpy.hstack(workers.run(workers.count, columns)))
        require_right(f"{dtype} matmul {size}", error, gemm.TOLERANCE[dtype])
        compared = f"{gemm.SAMPLED_ROWS} rows against float64 without the BLAS"
        return Check(compared=compared, error=error, tolerance=gemm.TOLERANCE[dtype])

    return Workload(
        product=Product(
            library="numpy.matmul",
            shape={"m": size, "n": size, "k": size},
            layout="NN",
            algorithm=None,
            accumulation=dtype,
            output=dtype,
        ),
        flops=gemm.flops(size, size, size),
        step=multiply,
        check=check,
    )


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


def _cache_bytes(readers: int = 1) -> dict[str, int]:
    """Bytes by level of the first core's caches that one of so many readers has: each of those that share a cache and
    read has a part of it. Levels that the kernel does not list are left out."""
    cpus = host.usable_cpus()
    found = [_caches(cpu) for cpu in cpus]
    sizes = {}
    for level, (shared, size) in _caches(min(cpus)).items():
        sharing = sum(caches.get(level, ("", 0))[0] == shared for caches in found)
        sizes[level] = size // min(sharing, readers)
    return sizes


def _spread(cpus: set[int]) -> list[int]:
    """In an order whose beginnings lie all over the machine: one thread of each core first, neighbours far apart."""
    ranks: dict[int, list[int]] = {}
    seen: dict[str, int] = {}
    for cpu in sorted(cpus):
        core = _caches(cpu).get("l1", (str(cpu), 0))[0]
        ranks.setdefault(seen.get(core, 0), []).append(cpu)
        seen[core] = seen.get(core, 0) + 1
    return [rank[i] for _, rank in sorted(ranks.items()) for i in sorted(range(len(rank)), key=_mirrored)]


def _mirrored(number: int) -> str:
    return f"{number:032b}"[::-1]


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
