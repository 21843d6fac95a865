"""Tensor maps: how Hopper's copy engine (TMA) finds the tiles of a matrix. Encoded by the driver, handed to kernels by
value."""

import ctypes

MAP_BYTES = 128
ROW_BYTES = 128  # of a tile: what the 128-byte swizzle reaches over
PITCH_MULTIPLE = 16  # bytes that rows of the matrix are apart, a multiple of this
MOST_ROWS = 256  # of a tile


def tensor_map(matrix, tile_rows: int):
    """Of a matrix [rows, columns] of 16-bit numbers in C order: tiles of so many rows by 64 columns, in the 128-byte
    swizzle; zeros beyond the edges. A NumPy void scalar of 128 bytes, an argument of a kernel.

    Raises ValueError for a matrix or a tile that the engine cannot address, RuntimeError for what the driver says.
    """
    import numpy
    from cuda.bindings import driver

    rows, columns = matrix.shape
    pitch = columns * matrix.itemsize
    if matrix.itemsize != 2 or not matrix.flags.c_contiguous or pitch % PITCH_MULTIPLE:
        raise ValueError(
            f"a matrix of {rows} x {columns} {matrix.dtype} numbers has no tensor map; allowed: 16-bit numbers in C "
            f"order, columns a multiple of {PITCH_MULTIPLE // 2}"
        )
    if not 1 <= tile_rows <= MOST_ROWS:
        raise ValueError(f"tiles of {tile_rows} rows; allowed: 1 to {MOST_ROWS}")
    kinds = driver.CUtensorMapDataType
    is_fp16 = matrix.dtype == numpy.float16
    status, found = driver.cuTensorMapEncodeTiled(
        kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16 if is_fp16 else kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        matrix.data.ptr,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(pitch)],
        [driver.cuuint32_t(ROW_BYTES // 2), driver.cuuint32_t(tile_rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuTensorMapEncodeTiled: {status.name}")
    return numpy.frombuffer(ctypes.string_at(found.getPtr(), MAP_BYTES), f"V{MAP_BYTES}")[0]
