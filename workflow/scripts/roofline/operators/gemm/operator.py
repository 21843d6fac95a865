"""GEMM: the reference GEMM, which the jobs of rule peak_flops time as well as the fastest product that they find."""

import math
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from roofline.core.dtypes import DTYPES, REGISTER_ONLY_DTYPES, TOLERANCES, dtype_bytes
from roofline.core.terms import Array
from roofline.devices.base import Device, Identity, Step, Workload
from roofline.devices.datasheets import CUDA_CORE
from roofline.operators.base import (
    GRAPH_APPLICATIONS,
    Case,
    CudaImplementation,
    ExecutedFlops,
    Implementation,
    Job,
    Operator,
)
from roofline.operators.constants import CPU_HOST_CONSTANTS, LAUNCH_START_TERMS, Constant, fitted, gpu_host_constants
from roofline.operators.gemm import gemm_arithmetic, tensor_matmul
from roofline.operators.gemm.tiling import Tiling, choose_tiling
from roofline.operators.setting_types import CompletedConfig
from roofline.records.seal_records import CostTerms

PROFILED_DTYPE, PROFILED_SEED = "fp16", 3  # the dtype whose counters are read, on operands of this seed
# The smallest size by kind of device: on two cores of a CPU, size 16 attains an eighth of the peak and 128 two thirds.
LEAST_SIZE = {"cpu": 256}
WORKLOAD_MODULES = {"gpu": "cuda_products", "cpu": "numpy_products"}  # by kind of device
FILLING_TILE = 128  # rows and columns: a reference GEMM has at least so much of C for each multiprocessor
CUDA_CORE_TILE = 64  # rows and columns of C that a multiprocessor's CUDA cores compute together
NARROWEST_TILE = 16
LEAST_DEPTH = 512  # of k that each multiprocessor's CUDA cores take where several share a tile: rule of thumb
CACHED_SHARE = 0.69  # of the L2: what rotates through no more than that stays in it
HOST_SOURCE = "drawn cells where nothing disturbed an H200's host"
LIMIT_SOURCE = "limit of the fit, from large cells, which it reaches: reference/experiments/predictions"
BLAS_SOURCE = "rule of thumb: OpenBLAS on servers, 80 to 90 %"
COST_CONSTANTS = {
    "gpu": {
        **gpu_host_constants("product_call_s", "graph_launch_s", "empty_kernel_s"),
        "library_call_s": Constant(9.7e-6, HOST_SOURCE, "host: a library's function from Python"),
        "kernel_start_s": fitted(2.14e-06, "a kernel, and its first tile's operands and results"),
        "graph_node_s": fitted(3.05e-06, "the same as one of many nodes of a graph, without an empty kernel's time"),
        "tensor_pipe_share": fitted(0.833, "of the datasheet's rate that cuBLAS attains under the power limit"),
        "byte_pipe_share": fitted(0.765, "the same of operands of 8 bits"),
        "next_tile_s": fitted(2.07e-06, "a multiprocessor's next tile: its operands, and its results"),
        "tile_load_s_per_byte": fitted(1.07e-11, "operands on their way from the L2 to a multiprocessor"),
        "split_tile_s": fitted(3.98e-06, "tiles whose k is divided: the sums of their parts are waited for"),
        "split_sum_s_per_byte": fitted(4.82e-13, "these sums, through the L2"),
        "stream_share": fitted(0.914, "of the memory ceiling that products on tensor cores attain"),
        "fma_pipe_share": fitted(0.688, "of the datasheet's rate that CUDA cores attain in fp32"),
        "product_s_per_column": fitted(6.71e-10, "there the sums along k, which no number of blocks shortens"),
        "fma_stream_share": Constant(0.7, LIMIT_SOURCE, "of the memory ceiling that thin products attain there"),
    },
    "cpu": {
        **CPU_HOST_CONSTANTS,
        "blas_share": Constant(0.85, BLAS_SOURCE, "of clock x lanes x ports that the BLAS attains"),
    },
}


def filled_share(m: int, n: int, k: int, multiprocessors: int, tile: int = CUDA_CORE_TILE) -> float:
    """Return the share of the multiply-adds of the multiprocessors' CUDA cores that C needs.

    The other multiply-adds are lost: tiles reach over the edges of C, and the last wave of tiles leaves multiprocessors
    idle. If there are few tiles, several multiprocessors share the k of a tile.
    """
    tiles = math.ceil(m / tile) * math.ceil(n / tile)
    multiprocessors_per_tile = max(1, min(multiprocessors // tiles, k // LEAST_DEPTH))
    waves = math.ceil(tiles * multiprocessors_per_tile / multiprocessors)
    needed_share = _edge_share(m, tile) * _edge_share(n, tile)
    return needed_share * tiles * multiprocessors_per_tile / (waves * multiprocessors)


def _pad_to_tile(side: int, tile: int) -> int:
    return math.ceil(side / tile) * tile


def _edge_share(side: int, largest_tile: int) -> float:
    """Return the share of a side in the tiles that cover it."""
    tile = min(largest_tile, _pad_to_tile(side, NARROWEST_TILE))
    return side / _pad_to_tile(side, tile)


def _pipe_share(bits: int) -> str:
    """Return the name of the constant of tensor cores whose operands have so many bits."""
    return "byte_pipe_share" if bits == 8 else "tensor_pipe_share"


@cache
def _library_tiling(sides: tuple[int, int, int], bits: int, multiprocessors: int) -> tuple[Tiling, bool]:
    """Return what choose_tiling does by the constants above."""
    constants = {name: constant.value for name, constant in COST_CONSTANTS["gpu"].items()}
    share = constants[_pipe_share(bits)]
    return choose_tiling(sides, operand_bits=bits, multiprocessors=multiprocessors, share=share, constants=constants)


def workloads_module(device: Device) -> ModuleType:
    """Import the module with the workloads of a device, which loads the device's array library.

    Each has the functions reference_workload, own_reference_workloads, planned_references, candidate_workloads,
    rebuild_workload and variant_workloads.
    """
    return import_module(f"roofline.operators.gemm.{WORKLOAD_MODULES[device.kind]}")


class GemmImplementation(Implementation):
    """A GEMM workload as a cell: the workload has its own inputs, step and check."""

    workload: Workload  # a planned cell has none

    def step(self, scope: str | None) -> Step:
        return self.workload.step


class CudaGemm(CudaImplementation, GemmImplementation):
    """GEMM on a GPU by CuPy."""

    name, fused = "cupy.matmul", True

    def costs(self, scope: str | None) -> CostTerms:
        on_cuda_cores = self.device.compute_unit(self.case.dtype) == CUDA_CORE
        work = self._cuda_core_costs() if on_cuda_cores else self._tensor_core_costs()
        return CostTerms(**self._start_costs(), **work)

    def _start_costs(self) -> dict[str, Any]:
        """Return what the call costs the host, and the kernel's start the card."""
        call = "product_call_s" if self.name == CudaGemm.name else "library_call_s"
        return {"calls": {call: 1.0}, "start": LAUNCH_START_TERMS}

    def _cuda_core_costs(self) -> dict[str, Any]:
        return {
            "floor": {"product_s_per_column": float(self.case.shape["k"])},
            "share": "fma_stream_share",
            "compute_share": "fma_pipe_share",
            "filled": filled_share(**self.case.shape, multiprocessors=self.device.multiprocessors),
        }

    def _tensor_core_costs(self) -> dict[str, Any]:
        """Return the costs of tiles on tensor cores, whose multiply-adds and loads go on at the same time."""
        bits, shape = DTYPES[self.case.dtype].bits, self.case.shape
        sides = shape["m"], shape["n"], shape["k"]
        tiling, loads_hide = _library_tiling(sides, bits, self.device.multiprocessors)
        products = math.prod(sides)
        loads = {} if loads_hide else {"tile_load_s_per_byte": tiling.loaded_bytes}
        return {
            "waits": {**tiling.waits(), **loads},
            "share": "stream_share",
            "compute_share": _pipe_share(bits),
            "compute_adds": loads_hide,
            "filled": min(1.0, products / (self.device.multiprocessors * tiling.executed_products)),  # rounded above 1
        }

    def memory_bytes(self, scope: str | None) -> int:
        """Return the bytes that come from memory. A and C stay the same from step to step, and B rotates among the
        copies: what fits the L2 stays there."""
        if not self.count:
            return super().memory_bytes(scope)
        shape, dtype = self.case.shape, self.case.dtype
        rotating = DTYPES[dtype].operand_bytes(shape["n"], shape["k"], "weights")
        staying, cached = super().memory_bytes(scope) - rotating, CACHED_SHARE * self.device.last_level_cache_bytes
        parts = [(staying, staying), (rotating, staying + self.count * rotating)]
        return sum(size for size, reused_after in parts if reused_after > cached)


class CublasLtGemm(CudaGemm):
    """GEMM on a GPU by cuBLASLt."""

    name = gemm_arithmetic.CUBLASLT


class CublasLtGemmGraph(CublasLtGemm):
    """The same as one of many nodes of a CUDA graph, as in a model's step: it is predicted and not measured."""

    name, graph = f"{gemm_arithmetic.CUBLASLT}_graph", True

    def _start_costs(self) -> dict[str, Any]:
        return {"calls": {"graph_launch_s": 1 / GRAPH_APPLICATIONS}, "start": {"graph_node_s": 1.0}}


class TensorMatmul(CudaGemm):
    """GEMM by our kernel for tensor cores."""

    name = tensor_matmul.LIBRARY_NAME

    def kernels(self) -> list[tuple]:
        return [tensor_matmul.kernel_spec(self.case.dtype, self.device.is_hopper)]

    def executed_flops(self, scope: str | None) -> ExecutedFlops:
        """Return the FLOPs of whole tiles. C as cuBLASLt stores it, by columns, is C^T to the kernel."""
        rows, columns, depth = tensor_matmul.tile_shape(self.device.is_hopper)
        shape = self.case.shape
        flops = gemm_arithmetic.gemm_flops(
            m=_pad_to_tile(shape["n"], rows), n=_pad_to_tile(shape["m"], columns), k=_pad_to_tile(shape["k"], depth)
        )
        return ExecutedFlops({"tensor": float(flops)}, f"tiles of {rows} x {columns}")


class NumpyGemm(GemmImplementation):
    """GEMM on a CPU by NumPy's BLAS."""

    name, kind, fused = "numpy.matmul", "cpu", True

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(calls={"array_operation_s": 1.0}, compute_share="blas_share")


IMPLEMENTATIONS: dict[str, type[GemmImplementation]] = {
    implementation.name: implementation
    for implementation in (CudaGemm, CublasLtGemm, CublasLtGemmGraph, TensorMatmul, NumpyGemm)
}


class Gemm(Operator):
    """C = A B, with C of m x n and an inner size k. The jobs of the compute ceilings (rule peak_flops) measure it."""

    name = "gemm"
    rule = "peak_flops"
    unit = "tensor_core"
    tolerance = TOLERANCES
    constants = COST_CONSTANTS
    implementations = tuple(IMPLEMENTATIONS.values())
    cached_when_warm = False
    measured_with_ceilings = True

    def jobs(self, config: CompletedConfig) -> list[Job]:
        return []

    def flops(self, case: Case, scope: str | None = None) -> int:
        return gemm_arithmetic.gemm_flops(case.shape["m"], case.shape["n"], case.shape["k"])

    def bytes(self, case: Case, scope: str | None = None) -> int:
        shape, operand = case.shape, DTYPES[case.dtype]
        a_bytes = operand.operand_bytes(shape["m"], shape["k"], "activations")
        b_bytes = operand.operand_bytes(shape["n"], shape["k"], "weights")
        return a_bytes + b_bytes + self.written_bytes(case)

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        """Return the bytes of C, whose dtype may differ from that of A and B."""
        shape = case.shape
        return dtype_bytes(case.params.get("output") or case.dtype, shape["m"] * shape["n"])

    def profiled(self, config: CompletedConfig) -> list[Job]:
        """Return a job of the reference GEMM in PROFILED_DTYPE; none if the settings leave that dtype out."""
        settings = config.peak_flops
        if PROFILED_DTYPE not in settings.dtypes:
            return []
        return [Job(PROFILED_DTYPE, (Case(dict.fromkeys(("m", "n", "k"), settings.size), PROFILED_DTYPE),))]

    def ready_cells(self, device: Device, case: Case) -> Iterator[GemmImplementation]:
        workloads, size = workloads_module(device), case.shape["m"]
        for workload in (
            workloads.reference_workload(device, case.dtype, size, PROFILED_SEED),
            *workloads.own_reference_workloads(device, case.dtype, size, PROFILED_SEED),
        ):
            yield self.make_cell(device, case.dtype, workload)

    def smallest(self, case: Case) -> None:
        """Return None: the cost of a call is negligible in a product that fills the device."""

    def inputs(self, device: Device, case: Case, seed: int) -> dict:
        return {}  # a workload makes its own, on which it is checked

    def reference(self, case: Case, inputs: dict) -> Array:
        raise NotImplementedError("a workload is checked by its own check()")

    def plan_cells(self, device: Device, dtype: str, size: int) -> list[GemmImplementation]:
        """Return the cells that will be timed, without workloads: the reference GEMM, and our kernel's of its size."""
        shape = dict.fromkeys(("m", "n", "k"), size)
        references = workloads_module(device).planned_references(device, dtype, size)
        return [self._make_cell(device, dtype, shape, library, output) for library, output in references]

    def make_cell(self, device: Device, dtype: str, workload: Workload) -> GemmImplementation:
        """Return the cell of a workload."""
        spec = workload.product
        cell = self._make_cell(device, dtype, spec.shape, spec.library, spec.output)
        cell.workload = workload
        return cell

    def _make_cell(
        self, device: Device, dtype: str, shape: dict[str, int], library: str, output: str
    ) -> GemmImplementation:
        case = Case(shape=shape, dtype=dtype, params={"output": output})
        return IMPLEMENTATIONS[library](self, device, case, count=0)  # the workload's inputs do not rotate

    def faults(self, config: CompletedConfig, devices: Iterable[Identity]) -> list[str]:
        """Return a line for each device that the size does not fill, or whose memory does not hold the operands."""
        multiplied = [dtype for dtype in config.peak_flops.dtypes if dtype not in REGISTER_ONLY_DTYPES]
        size, faults = config.peak_flops.size, []
        needed = max((gemm_arithmetic.square_gemm_bytes(size, dtype) for dtype in multiplied), default=0)
        for identity in devices if multiplied else ():
            device, free = identity.device, identity.memory_free_bytes
            multiprocessors, least = identity.multiprocessors, LEAST_SIZE.get(identity.kind, 0)
            filling = FILLING_TILE * math.ceil(math.sqrt(multiprocessors or 0))
            if size < filling:
                wanted = f"{multiprocessors} multiprocessors want {filling} or more"
                faults.append(f"is too small to fill {device}: {wanted}")
            if size < least:
                problem = f"is too small for {device}: so small a product stays under the peak"
                faults.append(f"{problem}; allowed: {least} or more")
            if needed > free:
                faults.append(f"needs {needed:,} bytes on {device}, and {free:,} are free there")
        return [f"peak_flops.size: {size} {fault}" for fault in faults]
