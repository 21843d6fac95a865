"""RMSNorm by a kernel of ours, then a library's product: two launches, or many pairs in a CUDA graph."""

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from roofline.core.dtypes import DTYPES
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.core.terms import Array, UnsupportedError
from roofline.devices.base import CudaDevice, Step
from roofline.operators.base import GRAPH_APPLICATIONS, Case, CudaImplementation
from roofline.operators.constants import launch_terms
from roofline.operators.gemm import cublaslt
from roofline.operators.gemm.tensor_matmul import half_type_option, missing_tensor_cores_reason
from roofline.records.seal_records import CostTerms

KERNELS = Path(__file__).parent / "kernels"
RMS_NORM = KERNELS / "rms_norm.cu"
NORM_EPS = 1e-6
NUMBERS_PER_VECTOR = 8  # in 16 bytes
MOST_THREADS = 512  # 1024 were slower before a product of ours
WAITING, OVERLAPPED = "waiting", "overlapped"
NORM_ARGUMENTS = 5


class TensorCoreImplementation(CudaImplementation):
    """Base of the implementations: kernels of ours, for the dtypes of the card's tensor cores."""

    scopes: ClassVar[tuple[str, ...]] = (WAITING,)

    @classmethod
    def unsupported(cls, device: CudaDevice, case: Case) -> str | None:  # type: ignore[override]  # its kind is gpu
        return missing_tensor_cores_reason(case.dtype, device.capability)


def norm_kernel_spec(dtype: str) -> tuple[Path, str, tuple[str, ...]]:
    """Return the file of the norm's kernel, its name, and the options that compile it for a dtype."""
    return RMS_NORM, "rms_norm", (half_type_option(dtype),)


class RmsNormKernel:
    """RMSNorm by a kernel of ours, of x [batch, hidden] to `result`, which may have more rows."""

    def __init__(self, device: CudaDevice, dtype: str, x: Array, g: Array, rows: int | None = None):
        """Load the kernel, and allocate the result of `rows` rows, by default as many as x. Only x's shape is used."""
        import numpy

        batch, hidden = x.shape
        self.device, self.result = device, device.empty((rows or batch, hidden), dtype)
        self.kernel = device.load_kernel(*norm_kernel_spec(dtype))
        warps = math.ceil(hidden / NUMBERS_PER_VECTOR / LANES_PER_WARP)
        self.grid, self.block = (batch,), (min(MOST_THREADS, warps * LANES_PER_WARP),)
        self.fixed_arguments = (g, self.result, numpy.int32(hidden), numpy.float32(NORM_EPS))

    def make_launcher(self, overlap: bool) -> Callable[[Array], None]:
        """Return a function that normalises x. With `overlap` it may begin before the kernel in front of it ends."""
        launch = self.device.make_launcher(self.kernel, self.grid, self.block, 0, overlap)
        return lambda x: launch((x, *self.fixed_arguments))


class UnfusedRmsNormMatmul(TensorCoreImplementation):
    """RMSNorm and then CuPy's product, by two launches."""

    name, launches = "unfused", 2

    def kernels(self) -> list[tuple]:
        return [norm_kernel_spec(self.case.dtype)]

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        super().prepare(shared, copies)
        self.norm = RmsNormKernel(self.device, self.case.dtype, copies[0]["x"], shared["g"])
        self.normalise = self.norm.make_launcher(overlap=False)

    def compute(self, inputs: dict) -> Array:
        self.normalise(inputs["x"])
        self.multiply(inputs["w"], inputs["y"])
        return inputs["y"]

    def multiply(self, w: Array, y: Array) -> None:
        """Queue the product of normalised x [batch, hidden] and W [outputs, inputs], into y [batch, outputs]."""
        self.device.xp.matmul(self.norm.result, w.T, out=y)

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={**launch_terms(NORM_ARGUMENTS), "product_call_s": 1.0},
            start={"empty_kernel_s": 1.0, "norm_kernel_s": 1.0, "product_start_s": 1.0},
            waits={"product_s_per_column": float(self.case.shape["hidden"])},
            share="product_stream_share",
        )


class GraphImplementation(TensorCoreImplementation):
    """Several applications in one graph, which go through all copies in turn."""

    graph = True

    @property
    def per_call(self) -> int:
        return math.ceil(GRAPH_APPLICATIONS / self.count) * self.count

    def replay_applications(self, apply: Callable[[int], object]) -> Step:
        """Return a step that replays a CUDA graph of all applications. `apply` queues one, to the copy of an index."""
        order = [application % self.count for application in range(self.per_call)]
        graph = self.device.capture_graph(lambda: [apply(index) for index in order])
        return self.replay([(graph, self.copies[-1]["y"])])


class UnfusedRmsNormMatmulGraph(GraphImplementation, UnfusedRmsNormMatmul):
    """Many applications in one graph, with cuBLASLt's first choice of a product: CuPy refuses to capture cuBLAS."""

    name = "unfused_graph"
    modules = (cublaslt.BINDINGS,)

    @cached_property
    def cublaslt_algorithm(self) -> cublaslt.CublasAlgorithm:
        """The algorithm that cuBLASLt ranks first. Raises UnsupportedError where it offers none."""
        batch, hidden = self.case.shape["batch"], self.case.shape["hidden"]
        self.workspace = self.device.xp.empty(cublaslt.CUBLASLT_WORKSPACE_BYTES, "uint8")
        self.library = cublaslt.CublasLt(self.workspace.data.ptr)
        sides, dtype = (hidden, batch, hidden), self.case.dtype  # y by rows is y^T = W x^T by columns
        problem = cublaslt.GemmProblem(dtype, cublaslt.GemmShape(*sides), "TN", DTYPES[dtype].outputs[0])
        algorithms = self.library.find_algorithms(problem, count=1)
        if not algorithms:
            raise UnsupportedError(f"cuBLASLt offers no {dtype} product of {batch} x {hidden} by {hidden} x {hidden}")
        return algorithms[0]

    def multiply(self, w: Array, y: Array) -> None:
        self.cublaslt_algorithm.run(w.data.ptr, self.norm.result.data.ptr, y.data.ptr, self.device.stream.ptr)

    def step(self, scope: str | None) -> Step:
        self.compute(self.copies[0])  # what is loaded at a first launch would not be captured
        return self.replay_applications(lambda index: self.compute(self.copies[index]))

    def costs(self, scope: str | None) -> CostTerms:
        return CostTerms(
            calls={"graph_launch_s": 1 / self.per_call},
            start={"norm_kernel_s": 1.0, "product_start_s": 1.0},
            waits={"product_s_per_column": float(self.case.shape["hidden"])},
            share="product_stream_share",
        )
