"""The arithmetic of instruction rooflines (Ding and Williams, PMBS 2019): pure functions of plain numbers.

A transaction is a sector of 32 bytes; of shared memory a wavefront, which serves each of 32 banks once. Rates are per
second, intensities warp instructions per transaction.
"""

import math

LANES, BANKS = 32, 32
WORD_BYTES = 4
SECTOR_BYTES = 32
WAVEFRONT_BYTES = BANKS * WORD_BYTES
# Warp schedulers of a multiprocessor, each of which issues up to one instruction per cycle: CUDA programming guide, of
# every architecture from compute capability 7.0 to 12.0.
SCHEDULERS = 4


def transaction_bytes(level: str) -> int:
    return WAVEFRONT_BYTES if level == "shared" else SECTOR_BYTES


def transactions(traffic_bytes: float, level: str) -> float:
    """The fewest transactions that move so many bytes."""
    return traffic_bytes / transaction_bytes(level)


def sectors_per_request(stride_words: int) -> int:
    """Sectors that a warp asks for where its lanes load words so far apart, the first at the start of a sector."""
    return len({lane * stride_words * WORD_BYTES // SECTOR_BYTES for lane in range(LANES)})


def wavefronts_per_request(stride_words: int) -> int:
    """The most lanes that want different words of one bank, where lanes load words of shared memory so far apart."""
    return math.gcd(stride_words, BANKS) if stride_words else 1


def issue_peak(multiprocessors: int, clock_mhz: float) -> float:
    """Warp instructions per second where every scheduler issues one per cycle."""
    return multiprocessors * SCHEDULERS * clock_mhz * 1e6
