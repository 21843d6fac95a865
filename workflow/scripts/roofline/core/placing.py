"""The arithmetic of placing a profiled kernel under measured ceilings: pure functions of plain numbers."""

from roofline.core import instructions, model, regimes

LOCKED = 0.95  # of a ceiling's clock: below it a kernel ran at another clock, by more than clocks wander
PASSED_BY = 0.5  # of what the L2 moves: less through the L1 says that TMA, which is not counted there, moves the rest
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


def l1_is_counted(l1_bytes: float, l2_bytes: float | None) -> bool:
    """Whether the L1's counter holds what a kernel moves; of one that loads by TMA it does not."""
    return l2_bytes is None or l1_bytes >= PASSED_BY * l2_bytes


def issued_share(
    warp_instructions: float | None, duration_s: float | None, clock_mhz: float | None, multiprocessors: int
) -> float | None:
    """Of a launch's instructions that all schedulers could have issued in its time; None where a count is not known."""
    if warp_instructions is None or not duration_s or not clock_mhz:
        return None
    return warp_instructions / (duration_s * instructions.issue_peak(multiprocessors, clock_mhz))


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
