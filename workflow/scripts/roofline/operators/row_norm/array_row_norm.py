"""Row normalisation by array operations: CuPy's on a GPU, NumPy's on the cores of a CPU; and there by a compiled loop.

The loop is in rows_loop.py, which loads llvmlite.
"""

from itertools import pairwise

from roofline.core.cell_prediction import divided_cost_terms
from roofline.operators.base import Case, Implementation
from roofline.records.seal_records import CostTerms

CUPY_CALLS = 9  # a shift, the mean, three of the deviation, two that look for 0, a difference, a quotient
CUPY_KERNELS = 12  # of CuPy, as ncu lists them: either mean takes two, and one more copies the deviation's
# Besides one read of x and one write: the shifted x is written, read for the mean, twice for the deviation and
# for the difference, which is written and read.
EXTRA_PASSES = 7
MEAN_ROWS = 32  # that a block of CuPy's mean goes through at once, with the fewer threads for each
NUMPY_CALLS, NUMPY_PASSES = (
    18,
    15,
)  # of NumPy on a CPU: calls, of which a mean is several, and passes over x, all counted
PIECE_ITEMS = 1 << 16  # of x, from which on another core takes part
COLUMNS = 64  # the compiled loop goes by vectors of up to 16 numbers, four at once


def normalise_rows(x, xp):
    """As one would write it, of rows shifted by their first number, so that a row of equal numbers is exactly 0."""
    shifted = x - x[:, :1]
    deviation = shifted.std(axis=1, keepdims=True)
    return (shifted - shifted.mean(axis=1, keepdims=True)) / xp.where(deviation == 0, xp.float32(1), deviation)


class ArrayRowNorm(Implementation):
    name, kind, launches = "array", "gpu", CUPY_CALLS

    def compute(self, inputs: dict):
        return normalise_rows(inputs["x"], self.device.xp)

    def costs(self, scope: str | None) -> CostTerms:
        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        passed = EXTRA_PASSES * self.operator.bytes(self.case) / 2
        return CostTerms(
            calls={"array_operation_s": float(CUPY_CALLS)},
            start={"array_kernel_s": float(CUPY_KERNELS)},
            extra={"pass_s_per_byte": passed},
            floor={"mean_s_per_column": 2.0 * columns * min(1.0, rows / MEAN_ROWS)},
        )


class CpuRowNorm(Implementation):
    """Rows divided among the cores of a CPU."""

    kind = "cpu"

    @property
    def pieces(self) -> int:
        """How many cores have rows to normalise."""
        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        return max(1, min(self.device.cores, rows, rows * columns // PIECE_ITEMS))

    def plan(self) -> dict:
        return {"cores": self.pieces}

    def cores(self, scope: str | None) -> int:
        return self.pieces


class NumpyRowNorm(CpuRowNorm):
    name = "numpy"

    def compute(self, inputs: dict):
        x, y, pieces, xp = inputs["x"], inputs["y"], self.pieces, self.device.xp

        def work(piece: int) -> None:
            rows = slice(len(x) * piece // pieces, len(x) * (piece + 1) // pieces)
            y[rows] = normalise_rows(x[rows], xp)

        self.device.workers.run(pieces, work)
        return y

    def costs(self, scope: str | None) -> CostTerms:
        """The calls of all cores take turns, since each holds the interpreter's lock."""
        pieces = self.pieces
        return CostTerms(
            calls={"array_operation_s": float(NUMPY_CALLS), "handover_s": 1.0},
            extra={"array_operation_s": NUMPY_CALLS * (pieces - 1.0), "handover_s": pieces - 1.0},
            floor=divided_cost_terms("pass_s_per_byte", NUMPY_PASSES * self.operator.bytes(self.case) / 2, pieces),
        )


class CompiledRowNorm(CpuRowNorm):
    """Each row is read from memory once: the passes for its deviation and its result find it in the core's cache."""

    name, fused = "compiled", True

    @classmethod
    def unsupported(cls, device, case: Case) -> str | None:
        if case.shape["columns"] % COLUMNS:
            return f"columns are not a multiple of {COLUMNS}: the loop reads whole vectors"
        return None

    def step(self, scope: str | None):
        from roofline.devices.cpu.loops import run_together
        from roofline.operators.row_norm.row_norm_loop import compile_rows_loop

        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        edges = [rows * piece // self.pieces for piece in range(self.pieces + 1)]
        arguments = [
            [
                (*(copy[name].ctypes.data + 4 * columns * first for name in ("x", "y")), last - first, columns)
                for first, last in pairwise(edges)
            ]
            for copy in self.copies
        ]
        results = [copy["y"] for copy in self.copies]
        loop, workers, count = compile_rows_loop(), self.device.workers, len(self.copies)

        def step(index: int):
            run_together(workers, loop, arguments[index % count])
            return results[index % count]

        return step

    def costs(self, scope: str | None) -> CostTerms:
        """As the smallest case, the calls are one thread's; the threads beyond it are the implementation's."""
        return CostTerms(
            calls={"loop_s": 1.0},
            extra={"loop_s": self.pieces - 1.0},
            floor=divided_cost_terms("pass_s_per_byte", float(self.operator.bytes(self.case)), self.pieces),
        )
