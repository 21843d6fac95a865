"""What sets the time of an operator: work, traffic, or what it costs to start. The same rule for what was predicted and
for what was found; see docs/prediction.md."""

from roofline.core import model

# The launches set the pace where the device alone takes less than so much of the caller's time.
DEVICE_BUSY = 0.8
# What it costs to start sets the time where the roof explains less than so much of it, and the time is less than so
# many times what the same code takes where there is next to nothing to do.
OF_ROOF = 0.5
TIMES_STARTED = 4.0
# On a device that is its own caller: where starting already takes so much of the time.
OF_CALLER = 0.5


def regime(
    *,
    latency_s: float,
    device_latency_s: float | None,
    start_s: float | None,
    compute_s: float | None,
    memory_s: float | None,
) -> str | None:
    """`compute`, `memory` or `overhead`; None where neither roof is known and nothing else tells.

    `latency_s` is the caller's time, `device_latency_s` the device's part alone (None where the device is its own
    caller), `start_s` what the same code takes where there is next to nothing to do (of the device's time where there
    is one), `compute_s` and `memory_s` what the two roofs allow: FLOPs over the compute ceiling and bytes over the
    memory ceiling, in seconds.
    """
    roof_s = max(compute_s or 0.0, memory_s or 0.0)
    if device_latency_s is not None:
        if device_latency_s < DEVICE_BUSY * latency_s:
            return model.OVERHEAD_BOUND
        if start_s and roof_s and roof_s < OF_ROOF * device_latency_s and device_latency_s < TIMES_STARTED * start_s:
            return model.OVERHEAD_BOUND
    elif start_s and start_s >= OF_CALLER * latency_s:
        return model.OVERHEAD_BOUND
    if not compute_s and not memory_s:
        return None
    if compute_s is None or memory_s is None:
        return None
    return model.COMPUTE_BOUND if compute_s >= memory_s else model.MEMORY_BOUND
