"""Row normalisation by our CUDA kernels: the division of the work among threads, and the launches."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from roofline.core.roofline_model import LANES_PER_WARP
from roofline.core.terms import Array
from roofline.devices.base import CudaDevice, Step
from roofline.operators.base import GRAPH_APPLICATIONS, Case, CudaImplementation, Operator, macro_options
from roofline.operators.constants import LAUNCH_START_TERMS, launch_terms
from roofline.records.seal_records import CostTerms

KERNEL = Path(__file__).parent / "kernels" / "row_norm.cu"
NAIVE = Path(__file__).parent / "kernels" / "row_norm_naive.cu"
KERNEL_ARGUMENTS = 4  # of either kernel
NAIVE_THREADS = 256  # as in the source

# A thread takes so many numbers of a row while a warp is enough, or for a long row MOST_THREADS_OF_LONG_ROW threads.
NUMBERS_PER_THREAD = 8
MOST_NUMBERS_PER_THREAD, MOST_THREADS = 32, 1024
LONG_ROW_COLUMNS, MOST_THREADS_OF_LONG_ROW = 1024, 512
# A block has at least so many threads, shared by several rows that need fewer. It has the larger number where a thread
# holds at most NUMBERS_PER_THREAD.
LEAST_BLOCK_THREADS, LEAST_BLOCK_THREADS_LIGHT = 64, 128
THREADS_FILLING_SM = 256  # rows get more threads while a multiprocessor has fewer than this


@dataclass(frozen=True)
class RowDivision:
    """The division of a matrix: `threads` per row with `vectors` of `width` numbers each, and `rows` per block.

    The threads hold the numbers in registers. `even` says that they hold exactly one row.
    """

    width: int
    threads: int
    vectors: int
    rows: int
    even: bool
    blocks: int

    def defines(self) -> tuple[str, ...]:
        """Return the macros that compile the kernel for this division."""
        return macro_options(
            WIDTH=self.width, THREADS=self.threads, VECTORS=self.vectors, ROWS=self.rows, EVEN=int(self.even)
        )


def divide_rows(rows: int, columns: int, multiprocessors: int) -> RowDivision:
    """Return the division of a matrix: as many threads per row as hold it, more if rows are too few to fill the card.

    The lanes of a warp exchange their sums by shuffles, several warps through shared memory. A row of fewer than
    LONG_ROW_COLUMNS therefore gives its lanes more numbers before it gets a second warp. A row that is too long for the
    registers of a block is read once more to write it.
    """
    width = next(width for width in (4, 2, 1) if columns % width == 0)
    row_vectors = columns // width
    threads = _threads_per_row(columns)
    most_threads = min(MOST_THREADS, _next_power_of_two(row_vectors))
    while rows * threads < THREADS_FILLING_SM * multiprocessors and threads < most_threads:
        threads *= 2
    vectors = min(math.ceil(row_vectors / threads), MOST_NUMBERS_PER_THREAD // width)
    is_light = vectors * width <= NUMBERS_PER_THREAD
    least_threads = LEAST_BLOCK_THREADS_LIGHT if is_light else LEAST_BLOCK_THREADS
    rows_per_block = max(1, least_threads // threads)
    return RowDivision(
        width=width,
        threads=threads,
        vectors=vectors,
        rows=rows_per_block,
        even=threads * vectors == row_vectors,
        blocks=math.ceil(rows / rows_per_block),
    )


def _threads_per_row(columns: int) -> int:
    """Return the threads of a row on a card that has rows enough, a power of two."""
    preferred = _next_power_of_two(math.ceil(columns / NUMBERS_PER_THREAD))
    most_preferred = MOST_THREADS_OF_LONG_ROW if columns >= LONG_ROW_COLUMNS else LANES_PER_WARP
    needed = _next_power_of_two(math.ceil(columns / MOST_NUMBERS_PER_THREAD))
    return max(min(preferred, most_preferred), min(needed, MOST_THREADS))


def _next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


class NaiveRowNorm(CudaImplementation):
    """Row normalisation by a kernel with a block per row, which reads the row three times."""

    name, fused = "naive", True

    def kernels(self) -> list[tuple]:
        return [(NAIVE, "row_norm_naive", ())]

    @property
    def kernel(self) -> Any:
        """The compiled kernel, as CuPy has it."""
        return self.device.load_kernel(*self.kernels()[0])

    def step(self, scope: str | None) -> Step:
        return self._make_step(self.case.shape["rows"], NAIVE_THREADS)

    def costs(self, scope: str | None) -> CostTerms:
        resident_blocks = self.device.multiprocessors * self.device.max_threads / NAIVE_THREADS
        waves = self.case.shape["rows"] / resident_blocks
        return CostTerms(
            calls=launch_terms(KERNEL_ARGUMENTS),
            start=LAUNCH_START_TERMS,
            waits={"row_s_per_column": float(self.case.shape["columns"])},
            extra={"naive_wave_s": max(1.0, waves), "reread_s_per_byte": float(self.operator.bytes(self.case))},
            share="stream_share",
        )

    @cached_property
    def arguments(self) -> list[tuple]:
        """The arguments of a launch, for each copy."""
        import numpy

        rows, columns = numpy.int32(self.case.shape["rows"]), numpy.int32(self.case.shape["columns"])
        return [(copy["x"], copy["y"], rows, columns) for copy in self.copies]

    def _make_step(self, blocks: int, threads: int) -> Step:
        """Return a step that launches the kernel on one copy after another."""
        kernel, arguments, count = self.kernel, self.arguments, len(self.arguments)

        def step(index: int) -> Array:
            kernel((blocks,), (threads,), arguments[index % count])
            return arguments[index % count][1]

        return step


class WelfordRowNorm(NaiveRowNorm):
    """Row normalisation by one launch per matrix, which reads each row once."""

    name = "welford"

    def __init__(self, operator: Operator, device: CudaDevice, case: Case, count: int = 1):
        super().__init__(operator, device, case, count)
        self.division = divide_rows(case.shape["rows"], case.shape["columns"], device.multiprocessors)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.division.threads * self.division.rows

    def kernels(self) -> list[tuple]:
        return [(KERNEL, "row_norm", self.division.defines())]

    def step(self, scope: str | None) -> Step:
        return self._make_step(self.division.blocks, self.threads)

    def plan(self) -> dict:
        division = self.division
        return {"threads_per_row": division.threads, "rows_per_block": division.rows, "blocks": division.blocks}

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call} if self.graph else launch_terms(KERNEL_ARGUMENTS),
            start={"graph_node_s": 1.0} if self.graph else LAUNCH_START_TERMS,
            waits={"row_s_per_column": float(self.case.shape["columns"])},
            share="stream_share",
        )


class WelfordRowNormGraph(WelfordRowNorm):
    """Row normalisation of many matrices one after another, in a CUDA graph.

    If the card can overlap launches, one begins while the last ends, and reads its matrix when that one is done.
    """

    name, graph = "welford_graph", True

    @classmethod
    def copies_wanted(cls, case: Case, least_copies: int) -> int:
        """Return the least number of copies that divides the applications of a graph, or is a multiple of them."""
        if least_copies > GRAPH_APPLICATIONS:
            return math.ceil(least_copies / GRAPH_APPLICATIONS) * GRAPH_APPLICATIONS
        return next(count for count in range(least_copies, GRAPH_APPLICATIONS + 1) if GRAPH_APPLICATIONS % count == 0)

    @property
    def per_call(self) -> int:
        return GRAPH_APPLICATIONS

    def step(self, scope: str | None) -> Step:
        graphs = self.capture_launches(self.kernel, self.division.blocks, self.threads, self.arguments)
        return self.replay([(graph, self.copy_of(index)["y"]) for index, graph in enumerate(graphs)])
