"""RMSNorm by a kernel of ours, then a library's product: two launches, or many pairs in a CUDA graph."""

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from roofline.core.roofline_model import LANES_PER_WARP
from roofline.core.terms import UnsupportedError
from roofline.devices.gpu.kernel_compiler import list_kernel_files
from roofline.operators.base import Implementation
from roofline.operators.constants import launch_terms
from roofline.operators.gemm.cublaslt import BINDINGS, CUBLASLT_WORKSPACE_BYTES, CublasLt
from roofline.operators.gemm.tensor_matmul import missing_tensor_cores_reason
from roofline.records.seal_records import CostTerms

KERNELS = Path(__file__).parent / "kernels"
RMS_NORM = KERNELS / "rms_norm.cu"
NORM_EPS = 1e-6
NUMBERS_PER_VECTOR = 8  # numbers of 16 bytes
MOST_THREADS = 512  # 1024 were slower before a product of ours
FEWEST_IN_GRAPH = 24  # applications: the graph's own launch is shared among so many
WAITING, OVERLAPPED = "waiting", "overlapped"
NORM_ARGUMENTS = 5


class TensorCoreImplementation(Implementation):
    """Of kernels of ours, which take what tensor cores take."""

    kind = "gpu"
    scopes = (WAITING,)

    @classmethod
    def unsupported(cls, device, case) -> str | None:
        return missing_tensor_cores_reason(case.dtype, device.capability)


def norm_kernel_spec(dtype: str) -> tuple:
    return RMS_NORM, "rms_norm", (f"-DBF16={int(dtype == 'bf16')}",)


class RmsNormKernel:
    """RMSNorm by a kernel of ours: of x [batch, hidden] to `result`, which may have more rows."""

    def __init__(self, device, dtype: str, x, g, rows: int | None = None):
        import numpy

        batch, hidden = x.shape
        self.device, self.result = device, device.empty((rows or batch, hidden), dtype)
        self.kernel = device.load_kernel(*norm_kernel_spec(dtype))
        self.grid, self.block = (
            (batch,),
            (min(MOST_THREADS, math.ceil(hidden / NUMBERS_PER_VECTOR / LANES_PER_WARP) * LANES_PER_WARP),),
        )
        self.rest = (g, self.result, numpy.int32(hidden), numpy.float32(NORM_EPS))

    def launcher(self, overlap: bool) -> Callable:
        """A function of x, over the end of the kernel before or not."""
        launch = self.device.make_launcher(self.kernel, self.grid, self.block, 0, overlap)
        return lambda x: launch((x, *self.rest))


class UnfusedRmsNormMatmul(TensorCoreImplementation):
    name, launches = "unfused", 2
    sources = tuple(sorted(list_kernel_files(RMS_NORM)))

    def kernels(self) -> list[tuple]:
        return [norm_kernel_spec(self.case.dtype)]

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.norm = RmsNormKernel(self.device, self.case.dtype, copies[0]["x"], shared["g"])
        self.normalise = self.norm.launcher(overlap=False)

    def compute(self, inputs: dict):
        self.normalise(inputs["x"])
        self.multiply(inputs["w"], inputs["y"])
        return inputs["y"]

    def multiply(self, w, y) -> None:
        self.device.xp.matmul(self.norm.result, w.T, out=y)

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={**launch_terms(NORM_ARGUMENTS), "product_call_s": 1.0},
            start={"empty_kernel_s": 1.0, "norm_kernel_s": 1.0, "product_start_s": 1.0},
            waits={"product_s_per_column": float(self.case.shape["hidden"])},
            share="product_stream_share",
        )


class GraphImplementation(TensorCoreImplementation):
    """Several applications a call, which go through all copies in turn."""

    graph = True

    @property
    def per_call(self) -> int:
        return math.ceil(FEWEST_IN_GRAPH / self.count) * self.count

    @property
    def turns(self) -> list[int]:
        """Numbers of the copies, in the order in which a graph goes through them."""
        return [*range(self.count)] * (self.per_call // self.count)

    def captured(self, scope: str | None):
        raise NotImplementedError

    def step(self, scope: str | None):
        graph, stream, result = self.captured(scope), self.device.stream, self.copies[-1]["y"]

        def step(index: int):
            graph.launch(stream)
            return result

        return step


class UnfusedRmsNormMatmulGraph(GraphImplementation, UnfusedRmsNormMatmul):
    """By cuBLASLt's first choice: CuPy refuses to have cuBLAS in a graph."""

    name = "unfused_graph"
    modules = (BINDINGS,)

    @cached_property
    def product(self):
        batch, hidden = self.case.shape["batch"], self.case.shape["hidden"]
        self.workspace = self.device.xp.empty(CUBLASLT_WORKSPACE_BYTES, "uint8")
        self.library = CublasLt(self.workspace.data.ptr)
        sides, dtype = (hidden, batch, hidden), self.case.dtype  # y by rows is y^T = W x^T by columns
        found = self.library.algorithms(dtype, *sides, "TN", dtype, alpha=1.0, fast=False, count=1)
        if not found:
            raise UnsupportedError(f"cuBLASLt offers no {dtype} product of {batch} x {hidden} by {hidden} x {hidden}")
        return found[0]

    def multiply(self, w, y) -> None:
        self.product.run(w.data.ptr, self.norm.result.data.ptr, y.data.ptr, self.device.stream.ptr)

    def captured(self, scope: str | None):
        self.compute(self.copies[0])  # what is loaded at a first launch would not be captured
        return self.device.capture_graph(lambda: [self.compute(self.copies[place]) for place in self.turns])

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call},
            start={"norm_kernel_s": 1.0, "product_start_s": 1.0},
            waits={"product_s_per_column": float(self.case.shape["hidden"])},
            share="product_stream_share",
        )
