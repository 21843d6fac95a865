"""The arithmetic of placing a profiled kernel under measured ceilings: pure functions of plain numbers."""

from roofline.core import model, regimes

LOCKED = 0.95  # of a ceiling's clock: below it a kernel ran at another clock, by more than clocks wander
MOSTLY = 0.9  # of the bytes: from this on traffic counts as reads alone, or as writes alone


def clock_scale(kernel_mhz: float | None, ceiling_mhz: float | None) -> float | None:
    """By how much of its clock a ceiling was measured above a kernel's; None where the two are near, or one is not
    known. Only what runs at the clock of the multiprocessors scales: never the memory."""
    if not kernel_mhz or not ceiling_mhz or kernel_mhz >= LOCKED * ceiling_mhz:
        return None
    return kernel_mhz / ceiling_mhz


def mix(read_bytes: float, write_bytes: float) -> str:
    """The mix of accesses whose memory ceiling a kernel stands under."""
    moved = read_bytes + write_bytes
    if read_bytes >= MOSTLY * moved:
        return "read"
    return "write" if write_bytes >= MOSTLY * moved else "copy"


def regime(
    duration_s: float, start_s: float | None, compute_s: float | None, memory_s: float | None, complete: bool
) -> str | None:
    """As of a device that is its own caller (core/regimes.py), from what is known of a kernel.

    `compute_s` and `memory_s` are what the ceilings of all pipes and of all levels allow at least; None: not known.
    Without some of the counts (`complete` false) nothing is said of a kernel of which those at hand explain too little.
    """
    found = regimes.regime(
        latency_s=duration_s,
        device_latency_s=None,
        start_s=start_s,
        compute_s=compute_s or 0.0,
        memory_s=memory_s or 0.0,
    )
    return None if found == model.IMPLEMENTATION_BOUND and not complete else found
