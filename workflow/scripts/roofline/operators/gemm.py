"""C = A B for square matrices, by the array library's matmul (cuBLAS on a GPU, a BLAS on the CPU)."""

from roofline.dtypes import ITEM_BYTES
from roofline.measuring import relative_error, require_right
from roofline.records import Check

OPERATOR = "gemm"
IMPLEMENTATION = {"gpu": "cupy.matmul", "cpu": "numpy.matmul"}

# Rounding of the result alone is 2^-9 (bf16) and 2^-12 (fp16) normwise; sums are kept in fp32 or wider.
TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2}
SAMPLED_ROWS = 8


def flops(m: int, n: int, k: int) -> int:
    """2 m n k: a multiply-add is two FLOPs."""
    return 2 * m * n * k


def traffic_bytes(m: int, n: int, k: int, dtype: str) -> int:
    """A, B and C once each."""
    return (m * k + k * n + m * n) * ITEM_BYTES[dtype]


def workspace_bytes(size: int, dtype: str) -> int:
    """What a square product needs on the device: A, B, C, and C again where the library returns a new array."""
    return 4 * size * size * ITEM_BYTES[dtype]


class Gemm:
    """One square product on a device: `step(i)` multiplies, `check()` compares sampled rows with float64."""

    def __init__(self, device, size: int, dtype: str, seed: int):
        self._device = device
        self._dtype = dtype
        self.size = size
        self.a = device.normal((size, size), dtype, seed)
        self.b = device.normal((size, size), dtype, seed + 1)
        self.c = device.xp.matmul(self.a, self.b)

    def step(self, index: int) -> None:
        self._device.xp.matmul(self.a, self.b, out=self.c)

    def check(self) -> Check:
        import numpy

        rows = numpy.linspace(0, self.size - 1, SAMPLED_ROWS).astype(int)
        self.step(0)
        self._device.synchronize()
        a, b, c = (self._device.to_host(array) for array in (self.a[rows], self.b, self.c[rows]))
        reference = a.astype(numpy.float64) @ b.astype(numpy.float64)
        error, tolerance = relative_error(c, reference), TOLERANCE[self._dtype]
        require_right(f"{self._dtype} matmul {self.size}", error, tolerance)
        return Check(compared=f"{SAMPLED_ROWS} rows against float64", error=error, tolerance=tolerance)
