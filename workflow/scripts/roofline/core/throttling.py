"""What NVML's clock event reasons mean: which are thermal, and which limit a load."""

from collections.abc import Iterable

REASONS = {
    "sw_power_cap": "power cap",
    "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_slowdown": "hardware slowdown",
    "applications_clocks_setting": "application clocks",
    "display_clock_setting": "display clocks",
    "sync_boost": "sync boost",
}
IDLE = "gpu_idle"
THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"})


def limiting_reasons(reported: Iterable[list[str] | None]) -> list[str]:
    """Every reason among several readings, sorted, except that the GPU was idle."""
    return sorted({reason for reasons in reported for reason in reasons or []} - {IDLE})


def is_throttled(reasons: list[str] | None) -> bool | None:
    """Whether heat or the power brake slowed the device; None where it reports no reasons."""
    return None if reasons is None else not THERMAL_REASONS.isdisjoint(reasons)


def limiting_words(reasons: Iterable[str]) -> str:
    """Reasons in words, each once; empty where only idleness or nothing was reported."""
    return ", ".join(dict.fromkeys(REASONS.get(reason, reason) for reason in reasons if reason != IDLE))
