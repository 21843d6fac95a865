"""Matrix products by cuBLASLt, through nvmath-python's bindings: every dtype of tensor cores, a choice of algorithms.

cuBLASLt stores matrices by columns. A product D = op(A) op(B) is m x n, of inner size k. Its layout names op(A) and
op(B): N as stored, T transposed. Arrays of this module are stored by rows, so that A is (k, m) under N and (m, k) under
T, B is (n, k) under N and (k, n) under T, and D is (n, m).
"""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from roofline.core.dtypes import DTYPES, FAST_ACCUMULATION, BlockScales, ProductOutput
from roofline.core.terms import UnsupportedError
from roofline.operators.gemm.gemm_arithmetic import result_scale

BINDINGS = "nvmath.bindings.cublasLt"  # a module that takes 0.4 s to import
CUBLASLT_WORKSPACE_BYTES = 64 << 20  # NVIDIA recommends 32 MiB from Hopper on

# Values of cudaDataType (library_types.h) and of cublasComputeType_t (cublas_api.h).
DATA_TYPES = {  # by the type of an array
    "float64": 1,
    "float32": 0,
    "float16": 2,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "int8": 3,
    "int32": 10,
}
COMPUTE_TYPES = {"float64": 70, "float32": 68, "int32": 72}  # by the array type of the sums
COMPUTE_32F_FAST_TF32 = 77
# Values of cublasLtMatmulMatrixScale_t (cublasLt.h), by a block's numbers across and along k and its factor's bits.
SCALE_MODES = {(1, 16, 8): 1, (1, 32, 8): 2, (1, 128, 32): 4, (128, 128, 32): 5}


class GemmShape(NamedTuple):
    """The sides of a product: D is m x n, and k is the inner size."""

    m: int
    n: int
    k: int


class GemmProblem(NamedTuple):
    """A product to find algorithms for: the dtype of A and B, the sides, a layout such as TN, and the output D."""

    dtype: str
    shape: GemmShape
    layout: str
    output: ProductOutput


def layouts(dtype: str) -> tuple[str, ...]:
    """Return the layouts that cuBLASLt has for a dtype: for numbers of eight bits and fewer only TN."""
    return ("NN", "TN", "NT") if DTYPES[dtype].bits > 8 else ("TN",)


def scale_factors_shape(scales: BlockScales, rows: int, k: int) -> tuple[int, int]:
    """Return the shape of the array of an operand's scale factors, in C order, for `rows` rows or columns of k numbers.

    Factors of single rows lie by blocks of k, [k / 128, rows]; those of square blocks by rows, [rows / 128, k / 128],
    with k / 128 rounded up to a multiple of four. Source: cuBLAS documentation, block scaling for FP8 data types.
    """
    blocks_along_k = math.ceil(k / scales.along_k)
    if scales.across == 1:
        return blocks_along_k, rows
    return math.ceil(rows / scales.across), math.ceil(blocks_along_k / 4) * 4


@dataclass(frozen=True)
class CublasAlgorithm:
    """An algorithm that the heuristic offers for a product. It estimates rank 0 to be the fastest."""

    rank: int
    name: str
    run: Callable[[int, int, int, int], None]  # takes the addresses of A, B and D, and of the stream


class CublasLt:
    """A cuBLASLt handle. `workspace` is the address of CUBLASLT_WORKSPACE_BYTES on the device."""

    def __init__(self, workspace: int):
        self._lt = import_module(BINDINGS)
        self._handle = self._lt.create()
        self._workspace = workspace
        self._kept_alive: list = []  # descriptors and algorithms hold addresses in these objects

    def find_algorithms(
        self, problem: GemmProblem, *, count: int, factor_addresses: tuple[int, int] | None = None
    ) -> list[CublasAlgorithm]:
        """Return up to `count` algorithms for a product; none if cuBLASLt has none for its shape and layout.

        `factor_addresses` are those of the scale factors of A and B, for a dtype that has some.
        """
        import numpy

        dtype, (m, n, k), layout, output = problem
        lt, row = self._lt, DTYPES[dtype]
        sums = DTYPES[output.accumulation.split()[0]].array
        # The results of int8 are scaled in fp32, unless they are the sums themselves.
        scale = sums if sums == "float64" or output.dtype == output.accumulation else "float32"
        transposed_a, transposed_b = layout[0] == "T", layout[1] == "T"
        compute = COMPUTE_32F_FAST_TF32 if dtype == "tf32" else COMPUTE_TYPES[sums]
        description = lt.matmul_desc_create(compute, DATA_TYPES[scale])
        self._set_attribute(description, "TRANSA", ctypes.c_int32(transposed_a))
        self._set_attribute(description, "TRANSB", ctypes.c_int32(transposed_b))
        if output.accumulation == FAST_ACCUMULATION:
            self._set_attribute(description, "FAST_ACCUM", ctypes.c_int8(1))
        if row.scales and factor_addresses:
            for operand, blocks, address in zip("AB", row.scales, factor_addresses, strict=True):
                mode = SCALE_MODES[blocks.across, blocks.along_k, blocks.bits]
                self._set_attribute(description, f"{operand}_SCALE_MODE", ctypes.c_int32(mode))
                self._set_attribute(description, f"{operand}_SCALE_POINTER", ctypes.c_uint64(address))
        a_rows, a_columns = (k, m) if transposed_a else (m, k)
        b_rows, b_columns = (n, k) if transposed_b else (k, n)
        # Stored by columns without gaps: the last argument is the numbers from column to column.
        a_layout = lt.matrix_layout_create(DATA_TYPES[row.array], a_rows, a_columns, a_rows)
        b_layout = lt.matrix_layout_create(DATA_TYPES[row.array], b_rows, b_columns, b_rows)
        d_layout = lt.matrix_layout_create(DATA_TYPES[DTYPES[output.dtype].array], m, n, m)
        addresses = self._ask_heuristic((description, a_layout, b_layout, d_layout, d_layout), count)
        alpha_and_zero = numpy.array([result_scale(dtype, output, k), 0], scale)
        alpha_address, zero_address = alpha_and_zero.ctypes.data, alpha_and_zero[1:].ctypes.data
        self._kept_alive.append(alpha_and_zero)

        def make_run(algorithm: int) -> Callable[[int, int, int, int], None]:
            def run(a_address: int, b_address: int, d_address: int, stream: int) -> None:
                operands = alpha_address, a_address, a_layout, b_address, b_layout
                result = zero_address, d_address, d_layout, d_address, d_layout
                workspace = self._workspace, CUBLASLT_WORKSPACE_BYTES
                try:
                    lt.matmul(self._handle, description, *operands, *result, algorithm, *workspace, stream)
                except lt.cuBLASLtError as error:
                    raise UnsupportedError(f"{dtype} {m} x {n} x {k} {layout}: {error}") from None

            return run

        return [
            CublasAlgorithm(rank, self._algorithm_name(address), make_run(address))
            for rank, address in enumerate(addresses)
        ]

    def _set_attribute(self, description: int, attribute: str, value: ctypes._SimpleCData) -> None:
        self._lt.matmul_desc_set_attribute(
            description, self._lt.MatmulDescAttribute[attribute], ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _ask_heuristic(self, product: tuple[int, ...], count: int) -> list[int]:
        """Return the addresses of the algorithms that the library can run, of `count` that it is asked for.

        `product` has the handles of its description and of the layouts of A, B, C and D.
        """
        lt = self._lt
        preference, limit = lt.matmul_preference_create(), ctypes.c_uint64(CUBLASLT_WORKSPACE_BYTES)
        lt.matmul_preference_set_attribute(
            preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, ctypes.addressof(limit), ctypes.sizeof(limit)
        )
        results, returned = lt.MatmulHeuristicResult(count), ctypes.c_int32(0)
        try:
            found = results.ptr, ctypes.addressof(returned)
            lt.matmul_algo_get_heuristic(self._handle, *product, preference, count, *found)
        except lt.cuBLASLtError:  # none for this shape and layout
            returned.value = 0
        finally:
            lt.matmul_preference_destroy(preference)
        self._kept_alive.append(results)
        size = lt.matmul_heuristic_result_dtype.itemsize
        addresses = [results.ptr + index * size for index in range(returned.value)]
        return [address for address in addresses if _result_status(address) == 0]

    def _algorithm_name(self, algorithm: int) -> str:
        """Return the algorithm's number, tile and stages, as cuBLASLt numbers them."""
        lt, parts = self._lt, []
        for attribute in ("ID", "TILE_ID", "STAGES_ID", "CLUSTER_SHAPE_ID", "SPLITK_NUM"):
            value, written = ctypes.c_int32(0), ctypes.c_size_t(0)
            kind = lt.MatmulAlgoConfigAttribute[attribute]
            size = 2 if attribute == "CLUSTER_SHAPE_ID" else 4
            try:
                lt.matmul_algo_config_get_attribute(
                    algorithm, kind, ctypes.addressof(value), size, ctypes.addressof(written)
                )
            except lt.cuBLASLtError:  # an older library does not know it
                continue
            parts.append(f"{attribute.removesuffix('_ID').removesuffix('_NUM').lower()} {value.value}")
        return ", ".join(parts).replace("id ", "algorithm ", 1)


def _result_status(result: int) -> int:
    """Return the state of a result: 0 if the library can run the algorithm (cublasLtMatmulHeuristicResult_t)."""
    algorithm_and_workspace = 8 * 8 + 8
    return ctypes.c_int32.from_address(result + algorithm_and_workspace).value
