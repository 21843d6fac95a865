"""The CPU, by NumPy and its BLAS, on every core that this process may use."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from roofline.core.dtypes import ITEM_BYTES, array_dtype, operand_dtype
from roofline.devices import base, host, levels
from roofline.devices.base import BandwidthBenchmark, HostCostBenchmark, Identity, SweepBenchmark, Workload
from roofline.devices.cpu.cpu_identity import (
    NATIVE_CEILINGS,
    NATIVE_DTYPES,
    formula_clock,
    formula_peak_tflops,
    simd_units,
)
from roofline.devices.cpu.topology import (
    UNLISTED_L2_BYTES,
    cache_bytes_by_level,
    ceiling_name_on_cores,
    measured_core_counts,
    order_spread_out,
)
from roofline.devices.cpu.workers import StepSeconds
from roofline.records.compute import WorkloadSpec

FP16_BITS_IN_FP32 = -0x70002000  # of fp32: 0x8fffe000, a sign, five bits of exponent, ten of mantissa
RANDOM_CHUNK_ITEMS = 1 << 20  # of random numbers that one generator draws
DISTINCT_ITEMS = (1 << 22) - 3  # random numbers per array; a prime, so that copies of any size begin at others of them


class CpuDevice(base.Device):
    def __init__(self, identity: Identity):
        self.cores = host.use_all_cores()
        import numpy
        import threadpoolctl

        from roofline.devices.cpu.workers import Workers

        # The variables come too late for a BLAS that something else has loaded before.
        threadpoolctl.threadpool_limits(self.cores, "blas")
        self.identity = identity
        self.xp = numpy
        self.name = identity.device
        self.kind = "cpu"
        self.memory_level = "dram"
        self.cache_ceilings, self.cache_level = [], "dram"  # no stream of a cache, and so no roof for what it holds
        self.last_level_cache_bytes = identity.last_level_cache_bytes
        self.l2_bytes = cache_bytes_by_level().get("l2", UNLISTED_L2_BYTES)  # of one core
        self._blas = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
        cpus = order_spread_out(host.usable_cpus())
        self.workers = Workers(self.cores, cpus if len(cpus) == self.cores else ())  # a quota's cores are any of them

    # -- what it is

    def read_hardware(self) -> dict:
        """Model, cores, SIMD and caches; the clock is the one that the formula of the peak uses."""
        described = host.read_cpuinfo()
        return {
            "architecture": platform.machine(),
            "cores_of_the_machine": os.cpu_count(),
            "cores_usable": self.cores,
            "cores_physical": host.physical_cores(),
            **formula_clock(described),
            **simd_units(set(described.get("flags", "").split()), platform.machine(), described.get("cpu family")),
            "caches_bytes": cache_bytes_by_level(),
        }

    def read_software(self) -> dict:
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

    def datasheet_figures(self, hardware: dict, datasheets_path: str) -> dict:
        """Theoretical peaks by formula: CPUs have no datasheet here, and no bandwidth is promised."""
        clock_mhz = hardware["clock_mhz"]
        source = (
            f"{clock_mhz or 0:.0f} MHz ({hardware['clock_source']}) x {hardware['cores_physical']:g} cores x "
            f"{hardware['simd_bits']}-bit {hardware['simd']} x {hardware['fma_flops']} FLOPs x "
            f"{hardware['vector_ports']} ports (assumed)"
        )
        figure = {
            "compute_unit": "cpu",
            "operations_per_clock_per_multiprocessor": None,
            "source": source,
            "verified": False,
            "derived": True,
        }
        return {
            "peaks_by": "formula",
            "entry": None,
            "reason": "a CPU's peak is clock x cores x SIMD lanes x FMA x ports",
            "boost_clock_mhz": clock_mhz,
            "tensor_clock_mhz": None,
            "rate_class": None,
            "power_limit_w": None,
            "peaks": {
                name: {"tflops": formula_peak_tflops(hardware, ITEM_BYTES[operand_dtype(name)]), **figure}
                for name in NATIVE_CEILINGS
                if clock_mhz
            },
            "absent": {},
            "bandwidth": None,
        }

    def compute_unit(self, ceiling: str) -> str:
        return "cpu"

    def compute_ceiling_name(self, dtype: str, unit: str) -> str:
        """The ceiling that an operator of a dtype is below: emulated dtypes compute in fp32."""
        return dtype if dtype in NATIVE_DTYPES else "fp32"

    def memory_ceiling_names(self, mix: str, cores: int | None = None) -> list[str]:
        """Of so many of the cores: reads have a ceiling of the next larger number that was measured."""
        fewer = [count for count in measured_core_counts(self.cores)[1:] if cores and count >= cores]
        own = [ceiling_name_on_cores("dram_read", min(fewer))] if mix == "read" and fewer else []
        return [*own, *levels.memory_ceiling_names(self.kind, mix)]

    def widen(self, array, wide=None):
        """A dtype that the CPU lacks, converted to fp32 for the computation, in `wide` if given; others as they are.

        Moving the bits of fp16 to where fp32 has them takes a quarter of the time of NumPy's conversion; they are then
        2^-112 times the number, except infinity and NaN.
        """
        xp = self.xp
        if array.dtype.itemsize >= 4:
            return array
        wide = xp.empty(array.shape, xp.float32) if wide is None else wide
        if array.dtype != xp.float16:
            xp.copyto(wide, array)
            return wide
        bits = wide.view(xp.int32)
        xp.copyto(bits, array.view(xp.int16))
        xp.left_shift(bits, 13, out=bits)
        xp.bitwise_and(bits, FP16_BITS_IN_FP32, out=bits)
        xp.multiply(wide, xp.float32(2.0**112), out=wide)
        return wide

    def emulation_note(self, dtype: str) -> str | None:
        if dtype in NATIVE_DTYPES:
            return None
        return f"{dtype} is emulated: converted to fp32 in every step, computed, and rounded back"

    def run_on_cores(self, count: int, work: Callable[[int], object]) -> list:
        """The results of work(0), work(1), ... on as many cores, each with a BLAS of one thread."""
        for library in self._blas:
            library.set_num_threads(1)
        try:
            return [work(0)] if count == 1 else self.workers.run(count, work)
        finally:
            for library in self._blas:
                library.set_num_threads(self.cores)

    # -- arrays

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int):
        """Standard normal random numbers, rounded to the dtype; the same for any core count. Arrays larger than
        DISTINCT_ITEMS repeat them, since drawing gigabytes would take longer than measuring. Copies cut from one array
        still differ: they begin at different numbers."""
        numpy = self.xp
        values = numpy.empty(shape, array_dtype(dtype))
        flat = values.reshape(-1)
        drawn = flat[:DISTINCT_ITEMS]
        starts = range(0, drawn.size, RANDOM_CHUNK_ITEMS)
        seeds = numpy.random.SeedSequence(seed).spawn(len(starts))

        def draw(worker: int) -> None:
            for start, piece_seed in list(zip(starts, seeds, strict=True))[worker :: self.cores]:
                piece = drawn[start : start + RANDOM_CHUNK_ITEMS]
                piece[:] = numpy.random.Generator(numpy.random.SFC64(piece_seed)).standard_normal(
                    piece.size, dtype=numpy.float64 if dtype == "fp64" else numpy.float32
                )

        def repeat(worker: int) -> None:
            for start in range((1 + worker) * DISTINCT_ITEMS, flat.size, self.cores * DISTINCT_ITEMS):
                flat[start : start + DISTINCT_ITEMS] = drawn[: flat.size - start]

        self.workers.run(self.cores, draw)
        self.workers.run(self.cores, repeat)
        return values

    def empty(self, shape: tuple[int, ...], dtype: str):
        return self.xp.empty(shape, array_dtype(dtype))

    def poison(self, array) -> None:
        """Overwrite every byte with 0xFF: NaN in every floating-point dtype."""
        array[...] = self.xp.full(array.itemsize, 0xFF, self.xp.uint8).view(array.dtype)

    def rolled_copies(self, array, count: int) -> list:
        """The array's numbers, begun at another place in each, by all cores: the first touch of memory takes time."""
        found = self.xp.empty((count, *array.shape), array.dtype)
        numbers, rows = array.reshape(-1), found.reshape(count, array.size)

        def fill(worker: int) -> None:
            for place in range(worker, count, self.cores):
                start = (place + 1) * array.size // (count + 1)
                rows[place, start:], rows[place, :start] = numbers[: array.size - start], numbers[array.size - start :]

        self.workers.run(self.cores, fill)
        return list(found)

    def to_device(self, host_array):
        return host_array

    def to_host(self, array):
        return array

    # -- time

    def time_steps(
        self, step: Callable[[int], object], count: int, first: int = 0, look: Callable | None = None
    ) -> list[float]:
        """Seconds of each of `count` steps, called one after another, with numbers from `first` on."""
        stamps, timed = [time.perf_counter_ns()], []
        for index in range(first, first + count):
            result = step(index)
            timed.append(result if isinstance(result, StepSeconds) else None)
            stamps.append(time.perf_counter_ns())
        return [own or (end - start) / 1e9 for own, (start, end) in zip(timed, pairwise(stamps), strict=True)]

    def identify_kernel(self, step: Callable[[int], object]) -> dict:
        name = getattr(step, "kernel_name", None)
        if name:
            return {"name": name, "tensor_cores": None, "how_known": "a loop of this project"}
        return {"name": None, "tensor_cores": None, "how_known": "a BLAS does not tell which kernel it chose"}

    # -- compute ceilings in registers

    def candidate_fma_workloads(self, ceiling: str, seed: int) -> list[Workload]:
        from roofline.devices.cpu import cpu_fma

        return cpu_fma.candidate_fma_workloads(self, ceiling, seed)

    def rebuild_fma_workload(self, ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
        from roofline.devices.cpu import cpu_fma

        return cpu_fma.rebuild_fma_workload(self, ceiling, product, seed)

    # -- what work costs

    def host_cost_benchmarks(self) -> Iterator[HostCostBenchmark]:
        from roofline.devices.cpu import cpu_host_costs

        return cpu_host_costs.host_cost_benchmarks(self)

    # -- memory

    def bandwidth_benchmarks(self, level: str, size_bytes: int | None) -> list[BandwidthBenchmark]:
        from roofline.devices.cpu import dram_benchmarks as cpu_memory

        if not size_bytes:
            free = host.memory_available_bytes()
            size_bytes = cpu_memory.default_array_bytes(self.cores, self.last_level_cache_bytes, free)
        return cpu_memory.bandwidth_benchmarks(self.workers, size_bytes)

    def sweep_benchmarks(self, points_per_octave: int) -> list[SweepBenchmark]:
        """Sets of one core, and of all cores with one each; where there is one core, these are the same."""
        from roofline.devices.cpu import dram_benchmarks as cpu_memory

        each = [
            cpu_memory.ReaderCaches(readers, cache_bytes_by_level(readers), self.last_level_cache_bytes // readers)
            for readers in sorted({1, self.cores})
        ]
        return cpu_memory.sweep_benchmarks(self.workers, each, host.memory_available_bytes(), points_per_octave)
