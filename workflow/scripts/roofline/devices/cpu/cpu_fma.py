"""The peak of a CPU's vector units: multiply-adds on registers alone.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy

from roofline.core import statistics
from roofline.core.dtypes import DTYPES, array_dtype, dtype_bytes, operand_dtype, relative_error
from roofline.devices.base import Workload
from roofline.devices.cpu import loops
from roofline.devices.cpu.workers import StepSeconds
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check, make_check

if TYPE_CHECKING:
    from roofline.devices.cpu.cpu_device import CpuDevice

LIBRARY = "a register-only loop of this project, compiled by LLVM (devices/cpu/loops.py)"
# x = k x + x changes the sign of numbers and makes them smaller, to 1/e within STEPS_PER_ROUND steps: the last number
# still shows how many steps there were. Each round begins with the first numbers.
FMA_FACTOR, STEPS_PER_ROUND = -2 + 2**-16, 1 << 16
TOLERANCE_BY_BITS = {64: 1e-12, 32: 1e-4}
CHAIN_COUNTS = (24, 12)  # independent chains hide the latency, two ports x five clocks; they fit 32 and 16 registers
ROUNDS_OF_12_CHAINS = 16  # about 2 ms
CLOCK_CHAIN_ROUNDS = 2048  # some 40 us of the chain that counts the clock, right after the load


def candidate_fma_workloads(device: "CpuDevice", ceiling: str, seed: int) -> list[Workload]:
    """Return a loop for each number of independent chains, in the widest vectors and in vectors of half the width."""
    widest, registers = loops.host_vectors()
    widths = [widest, widest // 2] if widest > 16 else [widest]
    shapes = [(chains, width) for width in widths for chains in CHAIN_COUNTS if chains + 2 <= registers]
    return [_make_workload(device, ceiling, chains, width, seed) for chains, width in shapes]


def rebuild_fma_workload(device: "CpuDevice", ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
    """Return the loop that a record describes, on new numbers."""
    return _make_workload(device, ceiling, product.shape["chains"], product.shape["vector_bits"] // 8, seed)


def _make_workload(device: "CpuDevice", ceiling: str, chains: int, vector_bytes: int, seed: int) -> Workload:
    loop = FmaLoop(device, operand_dtype(ceiling), chains, vector_bytes, seed)
    clear = partial(loop.results.fill, numpy.nan)
    return Workload(loop.product, loop.flops, loop, clear, loop.compare, loop.clock_mhz)


class FmaLoop:
    """A loop of multiply-adds on every thread; a call is a step."""

    def __init__(self, device: "CpuDevice", dtype: str, chains: int, vector_bytes: int, seed: int):
        self.workers, self.dtype = device.workers, dtype
        self.lanes, self.loop = vector_bytes // dtype_bytes(dtype), loops.compile_fma_loop(dtype, chains, vector_bytes)
        self.rounds = ROUNDS_OF_12_CHAINS * min(CHAIN_COUNTS) // chains
        threads, row_items = self.workers.count, chains * self.lanes
        self.numbers = self._page_separated_rows(threads, self.lanes + row_items)
        self.numbers[:, : self.lanes] = FMA_FACTOR
        self.numbers[:, self.lanes :] = device.normal((threads, row_items), dtype, seed)
        self.results = self._page_separated_rows(threads, row_items)
        self.flops = 2 * row_items * STEPS_PER_ROUND * self.rounds * threads
        self.clocks_mhz: list[float] = []
        shape = {"threads": threads, "rounds": self.rounds, "chains": chains, "vector_bits": 8 * vector_bytes}
        self.kernel_name = f"multiply_adds_{dtype}_{chains}x{8 * vector_bytes}"
        self.product = WorkloadSpec(
            library=LIBRARY, shape=shape, layout=None, algorithm="fold", accumulation=dtype, output=dtype
        )

    def _page_separated_rows(self, threads: int, items: int) -> numpy.ndarray:
        """Return zeros of shape (threads, items), each thread's row in pages that no other row shares."""
        row_bytes = math.ceil(dtype_bytes(self.dtype, items) / loops.PAGE_BYTES) * loops.PAGE_BYTES
        rows = loops.allocate_aligned(threads * row_bytes, loops.PAGE_BYTES).view(array_dtype(self.dtype))
        rows.fill(0)
        return rows.reshape(threads, -1)[:, :items]

    def __call__(self, index: int) -> StepSeconds:
        self.results[...] = 0
        arguments = []
        for numbers, results in zip(self.numbers, self.results, strict=True):
            arguments.append((numbers.ctypes.data, results.ctypes.data, self.rounds, STEPS_PER_ROUND))
        run = loops.run_together(self.workers, self.loop, arguments, CLOCK_CHAIN_ROUNDS)
        self.clocks_mhz = run.clocks_mhz
        return StepSeconds(run.seconds)

    def clock_mhz(self) -> float:
        """Return the median clock of the cores, counted right after the last step."""
        return statistics.median(self.clocks_mhz)

    def compare(self) -> Check:
        """Compare every number with the closed form of all steps. Raises ArithmeticError where they differ."""
        first_numbers = self.numbers[:, self.lanes :].astype(numpy.float64)
        expected = self.rounds * (1 + FMA_FACTOR) ** STEPS_PER_ROUND * first_numbers
        error, tolerance = relative_error(self.results, expected), TOLERANCE_BY_BITS[DTYPES[self.dtype].bits]
        return make_check(f"{self.dtype}_fma loop", error, tolerance, "every number after all steps, closed form")
