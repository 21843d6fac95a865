"""What CuPy does not offer: launches and tensor maps by the driver, and the names of kernels by CUPTI."""

import ctypes
import re
from collections.abc import Callable

import numpy

from roofline.core.terms import Array

C_TYPES: dict[str, type[ctypes._SimpleCData]] = {"i": ctypes.c_int32, "u": ctypes.c_uint32, "f": ctypes.c_float}
TENSOR_MAP_BYTES = 128
TILE_ROW_BYTES = 128  # what the 128-byte swizzle reaches over
# Parts of kernels' names, and whether such a kernel uses tensor cores; the first match counts. cuBLAS's "xmma" kernels
# run on either unit, and those on CUDA cores end in the instruction that they use.
TENSOR_CORE_NAME_PATTERNS = (
    (re.compile(r"simt|[fdh]fma", re.IGNORECASE), False),
    (re.compile(r"gmma|[hidq]mma|tensorop|nvjet|[hsdi](884|1688|16816)|xmma|mma_", re.IGNORECASE), True),
    (re.compile(r"sgemm|dgemm|gemv|gemmk1", re.IGNORECASE), False),
)


def launch_overlapped(kernel: int, stream: int, grid: tuple, block: tuple, arguments: tuple, shared_bytes: int) -> None:
    """Launch a kernel that may begin before the previous one in the stream has ended (programmatic stream
    serialization, CUDA programming guide 7.36): it must wait itself before it reads what that kernel wrote.

    `kernel` and `stream` are handles of the driver; arguments are CuPy arrays, NumPy scalars of 32 bits, and void
    scalars such as a tensor map. Raises RuntimeError with the driver's name of the error.
    """
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value = driver.CUlaunchAttributeValue()
    value.programmaticStreamSerializationAllowed = 1
    attribute.value = value
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = _three_dimensions(grid)
    config.blockDimX, config.blockDimY, config.blockDimZ = _three_dimensions(block)
    config.sharedMemBytes = shared_bytes
    config.hStream = driver.CUstream(stream)
    config.attrs = [attribute]
    config.numAttrs = 1
    values = [_to_c_value(argument) for argument in arguments]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(kernel), ctypes.addressof(addresses), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuLaunchKernelEx: {status.name}")


def _three_dimensions(shape: tuple) -> tuple:
    return shape + (1,) * (3 - len(shape))


def _to_c_value(argument: "Array | numpy.generic") -> "ctypes._CData":
    if hasattr(argument, "data") and hasattr(argument.data, "ptr"):
        return ctypes.c_void_p(argument.data.ptr)
    if argument.dtype.kind == "V":  # a structure by value, such as a tensor map
        return ctypes.create_string_buffer(argument.tobytes(), argument.nbytes)
    return C_TYPES[argument.dtype.kind](argument.item())


def make_tensor_map(matrix: Array, tile_rows: int, fetched_bytes: int = 256) -> numpy.void:
    """Return a tensor map of a matrix [rows, columns] of 16-bit numbers in C order, as a kernel's argument of 128
    bytes.

    Its tiles are `tile_rows` rows by 64 columns in the 128-byte swizzle, with zeros beyond the edges. A row that misses
    the L2 brings `fetched_bytes` to it, 128 or 256. Raises RuntimeError if the copy engine cannot address the matrix:
    rows must begin at multiples of 16 bytes, and a tile has at most 256 of them. Raises AttributeError for a dtype that
    it does not know.
    """
    from cuda.bindings import driver

    rows, columns = matrix.shape
    kinds = driver.CUtensorMapDataType
    status, encoded = driver.cuTensorMapEncodeTiled(
        getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{matrix.dtype.name.upper()}"),
        2,
        matrix.data.ptr,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(columns * matrix.itemsize)],
        [driver.cuuint32_t(TILE_ROW_BYTES // matrix.itemsize), driver.cuuint32_t(tile_rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{fetched_bytes}B"),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuTensorMapEncodeTiled: {status.name}")
    return numpy.frombuffer(ctypes.string_at(encoded.getPtr(), TENSOR_MAP_BYTES), f"V{TENSOR_MAP_BYTES}")[0]


def identify_kernel(run: Callable[[], object]) -> dict:
    """Call `run` once under CUPTI and return the fields of the record KernelIdentity for its longest kernel.

    Never raises: where CUPTI refuses, `how_known` says so.
    """
    try:
        kernels = _record_kernels(run)
    except Exception as error:
        return _unknown_kernel(f"CUPTI does not load here ({type(error).__name__})")
    if not kernels:
        return _unknown_kernel("CUPTI recorded no kernel")
    name = max(kernels, key=lambda name: kernels[name])
    return {"name": name, "tensor_cores": uses_tensor_cores(name), "how_known": "CUPTI activity record"}


def uses_tensor_cores(name: str) -> bool | None:
    """Return whether a cuBLAS kernel runs on tensor cores, by its name; None where the name does not tell."""
    return next((tensor_cores for pattern, tensor_cores in TENSOR_CORE_NAME_PATTERNS if pattern.search(name)), None)


def _unknown_kernel(why: str) -> dict:
    return {"name": None, "tensor_cores": None, "how_known": why}


def _record_kernels(run: Callable[[], object]) -> dict[str, int]:
    """Return the nanoseconds of each kernel that `run` launches, by its name."""
    from cupti import cupti

    durations: dict[str, int] = {}

    def add_durations(activities: list) -> None:
        for activity in activities:
            if activity.kind == cupti.ActivityKind.CONCURRENT_KERNEL:
                durations[activity.name] = durations.get(activity.name, 0) + activity.end - activity.start

    cupti.activity_register_callbacks(lambda: (8 << 20, 0), add_durations)
    cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
    try:
        run()
        cupti.activity_flush_all(1)
    finally:  # else it would go on recording, and slow what is timed later
        cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
    return durations
