"""The names of the kernels that ran, by CUPTI's activity records, where cupti-python loads and is allowed."""

import re
from collections.abc import Callable

# What a part of a kernel's name says, the first that is found. cuBLAS's "xmma" kernels run on either unit, and those
# on CUDA cores end in the instruction that they use.
UNITS_BY_NAME = (
    (re.compile(r"simt|[fdh]fma", re.IGNORECASE), False),
    (re.compile(r"gmma|[hidq]mma|tensorop|nvjet|[hsdi](884|1688|16816)|xmma|mma_", re.IGNORECASE), True),
    (re.compile(r"sgemm|dgemm|gemv|gemmk1", re.IGNORECASE), False),
)


def kernel_of(run: Callable[[], object]) -> dict:
    """Run something once under CUPTI and name its longest kernel. Never raises: what is refused is said."""
    try:
        kernels = _record(run)
    except Exception as error:
        return _unknown(f"CUPTI does not load here ({type(error).__name__})")
    if not kernels:
        return _unknown("CUPTI recorded no kernel")
    name = max(kernels, key=kernels.get)
    return {"name": name, "tensor_cores": uses_tensor_cores(name), "how_known": "CUPTI activity record"}


def uses_tensor_cores(name: str) -> bool | None:
    """What a cuBLAS kernel's name says of the unit that it runs on; None where it says nothing."""
    return next((tensor_cores for part, tensor_cores in UNITS_BY_NAME if part.search(name)), None)


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
    try:
        run()
        cupti.activity_flush_all(1)
    finally:  # else it would go on recording, and slow what is timed later
        cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
    return durations
