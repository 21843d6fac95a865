"""cuBLASLt in NumPy: column-major matrices at their addresses, and what the library says of its algorithms.

Tests change what is at the top.
"""

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy

OFFERED = 2  # algorithms, by the heuristic
CUDA_CORES_ADD_S = 0.5  # to a product that tensor cores do not run


def offers(dtype: str, m: int, n: int, k: int) -> bool:
    """Products of 8-bit operands need sides in multiples of 16."""
    return dtype not in EIGHT_BITS or not (m % 16 or n % 16 or k % 16)


def written(product):
    """What arrives in memory of a product in float64; None leaves it as it is."""
    return product


TYPES = {  # cudaDataType
    0: numpy.float32,
    1: numpy.float64,
    2: numpy.float16,
    3: numpy.int8,
    10: numpy.int32,
    14: ml_dtypes.bfloat16,
    28: ml_dtypes.float8_e4m3fn,
}
EIGHT_BITS = ("int8", "float8_e4m3fn")
# Types of A and of the scale factors, by cublasComputeType_t.
ALLOWED = {68: {(code, 0) for code in (0, 2, 14, 28)}, 70: {(1, 1)}, 77: {(0, 0)}, 72: {(3, 0), (3, 10)}}
FP32_ON_CUDA_CORES = (68, 0)
SCALES = {0: ctypes.c_float, 1: ctypes.c_double, 10: ctypes.c_int32}
FIRST_ALGORITHM = 10

matmul_heuristic_result_dtype = numpy.dtype(
    [("algo", "u8", 8), ("workspace_size", "u8"), ("state", "i4"), ("waves_count", "f4"), ("reserved", "i4", 4)]
)


class cuBLASLtError(Exception):
    pass


class _Names:
    def __getitem__(self, name):
        return name


MatmulDescAttribute = MatmulAlgoConfigAttribute = _Names()
MatmulPreferenceAttribute = SimpleNamespace(MAX_WORKSPACE_BYTES="workspace")
_OBJECTS: list = [None]


def _new(**fields) -> int:
    _OBJECTS.append(SimpleNamespace(**fields))
    return len(_OBJECTS) - 1


def create():
    return _new()


def matmul_desc_create(compute, scale):
    return _new(compute=compute, scale=scale, TRANSA=0, TRANSB=0, FAST_ACCUM=0)


def matmul_desc_set_attribute(description, name, address, size):
    setattr(_OBJECTS[description], name, int.from_bytes(ctypes.string_at(address, size), "little"))


def matrix_layout_create(kind, rows, columns, leading):
    assert leading == rows
    return _new(kind=kind, rows=rows, columns=columns)


def matmul_preference_create():
    return _new()


def matmul_preference_set_attribute(preference, name, address, size):
    assert (name, size) == ("workspace", 8)


def matmul_preference_destroy(preference):
    pass


def MatmulHeuristicResult(count):
    results = numpy.zeros(count, matmul_heuristic_result_dtype)
    return SimpleNamespace(ptr=results.ctypes.data, results=results)


def matmul_algo_get_heuristic(handle, description, a, b, c, d, preference, count, results, returned):
    how, a, d = _OBJECTS[description], _OBJECTS[a], _OBJECTS[d]
    assert (a.kind, how.scale) in ALLOWED[how.compute] and c
    dtype = numpy.dtype(TYPES[a.kind]).name
    assert not how.FAST_ACCUM or a.kind == 28
    assert dtype not in EIGHT_BITS or (how.TRANSA, how.TRANSB) == (1, 0)
    if not offers(dtype, d.rows, d.columns, a.rows if how.TRANSA else a.columns):
        raise cuBLASLtError("CUBLAS_STATUS_NOT_SUPPORTED")
    memory = (ctypes.c_char * (matmul_heuristic_result_dtype.itemsize * count)).from_address(results)
    offered = numpy.frombuffer(memory, matmul_heuristic_result_dtype)
    for place in range(min(count, OFFERED)):
        offered[place]["algo"] = FIRST_ALGORITHM + place
    ctypes.c_int32.from_address(returned).value = min(count, OFFERED)


def matmul_algo_config_get_attribute(algorithm, name, value, size, written_size):
    if name == "ID":
        ctypes.c_int32.from_address(value).value = ctypes.c_uint64.from_address(algorithm).value


def _scaled(matrix, mode, address):
    """A matrix [rows, k] times its factors: one for 128 of k (mode 4), or for 128 rows and 128 of k (mode 5)."""
    if not mode:
        return matrix
    rows, k = matrix.shape
    of_k, of_rows = -(-k // 128), -(-rows // 128)
    shape = {4: (of_k, rows), 5: (of_rows, -(-of_k // 4) * 4)}[mode]
    values = numpy.ctypeslib.as_array((ctypes.c_float * (shape[0] * shape[1])).from_address(address)).reshape(shape)
    row, column = numpy.ogrid[:rows, :k]
    return matrix * (values[column // 128, row] if mode == 4 else values[row // 128, column // 128])


def matmul(handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, *others):
    import cupy

    _, workspace, workspace_bytes, _ = others
    if (graph := cupy.cuda.Stream.capturing) is not None:
        again = handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, *others
        graph.append((lambda arguments: matmul(*arguments), again))
        return
    assert workspace and workspace_bytes and (c, c_layout) == (d, d_layout)
    how = _OBJECTS[description]
    assert SCALES[how.scale].from_address(beta).value == 0
    wide = numpy.float64 if _OBJECTS[a_layout].kind in (1, 3) else numpy.float32
    left, right = _stored(a, a_layout).astype(wide), _stored(b, b_layout).astype(wide)
    left, right = left.T if how.TRANSA else left, right.T if how.TRANSB else right
    left = _scaled(left, getattr(how, "A_SCALE_MODE", 0), getattr(how, "A_SCALE_POINTER", 0))
    right = _scaled(right.T, getattr(how, "B_SCALE_MODE", 0), getattr(how, "B_SCALE_POINTER", 0)).T
    product = left @ right
    cupy.took(numpy.dtype(TYPES[_OBJECTS[a_layout].kind]).name, 2 * product.size * (left.size // product.shape[0]))
    product = written(SCALES[how.scale].from_address(alpha).value * product.astype(numpy.float64))
    if product is not None:
        out = _stored(d, d_layout)
        if out.dtype.kind == "i":
            product = numpy.clip(numpy.rint(product), numpy.iinfo(out.dtype).min, numpy.iinfo(out.dtype).max)
        out[...] = product.astype(out.dtype)
    if (how.compute, _OBJECTS[a_layout].kind) == FP32_ON_CUDA_CORES:
        cupy.cuda.Event.added_s += CUDA_CORES_ADD_S


def _stored(address, layout):
    matrix = _OBJECTS[layout]
    kind = numpy.dtype(TYPES[matrix.kind])
    memory = (ctypes.c_char * (matrix.rows * matrix.columns * kind.itemsize)).from_address(address)
    return numpy.frombuffer(memory, kind).reshape((matrix.rows, matrix.columns), order="F")
