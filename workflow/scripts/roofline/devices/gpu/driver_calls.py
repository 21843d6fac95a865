"""What CuPy does not offer: launches and tensor maps by the driver, and the names of kernels by CUPTI."""

import ctypes
import re
from collections.abc import Callable

import numpy

C_TYPES = {"i": ctypes.c_int32, "u": ctypes.c_uint32, "f": ctypes.c_float}
TENSOR_MAP_BYTES = 128
ROW_BYTES = 128  # of a tile: what the 128-byte swizzle reaches over
# What a part of a kernel's name says, the first that is found. cuBLAS's "xmma" kernels run on either unit, and those
# on CUDA cores end in the instruction that they use.
TENSOR_CORE_NAME_PATTERNS = (
    (re.compile(r"simt|[fdh]fma", re.IGNORECASE), False),
    (re.compile(r"gmma|[hidq]mma|tensorop|nvjet|[hsdi](884|1688|16816)|xmma|mma_", re.IGNORECASE), True),
    (re.compile(r"sgemm|dgemm|gemv|gemmk1", re.IGNORECASE), False),
)


def launch_overlapping(
    kernel: int, stream: int, grid: tuple, block: tuple, arguments: tuple, shared_bytes: int
) -> None:
    """Launch a kernel that may begin before the one before it in the stream has ended (programmatic stream
    serialization, CUDA programming guide 7.36): it must wait itself before it reads what that one wrote.

    `kernel` and `stream` are handles of the driver; arguments are CuPy arrays, NumPy scalars of 32 bits, and void ones
    (a tensor map). Raises RuntimeError with the driver's name for what went wrong.
    """
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    value = driver.CUlaunchAttributeValue()
    value.programmaticStreamSerializationAllowed = 1
    attribute.value = value
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = (*block, 1, 1)[:3]
    config.sharedMemBytes = shared_bytes
    config.hStream = driver.CUstream(stream)
    config.attrs = [attribute]
    config.numAttrs = 1
    values = [_to_c_value(argument) for argument in arguments]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(kernel), ctypes.addressof(addresses), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuLaunchKernelEx: {status.name}")


def _to_c_value(argument):
    if hasattr(argument, "data") and hasattr(argument.data, "ptr"):
        return ctypes.c_void_p(argument.data.ptr)
    if argument.dtype.kind == "V":  # a structure by value, such as a tensor map
        return ctypes.create_string_buffer(argument.tobytes(), argument.nbytes)
    return C_TYPES[argument.dtype.kind](argument.item())


def make_tensor_map(matrix, tile_rows: int):
    """Of a matrix [rows, columns] of 16-bit numbers in C order: tiles of so many rows by 64 columns, in the 128-byte
    swizzle; zeros beyond the edges. A NumPy void scalar of 128 bytes, an argument of a kernel. Raises RuntimeError if
    the engine cannot address it: rows begin at multiples of 16 bytes, and a tile has at most 256.
    """
    from cuda.bindings import driver

    rows, columns = matrix.shape
    kinds = driver.CUtensorMapDataType
    is_fp16 = matrix.dtype == numpy.float16
    status, found = driver.cuTensorMapEncodeTiled(
        kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16 if is_fp16 else kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        matrix.data.ptr,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(columns * matrix.itemsize)],
        [driver.cuuint32_t(ROW_BYTES // 2), driver.cuuint32_t(tile_rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuTensorMapEncodeTiled: {status.name}")
    return numpy.frombuffer(ctypes.string_at(found.getPtr(), TENSOR_MAP_BYTES), f"V{TENSOR_MAP_BYTES}")[0]


def identify_kernel(run: Callable[[], object]) -> dict:
    """Run something once under CUPTI and name its longest kernel. Never raises: what is refused is said."""
    try:
        kernels = _record_kernels(run)
    except Exception as error:
        return _unknown_kernel(f"CUPTI does not load here ({type(error).__name__})")
    if not kernels:
        return _unknown_kernel("CUPTI recorded no kernel")
    name = max(kernels, key=kernels.get)
    return {"name": name, "tensor_cores": uses_tensor_cores(name), "how_known": "CUPTI activity record"}


def uses_tensor_cores(name: str) -> bool | None:
    """What a cuBLAS kernel's name says of the unit that it runs on; None where it says nothing."""
    return next((tensor_cores for part, tensor_cores in TENSOR_CORE_NAME_PATTERNS if part.search(name)), None)


def _unknown_kernel(why: str) -> dict:
    return {"name": None, "tensor_cores": None, "how_known": why}


def _record_kernels(run: Callable[[], object]) -> dict[str, int]:
    from cupti import cupti

    durations: dict[str, int] = {}

    def completed(activities: list) -> None:
        for activity in activities:
            if activity.kind == cupti.ActivityKind.CONCURRENT_KERNEL:
                durations[activity.name] = durations.get(activity.name, 0) + activity.end - activity.start

    cupti.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
    try:
        run()
        cupti.activity_flush_all(1)
    finally:  # else it would go on recording, and slow what is timed later
        cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
    return durations
