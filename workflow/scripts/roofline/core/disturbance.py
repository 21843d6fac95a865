"""What disturbs a timed block: other load, by what the block is sensitive to, and throttling."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Self

from roofline.core.terms import LoadSensitivity

# The environment variable with the id of the process that starts this run's jobs.
RUN_PROCESS_VARIABLE = "ROOFLINE_RUN_PROCESS"


class DeviceReading(Protocol):
    """The part of a records.timing_record.DeviceState that tells of other load; core may not import records."""

    other_processes: int | None


class ContentionReading(Protocol):
    """The part of a records.timing_record.Contention that the rules below use; core may not import records."""

    wall_s: float
    cores: int
    own_cores: float
    other_cores: float | None
    hidden_cores: float | None
    waiting_share: float | None
    stolen_share: float | None
    quota_throttled_share: float | None
    other_processes: int | None

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return a copy with other values of some fields."""
        ...


class DisturbanceLimits(NamedTuple):
    """The largest shares of a block's time that are allowed; a block beyond one of them is disturbed."""

    other_load: float  # CPU time of other processes, of the time of all CPUs
    waiting: float  # time that our threads waited for a CPU, of their own time
    stolen: float  # time that the hypervisor took, of the time of all CPUs
    throttled: float  # time that the container's CPU quota held the block back, of its wall time


# Work that is split over all cores waits for the one that another process uses. A caller of a GPU needs one core alone.
# The device's own time does not depend on the host.
DISTURBANCE_LIMITS: dict[LoadSensitivity, DisturbanceLimits | None] = {
    "cpu": DisturbanceLimits(other_load=0.05, waiting=0.25, stolen=0.02, throttled=0.01),
    "caller": DisturbanceLimits(other_load=0.75, waiting=0.25, stolen=0.10, throttled=0.01),
    "device": None,
}
LEAST_OTHER_CORES = 0.2  # used by other processes: a quiet system uses less
LEAST_OTHER_CPU_S = 0.005  # CPU time of other processes in a block: less is a system task that woke up
LEAST_STOLEN_S = 0.05  # the kernel counts it in ticks of 10 ms
LEAST_WAIT_S = 0.002  # waited by our threads: shorter than a turn of another process, longer than waking

# NVML's clock event reasons in words.
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
# The reasons that mean heat or the power brake.
THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})


def find_disturbances(contention: ContentionReading, sensitivity: LoadSensitivity) -> list[str]:
    """Return a line for each kind of load that disturbed a block; empty if none did, or if nothing is known."""
    limits, texts = DISTURBANCE_LIMITS[sensitivity], []
    if contention.other_processes:
        texts.append(f"other processes on the GPU: {contention.other_processes}")
    if limits is None:
        return texts
    cores, wall_s = contention.cores, contention.wall_s
    other_cores = contention.other_cores or 0
    most_other_cores = max(LEAST_OTHER_CORES, limits.other_load * cores)
    if other_cores > most_other_cores and other_cores * wall_s > LEAST_OTHER_CPU_S:
        texts.append(f"other processes used {other_cores:.3g} of {cores} cores")
    hidden_cores = contention.hidden_cores or 0
    if hidden_cores > most_other_cores:
        texts.append(f"processes that are not visible here used {hidden_cores:.3g} of {cores} cores")
    waiting = contention.waiting_share or 0
    if waiting > limits.waiting and waiting * contention.own_cores * wall_s > LEAST_WAIT_S:
        texts.append(f"our threads waited {100 * waiting:.3g} % of their time for a core")
    stolen = contention.stolen_share or 0
    if stolen > limits.stolen and stolen * cores * wall_s > LEAST_STOLEN_S:
        texts.append(f"the hypervisor took {100 * stolen:.3g} % of the cores' time")
    throttled = contention.quota_throttled_share or 0
    if throttled > limits.throttled:
        texts.append(f"the CPU quota held it back for {100 * throttled:.3g} % of its time")
    return texts


def collect_throttle_reasons(readings: Iterable[list[str] | None]) -> list[str]:
    """Return the throttle reasons of all readings, sorted, without the one that says the GPU was idle."""
    return sorted({reason for reasons in readings for reason in reasons or []} - {IDLE_REASON})


def is_throttled(reasons: list[str] | None) -> bool | None:
    """Return whether heat or the power brake slowed the device; None where it reports no reasons."""
    return None if reasons is None else not THERMAL_REASONS.isdisjoint(reasons)


def throttle_reasons_text(reasons: Iterable[str]) -> str:
    """Return the reasons in words, each once; empty if the GPU was only idle or nothing was reported."""
    return ", ".join(
        dict.fromkeys(THROTTLE_REASON_TEXTS.get(reason, reason) for reason in reasons if reason != IDLE_REASON)
    )


def is_disturbed(
    contention: ContentionReading | None, states: Iterable[DeviceReading], sensitivity: LoadSensitivity
) -> bool:
    """Return whether other load ran during a block; a contention of None is not known and disturbs nothing."""
    if any(state.other_processes for state in states):
        return True
    return bool(contention and find_disturbances(contention, sensitivity))


def find_hidden_load(whole_job: ContentionReading | None, sensitivity: LoadSensitivity) -> list[str]:
    """Return a line if processes that are not visible here disturbed a job; empty where nothing is known.

    Only the contention of a whole job tells of them: a block is too short.
    """
    if whole_job is None:
        return []
    visible = ("other_cores", "waiting_share", "stolen_share", "quota_throttled_share", "other_processes")
    return find_disturbances(whole_job.model_copy(update=dict.fromkeys(visible)), sensitivity)
