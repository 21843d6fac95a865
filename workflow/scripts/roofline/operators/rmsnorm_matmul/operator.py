"""RMSNorm and the product that follows it, behind the operator interface: counts, settings, cases, inputs and check.

y = (x / sqrt(mean(x^2) + eps) * g) W^T, of x [batch, hidden], g [hidden] and W [hidden, hidden], stored [outputs,
inputs]. FLOPs 2 x batch x hidden^2 of the product, and 4 x batch x hidden of the norm: a multiply-add of the squares,
the factor, and g. Bytes: W, x, g and y once each.
"""

import itertools
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from roofline.core.dtypes import TOLERANCES, array_dtype, dtype_bytes, relative_error
from roofline.core.terms import Array
from roofline.devices.base import Device
from roofline.operators.base import Case, Implementation, Job, Operator
from roofline.operators.constants import Constant, Constants, fitted, gpu_host_constants
from roofline.operators.rmsnorm_matmul.fused_rmsnorm_matmul import FusedRmsNormMatmul, FusedRmsNormMatmulGraph
from roofline.operators.rmsnorm_matmul.mma_plan import STAGE_DEPTH
from roofline.operators.rmsnorm_matmul.unfused import NORM_EPS, UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph
from roofline.operators.setting_types import ByEffort, CompletedConfig, Listed, OperatorSettings, Whole
from roofline.records.timing_record import Check, make_check

MOST_HIDDEN = 10**8  # W would take 20 PB
SMALLEST_HIDDEN = 256  # a stage for each of four parts of k, so that the smallest case is divided like all cases
NORM_WEIGHT_DEVIATION = 0.1  # of g, whose mean is 1
MOST_COMPARED_WEIGHTS = 1 << 21  # that a check multiplies in float64; of a larger W it compares some outputs
MOST_ROWS_OF_X = 4096  # operator gemm measures products of more rows


GPU_CONSTANTS: Constants = {
    **gpu_host_constants("product_call_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s", "empty_kernel_s"),
    # An empty kernel there: 0.7 us.
    "fused_start_s": fitted(
        2.95e-06, "fused, in a graph where each application waits: its start, the first of W, and the last"
    ),
    "overlapped_start_s": fitted(1.89e-06, "the same where each begins while the one before it ends"),
    "norm_before_s": fitted(7.51e-07, "the norm's kernel before the product's, which fetches W meanwhile"),
    "stream_share": fitted(0.938, "of the memory ceiling at which the fused kernel reads"),
    "shared_memory_s_per_byte": fitted(4.68e-12, "W and x through a multiprocessor's shared memory"),
    "l2_s_per_byte": Constant(8.6e-14, "measured: level l2 of an H200, 2026-11", "W and x on their way to all blocks"),
    "exchange_s_per_byte": fitted(1.82e-11, "a block's sums, handed to another block"),
    "norm_kernel_s": fitted(1.08e-06, "RMSNorm alone, in a graph"),
    "product_start_s": fitted(2.92e-06, "a library's product of few rows, before W"),
    "product_s_per_column": fitted(1.82e-09, "its sums along W, which no number of blocks shortens"),
    "product_stream_share": fitted(0.937, "of the memory ceiling at which the library reads W"),
}


def normalise(x: Array, g: Array, eps: float = NORM_EPS) -> Array:
    """Return x / sqrt(mean(x^2) + eps) * g, row by row, in the dtype of the arrays."""
    return x / ((x * x).mean(axis=-1, keepdims=True) + eps) ** 0.5 * g


def reference_rmsnorm_matmul(x: Array, w: Array, g: Array, eps: float = NORM_EPS) -> Array:
    """Return y in float64 from rounded inputs. For some rows of W it has the outputs of these."""
    x, w, g = (array.astype("float64") for array in (x, w, g))
    return normalise(x, g, eps) @ w.T


def compared_outputs(hidden: int) -> slice:
    """Return the outputs that a check compares: all, or every n-th of a large W.

    The step is odd, so that it meets every position in a block of outputs.
    """
    every = -(-(hidden**2) // MOST_COMPARED_WEIGHTS)  # rounded up
    if every % 2 == 0:
        every += 1
    return slice(None, None, every)


BatchSize = Annotated[Whole, Field(le=MOST_ROWS_OF_X)]
HiddenSize = Annotated[Whole, Field(le=MOST_HIDDEN, multiple_of=STAGE_DEPTH)]


class RmsNormMatmulSettings(OperatorSettings):
    """RMSNorm, then a product with weights of hidden x hidden. One job for each hidden size and dtype."""

    batch_sizes: Annotated[Listed[BatchSize] | None, ByEffort([1, 32, 128], [1, 32, 128], [1, 8, 32, 128])] = None
    hidden_sizes: Annotated[Listed[HiddenSize] | None, ByEffort([4096], [2048, 4096], [2048, 4096, 8192])] = None
    dtypes: Annotated[
        Listed[Literal["fp16", "bf16"]] | None, ByEffort(["bf16"], ["fp16", "bf16"], ["fp16", "bf16"])
    ] = None
    implementations: Listed[Literal["unfused", "unfused_graph", "fused", "fused_graph"]] | None = None  # type: ignore[assignment]  # lists are invariant


class RmsNormMatmul(Operator):
    """RMSNorm of x, and the product with square weights W that follows it."""

    name = "rmsnorm_matmul"
    Settings = RmsNormMatmulSettings
    unit = "tensor_core"
    tolerance: ClassVar = TOLERANCES | {"fp16": 1e-3}
    profiled_in_thorough = 3
    implementations = (UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph, FusedRmsNormMatmul, FusedRmsNormMatmulGraph)
    constants: ClassVar = {"gpu": GPU_CONSTANTS}
    outputs = ("y",)
    drawn_sizes: ClassVar = {"batch": (1, 128, 1), "hidden": (512, 8192, STAGE_DEPTH)}
    drawn_dtypes = ("fp16", "bf16")

    def jobs(self, config: CompletedConfig) -> list[Job]:
        settings, jobs = getattr(config, self.rule), []
        for hidden, dtype in itertools.product(settings.hidden_sizes, settings.dtypes):
            cases = tuple(Case({"batch": batch, "hidden": hidden}, dtype) for batch in settings.batch_sizes)
            jobs.append(Job(f"hidden{hidden}_{dtype}", cases))
        return jobs

    def flops(self, case: Case, scope: str | None = None) -> int:
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        return 2 * batch * hidden**2 + 4 * batch * hidden

    def bytes(self, case: Case, scope: str | None = None) -> int:
        batch, hidden = case.shape["batch"], case.shape["hidden"]
        return dtype_bytes(case.dtype, hidden**2 + 2 * batch * hidden + hidden)

    def rotated_bytes(self, case: Case, scope: str | None = None) -> int:
        return self.bytes(case) - dtype_bytes(case.dtype, case.shape["hidden"])  # all but g

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        return dtype_bytes(case.dtype, case.shape["batch"] * case.shape["hidden"])

    def smallest(self, case: Case) -> Case:
        return case.resized(batch=1, hidden=SMALLEST_HIDDEN)

    # -- inputs and check

    def inputs(self, device: Device, case: Case, seed: int) -> dict:
        return self.rotated_inputs(device, case, seed, 1)[0]

    def rotated_inputs(self, device: Device, case: Case, seed: int, count: int) -> list[dict]:
        """Return `count` sets of x of variance 1, W of variance 1 / hidden, and a buffer for y."""
        import numpy

        batch, hidden = case.shape["batch"], case.shape["hidden"]
        w = device.normal((hidden, hidden), case.dtype, seed)
        # Scaled before it is copied: NumPy takes seconds to scale all copies in 16 bits. A number on the host would
        # make CuPy import its sparse matrices, which takes 0.1 s or more of each job.
        w *= device.to_device(numpy.array(hidden**-0.5, array_dtype(case.dtype)))
        w_copies = [w, *device.rolled_copies(w, count - 1)]
        x = device.normal((count, batch, hidden), case.dtype, seed + count)
        y = device.empty((count, batch, hidden), case.dtype)
        return [{"x": x[index], "w": w_copies[index], "y": y[index]} for index in range(count)]

    def shared_inputs(self, device: Device, case: Case, seed: int) -> dict:
        """Return g, normal numbers of mean 1. They are scaled on the host: CuPy would compile a kernel for it."""
        as_dtype = array_dtype(case.dtype).type
        normal_numbers = device.to_host(device.normal((case.shape["hidden"],), case.dtype, seed))
        return {"g": device.to_device(normal_numbers * as_dtype(NORM_WEIGHT_DEVIATION) + as_dtype(1))}

    def reference(self, case: Case, inputs: dict) -> Array:
        return reference_rmsnorm_matmul(inputs["x"], inputs["w"], inputs["g"])

    def compare(self, implementation: Implementation, scope: str | None, index: int, result: Array) -> Check:
        """Compare every row with float64 arithmetic on the same rounded inputs, for a large W every n-th output.

        All outputs must be finite, which those of the poisoned buffer are not. Raises ArithmeticError where they are
        wrong.
        """
        import numpy

        device, case, copy = implementation.device, implementation.case, implementation.copy_of(index)
        outputs = compared_outputs(case.shape["hidden"])
        result = device.to_host(result).astype(numpy.float32)
        on_host = {"x": copy["x"], "w": copy["w"][outputs], "g": implementation.shared["g"]}
        expected = self.reference(case, {name: device.to_host(array) for name, array in on_host.items()})
        error = relative_error(result[:, outputs], expected) if numpy.isfinite(result).all() else float("inf")
        implementation_label = f"{implementation.name} {scope}" if scope else implementation.name
        label = f"{self.name}, {implementation_label}, {case}: the result"
        part = f"{expected.shape[1]} of {result.shape[1]} outputs" if outputs.step > 1 else "the whole result"
        return make_check(label, error, self.tolerance[case.dtype], f"{part} against float64")
