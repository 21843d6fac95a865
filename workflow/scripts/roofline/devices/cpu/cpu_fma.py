"""The peak of a CPU's vector units: multiply-adds on registers alone.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

from functools import partial

import numpy

from roofline.core import statistics
from roofline.core.dtypes import ITEM_BYTES, array_dtype, operand_dtype, relative_error, require_close
from roofline.devices.base import Workload
from roofline.devices.cpu import loops
from roofline.devices.cpu.workers import StepSeconds
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

# x = k x + x turns numbers round and makes them smaller, to 1/e within STEPS steps: what comes of the last one still
# shows how many there were. Each round begins anew.
FMA_FACTOR, STEPS_PER_ROUND = -2 + 2**-16, 1 << 16
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-4}
CHAIN_COUNTS = (24, 12)  # independent ones hide the latency: two ports x five clocks; as many fit 32 registers, or 16
ROUNDS_OF_12_CHAINS = 16  # of 12 chains: about 2 ms
CLOCK_CHAIN_ROUNDS = 2048  # some 40 us of the chain that counts the clock, right after the load


def candidate_fma_workloads(device, ceiling: str, seed: int) -> list[Workload]:
    """By numbers of independent chains, in the widest vectors and those of half the width."""
    widest, registers = loops.host_vectors()
    widths = [widest, widest // 2] if widest > 16 else [widest]
    shapes = [(chains, width) for width in widths for chains in CHAIN_COUNTS if chains + 2 <= registers]
    return [_make_workload(device, ceiling, chains, width, seed) for chains, width in shapes]


def rebuild_fma_workload(device, ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
    """The same loop on its own numbers."""
    return _make_workload(device, ceiling, product.shape["chains"], product.shape["vector_bits"] // 8, seed)


def _make_workload(device, ceiling: str, chains: int, vector_bytes: int, seed: int) -> Workload:
    loop = FmaLoop(device, operand_dtype(ceiling), chains, vector_bytes, seed)
    clear = partial(loop.sums.fill, numpy.nan)
    return Workload(loop.product, loop.flops, loop, clear, loop.compare, loop.clock_mhz)


class FmaLoop:
    """A loop of multiply-adds on every thread; a call is a step."""

    def __init__(self, device, dtype: str, chains: int, vector_bytes: int, seed: int):
        self.workers, self.dtype = device.workers, dtype
        self.lanes, self.loop = vector_bytes // ITEM_BYTES[dtype], loops.compile_fma_loop(dtype, chains, vector_bytes)
        self.rounds = rounds = ROUNDS_OF_12_CHAINS * min(CHAIN_COUNTS) // chains
        threads, row = self.workers.count, chains * self.lanes
        self.numbers = self._rows(threads, self.lanes + row)
        self.numbers[:, : self.lanes] = FMA_FACTOR
        self.numbers[:, self.lanes :] = device.normal((threads, row), dtype, seed)
        self.sums = self._rows(threads, row)
        self.flops = 2 * row * STEPS_PER_ROUND * rounds * threads
        self.clocks_mhz: list[float] = []
        shape = {"threads": threads, "rounds": rounds, "chains": chains, "vector_bits": 8 * vector_bytes}
        self.kernel_name = f"multiply_adds_{dtype}_{chains}x{8 * vector_bytes}"
        self.product = WorkloadSpec(
            library="a register-only loop of this project, compiled by LLVM (devices/cpu/loops.py)",
            shape=shape,
            layout=None,
            algorithm="fold",
            accumulation=dtype,
            output=dtype,
        )

    def _rows(self, threads: int, items: int):
        """Zeros, each thread's row in its own pages."""
        item_bytes = ITEM_BYTES[self.dtype]
        apart = -(-items * item_bytes // loops.PAGE_BYTES) * loops.PAGE_BYTES
        rows = loops.allocate_aligned(threads * apart, loops.PAGE_BYTES).view(array_dtype(self.dtype))
        rows.fill(0)
        return rows.reshape(threads, -1)[:, :items]

    def __call__(self, index: int) -> StepSeconds:
        self.sums[...] = 0
        rows = zip(self.numbers, self.sums, strict=True)
        arguments = [(numbers.ctypes.data, sums.ctypes.data, self.rounds, STEPS_PER_ROUND) for numbers, sums in rows]
        run = loops.run_together(self.workers, self.loop, arguments, CLOCK_CHAIN_ROUNDS)
        self.clocks_mhz = run.clocks_mhz
        return StepSeconds(run.seconds)

    def clock_mhz(self) -> float:
        """Of the cores, counted right after the last step."""
        return statistics.median(self.clocks_mhz)

    def compare(self) -> Check:
        """Every number against the closed form of all steps. Raises ArithmeticError where they differ."""
        expected = (
            self.rounds * (1 + FMA_FACTOR) ** STEPS_PER_ROUND * self.numbers[:, self.lanes :].astype(numpy.float64)
        )
        error, tolerance = relative_error(self.sums, expected), TOLERANCE[self.dtype]
        require_close(f"{self.dtype}_fma loop", error, tolerance)
        return Check(compared="every number after all steps, closed form", relative_error=error, tolerance=tolerance)
