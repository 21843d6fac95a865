"""Row normalisation behind the operator interface: settings, cases, inputs, check."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from roofline.core.dtypes import COMMON_DTYPE, FLOAT_BYTES, relative_error
from roofline.core.terms import Array
from roofline.devices.base import Device
from roofline.operators import base
from roofline.operators.base import Case, Implementation, Job, Operator
from roofline.operators.constants import CPU_HOST_CONSTANTS, Constants, fitted, gpu_host_constants
from roofline.operators.row_norm.array_row_norm import ArrayRowNorm, CompiledRowNorm, NumpyRowNorm
from roofline.operators.row_norm.cuda_row_norm import NaiveRowNorm, WelfordRowNorm, WelfordRowNormGraph
from roofline.operators.setting_types import CompletedConfig, Listed, OperatorSettings
from roofline.records.timing_record import Check, make_check

LARGEST_SIDE = 1 << 24  # rows or columns, which the kernels count in 32 bits
ROWS_COMPARED = 509  # a prime: evenly spread over a matrix, they fall on every row position of a block
SHAPE_PATTERN = re.compile(r"([1-9]\d{0,7})x([1-9]\d{0,7})")


GPU_CONSTANTS: Constants = {
    **gpu_host_constants(
        "array_operation_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s", "empty_kernel_s"
    ),
    "array_kernel_s": fitted(2.25e-06, "a small kernel after another in a stream"),
    "kernel_start_s": fitted(9.93e-07, "a kernel's start, and the memory's ramp-up and drain"),
    "graph_node_s": fitted(1.41e-06, "the same as one of many nodes of a graph"),
    "stream_share": fitted(0.786, "of the memory ceiling that long streams attain"),
    "naive_wave_s": fitted(
        2.46e-06, "a full card of blocks waits for memory and at the barriers of its two sums; of this card"
    ),
    "row_s_per_column": fitted(3.45e-10, "a block goes through its row, piece by piece"),
    "reread_s_per_byte": fitted(2.4e-14, "naive's second and third pass over a row, from the cache"),
    "mean_s_per_column": fitted(1.1e-08, "CuPy's mean of rows, however few: one number after another"),
    "pass_s_per_byte": fitted(
        6.76e-13, "a pass over an array between operations: CuPy's sums of rows do not attain the memory's bandwidth"
    ),
}


def parse_shape(shape: str) -> tuple[int, int]:
    """Return the rows and columns of ROWSxCOLUMNS. Raises ValueError for any other text."""
    match = SHAPE_PATTERN.fullmatch(shape)
    if not match or max(map(int, match.groups())) > LARGEST_SIDE:
        raise ValueError(f"should be ROWSxCOLUMNS such as 1024x128, each from 1 to {LARGEST_SIDE}")
    return int(match[1]), int(match[2])


def _require_shape(shape: str) -> str:
    parse_shape(shape)
    return shape


class RowNormSettings(OperatorSettings):
    """Row normalisation in fp32: each row less its mean, divided by its standard deviation. One job for all shapes."""

    shapes: Listed[Annotated[str, AfterValidator(_require_shape)]] = Field(
        default=["1024x128", "4096x256", "8192x512", "16384x1024"]
    )
    implementations: Listed[Literal["array", "naive", "welford", "welford_graph", "numpy", "compiled"]] | None = None  # type: ignore[assignment]  # lists are invariant


class RowNorm(Operator):
    """y = (x - mean) / deviation of each row of x [rows, columns], in fp32; y has the shape of x."""

    name = "row_norm"
    Settings = RowNormSettings
    mix = "copy"
    compared = False
    implementations = (ArrayRowNorm, NaiveRowNorm, WelfordRowNorm, WelfordRowNormGraph, NumpyRowNorm, CompiledRowNorm)
    constants: ClassVar = {"gpu": GPU_CONSTANTS, "cpu": CPU_HOST_CONSTANTS}
    outputs = ("y",)
    drawn_sizes: ClassVar = {"rows": (256, 65536, 1), "columns": (64, 8192, 1)}

    def jobs(self, config: CompletedConfig) -> list[Job]:
        """Return one job for all shapes: they are compared, and a process takes longer to start than one to measure."""
        cases = []
        for shape in config.row_norm.shapes:
            rows, columns = parse_shape(shape)
            cases.append(Case({"rows": rows, "columns": columns}, COMMON_DTYPE))
        return [Job(COMMON_DTYPE, tuple(cases))]

    def least_samples(self, case: Case) -> int:
        return base.LEAST_GPU_SAMPLES

    def flops(self, case: Case, scope: str | None = None) -> int:
        """Return the FLOPs: six for a number, a root for a row.

        A number is added to the sum, loses the mean, is squared, is added again, loses the mean again and is divided.
        """
        return case.shape["rows"] * (6 * case.shape["columns"] + 1)

    def bytes(self, case: Case, scope: str | None = None) -> int:
        return 2 * FLOAT_BYTES * case.shape["rows"] * case.shape["columns"]

    def smallest(self, case: Case) -> Case:
        return case.resized(rows=1)

    def memory_needed(self, case: Case, last_level_cache_bytes: int) -> int:
        """Return the bytes of the rotated matrices, and of the intermediate arrays of array operations."""
        copy_bytes = self.bytes(case)
        copies = WelfordRowNormGraph.copies_wanted(case, base.count_rotation_copies(copy_bytes, last_level_cache_bytes))
        return (copies + 2) * copy_bytes + base.LIBRARY_WORKSPACE_BYTES

    # -- inputs and check

    def inputs(self, device: Device, case: Case, seed: int) -> dict:
        return self.rotated_inputs(device, case, seed, 1)[0]

    def rotated_inputs(self, device: Device, case: Case, seed: int, count: int) -> list[dict]:
        shape = (count, case.shape["rows"], case.shape["columns"])
        x, y = device.normal(shape, case.dtype, seed), device.empty(shape, case.dtype)
        return [{"x": x[index], "y": y[index]} for index in range(count)]

    def reference(self, case: Case, inputs: dict) -> Array:
        """Return the result in float64. A row without deviation is 0 throughout."""
        import numpy

        x = inputs["x"].astype(numpy.float64)
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = x.std(axis=1, keepdims=True)
        return centred / numpy.where(deviation == 0, 1, deviation)

    def compare(self, implementation: Implementation, scope: str | None, index: int, result: Array) -> Check:
        """Compare ROWS_COMPARED rows, with the first and the last, and require every number to be finite.

        Raises ArithmeticError if the result is wrong.
        """
        import numpy

        device, case = implementation.device, implementation.case
        rows = case.shape["rows"]
        row_indices = numpy.unique(numpy.linspace(0, rows - 1, ROWS_COMPARED).round().astype(int))
        indices_on_device = device.to_device(row_indices)
        x = device.to_host(implementation.copy_of(index)["x"][indices_on_device])
        y = device.to_host(result[indices_on_device])
        # One NaN or infinity spoils the sum, which CuPy has compiled; to look at each number it would compile kernels.
        is_finite = bool(numpy.isfinite(device.to_host(result.sum())))
        error = relative_error(y, self.reference(case, {"x": x})) if is_finite else float("inf")
        label = f"{self.name}, {implementation.name}, {case}: the result"
        compared = f"{len(row_indices)} of {rows} rows against float64; the others are finite"
        return make_check(label, error, self.tolerance[case.dtype], compared)
