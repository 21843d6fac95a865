"""The constants of predictions, each with its source; those of a host are measured by every run."""

from collections.abc import Mapping
from typing import NamedTuple

from roofline.core.host_costs import DIVIDED, SHARED


class Constant(NamedTuple):
    """Of a prediction, named after what it is physically; `elsewhere` is what is published of other hardware."""

    value: float
    source: str
    meaning: str = ""
    elsewhere: str = ""


Constants = Mapping[str, Constant | tuple[float, str]]  # by name; a value and where it is from are enough

MEASURED = "measured on this host before any operator"
H200_HOSTS = "measured by every run; here on hosts of an H200, 2026-11"
LIMIT = "limit of the fit, from large cells, which it reaches: reference/experiments/predictions"
FITTED = "fitted on cells drawn at random on an H200, 2026-11: reference/experiments/predictions"
EPYC = "measured by every run; here on two cores of an AMD EPYC, 2026-11"
# What work costs a host: devices/cpu/calibration.py measures each. The values, of one host, count where it has not.
_HOST: dict[str, tuple[float, str]] = {
    "array_operation_s": (1.7e-6, "a NumPy call on next to nothing"),
    "core_operation_s": (0.0, "a NumPy call of a core beside others, which hand each other the interpreter's lock"),
    "handover_s": (35e-6, "handing work to a thread and waiting for it"),
    "thread_s": (8e-6, "to each thread"),
    "loop_s": (60e-6, "the same of a compiled loop, whose threads wait for one another"),
    "loop_thread_s": (10e-6, "each of its threads"),
    "product_read_s_per_byte": (6e-12, "memory read by NumPy's products of matrices and vectors"),
    "fp16_read_s_per_element": (2.0e-10, "the same of fp16, widened piece by piece"),
    "bf16_read_s_per_element": (1.2e-10, "the same of bf16"),
    "row_product_s_per_byte": (6.5e-11, "memory read by a product of one row"),
    "projection_s_per_flop": (8.6e-12, "a product of 256 rows, columns divided among the cores"),
    "softmax_s_per_score": (2.1e-9, "the largest and the least score, the difference, its exponential, the sum"),
    "fp16_convert_s_per_element": (1.8e-9, "an array of fp16 copied as fp32 by one core"),
    "bf16_convert_s_per_element": (1.05e-10, "the same of bf16"),
    "fresh_page_s_per_byte": (9.5e-11, "the first touch of a new array of more than 32 MiB"),
    "pack_s_per_element": (2.9e-10, "weights packed for a product of few rows"),
    "row_s_per_element": (1.0e-11, "each row of such a product"),
    "pass_s_per_byte": (3.2e-11, "a pass over an array between two NumPy operations, in a cache"),
    "memory_pass_s_per_byte": (6.0e-11, "the same in memory"),
    "copy_s_per_byte": (1.5e-11, "memory read and written by ordinary stores"),
}
_SHARED = {
    "core_operation_s": 4e-6,
    "product_read_s_per_byte": 2.9e-11,
    "fp16_read_s_per_element": 1.2e-10,
    "bf16_read_s_per_element": 5e-11,
    "projection_s_per_flop": 1.4e-12,
    "pass_s_per_byte": 9.2e-12,
    "memory_pass_s_per_byte": 2e-11,
    "copy_s_per_byte": 2.0e-11,
}


_GPU_HOST: dict[str, tuple[float, str]] = {
    "array_operation_s": (20e-6, "host: an operation of CuPy issued from Python"),
    "kernel_launch_s": (6e-6, "host: a kernel launched from Python"),
    "kernel_argument_s": (1.6e-7, "host: each of its arguments"),
    "graph_launch_s": (4e-6, "host: a graph launched from Python, for all its nodes"),
    "product_call_s": (9e-6, "host: a product of matrices issued from Python"),
}


def of_gpu_host(*names: str) -> dict[str, Constant]:
    """What calls cost the host of a GPU, which every run measures (devices/gpu/host_calls.py)."""
    return {name: Constant(_GPU_HOST[name][0], H200_HOSTS, _GPU_HOST[name][1]) for name in names}


def launch(arguments: int) -> dict[str, float]:
    """The terms of a kernel launched from Python."""
    return {"kernel_launch_s": 1.0, "kernel_argument_s": float(arguments)}


def of_host(*names: str) -> dict[str, Constant]:
    """Constants of these names that every run measures of its host, each with what all cores share of it."""
    found = {}
    for name in names:
        value, meaning = _HOST[name]
        found[name] = Constant(value, EPYC, f"{meaning}, a core's own part" if name in DIVIDED else meaning)
        if name in DIVIDED:
            found[SHARED + name] = Constant(_SHARED[name], EPYC, "what all cores share of it")
    return found


def sealed(constants: Constants, measured: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Value and source by name: as measured on this host where it was, else as declared."""
    return {
        name: (measured[name], MEASURED) if name in measured else (value, source)
        for name, (value, source, *_) in constants.items()
    }
