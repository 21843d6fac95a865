"""The arithmetic of rooflines: pure functions of plain numbers.

Sources: Williams, Waterman and Patterson, CACM 52(4), 2009; for instructions Ding and Williams, PMBS 2019.
Units throughout: FLOPs and bytes are counts, peaks are FLOP/s, bandwidths bytes/s, times seconds.
A multiply-add is two FLOPs. A transaction is a sector of 32 bytes, of shared memory a wavefront of all 32 banks.
Infinity means 'no limit' and 'never'; records say it with a field instead.
"""

import math
from dataclasses import dataclass

COMPUTE_BOUND = "compute"
MEMORY_BOUND = "memory"
OVERHEAD_BOUND = "overhead"
IMPLEMENTATION_BOUND = "implementation"

LANES_PER_WARP, SHARED_MEMORY_BANKS = 32, 32
WORD_BYTES = 4
SECTOR_BYTES = 32
WAVEFRONT_BYTES = SHARED_MEMORY_BANKS * WORD_BYTES
# Warp schedulers of a multiprocessor, each of which issues up to one instruction per cycle: CUDA programming guide, of
# every architecture from compute capability 7.0 to 12.0.
SCHEDULERS_PER_SM = 4


def arithmetic_intensity(flops: float, memory_bytes: float) -> float:
    """FLOPs per byte of traffic; infinite when there is no traffic."""
    _require_not_negative(flops=flops, memory_bytes=memory_bytes)
    return flops / memory_bytes if memory_bytes else math.inf


def ridge_point(peak_flops: float, bandwidth: float) -> float:
    """The intensity (FLOP/byte) at which the two roofs meet: peak / bandwidth; infinite at zero bandwidth."""
    _require_not_negative(peak_flops=peak_flops, bandwidth=bandwidth)
    return peak_flops / bandwidth if bandwidth else math.inf


def attainable_flops(peak_flops: float, bandwidth: float, intensity: float) -> float:
    """FLOP/s under the roof: min(peak, intensity x bandwidth); the peak alone where there is no traffic."""
    _require_not_negative(peak_flops=peak_flops, bandwidth=bandwidth, intensity=intensity)
    if math.isinf(intensity):
        return peak_flops
    return min(peak_flops, intensity * bandwidth)


def roof_tflops(flops: float, memory_bytes: float, tflops: float | None, gb_per_s: float | None) -> float | None:
    """The lower of two measured ceilings at an operation's intensity, in TFLOPS; None: not measured, sets no limit."""
    limits = [tflops] if tflops else []
    if gb_per_s and memory_bytes:
        limits.append(flops / memory_bytes * gb_per_s / 1e3)
    return min(limits, default=None)


def roofline_time(flops: float, memory_bytes: float, peak_flops: float, bandwidth: float) -> float:
    """Seconds that the roofline allows: max(FLOPs / peak, bytes / bandwidth).

    Unlike FLOPs / attainable it is finite for a copy, which has traffic and no FLOPs.
    """
    _require_not_negative(flops=flops, memory_bytes=memory_bytes, peak_flops=peak_flops, bandwidth=bandwidth)
    return max(_seconds_at_rate(flops, peak_flops), _seconds_at_rate(memory_bytes, bandwidth))


@dataclass(frozen=True)
class RooflinePoint:
    """One operation under one roofline; see `analyse`."""

    intensity_flops_per_byte: float
    attainable_flops: float
    bound: str
    efficiency_percent: float
    estimated_time_s: float
    roofline_time_s: float


def place_under_roof(flops: float, memory_bytes: float, peak_flops: float, bandwidth: float) -> RooflinePoint:
    """Place one operation under the roof given by a peak (FLOP/s) and a bandwidth (bytes/s).

    - intensity: FLOPs / bytes, infinite without traffic;
    - attainable: min(peak, intensity x bandwidth);
    - bound: 'compute' at or above the ridge point, 'memory' below it;
    - efficiency: attainable / peak in per cent, 0 at a peak of zero;
    - estimated time: FLOPs / attainable: infinite for a copy, which attains zero; 0 without work and traffic;
    - roofline time: max(FLOPs / peak, bytes / bandwidth), finite for a copy.

    At zero bandwidth everything with traffic is memory-bound, attains nothing and never ends.

    Raises ValueError for a negative or not-a-number argument.
    """
    intensity = arithmetic_intensity(flops, memory_bytes)
    attainable = attainable_flops(peak_flops, bandwidth, intensity)
    return RooflinePoint(
        intensity_flops_per_byte=intensity,
        attainable_flops=attainable,
        bound=COMPUTE_BOUND if intensity >= ridge_point(peak_flops, bandwidth) else MEMORY_BOUND,
        efficiency_percent=100 * attainable / peak_flops if peak_flops else 0.0,
        estimated_time_s=flops / attainable if attainable else math.inf,
        roofline_time_s=roofline_time(flops, memory_bytes, peak_flops, bandwidth),
    )


def bytes_per_transaction(level: str) -> int:
    return WAVEFRONT_BYTES if level == "shared" else SECTOR_BYTES


def fewest_transactions(traffic_bytes: float, level: str) -> float:
    """The fewest transactions that move so many bytes."""
    return traffic_bytes / bytes_per_transaction(level)


def sectors_per_request(stride_words: int) -> int:
    """Sectors that a warp asks for where its lanes load words so far apart, the first at the start of a sector."""
    return len({lane * stride_words * WORD_BYTES // SECTOR_BYTES for lane in range(LANES_PER_WARP)})


def wavefronts_per_request(stride_words: int) -> int:
    """The most lanes that want different words of one bank, where lanes load words of shared memory so far apart."""
    return math.gcd(stride_words, SHARED_MEMORY_BANKS) if stride_words else 1


def peak_issue_rate(multiprocessors: int, clock_mhz: float) -> float:
    """Warp instructions per second where every scheduler issues one per cycle."""
    return multiprocessors * SCHEDULERS_PER_SM * clock_mhz * 1e6


def _seconds_at_rate(amount: float, rate: float) -> float:
    if not amount:
        return 0.0
    return amount / rate if rate else math.inf


def _require_not_negative(**values: float) -> None:
    for name, value in values.items():
        if math.isnan(value) or value < 0:
            raise ValueError(f"{name} is {value}; allowed: zero or more")
