"""Row normalisation by array operations: CuPy's on a GPU, NumPy's on the cores of a CPU."""

from roofline.core.host_costs import divided
from roofline.operators.base import Implementation
from roofline.records.prediction import CostTerms

OPERATIONS = 9  # a shift, the mean, three of the deviation, two that look for 0, a difference, a quotient
KERNELS = 12  # of CuPy, as ncu lists them: either mean takes two, and one more copies the deviation's
# Beside reading x and writing the result once: the shifted x is written, read for the mean, twice for the deviation and
# for the difference, which is written and read.
EXTRA_PASSES = 7
MEAN_ROWS = 32  # that a block of CuPy's mean goes through at once, with the fewer threads for each
# Of NumPy on a CPU: calls, of which a mean is several; passes, all counted; new arrays as large as x, and how many are
# there at once. The C library keeps arrays of up to so many bytes for the next one.
CALLS, PASSES, FRESH_ARRAYS, LIVE_ARRAYS, LARGEST_KEPT = 18, 15, 4, 3, 32 << 20
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
        rows, columns = self.case.shape["rows"], self.case.shape["columns"]
        passed = EXTRA_PASSES * self.operator.bytes(self.case) / 2
        return CostTerms(
            calls={"array_operation_s": float(OPERATIONS)},
            start={"array_kernel_s": float(KERNELS)},
            extra={"pass_s_per_byte": passed},
            floor={"mean_s_per_column": 2.0 * columns * min(1.0, rows / MEAN_ROWS)},
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
        array_bytes, pieces = self.operator.bytes(self.case) / 2, self.pieces
        in_cache = LIVE_ARRAYS * array_bytes <= self.device.last_level_cache_bytes
        fresh = FRESH_ARRAYS * array_bytes / pieces if array_bytes / pieces > LARGEST_KEPT else 0.0
        return CostTerms(
            calls={"array_operation_s": float(CALLS), "handover_s": 1.0, "thread_s": 1.0},
            extra={"thread_s": pieces - 1.0},
            floor={
                **divided("pass_s_per_byte" if in_cache else "memory_pass_s_per_byte", PASSES * array_bytes, pieces),
                **divided("core_operation_s", float(CALLS * pieces if pieces > 1 else 0), pieces),
                "fresh_page_s_per_byte": fresh,
            },
        )
