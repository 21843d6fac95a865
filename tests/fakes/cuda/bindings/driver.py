"""The driver's own launch, of kernels and arrays of the stand-in for CuPy: found again by handle and address. And
tensor maps, which hold what they were made of."""

import ctypes
import struct
from types import SimpleNamespace

import numpy

C_TYPES = {"int": ctypes.c_int32, "float": ctypes.c_float}
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
    assert (config.gridDimZ, config.blockDimY, config.blockDimZ) == (1, 1, 1)
    kernel = cupy.BY_HANDLE[function]
    addresses = (ctypes.c_void_p * len(kernel.signature)).from_address(parameters)
    arguments = [_read(cupy, place, *one) for place, one in zip(addresses, kernel.signature, strict=True)]
    if config.gridDimX < 1:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    kernel((config.gridDimX, config.gridDimY), (config.blockDimX,), arguments, shared_mem=config.sharedMemBytes)
    return (CUresult.CUDA_SUCCESS,)


def _read(cupy, place, kind, pointer, name):
    if pointer:
        return cupy.AT_ADDRESS[ctypes.c_void_p.from_address(place).value]
    if (kind_of := cupy.TYPES[kind]).startswith("V"):
        return numpy.frombuffer(ctypes.string_at(place, int(kind_of[1:])), kind_of)[0]
    return numpy.dtype(cupy.TYPES[kind]).type(C_TYPES[kind].from_address(place).value)


MAP_BYTES, FIELDS = 128, "Q4I?"  # address, columns, rows, and those of a tile; whether it is of bf16
cuuint32_t = cuuint64_t = int
CUtensorMapDataType = SimpleNamespace(CU_TENSOR_MAP_DATA_TYPE_FLOAT16=False, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16=True)
CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B=3)
CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_128B=2, CU_TENSOR_MAP_L2_PROMOTION_L2_256B=3)
CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)


def cuTensorMapEncodeTiled(kind, dimensions, address, sides, pitches, tile, strides, interleave, swizzle, *others):
    assert (dimensions, len(sides), pitches, strides, interleave, swizzle) == (2, 2, [2 * sides[0]], [1, 1], 0, 3)
    if address % 16 or pitches[0] % 16 or not all(0 < side <= 256 for side in tile):
        return CUresult.CUDA_ERROR_INVALID_VALUE, None
    memory = ctypes.create_string_buffer(struct.pack(FIELDS, address, *sides, *tile, kind), MAP_BYTES)
    memory.getPtr = lambda: ctypes.addressof(memory)
    return CUresult.CUDA_SUCCESS, memory


def matrix_of(tensor_map) -> tuple[numpy.ndarray, int]:
    """The matrix that a tensor map addresses, and the rows of a tile."""
    import ml_dtypes

    address, columns, rows, width, tile_rows, is_bf16 = struct.unpack_from(FIELDS, tensor_map.tobytes())
    assert width == 64
    memory = (ctypes.c_char * (2 * rows * columns)).from_address(address)
    return numpy.frombuffer(memory, ml_dtypes.bfloat16 if is_bf16 else numpy.float16).reshape(rows, columns), tile_rows
