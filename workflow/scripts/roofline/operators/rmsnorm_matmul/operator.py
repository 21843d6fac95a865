"""RMSNorm and the product that follows it, behind the operator interface: counts, settings, cases, inputs and check.

y = (x / sqrt(mean(x^2) + eps) * g) W^T, of x [batch, hidden], g [hidden] and W [hidden, hidden], stored [outputs,
inputs]. FLOPs 2 x batch x hidden^2 of the product, and 4 x batch x hidden of the norm: a multiply-add of the squares,
the factor, and g. Bytes: W, x, g and y once each.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from roofline.core.dtypes import ITEM_BYTES, array_dtype, relative_error, require_close
from roofline.operators.base import Case, Implementation, Job, Operator
from roofline.operators.constants import FITTED_SOURCE, Constant, Constants, gpu_host_constants
from roofline.operators.rmsnorm_matmul.fused_rmsnorm_matmul import FusedRmsNormMatmul, FusedRmsNormMatmulGraph
from roofline.operators.rmsnorm_matmul.mma_plan import DEPTH
from roofline.operators.rmsnorm_matmul.unfused import NORM_EPS, UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph
from roofline.operators.setting_types import ByEffort, Listed, OperatorSettings, Whole
from roofline.records.timing_record import Check

MOST_HIDDEN = 10**8  # W would take 20 PB
SMALLEST_HIDDEN = 256  # a slice for each of four parts of k, so that the smallest case is divided as others are
NORM_WEIGHT_DEVIATION = 0.1  # about 1
MOST_COMPARED_WEIGHTS = 1 << 21  # that a check multiplies in float64: of more, some outputs are compared
MOST_ROWS_OF_X = 4096  # a product of more is not of few rows: gemm


GPU_CONSTANTS: Constants = {
    **gpu_host_constants("product_call_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s", "empty_kernel_s"),
    "fused_start_s": Constant(  # an empty kernel there: 0.7 us
        2.55e-06,
        FITTED_SOURCE,
        "fused, in a graph where each application waits: its start, the first of W, and the last",
    ),
    "overlapped_start_s": Constant(1.79e-06, FITTED_SOURCE, "the same where each begins while the one before it ends"),
    "norm_before_s": Constant(
        8.85e-07, FITTED_SOURCE, "the norm's kernel before the product's, which fetches W meanwhile"
    ),
    "stream_share": Constant(0.857, FITTED_SOURCE, "of the memory ceiling at which the fused kernel reads"),
    "shared_memory_s_per_byte": Constant(5e-12, FITTED_SOURCE, "W and x through a multiprocessor's shared memory"),
    "l2_s_per_byte": Constant(8.6e-14, "measured: level l2 of an H200, 2026-11", "W and x on their way to all blocks"),
    "exchange_s_per_byte": Constant(4.08e-11, FITTED_SOURCE, "a block's sums, handed to another block"),
    "norm_kernel_s": Constant(1.33e-06, FITTED_SOURCE, "RMSNorm alone, in a graph"),
    "product_start_s": Constant(2.64e-06, FITTED_SOURCE, "a library's product of few rows, before W"),
    "product_s_per_column": Constant(1.91e-09, FITTED_SOURCE, "its sums along W, which no number of blocks shortens"),
    "product_stream_share": Constant(0.934, FITTED_SOURCE, "of the memory ceiling at which the library reads W"),
}


def rmsnorm_matmul_flops(batch: int, hidden: int) -> int:
    return 2 * batch * hidden**2 + 4 * batch * hidden


def rmsnorm_matmul_bytes(batch: int, hidden: int, dtype: str) -> int:
    return (hidden**2 + 2 * batch * hidden + hidden) * ITEM_BYTES[dtype]


def normalise(x, g, eps: float = NORM_EPS):
    """x / sqrt(mean(x^2) + eps) * g, row by row, in the dtype of the arrays."""
    return x / ((x * x).mean(axis=-1, keepdims=True) + eps) ** 0.5 * g


def reference_rmsnorm_matmul(x, w, g, eps: float = NORM_EPS):
    """In float64, of these rounded inputs; of some rows of W the outputs that they give."""
    x, w, g = (array.astype("float64") for array in (x, w, g))
    return normalise(x, g, eps) @ w.T


def compared_outputs(hidden: int) -> slice:
    """All outputs; of a large W every n-th. The step is odd: it meets every place of a block's outputs."""
    return slice(None, None, -(-(hidden**2) // MOST_COMPARED_WEIGHTS) | 1)


class RmsNormMatmulSettings(OperatorSettings):
    """RMSNorm, then a product with weights of hidden x hidden. One job for each hidden size and dtype."""

    batch_sizes: Annotated[
        Listed[Annotated[Whole, Field(le=MOST_ROWS_OF_X)]] | None,
        ByEffort([1, 32, 128], [1, 32, 128], [1, 8, 32, 128]),
    ] = None
    hidden_sizes: Annotated[
        Listed[Annotated[Whole, Field(le=MOST_HIDDEN, multiple_of=DEPTH)]] | None,
        ByEffort([4096], [2048, 4096], [2048, 4096, 8192]),
    ] = None
    dtypes: Annotated[
        Listed[Literal["fp16", "bf16"]] | None,
        ByEffort(["bf16"], ["fp16", "bf16"], ["fp16", "bf16"]),
    ] = None
    implementations: Listed[Literal["unfused", "unfused_graph", "fused", "fused_graph"]] | None = None


class RmsNormMatmul(Operator):
    name = "rmsnorm_matmul"
    Settings = RmsNormMatmulSettings
    unit = "tensor_core"
    tolerance: ClassVar = {"fp16": 1e-3, "bf16": 1e-2}
    implementations = (UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph, FusedRmsNormMatmul, FusedRmsNormMatmulGraph)
    constants: ClassVar = {"gpu": GPU_CONSTANTS}
    outputs = ("y",)

    def jobs(self, config) -> list[Job]:
        settings = getattr(config, self.rule)
        return [
            Job(
                f"hidden{hidden}_{dtype}",
                tuple(Case({"batch": batch, "hidden": hidden}, dtype) for batch in settings.batch_sizes),
            )
            for hidden in settings.hidden_sizes
            for dtype in settings.dtypes
        ]

    def flops(self, case: Case, scope: str | None = None) -> int:
        return rmsnorm_matmul_flops(**case.shape)

    def bytes(self, case: Case, scope: str | None = None) -> int:
        return rmsnorm_matmul_bytes(**case.shape, dtype=case.dtype)

    def rotated_bytes(self, case: Case, scope: str | None = None) -> int:
        return self.bytes(case) - case.shape["hidden"] * ITEM_BYTES[case.dtype]  # all but g

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        return case.shape["batch"] * case.shape["hidden"] * ITEM_BYTES[case.dtype]

    def smallest(self, case: Case) -> Case:
        return case.resized(batch=1, hidden=SMALLEST_HIDDEN)

    # -- inputs and check

    def inputs(self, device, case: Case, seed: int) -> dict:
        return self.rotated_inputs(device, case, seed, 1)[0]

    def rotated_inputs(self, device, case: Case, seed: int, count: int) -> list[dict]:
        """x of variance 1, W of variance 1 / hidden."""
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        w = device.normal((hidden, hidden), case.dtype, seed)
        w *= to_device_scalar(
            device, hidden**-0.5, case.dtype
        )  # once: NumPy takes seconds for as many copies in 16 bits
        all_w = [w, *(device.rolled_copies(w, count - 1) if count > 1 else [])]
        x = device.normal((count, batch, hidden), case.dtype, seed + count)
        y = device.empty((count, batch, hidden), case.dtype)
        return [{"x": x[place], "w": all_w[place], "y": y[place]} for place in range(count)]

    def shared_inputs(self, device, case: Case, seed: int) -> dict:
        g, number = device.normal((case.shape["hidden"],), case.dtype, seed), array_dtype(case.dtype).type
        return {
            "g": device.to_device(device.to_host(g) * number(NORM_WEIGHT_DEVIATION) + number(1))
        }  # CuPy would compile a kernel

    def reference(self, case: Case, inputs: dict):
        return reference_rmsnorm_matmul(inputs["x"], inputs["w"], inputs["g"])

    def compare(self, implementation: Implementation, scope: str | None, index: int, result) -> Check:
        """Every row against float64 arithmetic on the same rounded inputs; of a large W every n-th output. All of
        them must be finite: poisoned ones are not."""
        import numpy

        device, case, copy = implementation.device, implementation.case, implementation.copy_of(index)
        outputs = compared_outputs(case.shape["hidden"])
        result = device.to_host(result).astype(numpy.float32)
        on_host = {"x": copy["x"], "w": copy["w"][outputs], "g": implementation.shared["g"]}
        expected = self.reference(case, {name: device.to_host(array) for name, array in on_host.items()})
        error = relative_error(result[:, outputs], expected) if numpy.isfinite(result).all() else float("inf")
        tolerance = self.tolerance[case.dtype]
        way = " ".join(filter(None, (implementation.name, scope)))
        what = f"{self.name}, {way}, {case}: the result"
        require_close(what, error, tolerance)
        part = f"{expected.shape[1]} of {result.shape[1]} outputs" if outputs.step > 1 else "the whole result"
        return Check(compared=f"{part} against float64", relative_error=error, tolerance=tolerance)


def to_device_scalar(device, value: float, dtype: str):
    """On the device: a number of the host's would have CuPy import its sparse matrices, 0.1 s and more of each job."""
    import numpy

    return device.to_device(numpy.array(value, array_dtype(dtype)))
