"""Arrays on a GPU: made, filled, copied and compared."""

from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy

from roofline.core.dtypes import COMMON_DTYPE, DTYPES, array_dtype
from roofline.devices.base import LoadKernel, fill_rolled_copies

if TYPE_CHECKING:
    import cupy

# The grid of kernels that go once over an array and are not timed themselves.
ONE_PASS_BLOCKS_PER_SM, ONE_PASS_THREADS = 8, 256


class TriadArrays(NamedTuple):
    """Three fp32 arrays of one size, named as in STREAM's triad: c = a + scale * b."""

    a: "cupy.ndarray"
    b: "cupy.ndarray"
    c: "cupy.ndarray"


class CudaArrays:
    """Arrays on one card; it keeps those of the last triad, and one buffer for working sets."""

    def __init__(self, xp: ModuleType, stream: "cupy.cuda.Stream", load_kernel: LoadKernel, multiprocessors: int):
        """Make arrays with CuPy, and fill and copy them on a stream by kernels that `load_kernel` returns."""
        self._cupy, self._stream, self.load_kernel, self._multiprocessors = xp, stream, load_kernel, multiprocessors
        self._triad_arrays: TriadArrays | None = None
        self._cache_buffer: cupy.ndarray | None = None

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> "cupy.ndarray":
        """Return normal random numbers drawn on the device, of the dtype's standard deviation, rounded to the dtype.

        An fp8 array is one of bytes, since CuPy has no such dtype.
        """
        values = self.empty(shape, dtype)
        self.fill_normal(values, dtype, seed)
        return values

    def fill_normal(self, values: "cupy.ndarray", dtype: str, seed: int) -> None:
        """Overwrite an array with the numbers that `normal` returns for this seed."""
        kernel = self.load_kernel("random.cu", f"normal_{DTYPES[dtype].stored_as}")
        self.launch_one_pass(kernel, (values, self._cupy.uint64(values.size), self._cupy.uint64(seed)))

    def empty(self, shape: tuple[int, ...], dtype: str) -> "cupy.ndarray":
        """Return an array that is not filled; one of bytes for fp8."""
        row = DTYPES[dtype]
        return self._cupy.empty(shape, "uint8" if row.is_float and row.bits <= 8 else array_dtype(dtype))

    def poison(self, array: "cupy.ndarray") -> None:
        """Overwrite every byte with 0xFF: NaN in every floating-point dtype."""
        array.data.memset_async(0xFF, array.nbytes, self._stream)

    def copy(self, source: "cupy.ndarray", destination: "cupy.ndarray") -> None:
        """Queue a copy by the driver on the device's stream."""
        destination.data.copy_from_device_async(source.data, source.nbytes, self._stream)

    def count_differences(self, first: "cupy.ndarray", second: "cupy.ndarray", count: "cupy.ndarray") -> None:
        """Add the number of 32-bit words in which two arrays differ to `count`, an array of one uint64."""
        kernel = self.load_kernel("compare.cu", "count_differences")
        self.launch_one_pass(kernel, (first, second, self._cupy.uint64(first.nbytes // 4), count))

    def launch_one_pass(self, kernel: "cupy.RawKernel", arguments: tuple) -> None:
        """Launch a kernel that goes once over arrays of any size, with a few blocks on every multiprocessor."""
        kernel((ONE_PASS_BLOCKS_PER_SM * self._multiprocessors,), (ONE_PASS_THREADS,), arguments)

    def rolled_copies(self, array: "cupy.ndarray", count: int) -> list["cupy.ndarray"]:
        """Return copies of the numbers, each begun at another one, in one allocation: a thousand would take longer."""
        copies = self._cupy.empty((count, *array.shape), array.dtype)
        fill_rolled_copies(copies, array, range(count))
        return list(copies)

    def to_device(self, host_array: numpy.ndarray) -> "cupy.ndarray":
        """Return a copy of a host array on the device."""
        return self._cupy.asarray(host_array)

    def to_host(self, array: "cupy.ndarray") -> numpy.ndarray:
        """Return a copy of an array on the host.

        The device makes it contiguous first: CuPy's way of copying one with gaps leaves another stream as the current
        one.
        """
        return self._cupy.asnumpy(self._cupy.ascontiguousarray(array))

    def widen(self, array: "cupy.ndarray") -> "cupy.ndarray":
        """Return the array itself, since a GPU computes in its dtypes; stacks of bf16 matrices, which CuPy does not
        multiply, as fp32."""
        if array.ndim > 2 and array.dtype.name == "bfloat16":
            return array.astype(self._cupy.float32)
        return array

    def triad_arrays(self, size_bytes: int) -> TriadArrays:
        """Return three arrays of random fp32 numbers of `size_bytes` each, the same ones in every call for a size."""
        if self._triad_arrays is None or self._triad_arrays.a.nbytes != size_bytes:
            self._triad_arrays = None  # frees those of another size
            arrays = (self.normal((size_bytes // 4,), COMMON_DTYPE, seed) for seed in range(3))
            self._triad_arrays = TriadArrays(*arrays)
        return self._triad_arrays

    def cache_buffer(self, size_bytes: int) -> "cupy.ndarray":
        """Return the first bytes of one array of 32-bit words, which grows with the largest size asked for."""
        if self._cache_buffer is None or self._cache_buffer.nbytes < size_bytes:
            self._cache_buffer = self.normal((size_bytes // 4,), COMMON_DTYPE, seed=0)
        return self._cache_buffer[: size_bytes // 4]

    def allocate_pinned(self, size_bytes: int) -> numpy.ndarray:
        """Return an array of 32-bit words in pinned host memory."""
        memory = self._cupy.cuda.alloc_pinned_memory(size_bytes)
        return numpy.frombuffer(memory, numpy.uint32, size_bytes // 4)
