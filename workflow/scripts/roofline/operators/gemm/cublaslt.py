"""Matrix products by cuBLASLt, through nvmath-python's bindings: every dtype of tensor cores, a choice of algorithms.

Matrices are column-major there. A product D = op(A) op(B) is m x n, of inner size k; its layout names op(A) and op(B),
N as stored and T transposed. Arrays of this module are row-major, so that A is (k, m) under N and (m, k) under T, B is
(n, k) under N and (k, n) under T, and D is (n, m).
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from roofline.core.terms import UnsupportedError

BINDINGS = "nvmath.bindings.cublasLt"  # a module that takes 0.4 s to import
CUBLASLT_WORKSPACE_BYTES = 64 << 20  # what NVIDIA recommends from Hopper on is 32 MiB

# Values of cudaDataType (library_types.h) and of cublasComputeType_t (cublas_api.h).
R_32F, R_64F, R_16F, R_8I, R_32I, R_16BF, R_8F_E4M3 = 0, 1, 2, 3, 10, 14, 28
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32, COMPUTE_32I = 68, 70, 77, 72
TYPE_OF_OUTPUT = {"fp64": R_64F, "fp32": R_32F, "fp16": R_16F, "bf16": R_16BF, "int8": R_8I, "int32": R_32I}


class CublasArithmetic(NamedTuple):
    """How cuBLASLt multiplies a dtype: types of A and B, of the sum, of the scale factors, and the layouts it has."""

    operand: int
    compute: int
    scale: int
    layouts: tuple[str, ...]
    accumulation: str


EVERY_LAYOUT = ("NN", "TN", "NT")
ARITHMETIC_BY_DTYPE = {
    "fp64": CublasArithmetic(R_64F, COMPUTE_64F, R_64F, EVERY_LAYOUT, "fp64"),
    "fp32": CublasArithmetic(R_32F, COMPUTE_32F, R_32F, EVERY_LAYOUT, "fp32"),
    "tf32": CublasArithmetic(R_32F, COMPUTE_32F_FAST_TF32, R_32F, EVERY_LAYOUT, "fp32"),
    "fp16": CublasArithmetic(R_16F, COMPUTE_32F, R_32F, EVERY_LAYOUT, "fp32"),
    "bf16": CublasArithmetic(R_16BF, COMPUTE_32F, R_32F, EVERY_LAYOUT, "fp32"),
    "fp8_e4m3": CublasArithmetic(R_8F_E4M3, COMPUTE_32F, R_32F, ("TN",), "fp32"),
    "int8": CublasArithmetic(R_8I, COMPUTE_32I, R_32F, ("TN",), "int32"),
}


@dataclass(frozen=True)
class CublasAlgorithm:
    """One of the algorithms that the heuristic offers for a product, best first by its own estimate."""

    rank: int
    name: str
    run: Callable[[int, int, int, int], None]  # pointers of A, B and D, and the stream's


class CublasLt:
    """A handle and its workspace. `workspace` is the address of WORKSPACE_BYTES on the device."""

    def __init__(self, workspace: int):
        self._lt = import_module(BINDINGS)
        self._handle = self._lt.create()
        self._workspace = workspace
        self._kept: list = []  # what descriptors and algorithms point into

    def algorithms(
        self, dtype: str, m: int, n: int, k: int, layout: str, output: str, *, alpha: float, fast: bool, count: int
    ) -> list[CublasAlgorithm]:
        """Up to `count` algorithms for a product; none where cuBLASLt has none for this shape and layout.

        `output` is the dtype of D; `alpha` scales the sum; `fast` asks for fp8's fast accumulation, which keeps fewer
        bits of partial sums.
        """
        lt, arithmetic = self._lt, ARITHMETIC_BY_DTYPE[dtype]
        scale = R_32I if output == "int32" else arithmetic.scale
        description = lt.matmul_desc_create(arithmetic.compute, scale)
        for attribute, operation in (("TRANSA", layout[0]), ("TRANSB", layout[1])):
            self._describe(description, attribute, ctypes.c_int32(int(operation == "T")))
        if fast:
            self._describe(description, "FAST_ACCUM", ctypes.c_int8(1))
        a = _create_layout(lt, arithmetic.operand, *((k, m) if layout[0] == "T" else (m, k)))
        b = _create_layout(lt, arithmetic.operand, *((n, k) if layout[1] == "T" else (k, n)))
        d = _create_layout(lt, TYPE_OF_OUTPUT[output], m, n)
        found = self._heuristic(description, a, b, d, count)
        kinds = {R_64F: ctypes.c_double, R_32F: ctypes.c_float, R_32I: ctypes.c_int32}
        one, zero = kinds[scale](1 if scale == R_32I else alpha), kinds[scale](0)
        self._kept += [one, zero, found]

        def runner(algorithm: int):
            def run(a_address: int, b_address: int, d_address: int, stream: int) -> None:
                operands = ctypes.addressof(one), a_address, a, b_address, b
                result = ctypes.addressof(zero), d_address, d, d_address, d
                workspace = self._workspace, CUBLASLT_WORKSPACE_BYTES
                try:
                    lt.matmul(self._handle, description, *operands, *result, algorithm, *workspace, stream)
                except lt.cuBLASLtError as error:
                    raise UnsupportedError(f"{dtype} {m} x {n} x {k} {layout}: {error}") from None

            return run

        return [
            CublasAlgorithm(rank, self._name(result), runner(result)) for rank, result in enumerate(found.addresses)
        ]

    def _describe(self, description: int, attribute: str, value) -> None:
        self._lt.matmul_desc_set_attribute(
            description, self._lt.MatmulDescAttribute[attribute], ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _heuristic(self, description: int, a: int, b: int, d: int, count: int) -> "_HeuristicResults":
        lt = self._lt
        preference, limit = lt.matmul_preference_create(), ctypes.c_uint64(CUBLASLT_WORKSPACE_BYTES)
        lt.matmul_preference_set_attribute(
            preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, ctypes.addressof(limit), ctypes.sizeof(limit)
        )
        results, returned = lt.MatmulHeuristicResult(count), ctypes.c_int32(0)
        try:
            lt.matmul_algo_get_heuristic(
                self._handle, description, a, b, d, d, preference, count, results.ptr, ctypes.addressof(returned)
            )
        except lt.cuBLASLtError:  # none for this shape and layout
            returned.value = 0
        finally:
            lt.matmul_preference_destroy(preference)
        size = lt.matmul_heuristic_result_dtype.itemsize
        addresses = [results.ptr + place * size for place in range(returned.value)]
        return _HeuristicResults(results, [place for place in addresses if _result_status(place) == 0])

    def _name(self, algorithm: int) -> str:
        """The algorithm's number, tile and stages, as cuBLASLt numbers them."""
        lt, said = self._lt, []
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
            said.append(f"{attribute.removesuffix('_ID').removesuffix('_NUM').lower()} {value.value}")
        return ", ".join(said).replace("id ", "algorithm ", 1)


class _HeuristicResults(NamedTuple):
    results: object  # owns the memory
    addresses: list[int]


def _result_status(result: int) -> int:
    """Whether the library can run an offered algorithm: 0 where it can (cublasLtMatmulHeuristicResult_t)."""
    algorithm_and_workspace = 8 * 8 + 8
    return ctypes.c_int32.from_address(result + algorithm_and_workspace).value


def _create_layout(lt, kind: int, rows: int, columns: int) -> int:
    return lt.matrix_layout_create(kind, rows, columns, rows)
