"""The peak of a CPU's vector units: multiply-adds on registers alone; and the physical cores that it rests on.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

from collections.abc import Callable, Sequence

import numpy

from roofline.core import statistics
from roofline.core.dtypes import ITEM_BYTES, array_dtype, dtype_of, relative_error, require_close
from roofline.devices import host
from roofline.devices.base import Workload
from roofline.devices.cpu import loops
from roofline.devices.cpu.workers import Timed
from roofline.records.compute import Product
from roofline.records.device import CoreCount
from roofline.records.timing import Check

# x = k x + x turns numbers round and makes them smaller, to 1/e within STEPS steps: what comes of the last one still
# tells how many there were. Each round begins anew.
FACTOR, STEPS = -2 + 2**-16, 1 << 16
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-4}
CHAINS = (24, 12)  # independent ones hide the latency: two ports x five clocks; as many fit 32 registers, or 16
ROUNDS, PAIRING_ROUNDS = 16, 4  # of 12 chains: about 2 ms, and half of one
CHAIN_ROUNDS = 2048  # some 40 us of the chain that counts the clock, right after the load
PAIRING_RUNS = 5
WHOLE_CORE = 0.75  # of its rate alone: a thread that keeps as much shares its core with none; of two, each keeps half
NEAR_PORTS = 0.15  # of a whole number of ports


def candidates(device, ceiling: str, seed: int) -> list[Workload]:
    """By numbers of independent chains, in the widest vectors and those of half the width."""
    widest, registers = loops.host_vectors()
    widths = [widest, widest // 2] if widest > 16 else [widest]
    shapes = [(chains, width) for width in widths for chains in CHAINS if chains + 2 <= registers]
    return [_workload(device, ceiling, chains, width, seed) for chains, width in shapes]


def again(device, ceiling: str, product: Product, seed: int) -> Workload:
    """The same loop on numbers of its own."""
    return _workload(device, ceiling, product.shape["chains"], product.shape["vector_bits"] // 8, seed)


def _workload(device, ceiling: str, chains: int, vector_bytes: int, seed: int) -> Workload:
    loop = MultiplyAdds(device, dtype_of(ceiling), chains, vector_bytes, seed)
    return Workload(
        product=loop.product,
        flops=loop.flops,
        step=loop,
        clear=lambda: loop.sums.fill(numpy.nan),
        compare=loop.compare,
        clock_mhz=loop.clock_mhz,
        cores=loop.cores,
    )


class MultiplyAdds:
    """A loop of multiply-adds on every thread; a call is a step."""

    def __init__(self, device, dtype: str, chains: int, vector_bytes: int, seed: int):
        self.workers, self.dtype = device.workers, dtype
        self.lanes, self.loop = vector_bytes // ITEM_BYTES[dtype], loops.multiply_adds(dtype, chains, vector_bytes)
        rounds = ROUNDS * min(CHAINS) // chains
        self.rounds, self.pairing_rounds = rounds, max(1, PAIRING_ROUNDS * min(CHAINS) // chains)
        threads, row = self.workers.count, chains * self.lanes
        self.numbers = self._rows(threads, self.lanes + row)
        self.numbers[:, : self.lanes] = FACTOR
        self.numbers[:, self.lanes :] = device.normal((threads, row), dtype, seed)
        self.sums = self._rows(threads, row)
        self.flops_of_round = 2 * row * STEPS
        self.flops = self.flops_of_round * rounds * threads
        self.clocks_mhz: list[float] = []
        shape = {"threads": threads, "rounds": rounds, "chains": chains, "vector_bits": 8 * vector_bytes}
        self.kernel_name = f"multiply_adds_{dtype}_{chains}x{8 * vector_bytes}"
        self.product = Product(
            library="a register-only loop of this project, compiled by LLVM (devices/cpu/loops.py)",
            shape=shape,
            layout=None,
            algorithm="fold",
            accumulation=dtype,
            output=dtype,
        )

    def _rows(self, threads: int, items: int):
        """Zeros, each thread's row in pages of its own."""
        item_bytes = ITEM_BYTES[self.dtype]
        apart = -(-items * item_bytes // loops.PAGE_BYTES) * loops.PAGE_BYTES
        rows = loops.aligned(threads * apart, loops.PAGE_BYTES).view(array_dtype(self.dtype))
        rows.fill(0)
        return rows.reshape(threads, -1)[:, :items]

    def __call__(self, index: int) -> Timed:
        run = self._run(range(self.workers.count), self.rounds)
        self.clocks_mhz = run.clocks_mhz
        return Timed(run.seconds)

    def _run(self, threads: Sequence[int], rounds: int) -> loops.Run:
        self.sums[...] = 0
        arguments = [(self.numbers[one].ctypes.data, self.sums[one].ctypes.data, rounds, STEPS) for one in threads]
        return loops.together(self.workers, self.loop, arguments, threads, CHAIN_ROUNDS)

    def clock_mhz(self) -> float:
        """Of the cores, counted right after the last step."""
        return statistics.median(self.clocks_mhz)

    def compare(self) -> Check:
        """Every number against the closed form of all steps. Raises ArithmeticError where they differ."""
        expected = self.rounds * (1 + FACTOR) ** STEPS * self.numbers[:, self.lanes :].astype(numpy.float64)
        error, tolerance = relative_error(self.sums, expected), TOLERANCE[self.dtype]
        require_close(f"{self.dtype}_fma loop", error, tolerance)
        return Check(compared="every number after all steps, closed form", error=error, tolerance=tolerance)

    def cores(self) -> CoreCount:
        """How many physical cores the threads have, and what one does in a clock."""
        if not self.workers.pinned:
            reason = "the threads are not pinned: a quota, not a set of cores, limits this process"
            return CoreCount(threads=self.workers.count, listed=host.physical_cores(), reason=reason)
        return count_cores(self.workers.count, host.physical_cores(), 2 * self.lanes, self._per_clock)

    def _per_clock(self, threads: Sequence[int]) -> list[float]:
        """FLOPs that each of these threads does in a clock beside the others, the median of a few runs."""
        runs = [self._run(threads, self.pairing_rounds) for _ in range(PAIRING_RUNS)]
        flops = self.flops_of_round * self.pairing_rounds
        rates = [
            [flops / seconds / (clock * 1e6) for seconds, clock in zip(run.thread_seconds, run.clocks_mhz, strict=True)]
            for run in runs
        ]
        return [statistics.median(list(of_thread)) for of_thread in zip(*rates, strict=True)]


def count_cores(
    threads: int, listed: int, port_flops: int, per_clock: Callable[[Sequence[int]], list[float]]
) -> CoreCount:
    """Physical cores by what threads do per clock alone, all together, and in pairs.

    Two threads of one core get half of its ports each. Those that keep their rate while all run have a core of their
    own; each other one is paired with the one beside which it loses as much. `port_flops` is what one port does in a
    clock. What does not come out so is inconclusive, and the reason is told.
    """
    alone = [per_clock([thread])[0] for thread in range(threads)]
    ports = round(statistics.median(alone) / port_flops)
    told = {"threads": threads, "listed": listed}
    if not ports or any(abs(rate / port_flops / ports - 1) > NEAR_PORTS for rate in alone):
        rates = f"{min(alone) / port_flops:.2f} to {max(alone) / port_flops:.2f}"
        return CoreCount(**told, reason=f"alone, a thread keeps {rates} ports busy: no whole number, the same for each")

    def shared(some: Sequence[int]) -> list[int]:
        return [one for one, rate in zip(some, per_clock(some), strict=True) if rate < WHOLE_CORE * alone[one]]

    left, pairs, apart = shared(range(threads)) if threads > 1 else [], 0, 0
    while left:
        first, *others = left
        others.sort(key=lambda other: other - first != apart)  # as far away as in the last pair comes first
        partner = next((other for other in others if len(shared([first, other])) == 2), None)
        if partner is None:
            reason = (
                f"thread {first} is slower beside all others, and beside no single one: other load, or another user"
            )
            return CoreCount(**told, ports=ports, reason=reason)
        left = [other for other in left if other not in (first, partner)]
        pairs, apart = pairs + 1, partner - first
    return CoreCount(**told, ports=ports, physical=threads - pairs, flops_per_clock=ports * port_flops)
