"""GEMM: the reference GEMM, which the jobs of rule peak_flops time next to the fastest product that they find."""

import math
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from roofline.core.dtypes import ITEM_BYTES, REGISTER_ONLY_DTYPES
from roofline.devices.base import Identity
from roofline.devices.gpu.kernel_compiler import list_kernel_files
from roofline.operators.base import Case, ExecutedFlops, Implementation, Job, Operator
from roofline.operators.constants import (
    CPU_HOST_CONSTANTS,
    FITTED_SOURCE,
    LAUNCH_START_TERMS,
    LIMIT_SOURCE,
    Constant,
    Constants,
    gpu_host_constants,
)
from roofline.operators.gemm import gemm_arithmetic, tensor_matmul
from roofline.records.seal_records import CostTerms

FOLDER = Path(__file__).parent
PROFILED_DTYPE, PROFILED_SEED = "fp16", 3  # the dtype whose counters are read, on operands of this seed
# Rows of a product by kind of device: on two cores of a CPU one of 16 gives an eighth of the peak, 128 two thirds.
LEAST_SIZE = {"cpu": 256}
WORKLOAD_MODULES = {"gpu": "cuda_products", "cpu": "numpy_products"}  # modules that offer products, by kind of device
TILE, CUDA_CORE_TILE = 128, 64  # rows and columns of a product's tile on one multiprocessor, on tensor cores or not
PIPE_SHARES = {"fp32": "fma_pipe_share"}  # of other dtypes tensor_pipe_share
NARROWEST_TILE = 16  # the narrowest tile
LEAST_DEPTH = 512  # of k that a multiprocessor gets where few tiles share k: rule of thumb
COST_CONSTANTS: dict[str, Constants] = {
    "gpu": {
        **gpu_host_constants("product_call_s", "empty_kernel_s"),
        "library_call_s": Constant(
            9.7e-6, "drawn cells where nothing disturbed an H200's host", "host: a library's function from Python"
        ),
        "kernel_start_s": Constant(2.27e-06, FITTED_SOURCE, "a kernel with next to nothing to do"),
        # Elsewhere: 96 % by wgmma and 63 to 65 % by mma.sync on an H800 PCIe (arXiv 2501.12084).
        "tensor_pipe_share": Constant(0.86, LIMIT_SOURCE, "of the multiply-adds per clock that cuBLAS attains"),
        "fma_pipe_share": Constant(0.691, FITTED_SOURCE, "the same of fp32 on CUDA cores"),
        "product_s_per_column": Constant(
            6.71e-10, FITTED_SOURCE, "the sums along k, which no number of blocks shortens"
        ),
        "stream_share": Constant(0.7, LIMIT_SOURCE, "of the memory ceiling that thin products attain"),
    },
    "cpu": {
        **CPU_HOST_CONSTANTS,
        "blas_share": Constant(
            0.85, "rule of thumb: OpenBLAS on servers, 80 to 90 %", "of clock x lanes x ports that the BLAS attains"
        ),
    },
}


def filled_share(m: int, n: int, k: int, multiprocessors: int, tile: int = TILE) -> float:
    """Of the multiprocessors' multiply-adds, the share that C needs: tiles reach over its edges, and come in waves of
    which the last leaves multiprocessors idle. Where tiles are few, several multiprocessors share a tile's k."""
    tiles = math.ceil(m / tile) * math.ceil(n / tile)
    sharing = max(1, min(multiprocessors // tiles, k // LEAST_DEPTH))
    waves = math.ceil(tiles * sharing / multiprocessors)
    return _edge_share(m, tile) * _edge_share(n, tile) * tiles * sharing / (waves * multiprocessors)


def _pad_to_tile(side: int, tile: int) -> int:
    return math.ceil(side / tile) * tile


def _edge_share(side: int, most: int) -> float:
    tile = min(most, math.ceil(side / NARROWEST_TILE) * NARROWEST_TILE)
    return side / (math.ceil(side / tile) * tile)


def workloads_module(device):
    """The module that offers products on a device: reference_workload, own_reference_workloads, candidate_workloads, rebuild_workload,
    variants."""
    return import_module(f"roofline.operators.gemm.{WORKLOAD_MODULES[device.kind]}")  # it loads its array library


class GemmImplementation(Implementation):
    """A workload of an array library; a step multiplies, the check is the workload's own."""

    workload = None

    def __init__(self, operator, device, case: Case, library: str):
        super().__init__(operator, device, case, count=0)  # a workload has its own inputs, which do not rotate
        self.name = library

    def step(self, scope: str | None):
        return self.workload.step

    def costs(self, scope: str | None) -> CostTerms:
        by_array_library = self.name == CudaGemm.name
        tile = CUDA_CORE_TILE if self.case.dtype == "fp32" else TILE
        return CostTerms(
            calls={"product_call_s" if by_array_library else "library_call_s": 1.0},
            start=LAUNCH_START_TERMS,
            floor={"product_s_per_column": float(self.case.shape["k"])},
            share="stream_share",
            compute_share=PIPE_SHARES.get(self.case.dtype, "tensor_pipe_share"),
            filled=filled_share(**self.case.shape, multiprocessors=self.device.multiprocessors, tile=tile),
        )


class CudaGemm(GemmImplementation):
    name, kind, fused = "cupy.matmul", "gpu", True
    sources = (FOLDER / "cuda_products.py",)


class TensorMatmul(CudaGemm):
    name = tensor_matmul.LIBRARY_NAME
    sources = (*CudaGemm.sources, *sorted(list_kernel_files(tensor_matmul.KERNEL)))

    def kernels(self) -> list[tuple]:
        return [tensor_matmul.kernel_spec(self.case.dtype, self.device.is_hopper)]

    def executed_flops(self, scope: str | None) -> ExecutedFlops:
        """Of whole tiles. cuBLASLt's C, stored by columns, is C^T to the kernel."""
        rows, columns, depth = tensor_matmul.tile_shape(self.device.is_hopper)
        shape = self.case.shape
        padded = [_pad_to_tile(*one) for one in ((shape["n"], rows), (shape["m"], columns), (shape["k"], depth))]
        return ExecutedFlops({"tensor": float(gemm_arithmetic.gemm_flops(*padded))}, f"tiles of {rows} x {columns}")


class NumpyGemm(GemmImplementation):
    name, kind, fused = "numpy.matmul", "cpu", True
    sources = (FOLDER / "numpy_products.py",)

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(calls={"array_operation_s": 1.0}, compute_share="blas_share")


class Gemm(Operator):
    name = "gemm"
    rule = "peak_flops"
    unit = "tensor_core"
    tolerance = gemm_arithmetic.GEMM_TOLERANCE
    constants = COST_CONSTANTS
    implementations = (CudaGemm, TensorMatmul, NumpyGemm)
    cached_when_warm = False
    measured_with_ceilings = True

    def jobs(self, config) -> list[Job]:
        return []

    def flops(self, case: Case, scope: str | None = None) -> int:
        return gemm_arithmetic.gemm_flops(case.shape["m"], case.shape["n"], case.shape["k"])

    def bytes(self, case: Case, scope: str | None = None) -> int:
        shape = case.shape
        return gemm_arithmetic.gemm_bytes(shape["m"], shape["n"], shape["k"], case.dtype, case.params.get("output"))

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        shape = case.shape
        return shape["m"] * shape["n"] * ITEM_BYTES[case.params.get("output") or case.dtype]

    def profiled(self, config) -> Job | None:
        """The reference GEMM of PROFILED."""
        settings = config.peak_flops
        shape = dict.fromkeys(("m", "n", "k"), settings.size)
        return Job(PROFILED_DTYPE, (Case(shape, PROFILED_DTYPE),)) if PROFILED_DTYPE in settings.dtypes else None

    def ready_cells(self, device, case: Case) -> Iterator[GemmImplementation]:
        on, size = workloads_module(device), case.shape["m"]
        for workload in (
            on.reference_workload(device, case.dtype, size, PROFILED_SEED),
            *on.own_reference_workloads(device, case.dtype, size, PROFILED_SEED),
        ):
            yield self.measured(device, case.dtype, workload)

    def smallest(self, case: Case) -> None:
        """None: what a call costs is nothing next to a product that fills the device."""

    def inputs(self, device, case: Case, seed: int) -> dict:
        return {}  # workloads bring their own, on which they are checked

    def reference(self, case: Case, inputs: dict):
        raise NotImplementedError("a workload is checked by its own check()")

    def planned(self, device, dtype: str, size: int) -> list[GemmImplementation]:
        """The products that are timed as operators: the reference GEMM, and ours of the same size."""
        shape = dict.fromkeys(("m", "n", "k"), size)
        return [
            self._product(device, dtype, shape, *one)
            for one in workloads_module(device).planned_references(device, dtype, size)
        ]

    def measured(self, device, dtype: str, workload) -> GemmImplementation:
        product = workload.product
        found = self._product(device, dtype, product.shape, product.library, product.output)
        found.workload = workload
        return found

    def _product(self, device, dtype: str, shape: dict[str, int], library: str, output: str) -> GemmImplementation:
        kind = next(one for one in (CudaGemm, NumpyGemm) if one.kind == device.kind)
        kind = TensorMatmul if library == TensorMatmul.name else kind
        return kind(self, device, Case(shape=shape, dtype=dtype, params={"output": output}), library)

    def faults(self, config, devices: Iterable[Identity]) -> list[str]:
        """Sizes that would measure something else: a device that is not filled, or does not hold the operands."""
        multiplied = [dtype for dtype in config.peak_flops.dtypes if dtype not in REGISTER_ONLY_DTYPES]
        size, found = config.peak_flops.size, []
        for identity in devices if multiplied else ():
            filling = TILE * math.ceil(math.sqrt(identity.multiprocessors or 0))
            needed = max(gemm_arithmetic.square_gemm_bytes(size, dtype) for dtype in multiplied)
            if size < filling:
                found.append(
                    f"peak_flops.size: {size} is too small to fill {identity.device}: "
                    f"{identity.multiprocessors} multiprocessors want {filling} or more"
                )
            if size < LEAST_SIZE.get(identity.kind, 0):
                found.append(
                    f"peak_flops.size: {size} is too small for {identity.device}: so small a product stays under the "
                    f"peak; allowed: {LEAST_SIZE[identity.kind]} or more"
                )
            if needed > identity.memory_free_bytes:
                found.append(
                    f"peak_flops.size: {size} needs {needed:,} bytes on {identity.device}, and "
                    f"{identity.memory_free_bytes:,} are free there"
                )
        return found
