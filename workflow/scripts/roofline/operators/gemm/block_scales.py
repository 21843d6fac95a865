"""Scale factors of blocks of numbers: drawn at random, since factors of one would verify nothing."""

from roofline.core.dtypes import OperandScales
from roofline.core.terms import Array
from roofline.devices.base import CudaDevice
from roofline.operators.gemm.cublaslt import GemmShape, scale_factors_shape

SMALLEST, LARGEST = 0.5, 2.0


class ScaleFactors:
    """The factors of A and B of one product, on the host and, as cuBLASLt reads them, on the device."""

    def __init__(self, device: CudaDevice, scales: OperandScales, shape: GemmShape, seed: int):
        import numpy

        random = numpy.random.default_rng(seed)
        self._blocks = scales._asdict()
        sides = {"activations": shape.m, "weights": shape.n}
        self._host = {
            name: random.uniform(SMALLEST, LARGEST, scale_factors_shape(blocks, sides[name], shape.k)).astype("float32")
            for name, blocks in self._blocks.items()
        }
        self._device = {name: device.to_device(factors) for name, factors in self._host.items()}

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of A's and of B's factors on the device."""
        return self._device["activations"].data.ptr, self._device["weights"].data.ptr

    def scaled(self, operand: str, block: Array, part: slice) -> Array:
        """Return rows of A (activations) or columns of B (weights), [part, k] in float64, times their factors."""
        import numpy

        blocks, factors = self._blocks[operand], self._host[operand]
        by_rows = factors.T if blocks.across == 1 else factors
        row_blocks = numpy.arange(part.start, part.stop) // blocks.across
        k_blocks = numpy.arange(block.shape[1]) // blocks.along_k
        return block.astype(numpy.float64) * by_rows[row_blocks][:, k_blocks]
