"""The rule that names what sets the time of a cell; it names both what was predicted and what was found.

See docs/prediction.md.
"""

from collections.abc import Mapping

from roofline.core import roofline_model

# Share of the time: where roof and overheads together explain less, the implementation sets it.
EXPLAINED_SHARE = 0.5


def overhead_of_cell_s(*, latency_s: float, device_latency_s: float | None, start_s: float | None) -> float:
    """Seconds of a latency that go to calls and start-up.

    Of a device besides its caller: what it waits for the calls, and what its start takes. Where the device is its own
    caller: what the calls take. Neither is more than the time itself, whatever was measured elsewhere.
    """
    if device_latency_s is None:
        return min(start_s or 0.0, latency_s)
    waited_s = max(0.0, latency_s - device_latency_s)
    return min(waited_s + min(start_s or 0.0, device_latency_s), latency_s)


def find_slowest_level(seconds: Mapping[str, float | None]) -> tuple[str | None, float | None]:
    """The memory level that takes longest, and its seconds; of levels whose rate is not known (None) the first."""
    level = max(seconds, key=lambda name: seconds[name] or 0.0, default=None)
    return level, seconds.get(level)


def classify_regime(
    *,
    latency_s: float,
    device_latency_s: float | None,
    start_s: float | None,
    compute_s: float | None,
    memory_s: float | None,
) -> str | None:
    """`implementation` where roof and overheads explain less than half of the time; else the largest of `overhead`,
    `compute` and `memory`. None where one is not known and the overheads alone do not explain half.

    `latency_s` is the caller's time, `device_latency_s` the device's part alone (None where the device is its own
    caller), `start_s` what the same code takes where there is next to nothing to do (of the device's time where there
    is one), `compute_s` and `memory_s` what the two roofs allow: FLOPs over the compute ceiling and bytes over the
    memory ceiling, in seconds, of the slowest memory level.
    """
    overhead_s = overhead_of_cell_s(latency_s=latency_s, device_latency_s=device_latency_s, start_s=start_s)
    if compute_s is None or memory_s is None:
        return roofline_model.OVERHEAD_BOUND if overhead_s >= EXPLAINED_SHARE * latency_s else None
    roof_s = max(compute_s, memory_s)
    if roof_s + overhead_s < EXPLAINED_SHARE * latency_s:
        return roofline_model.IMPLEMENTATION_BOUND
    if overhead_s > roof_s:
        return roofline_model.OVERHEAD_BOUND
    return roofline_model.COMPUTE_BOUND if compute_s >= memory_s else roofline_model.MEMORY_BOUND
