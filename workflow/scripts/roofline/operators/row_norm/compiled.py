"""Row normalisation by a compiled loop on the cores of a CPU; the loop is in rows_loop.py, which loads llvmlite."""

from functools import cached_property
from itertools import pairwise

from roofline.core.host_costs import divided
from roofline.operators.row_norm.arrays import OnCores
from roofline.records.prediction import CostTerms


class Compiled(OnCores):
    """Each row is read from memory once: the passes for its deviation and its result find it in the core's cache."""

    name, fused = "compiled", True

    @cached_property
    def loop(self):
        from roofline.operators.row_norm.rows_loop import rows_loop

        return rows_loop()

    def step(self, scope: str | None):
        from roofline.devices.cpu.loops import together

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
        loop, workers, count = self.loop, self.device.workers, len(self.copies)

        def step(index: int):
            together(workers, loop, arguments[index % count])
            return results[index % count]

        return step

    def costs(self, scope: str | None) -> CostTerms:
        """As the smallest case, the calls are one thread's; the threads beyond it are the implementation's."""
        return CostTerms(
            calls={"loop_s": 1.0, "loop_thread_s": 1.0},
            extra={"loop_thread_s": self.pieces - 1.0},
            floor=divided("copy_s_per_byte", float(self.operator.bytes(self.case)), self.pieces),
        )
