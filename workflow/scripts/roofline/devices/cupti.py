"""The names of the kernels that ran, by CUPTI's activity records, where cupti-python loads and is allowed."""

import re
from collections.abc import Callable

TENSOR_CORE_NAMES = re.compile(r"gmma|hmma|imma|dmma|tensorop|nvjet|s884|s1688|s16816|d884|xmma|mma_", re.IGNORECASE)
CUDA_CORE_NAMES = re.compile(r"simt|ffma|sgemm|dgemm|gemv|gemmk1", re.IGNORECASE)


def kernel_of(run: Callable[[], object]) -> dict:
    """Run something once under CUPTI and name its longest kernel. Never raises: what is refused is said."""
    try:
        kernels = _record(run)
    except Exception as error:
        run()
        return _unknown(f"CUPTI does not load here ({type(error).__name__})")
    if not kernels:
        return _unknown("CUPTI recorded no kernel")
    name = max(kernels, key=kernels.get)
    return {"name": name, "tensor_cores": uses_tensor_cores(name), "how_known": "CUPTI activity record"}


def uses_tensor_cores(name: str) -> bool | None:
    """What a cuBLAS kernel's name says of the unit that it runs on; None where it says nothing."""
    if TENSOR_CORE_NAMES.search(name):
        return True
    return False if CUDA_CORE_NAMES.search(name) else None


def _unknown(why: str) -> dict:
    return {"name": None, "tensor_cores": None, "how_known": why}


def _record(run: Callable[[], object]) -> dict[str, int]:
    from cupti import cupti

    durations: dict[str, int] = {}

    def completed(activities: list) -> None:
        for activity in activities:
            if activity.kind == cupti.ActivityKind.CONCURRENT_KERNEL:
                durations[activity.name] = durations.get(activity.name, 0) + activity.end - activity.start

    cupti.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
    run()
    cupti.activity_flush_all(1)
    cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
    return durations
