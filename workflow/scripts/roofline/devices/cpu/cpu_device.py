"""The CPU, by NumPy and its BLAS, on every core that this process may use."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from roofline.core import levels
from roofline.core.dtypes import COMMON_DTYPE, array_dtype, dtype_bytes, operand_dtype
from roofline.core.terms import CACHE_LEVELS, AccessPattern, Array, ComputeUnit
from roofline.devices import base, host
from roofline.devices.base import BandwidthBenchmark, HostCostBenchmark, Identity, Step, SweepBenchmark, Workload
from roofline.devices.cpu import cpu_identity, topology
from roofline.devices.cpu.cpu_identity import NATIVE_DTYPES
from roofline.devices.cpu.workers import StepSeconds, Workers
from roofline.records.compute import WorkloadSpec

FP16_BITS_IN_FP32 = -0x70002000  # of fp32: 0x8fffe000, a sign, five bits of exponent, ten of mantissa
RANDOM_CHUNK_ITEMS = 1 << 20  # random numbers that one generator draws
DISTINCT_ITEMS = (1 << 22) - 3  # random numbers per array; a prime, so that copies of any size begin at different ones


class CpuDevice(base.Device):
    """The CPU by NumPy and its BLAS, on all cores that the process may use, with a worker thread for each.

    The workers are pinned unless a CPU quota sets the number of cores. Opening it sets the BLAS threads and imports
    NumPy.
    """

    def __init__(self, identity: Identity):
        self.cores = host.use_all_cores()
        import numpy
        import threadpoolctl

        # The variables come too late for a BLAS that something else has loaded before.
        threadpoolctl.threadpool_limits(self.cores, "blas")
        self.xp, self.identity, self.name = numpy, identity, identity.device
        self.kind = "cpu"
        self.memory_level = levels.MAIN_MEMORY[self.kind]
        # No cache is measured, so operands in a cache have no roof.
        self.cache_ceilings, self.cache_level = [], self.memory_level
        self.last_level_cache_bytes = identity.last_level_cache_bytes
        self.l2_bytes = topology.cache_bytes_by_level().get(CACHE_LEVELS[1], topology.UNLISTED_L2_BYTES)  # of one core
        self._blas = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
        cpus = topology.order_spread_out(host.usable_cpus())
        # The cores of a CPU quota are not certain ones: then no worker is pinned.
        self.workers = Workers(self.cores, cpus if len(cpus) == self.cores else ())

    # -- what it is

    def read_hardware(self) -> dict:
        """Return the architecture, cores, SIMD units and caches, and the clock that the formula of the peak uses."""
        cpuinfo = host.read_cpuinfo()
        return {
            "architecture": platform.machine(),
            "cores_of_the_machine": os.cpu_count(),
            "cores_usable": self.cores,
            "cores_physical": host.physical_cores(),
            "cores_may_be_threads": host.hides_threads(cpuinfo),
            **cpu_identity.formula_clock(cpuinfo),
            **cpu_identity.simd_units(
                set(cpuinfo.get("flags", "").split()), platform.machine(), cpuinfo.get("cpu family")
            ),
            "caches_bytes": topology.cache_bytes_by_level(),
        }

    def read_software(self) -> dict:
        """Return the versions of NumPy and its BLAS, and the threads that the BLAS really uses."""
        import threadpoolctl

        blas: dict = next((lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"), {})
        return {
            "numpy": self.xp.__version__,
            "blas": blas.get("internal_api"),
            "blas_version": blas.get("version"),
            "blas_threads": str(blas.get("num_threads")),
            "blas_architecture": blas.get("architecture"),
        }

    def datasheet_figures(self, hardware: dict, datasheets_path: str) -> dict:
        """Return the theoretical peaks by formula, and no bandwidth: CPUs have no datasheet here."""
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
                name: {"tflops": cpu_identity.formula_peak_tflops(hardware, dtype_bytes(operand_dtype(name))), **figure}
                for name in cpu_identity.NATIVE_CEILINGS
                if clock_mhz
            },
            "absent": {},
            "bandwidth": None,
        }

    def compute_unit(self, ceiling: str) -> ComputeUnit:
        return "cpu"

    def compute_ceiling_name(self, dtype: str, unit: str) -> str:
        return dtype if dtype in NATIVE_DTYPES else COMMON_DTYPE

    def memory_ceiling_names(self, mix: AccessPattern, cores: int | None = None) -> list[str]:
        """Return the names of the memory ceilings that an access pattern on `cores` cores may be under, best first.

        Reads on fewer than all cores have the ceiling of the next larger number of cores that was measured.
        """
        names = levels.memory_ceiling_names(self.kind, mix)
        if mix != "read" or not cores:
            return names
        fewer = [count for count in topology.measured_core_counts(self.cores)[1:] if count >= cores]
        read = levels.main_memory_ceiling(self.kind, "read")
        return [topology.ceiling_name_on_cores(read, min(fewer)), *names] if fewer else names

    def widen(self, array: Array, out_fp32: Array | None = None) -> Array:
        """Return an array in fp32, in `out_fp32` if given, where the CPU lacks its dtype; else the array itself.

        For fp16 its bits are moved to where fp32 has them, in a quarter of the time of NumPy's conversion. The result
        is 2^-112 times the number, except for infinity and NaN, and is multiplied.
        """
        xp = self.xp
        if array.dtype.itemsize >= 4:
            return array
        if out_fp32 is None:
            out_fp32 = xp.empty(array.shape, xp.float32)
        if array.dtype != xp.float16:
            xp.copyto(out_fp32, array)
            return out_fp32
        bits = out_fp32.view(xp.int32)
        xp.copyto(bits, array.view(xp.int16))
        xp.left_shift(bits, 13, out=bits)
        xp.bitwise_and(bits, FP16_BITS_IN_FP32, out=bits)
        xp.multiply(out_fp32, xp.float32(2.0**112), out=out_fp32)
        return out_fp32

    def emulation_note(self, dtype: str) -> str | None:
        if dtype in NATIVE_DTYPES:
            return None
        return f"{dtype} is emulated: converted to fp32 in every step, computed, and rounded back"

    def run_on_cores(self, count: int, work: Callable[[int], object]) -> list:
        """Return the results of work(0), work(1), ... on `count` cores, each with a BLAS of one thread."""
        for library in self._blas:
            library.set_num_threads(1)
        try:
            return [work(0)] if count == 1 else self.workers.run(count, work)
        finally:
            for library in self._blas:
                library.set_num_threads(self.cores)

    # -- arrays

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Array:
        """Return an array of standard normal numbers rounded to the dtype, the same for any number of cores.

        Arrays larger than DISTINCT_ITEMS repeat them, since drawing gigabytes would take longer than measuring. Copies
        cut from one array still differ: they begin at different numbers.
        """
        numpy = self.xp
        values = numpy.empty(shape, array_dtype(dtype))
        flat = values.reshape(-1)
        drawn = flat[:DISTINCT_ITEMS]
        starts = range(0, drawn.size, RANDOM_CHUNK_ITEMS)
        seeds = numpy.random.SeedSequence(seed).spawn(len(starts))
        drawn_dtype = array_dtype(dtype if dtype in NATIVE_DTYPES else COMMON_DTYPE)

        def fill_drawn(worker: int) -> None:
            for index in range(worker, len(starts), self.cores):  # every cores-th chunk is this worker's
                chunk = drawn[starts[index] : starts[index] + RANDOM_CHUNK_ITEMS]
                generator = numpy.random.Generator(numpy.random.SFC64(seeds[index]))
                chunk[:] = generator.standard_normal(chunk.size, dtype=drawn_dtype)

        def fill_repeated(worker: int) -> None:
            for start in range((1 + worker) * DISTINCT_ITEMS, flat.size, self.cores * DISTINCT_ITEMS):
                flat[start : start + DISTINCT_ITEMS] = drawn[: flat.size - start]

        self.workers.run(self.cores, fill_drawn)
        self.workers.run(self.cores, fill_repeated)
        return values

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return self.xp.empty(shape, array_dtype(dtype))

    def poison(self, array: Array) -> None:
        """Overwrite every byte with 0xFF: NaN in every floating-point dtype."""
        array[...] = self.xp.full(array.itemsize, 0xFF, self.xp.uint8).view(array.dtype)

    def rolled_copies(self, array: Array, count: int) -> list:
        """Return `count` arrays of the numbers of `array`, each begun at another place, in one allocation.

        All cores fill them: the first touch of memory takes time.
        """
        copies = self.xp.empty((count, *array.shape), array.dtype)

        def fill(worker: int) -> None:
            base.fill_rolled_copies(copies, array, range(worker, count, self.cores))

        self.workers.run(self.cores, fill)
        return list(copies)

    def to_device(self, host_array: Array) -> Array:
        return host_array

    def to_host(self, array: Array) -> Array:
        return array

    # -- time

    def time_steps(self, step: Step, count: int, first: int = 0, read_during: Callable | None = None) -> list[float]:
        """Return the seconds of each of `count` steps, called one after another, with numbers from `first` on.

        The seconds that a step measured itself count instead of the caller's.
        """
        stamps, seconds_of_steps = [time.perf_counter_ns()], []
        for index in range(first, first + count):
            result = step(index)
            seconds_of_steps.append(result if isinstance(result, StepSeconds) else None)
            stamps.append(time.perf_counter_ns())
        spans = ((end - start) / 1e9 for start, end in pairwise(stamps))
        return [seconds or span for seconds, span in zip(seconds_of_steps, spans, strict=True)]

    def identify_kernel(self, step: Step) -> dict:
        name = getattr(step, "kernel_name", None)
        how_known = "a loop of this project" if name else "a BLAS does not tell which kernel it chose"
        return {"name": name, "tensor_cores": None, "how_known": how_known}

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
        from roofline.devices.cpu import dram_benchmarks

        free = host.memory_available_bytes()
        size_bytes = size_bytes or dram_benchmarks.default_array_bytes(self.cores, self.last_level_cache_bytes, free)
        return dram_benchmarks.BENCHMARKS[level](self.workers, size_bytes)

    def sweep_benchmarks(self, points_per_octave: int) -> list[SweepBenchmark]:
        """Return a sweep of one core, and one of all cores with a set each; on one core these are the same."""
        from roofline.devices.cpu import dram_benchmarks

        caches_of_sweeps = [
            dram_benchmarks.ReaderCaches(
                readers, topology.cache_bytes_by_level(readers), self.last_level_cache_bytes // readers
            )
            for readers in sorted({1, self.cores})
        ]
        free_bytes = host.memory_available_bytes()
        return dram_benchmarks.sweep_benchmarks(self.workers, caches_of_sweeps, free_bytes, points_per_octave)


def open_device(identity: Identity) -> base.Device:
    """Open the CPU."""
    return CpuDevice(identity)


plan_device = open_device  # whose cells are planned on the opened device
