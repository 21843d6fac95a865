"""The dtypes of this project by name: their size and their array type."""

ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1, "int8": 1, "int32": 4}
# The first compute capability whose tensor cores take a dtype.
FIRST_CAPABILITY = {"fp16": "7.0", "int8": "7.5", "tf32": "8.0", "bf16": "8.0", "fp8_e4m3": "8.9"}


def array_dtype(name: str):
    """The NumPy dtype that holds a dtype (tf32 is a way of multiplying fp32 arrays)."""
    import ml_dtypes
    import numpy

    types = {
        "fp64": numpy.float64,
        "fp32": numpy.float32,
        "tf32": numpy.float32,
        "fp16": numpy.float16,
        "bf16": ml_dtypes.bfloat16,
        "fp8_e4m3": ml_dtypes.float8_e4m3fn,
        "int8": numpy.int8,
        "int32": numpy.int32,
    }
    return numpy.dtype(types[name])
