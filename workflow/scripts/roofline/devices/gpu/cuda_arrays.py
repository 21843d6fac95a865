"""Arrays on a GPU: made, filled, copied."""

import numpy

from roofline.core.dtypes import array_dtype

FILL_BLOCKS, FILL_THREADS = 8, 256  # per multiprocessor, and of each


class CudaArrays:
    """Part of the GPU device."""

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int):
        """Standard normal random numbers drawn on the device, rounded to the dtype; int8: 32 times as much.

        An fp8 array is one of bytes, since CuPy has no such dtype.
        """
        values = self.empty(shape, dtype)
        self.fill_normal(values, "fp32" if dtype == "tf32" else dtype, seed)
        return values

    def fill_normal(self, values, dtype: str, seed: int) -> None:
        """The same, written over an array."""
        kernel = self.load_kernel("random.cu", f"normal_{dtype}")
        count = self.xp.uint64(values.size)
        kernel((FILL_BLOCKS * self.multiprocessors,), (FILL_THREADS,), (values, count, self.xp.uint64(seed)))

    def empty(self, shape: tuple[int, ...], dtype: str):
        return self.xp.empty(shape, "uint8" if dtype == "fp8_e4m3" else array_dtype(dtype))

    def poison(self, array) -> None:
        """Overwrite every byte with 0xFF: NaN in every floating-point dtype."""
        array.data.memset_async(0xFF, array.nbytes, self.stream)

    def copy(self, source, destination) -> None:
        """Queued on the device's stream."""
        destination.data.copy_from_device_async(source.data, source.nbytes, self.stream)

    def count_differences(self, a, b, count) -> None:
        """Add the number of 32-bit words in which two arrays of such differ to `count`, an array of one uint64."""
        kernel = self.load_kernel("compare.cu", "count_differences")
        kernel((FILL_BLOCKS * self.multiprocessors,), (FILL_THREADS,), (a, b, self.xp.uint64(a.nbytes // 4), count))

    def rolled_copies(self, array, count: int) -> list:
        """Copies of the numbers, each begun at another place, in one allocation: a thousand would take longer."""
        found = self.xp.empty((count, *array.shape), array.dtype)
        numbers, rows = array.reshape(-1), found.reshape(count, array.size)
        for place in range(count):
            start = (place + 1) * array.size // (count + 1)
            rows[place, start:], rows[place, :start] = numbers[: array.size - start], numbers[array.size - start :]
        return list(found)

    def to_device(self, host_array):
        return self.xp.asarray(host_array)

    def to_host(self, array):
        """In one piece first: CuPy's own way of copying a part with gaps leaves another stream as the current one."""
        return self.xp.asnumpy(self.xp.ascontiguousarray(array))

    def widen(self, array):
        """The array itself: a GPU computes in its dtypes. But CuPy multiplies no stacks of bf16 matrices."""
        return array.astype(self.xp.float32) if array.ndim > 2 and array.dtype == array_dtype("bf16") else array

    def triad_arrays(self, size_bytes: int) -> list:
        """Three arrays of random fp32 numbers, the same for all who ask for this size."""
        if not self._arrays or self._arrays[0].nbytes != size_bytes:
            self._arrays = []  # frees those of another size
            self._arrays = [self.normal((size_bytes // 4,), "fp32", seed) for seed in range(3)]
        return self._arrays

    def cache_buffer(self, size_bytes: int):
        """The first bytes of one array of 32-bit words, which grows with what is asked for."""
        if self._cache_buffer is None or self._cache_buffer.nbytes < size_bytes:
            self._cache_buffer = self.normal((size_bytes // 4,), "fp32", seed=0)
        return self._cache_buffer[: size_bytes // 4]

    def allocate_pinned(self, size_bytes: int):
        memory = self.xp.cuda.alloc_pinned_memory(size_bytes)
        return numpy.frombuffer(memory, numpy.uint32, size_bytes // 4)
