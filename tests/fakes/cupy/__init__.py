"""NumPy behind the names of CuPy that this project uses; events read the host's clock."""

import ctypes
import os
import time
from types import SimpleNamespace

import numpy

__version__ = "14.2.0"


class ndarray(numpy.ndarray):
    @property
    def data(self):
        return _Memory(self)


class _Memory:
    def __init__(self, array):
        self._array = array

    def copy_from_device_async(self, source, size, stream):
        numpy.copyto(self._array, source._array)

    def copy_from_host_async(self, address, size, stream):
        ctypes.memmove(self._array.ctypes.data, address, size)

    def copy_to_host_async(self, address, size, stream):
        ctypes.memmove(address, self._array.ctypes.data, size)


def _of_the_device(function):
    return lambda *args, **kwargs: numpy.asarray(function(*args, **kwargs)).view(ndarray)


empty, zeros, zeros_like, asarray = map(_of_the_device, (numpy.empty, numpy.zeros, numpy.zeros_like, numpy.asarray))


def asnumpy(array):
    return numpy.array(array, copy=True).view(numpy.ndarray)


def __getattr__(name):
    return getattr(numpy, name)


class _RandomState:
    def __init__(self, seed):
        self._generator = numpy.random.default_rng(seed)

    def standard_normal(self, size, dtype):
        return self._generator.standard_normal(size, dtype=dtype)


random = SimpleNamespace(RandomState=_RandomState)


class _Event:
    def record(self, stream=None):
        self.at = time.perf_counter()


class _Stream:
    def __init__(self, non_blocking=False):
        pass

    def use(self):
        return self

    def synchronize(self):
        pass


class RawModule:
    def __init__(self, code, options=()):
        assert "__global__" in code

    def get_function(self, name):
        kernels = {
            "block_stream": _block_stream,
            "count_differences": _count_differences,
            "count_cycles": _count_cycles,
        }
        return kernels[name]


def _block_stream(grid, block, arguments):
    pass


def _count_differences(grid, block, arguments):
    a, b, _, differences = arguments
    differences[0] = numpy.count_nonzero(a.view(numpy.uint32) != b.view(numpy.uint32))


def _count_cycles(grid, block, arguments, stream=None):
    nanoseconds, cycles_and_ns = arguments
    cycles_and_ns[:] = nanoseconds * 1.98, nanoseconds


def _pinned(size):
    memory = (ctypes.c_char * size)()
    memory.ptr = ctypes.addressof(memory)
    return memory


PROPERTIES = {
    "multiProcessorCount": 132,
    "l2CacheSize": 1 << 20,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "maxThreadsPerMultiProcessor": 2048,
}

cuda = SimpleNamespace(
    runtime=SimpleNamespace(
        getDeviceProperties=lambda index: PROPERTIES,
        driverGetVersion=lambda: int(os.environ.get("FAKE_CUDA", "13000")),
        runtimeGetVersion=lambda: 12090,
    ),
    nvrtc=SimpleNamespace(getVersion=lambda: (12, 9)),
    cublas=SimpleNamespace(getVersion=lambda handle: 120902),
    device=SimpleNamespace(get_cublas_handle=lambda: 0),
    Stream=_Stream,
    Event=_Event,
    get_elapsed_time=lambda start, end: max(1e-6, (end.at - start.at) * 1e3),
    alloc_pinned_memory=_pinned,
)
