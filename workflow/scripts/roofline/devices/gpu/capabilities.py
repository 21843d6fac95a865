"""What a compute capability can do: which ceilings there are, and whether tensor cores or CUDA cores run them.

Pure functions of a capability ("9.0"). What a card of its capability lacks nevertheless (GTX 16 has no tensor cores)
is told by the rate classes of config/datasheets.yaml.
"""

from roofline.core.dtypes import FIRST_CAPABILITY
from roofline.devices.datasheets import CEILINGS, CUDA_CORE, CUDA_CORE_FIGURE, TENSOR_CORE

# Where a ceiling begins; None: everywhere. tf32, bf16, fp8 and int8 begin with their tensor cores; fp16 was multiplied
# by CUDA cores before.
FIRST = dict.fromkeys(CEILINGS) | FIRST_CAPABILITY | {"fp16": "5.3", "fp16_fma": "5.3"}

# 8.6, 8.9, 12.0 and their like have a token path only.
FP64_TENSOR_CORES = ("8.0", "9.0", "10.0", "10.3")


def unsupported(ceiling: str, compute_capability: str) -> str | None:
    """Why there is no such ceiling on this compute capability, in one line; None if there is.

    Raises KeyError for a ceiling that is none.
    """
    needed = FIRST[ceiling]
    if needed is None or _version(compute_capability) >= _version(needed):
        return None
    return f"compute capability {compute_capability}, {ceiling} needs {needed}"


def compute_unit(ceiling: str, compute_capability: str) -> str:
    """The unit that runs a ceiling at the rate that the datasheets count: "tensor_core" or "cuda_core".

    Raises KeyError for a ceiling that is none.
    """
    if ceiling == "fp64":
        return TENSOR_CORE if compute_capability in FP64_TENSOR_CORES else CUDA_CORE
    if ceiling in CUDA_CORE_FIGURE:
        return CUDA_CORE
    first = FIRST_CAPABILITY[ceiling]
    return TENSOR_CORE if _version(compute_capability) >= _version(first) else CUDA_CORE


def _version(compute_capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in compute_capability.split("."))
