"""Launches that CuPy does not offer, by the driver's own call through cuda-bindings."""

import ctypes

C_TYPES = {"i": ctypes.c_int32, "u": ctypes.c_uint32, "f": ctypes.c_float}


def overlapping(kernel: int, stream: int, grid: tuple, block: tuple, arguments: tuple, shared_bytes: int) -> None:
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
    values = [_c_value(argument) for argument in arguments]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(kernel), ctypes.addressof(addresses), 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuLaunchKernelEx: {status.name}")


def _c_value(argument):
    if hasattr(argument, "data") and hasattr(argument.data, "ptr"):
        return ctypes.c_void_p(argument.data.ptr)
    if argument.dtype.kind == "V":  # a structure by value, such as a tensor map
        return ctypes.create_string_buffer(argument.tobytes(), argument.nbytes)
    return C_TYPES[argument.dtype.kind](argument.item())
