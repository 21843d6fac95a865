"""Row normalisation by kernels of ours: how the work is divided among threads, and their launches."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roofline.core.roofline_model import LANES_PER_WARP
from roofline.devices.gpu.kernel_compiler import list_kernel_files
from roofline.operators.base import Implementation
from roofline.operators.constants import LAUNCH_START_TERMS, launch_terms
from roofline.records.seal_records import CostTerms

KERNEL = Path(__file__).parent / "kernels" / "row_norm.cu"
NAIVE = Path(__file__).parent / "kernels" / "row_norm_naive.cu"
ARGUMENTS = 4  # of either kernel
NAIVE_THREADS = 256  # as the source has it

NUMBERS_PER_THREAD = (
    8  # numbers of a row per thread, of short rows up to a warp's and of LONG ones up to MOST_OF_LONG threads'
)
MOST_NUMBERS_PER_THREAD, MOST_THREADS = 32, 1024
LONG_ROW_COLUMNS, MOST_THREADS_OF_LONG_ROW = 1024, 512
# Threads of a block, at least, which several rows share that need fewer; more where each holds at most HELD numbers.
LEAST_BLOCK_THREADS, LEAST_BLOCK_THREADS_LIGHT = 64, 128
THREADS_FILLING_SM = 256  # threads per multiprocessor, below which rows are given more of them
APPLICATIONS = 24  # of a graph, a number with many divisors


@dataclass(frozen=True)
class RowDivision:
    """Of a matrix's work: `threads` per row, each with `vectors` of `width` numbers in registers, `rows` per block."""

    width: int
    threads: int
    vectors: int
    rows: int
    even: bool
    blocks: int

    def defines(self) -> tuple[str, ...]:
        macros = {
            "WIDTH": self.width,
            "THREADS": self.threads,
            "VECTORS": self.vectors,
            "ROWS": self.rows,
            "EVEN": int(self.even),
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())


def divide_rows(rows: int, columns: int, multiprocessors: int) -> RowDivision:
    """The division for a matrix: as many threads per row as hold it, more where rows are too few to fill the card.

    A warp exchanges its sums by shuffles, more of them through shared memory: a row below LONG gets longer lanes before
    it gets a second warp. A row that is too long for the registers of a block is read once more to write it.
    """
    width = next(width for width in (4, 2, 1) if columns % width == 0)
    vectors = columns // width
    few = min(
        _next_power_of_two(-(-columns // NUMBERS_PER_THREAD)),
        MOST_THREADS_OF_LONG_ROW if columns >= LONG_ROW_COLUMNS else LANES_PER_WARP,
    )
    threads = max(few, min(_next_power_of_two(-(-columns // MOST_NUMBERS_PER_THREAD)), MOST_THREADS))
    while rows * threads < THREADS_FILLING_SM * multiprocessors and threads < min(
        MOST_THREADS, _next_power_of_two(vectors)
    ):
        threads *= 2
    each = min(-(-vectors // threads), MOST_NUMBERS_PER_THREAD // width)
    in_block = max(
        1, (LEAST_BLOCK_THREADS_LIGHT if each * width <= NUMBERS_PER_THREAD else LEAST_BLOCK_THREADS) // threads
    )
    blocks = -(-rows // in_block)
    return RowDivision(width, threads, each, in_block, threads * each == vectors, blocks)


def _next_power_of_two(number: int) -> int:
    """The power of two that is as large or the next larger one."""
    return 1 << (number - 1).bit_length()


class NaiveRowNorm(Implementation):
    """A block per row, a pass for each step."""

    name, kind, fused = "naive", "gpu", True
    sources = (NAIVE,)

    def kernels(self) -> list[tuple]:
        return [(NAIVE, "row_norm_naive", ())]

    def step(self, scope: str | None):
        kernel = self.device.load_kernel(*self.kernels()[0])
        return self._launching(kernel, self.case.shape["rows"], NAIVE_THREADS)

    def costs(self, scope: str | None) -> CostTerms:
        at_once = self.device.multiprocessors * self.device.max_threads / NAIVE_THREADS
        waves = self.case.shape["rows"] / at_once
        return CostTerms(
            calls=launch_terms(ARGUMENTS),
            start=LAUNCH_START_TERMS,
            waits={"naive_wave_s": waves, "row_s_per_column": float(self.case.shape["columns"])},
            extra={"reread_s_per_byte": float(self.operator.bytes(self.case))},
            share="stream_share",
        )

    @cached_property
    def arguments(self) -> list[tuple]:  # of a launch for each copy
        import numpy

        numbers = [numpy.int32(self.case.shape[name]) for name in ("rows", "columns")]
        return [(copy["x"], copy["y"], *numbers) for copy in self.copies]

    def _launching(self, kernel, blocks: int, threads: int):
        arguments, count = self.arguments, len(self.arguments)

        def step(index: int):
            kernel((blocks,), (threads,), arguments[index % count])
            return arguments[index % count][1]

        return step


class WelfordRowNorm(NaiveRowNorm):
    """One launch per matrix, which reads each row once."""

    name = "welford"
    sources = tuple(sorted(list_kernel_files(KERNEL)))

    def __init__(self, operator, device, case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.division = divide_rows(case.shape["rows"], case.shape["columns"], device.multiprocessors)

    @property
    def threads(self) -> int:  # of a block
        return self.division.threads * self.division.rows

    def kernels(self) -> list[tuple]:
        return [(KERNEL, "row_norm", self.division.defines())]

    @property
    def kernel(self):
        return self.device.load_kernel(*self.kernels()[0])

    def step(self, scope: str | None):
        return self._launching(self.kernel, self.division.blocks, self.threads)

    def plan(self) -> dict:
        division = self.division
        return {"threads_per_row": division.threads, "rows_per_block": division.rows, "blocks": division.blocks}

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call} if self.graph else launch_terms(ARGUMENTS),
            start={"graph_node_s": 1.0} if self.graph else LAUNCH_START_TERMS,
            waits={"row_s_per_column": float(self.case.shape["columns"])},
            share="stream_share",
        )


class WelfordRowNormGraph(WelfordRowNorm):
    """Many matrices one after another in a CUDA graph.

    Where the card can, a launch begins while the one before it ends; it reads its matrix when that one is done.
    """

    name, graph = "welford_graph", True

    @classmethod
    def copies_wanted(cls, case, least: int) -> int:
        """As many as a graph goes through whole times, or whole graphs go through."""
        if least > APPLICATIONS:
            return math.ceil(least / APPLICATIONS) * APPLICATIONS
        return next(count for count in range(least, APPLICATIONS + 1) if APPLICATIONS % count == 0)

    @property
    def per_call(self) -> int:
        return APPLICATIONS

    def step(self, scope: str | None):
        graphs, stream = self._captured(), self.device.stream
        count = len(graphs)

        def step(index: int):
            graph, result = graphs[index % count]
            graph.launch(stream)
            return result

        return step

    def _captured(self) -> list[tuple]:
        """Graphs that go through all copies in turn, each with what its last launch writes."""
        kernel, grid, block = self.kernel, (self.division.blocks,), (self.threads,)
        count, arguments = len(self.copies), self.arguments
        launches = [
            [arguments[place % count] for place in range(first, first + APPLICATIONS)]
            for first in range(0, math.lcm(count, APPLICATIONS), APPLICATIONS)
        ]
        return [
            (self.device.capture_launches(kernel, grid, block, of_graph, 0), of_graph[-1][1]) for of_graph in launches
        ]
