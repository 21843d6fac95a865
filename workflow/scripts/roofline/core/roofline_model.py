"""The arithmetic of rooflines: pure functions of plain numbers.

Sources: Williams, Waterman and Patterson, CACM 52(4), 2009; for instructions Ding and Williams, PMBS 2019.
Units throughout: FLOPs and bytes are counts, rates are FLOP/s and bytes/s, times are seconds.
A multiply-add is two FLOPs. A transaction is a sector of 32 bytes, of shared memory a wavefront of all 32 banks.
Infinity means 'no limit' and 'never'; records say it with a field instead.
"""

import math
from dataclasses import dataclass
from typing import Final

COMPUTE_BOUND: Final = "compute"
MEMORY_BOUND: Final = "memory"
OVERHEAD_BOUND: Final = "overhead"
IMPLEMENTATION_BOUND: Final = "implementation"

LANES_PER_WARP = 32
SHARED_MEMORY_BANKS = 32
WORD_BYTES = 4
SECTOR_BYTES = 32
# Each scheduler issues up to one instruction per cycle: CUDA programming guide, for every architecture from compute
# capability 7.0 to 12.0.
SCHEDULERS_PER_SM = 4


def arithmetic_intensity(flops: float, traffic_bytes: float) -> float:
    """Return the FLOPs per byte of traffic; infinity without traffic."""
    _require_not_negative(flops=flops, traffic_bytes=traffic_bytes)
    return flops / traffic_bytes if traffic_bytes else math.inf


def ridge_point(flops_per_s: float, bytes_per_s: float) -> float:
    """Return the intensity (FLOP/byte) at which the two ceilings meet: peak / bandwidth; infinity at zero bandwidth."""
    _require_not_negative(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)
    return flops_per_s / bytes_per_s if bytes_per_s else math.inf


def attainable_flops_per_s(flops_per_s: float, bytes_per_s: float, intensity: float) -> float:
    """Return the FLOP/s under the roof, min(peak, intensity x bandwidth); at infinite intensity the peak."""
    _require_not_negative(flops_per_s=flops_per_s, bytes_per_s=bytes_per_s, intensity=intensity)
    if math.isinf(intensity):
        return flops_per_s
    return min(flops_per_s, intensity * bytes_per_s)


def roof_tflops(flops: float, traffic_bytes: float, tflops: float | None, gb_per_s: float | None) -> float | None:
    """Return the lower of two measured ceilings at an operation's intensity, in TFLOPS.

    A ceiling of None was not measured and sets no limit. Returns None where nothing sets one.
    """
    limits = [tflops] if tflops else []
    if gb_per_s and traffic_bytes:
        limits.append(flops / traffic_bytes * gb_per_s / 1e3)
    return min(limits, default=None)


def roofline_time(flops: float, traffic_bytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """Return the seconds that the roofline allows: max(FLOPs / peak, bytes / bandwidth).

    Unlike FLOPs / attainable it is finite for a copy, which has traffic and no FLOPs.
    """
    _require_not_negative(flops=flops, traffic_bytes=traffic_bytes, flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)
    return max(_seconds_at_rate(flops, flops_per_s), _seconds_at_rate(traffic_bytes, bytes_per_s))


@dataclass(frozen=True)
class RooflinePoint:
    """One operation under one roofline; see `place_under_roof`."""

    intensity_flops_per_byte: float
    attainable_flops_per_s: float
    bound: str
    efficiency_percent: float
    estimated_time_s: float
    roofline_time_s: float


def place_under_roof(flops: float, traffic_bytes: float, flops_per_s: float, bytes_per_s: float) -> RooflinePoint:
    """Place one operation under the roof of a compute peak (FLOP/s) and a memory bandwidth (bytes/s).

    - intensity: FLOPs / bytes, infinite without traffic;
    - attainable: min(peak, intensity x bandwidth);
    - bound: 'compute' at or above the ridge point, 'memory' below it;
    - efficiency: attainable / peak in per cent, 0 at a peak of zero;
    - estimated time: FLOPs / attainable; infinite where nothing is attainable, as for a copy;
    - roofline time: max(FLOPs / peak, bytes / bandwidth), finite for a copy.

    At zero bandwidth an operation with traffic is memory-bound, attains nothing and never ends.

    Raises ValueError for a negative or not-a-number argument.
    """
    intensity = arithmetic_intensity(flops, traffic_bytes)
    attainable = attainable_flops_per_s(flops_per_s, bytes_per_s, intensity)
    return RooflinePoint(
        intensity_flops_per_byte=intensity,
        attainable_flops_per_s=attainable,
        bound=COMPUTE_BOUND if intensity >= ridge_point(flops_per_s, bytes_per_s) else MEMORY_BOUND,
        efficiency_percent=100 * attainable / flops_per_s if flops_per_s else 0.0,
        estimated_time_s=flops / attainable if attainable else math.inf,
        roofline_time_s=roofline_time(flops, traffic_bytes, flops_per_s, bytes_per_s),
    )


def sectors_per_request(stride_words: int) -> int:
    """Return the sectors that a warp requests where neighbouring lanes load words `stride_words` apart.

    The first word lies at the start of a sector.
    """
    return len({lane * stride_words * WORD_BYTES // SECTOR_BYTES for lane in range(LANES_PER_WARP)})


def wavefronts_per_request(stride_words: int) -> int:
    """Return the wavefronts of a warp whose neighbouring lanes load words of shared memory `stride_words` apart.

    They are the largest number of lanes that need different words of one bank; 1 is free of conflicts.
    """
    return math.gcd(stride_words, SHARED_MEMORY_BANKS) if stride_words else 1


def peak_issue_rate(multiprocessors: int, clock_mhz: float) -> float:
    """Return the warp instructions per second if every scheduler issues one per cycle."""
    return multiprocessors * SCHEDULERS_PER_SM * clock_mhz * 1e6


def _seconds_at_rate(amount: float, rate: float) -> float:
    if not amount:
        return 0.0
    return amount / rate if rate else math.inf


def _require_not_negative(**values: float) -> None:
    for name, value in values.items():
        if math.isnan(value) or value < 0:
            raise ValueError(f"{name} is {value}; allowed: zero or more")
