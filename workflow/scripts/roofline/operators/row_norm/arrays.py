"""Row normalisation by array operations: CuPy's on a GPU, NumPy's on the cores of a CPU."""

from roofline.operators.base import Implementation
from roofline.records.prediction import CostTerms

OPERATIONS = 9  # a shift, the mean, three of the deviation, two that look for 0, a difference, a quotient
KERNELS = 12  # of CuPy, as ncu lists them: either mean takes two, and one more copies the deviation's
# Beside reading x and writing the result once: the shifted x is written, read for the mean, twice for the deviation and
# for the difference, which is written and read.
EXTRA_PASSES = 7
PIECE_ITEMS = 1 << 16  # of x, from which on another core takes part


def normalised(x, xp):
    """As one would write it, of rows shifted by their first number, so that a row of equal numbers is exactly 0."""
    shifted = x - x[:, :1]
    deviation = shifted.std(axis=1, keepdims=True)
    return (shifted - shifted.mean(axis=1, keepdims=True)) / xp.where(deviation == 0, xp.float32(1), deviation)


class Array(Implementation):
    name, kind, launches = "array", "gpu", OPERATIONS

    def compute(self, inputs: dict):
        return normalised(inputs["x"], self.device.xp)

    def costs(self, scope: str | None) -> CostTerms:
        passed = EXTRA_PASSES * self.operator.bytes(self.case) / 2
        return CostTerms(
            calls={"array_operation_s": float(OPERATIONS)},
            start={"array_kernel_s": float(KERNELS)},
            extra={"pass_s_per_byte": passed},
        )


class OnCores(Implementation):
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


class NumpyRows(OnCores):
    name = "numpy"

    def compute(self, inputs: dict):
        x, y, pieces, xp = inputs["x"], inputs["y"], self.pieces, self.device.xp

        def work(piece: int) -> None:
            rows = slice(len(x) * piece // pieces, len(x) * (piece + 1) // pieces)
            y[rows] = normalised(x[rows], xp)

        self.device.workers.run(pieces, work)
        return y

    def costs(self, scope: str | None) -> CostTerms:
        passed = EXTRA_PASSES * self.operator.bytes(self.case) / 2 / self.pieces
        return CostTerms(
            calls={"array_operation_s": float(OPERATIONS), "thread_s": float(self.pieces)},
            floor={"core_array_s_per_byte": passed},
        )
