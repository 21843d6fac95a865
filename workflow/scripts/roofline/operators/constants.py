"""The constants of predictions, each with its source. Every run measures those of its host."""

from collections.abc import Mapping
from typing import NamedTuple


class Constant(NamedTuple):
    """A constant of predictions. Its name in a table of constants says what it is physically."""

    value: float
    source: str
    meaning: str = ""


Constants = Mapping[str, Constant | tuple[float, str]]  # by name; a value and where it is from are enough

H200_HOSTS_SOURCE = "measured by every run; here on hosts of an H200, 2026-11"
FITTED_SOURCE = "fitted on cells drawn at random on an H200, 2026-11: reference/experiments/predictions"
EPYC = "measured by every run; here on two cores of an AMD EPYC, 2026-11"
# What work costs the host of a CPU: devices/cpu/cpu_host_costs.py measures each constant. These values count only in a
# run without a calibration.
CPU_HOST_CONSTANTS: dict[str, Constant] = {
    "array_operation_s": Constant(1.7e-6, EPYC, "a NumPy call on next to nothing"),
    "handover_s": Constant(16e-6, EPYC, "handing work to a thread and waiting for it"),
    "loop_s": Constant(38e-6, EPYC, "the same of a compiled loop, whose threads wait for one another"),
    "read_s_per_byte": Constant(6e-12, EPYC, "memory read by products of matrices and vectors, a core's own part"),
    "shared_read_s_per_byte": Constant(3.5e-11, EPYC, "what all cores share of it"),
    "pass_s_per_byte": Constant(1.9e-11, EPYC, "a pass over an array between two operations, a core's own part"),
    "shared_pass_s_per_byte": Constant(2.7e-11, EPYC, "what all cores share of it"),
    "softmax_s_per_score": Constant(2.1e-9, EPYC, "the largest score, the difference, its exponential, the sum"),
}
_GPU_HOST_VALUES: dict[str, tuple[float, str]] = {
    "array_operation_s": (20e-6, "host: an operation of CuPy issued from Python"),
    "kernel_launch_s": (6e-6, "host: a kernel launched from Python"),
    "kernel_argument_s": (1.6e-7, "host: each of its arguments"),
    "graph_launch_s": (4e-6, "host: a graph launched from Python, for all its nodes"),
    "product_call_s": (9e-6, "host: a product of matrices issued from Python"),
    # Hosts differ: 3.2 to 4.4 us. This is the value on the host of the drawn cells, which the fitted constants assume,
    # inferred from their smallest kernels. Measured again on a host of 4.4 us, the cells give kernel starts that differ
    # by at most 4 %.
    "empty_kernel_s": (3.3e-6, "GPU: an empty kernel between two events"),
}
LAUNCH_START_TERMS = {"empty_kernel_s": 1.0, "kernel_start_s": 1.0}  # the start of a kernel that is launched by itself


def fitted(value: float, meaning: str) -> Constant:
    """Return a constant that was fitted to measured cells of an H200."""
    return Constant(value, FITTED_SOURCE, meaning)


def gpu_host_constants(*names: str) -> dict[str, Constant]:
    """Return these costs of calls for the host of a GPU. Every run measures them (devices/gpu/gpu_host_costs.py)."""
    constants = {}
    for name in names:
        value, meaning = _GPU_HOST_VALUES[name]
        constants[name] = Constant(value, H200_HOSTS_SOURCE, meaning)
    return constants


def launch_terms(arguments: int) -> dict[str, float]:
    """Return the cost terms of one kernel that Python launches with so many arguments."""
    return {"kernel_launch_s": 1.0, "kernel_argument_s": float(arguments)}
