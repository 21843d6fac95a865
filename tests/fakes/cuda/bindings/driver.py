"""The driver's own launch, of kernels and arrays of the stand-in for CuPy: found again by handle and address."""

import ctypes
from types import SimpleNamespace

import numpy

C_TYPES = {"int": ctypes.c_int32}
CUlaunchAttribute = CUlaunchAttributeValue = CUlaunchConfig = SimpleNamespace
CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="overlapping")
CUresult = SimpleNamespace(
    CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"),
    CUDA_ERROR_INVALID_VALUE=SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE"),
)
CUstream = CUfunction = int


def cuLaunchKernelEx(config, function, parameters, extra):
    import cupy

    (attribute,) = config.attrs
    assert (attribute.id, attribute.value.programmaticStreamSerializationAllowed) == ("overlapping", 1)
    assert config.numAttrs == 1 and extra == 0 and config.hStream == cupy.cuda.Stream.ptr
    assert (config.gridDimY, config.gridDimZ, config.blockDimY, config.blockDimZ) == (1, 1, 1, 1)
    kernel = cupy.BY_HANDLE[function]
    addresses = (ctypes.c_void_p * len(kernel.signature)).from_address(parameters)
    arguments = [_read(cupy, place, *one) for place, one in zip(addresses, kernel.signature, strict=True)]
    if config.gridDimX < 1:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    kernel((config.gridDimX,), (config.blockDimX,), arguments, shared_mem=config.sharedMemBytes)
    return (CUresult.CUDA_SUCCESS,)


def _read(cupy, place, kind, pointer, name):
    if pointer:
        return cupy.AT_ADDRESS[ctypes.c_void_p.from_address(place).value]
    return numpy.dtype(cupy.TYPES[kind]).type(C_TYPES[kind].from_address(place).value)
