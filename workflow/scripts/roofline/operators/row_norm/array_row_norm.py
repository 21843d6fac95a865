"""Row normalisation by array operations, on a GPU CuPy's and on the cores of a CPU NumPy's; on a CPU also by a loop.

The compiled loop is in row_norm_loop.py, which loads llvmlite.
"""

from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING

from roofline.core.cell_prediction import divided_cost_terms
from roofline.core.terms import Array
from roofline.devices.base import Device, Step
from roofline.operators.base import Case, Implementation
from roofline.records.seal_records import CostTerms

if TYPE_CHECKING:
    from roofline.devices.cpu.cpu_device import CpuDevice

CUPY_CALLS = 9  # a shift, the mean, three of the deviation, two that look for 0, a difference, a quotient
CUPY_KERNELS = 12  # as ncu lists them: each of the two means takes two, and one more copies the deviation's mean
# On top of one read of x and one write of y: the shifted x is written, read for the mean, twice for the deviation and
# for the difference, which is written and read.
EXTRA_PASSES = 7
MEAN_ROWS = 32  # that a block of CuPy's mean goes through together: more rows leave each of them fewer threads
NUMPY_CALLS = 18  # a mean is several
NUMPY_PASSES = 15  # over x, with those that read x and write y
ITEMS_PER_CORE = 1 << 16  # another core takes part for every so many numbers of x
COLUMN_MULTIPLE = 64  # the compiled loop goes by vectors of up to 16 numbers, four together


def normalise_rows(x: Array, xp: ModuleType) -> Array:
    """Return each row less its mean, divided by its deviation, by the operations of the array library `xp`.

    The rows are shifted by their first numbers, so that a row of equal numbers is exactly 0.
    """
    shifted = x - x[:, :1]
    deviation = shifted.std(axis=1, keepdims=True)
    return (shifted - shifted.mean(axis=1, keepdims=True)) / xp.where(deviation == 0, xp.float32(1), deviation)


class ArrayRowNorm(Implementation):
    """Row normalisation by CuPy's array operations."""

    name, kind, launches = "array", "gpu", CUPY_CALLS

    def compute(self, inputs: dict) -> Array:
        return normalise_rows(inputs["x"], self.device.xp)

    def costs(self, scope: str | None) -> CostTerms:
        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        passed_bytes = EXTRA_PASSES * self.operator.bytes(self.case) / 2
        return CostTerms(
            calls={"array_operation_s": float(CUPY_CALLS)},
            start={"array_kernel_s": float(CUPY_KERNELS)},
            extra={"pass_s_per_byte": passed_bytes},
            floor={"mean_s_per_column": 2.0 * columns * min(1.0, rows / MEAN_ROWS)},
        )


class CpuRowNorm(Implementation):
    """Row normalisation whose rows are divided among the cores of a CPU."""

    kind = "cpu"
    device: "CpuDevice"

    @property
    def core_count(self) -> int:
        """The number of cores that normalise rows."""
        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        return max(1, min(self.device.cores, rows, rows * columns // ITEMS_PER_CORE))

    def plan(self) -> dict:
        return {"cores": self.core_count}

    def cores(self, scope: str | None) -> int:
        return self.core_count


class NumpyRowNorm(CpuRowNorm):
    """Row normalisation by NumPy's array operations, a part of the rows on each core."""

    name = "numpy"

    def compute(self, inputs: dict) -> Array:
        x, y, core_count, xp = inputs["x"], inputs["y"], self.core_count, self.device.xp

        def normalise_part(core: int) -> None:
            rows = slice(len(x) * core // core_count, len(x) * (core + 1) // core_count)
            y[rows] = normalise_rows(x[rows], xp)

        self.device.workers.run(core_count, normalise_part)
        return y

    def costs(self, scope: str | None) -> CostTerms:
        """Return the costs. The calls of all cores take turns, since each holds the interpreter's lock."""
        passed_bytes, further_cores = NUMPY_PASSES * self.operator.bytes(self.case) / 2, self.core_count - 1.0
        return CostTerms(
            calls={"array_operation_s": float(NUMPY_CALLS), "handover_s": 1.0},
            extra={"array_operation_s": NUMPY_CALLS * further_cores, "handover_s": further_cores},
            floor=divided_cost_terms("pass_s_per_byte", passed_bytes, self.core_count),
        )


class CompiledRowNorm(CpuRowNorm):
    """Row normalisation by a compiled loop, which reads each row from memory once.

    The passes for the row's deviation and its result find it in the core's cache.
    """

    name, fused = "compiled", True

    @classmethod
    def unsupported(cls, device: Device, case: Case) -> str | None:
        if case.shape["columns"] % COLUMN_MULTIPLE:
            return f"columns are not a multiple of {COLUMN_MULTIPLE}: the loop reads whole vectors"
        return None

    def step(self, scope: str | None) -> Step:
        from roofline.devices.cpu.loops import run_together
        from roofline.operators.row_norm.row_norm_loop import compile_rows_loop

        arguments = [self._thread_arguments(copy) for copy in self.copies]
        results = [copy["y"] for copy in self.copies]
        loop, workers, count = compile_rows_loop(), self.device.workers, len(self.copies)

        def step(index: int) -> Array:
            run_together(workers, loop, arguments[index % count])
            return results[index % count]

        return step

    def _thread_arguments(self, copy: dict) -> list[tuple[int, int, int, int]]:
        """Return for each thread the addresses of its part of x and y, and the part's rows and columns."""
        rows, columns, x, y = self.case.shape["rows"], self.case.shape["columns"], copy["x"], copy["y"]
        bounds = [rows * core // self.core_count for core in range(self.core_count + 1)]
        return [(x[first:].ctypes.data, y[first:].ctypes.data, end - first, columns) for first, end in pairwise(bounds)]

    def costs(self, scope: str | None) -> CostTerms:
        """Return the costs: the smallest case has one thread's call, and further threads are the implementation's."""
        return CostTerms(
            calls={"loop_s": 1.0},
            extra={"loop_s": self.core_count - 1.0},
            floor=divided_cost_terms("pass_s_per_byte", float(self.operator.bytes(self.case)), self.core_count),
        )
