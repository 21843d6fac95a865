"""What disturbs a timed block: other load, by what the block is sensitive to, and throttling."""

from collections.abc import Iterable
from typing import NamedTuple

from roofline.core.terms import LoadSensitivity

RUN_PROCESS_VARIABLE = "ROOFLINE_RUN_PROCESS"  # the variable with the number of the process that starts this run's jobs


class DisturbanceLimits(NamedTuple):
    """Shares of the block's time; of all CPUs, where it says so. A block beyond one of them is disturbed."""

    other_load: float  # CPU time of other processes, of all CPUs
    waiting: float  # of the CPU time of our own threads, what they waited for a CPU
    stolen: float  # by the hypervisor, of all CPUs
    throttled: float  # by the container's CPU quota


# Work that is split over all cores waits for the one that another process uses. A caller of a GPU needs one core alone.
# The device's own time knows nothing of the host.
DISTURBANCE_LIMITS: dict[LoadSensitivity, DisturbanceLimits | None] = {
    "cpu": DisturbanceLimits(other_load=0.05, waiting=0.25, stolen=0.02, throttled=0.01),
    "caller": DisturbanceLimits(other_load=0.75, waiting=0.25, stolen=0.10, throttled=0.01),
    "device": None,
}
LEAST_OTHER_CORES = 0.2  # of others: less is what a quiet system does anyway
LEAST_OTHER_CPU_S = 0.005  # of others' CPU time in a block: less is a system task that woke up
LEAST_STOLEN_S = 0.05  # the kernel counts it in ticks of 10 ms
LEAST_WAIT_S = 0.002  # of our threads: shorter than a turn of another process, longer than waking

# NVML's clock event reasons in words, and those that mean heat or the power brake.
THROTTLE_REASON_TEXTS = {
    "sw_power_cap": "power cap",
    "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_slowdown": "hardware slowdown",
    "applications_clocks_setting": "application clocks",
    "display_clock_setting": "display clocks",
    "sync_boost": "sync boost",
}
IDLE_REASON = "gpu_idle"
THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})


def find_disturbances(reading, sensitive: LoadSensitivity) -> list[str]:
    """What disturbed a block, by a records.timing.Contention; empty where nothing is known to have."""
    limits, found = DISTURBANCE_LIMITS[sensitive], []
    if reading.other_processes:
        found.append(f"other processes on the GPU: {reading.other_processes}")
    if limits is None:
        return found
    others, least = reading.other_cores or 0, max(LEAST_OTHER_CORES, limits.other_load * reading.cores)
    if others > least and others * reading.wall_s > LEAST_OTHER_CPU_S:
        found.append(f"other processes used {others:.3g} of {reading.cores} cores")
    if (reading.hidden_cores or 0) > least:
        found.append(f"processes that are not visible here used {reading.hidden_cores:.3g} of {reading.cores} cores")
    waiting = reading.waiting_share or 0
    if waiting > limits.waiting and waiting * reading.own_cores * reading.wall_s > LEAST_WAIT_S:
        found.append(f"our threads waited {100 * waiting:.3g} % of their time for a core")
    stolen_s = (reading.stolen_share or 0) * reading.cores * reading.wall_s
    if (reading.stolen_share or 0) > limits.stolen and stolen_s > LEAST_STOLEN_S:
        found.append(f"the hypervisor took {100 * reading.stolen_share:.3g} % of the cores' time")
    if (reading.quota_throttled_share or 0) > limits.throttled:
        found.append(f"the CPU quota held it back for {100 * reading.quota_throttled_share:.3g} % of its time")
    return found


def collect_throttle_reasons(reported: Iterable[list[str] | None]) -> list[str]:
    """Every reason among several readings, sorted, except that the GPU was idle."""
    return sorted({reason for reasons in reported for reason in reasons or []} - {IDLE_REASON})


def is_throttled(reasons: list[str] | None) -> bool | None:
    """Whether heat or the power brake slowed the device; None where it reports no reasons."""
    return None if reasons is None else not THERMAL_REASONS.isdisjoint(reasons)


def throttle_reasons_text(reasons: Iterable[str]) -> str:
    """Reasons in words, each once; empty where only idleness or nothing was reported."""
    return ", ".join(
        dict.fromkeys(THROTTLE_REASON_TEXTS.get(reason, reason) for reason in reasons if reason != IDLE_REASON)
    )


def is_disturbed(reading, states: Iterable, sensitive: LoadSensitivity) -> bool:
    """Whether other load ran during a block, by its Contention (None: not known) and readings of the device."""
    return any(state.other_processes for state in states) or bool(reading and find_disturbances(reading, sensitive))


def find_hidden_load(whole_job, sensitive: LoadSensitivity) -> list[str]:
    """Load that only a whole job's reading shows: a block is too short to tell of processes that are hidden here."""
    if whole_job is None:
        return []
    seen = dict.fromkeys(("other_cores", "waiting_share", "stolen_share", "quota_throttled_share", "other_processes"))
    return find_disturbances(whole_job.model_copy(update=seen), sensitive)
