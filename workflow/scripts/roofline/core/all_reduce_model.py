"""How long an all-reduce of bytes takes: between two cards by the link alone, and of more cards behind a switch."""

from roofline.core.units import KIB

SIZES = tuple(KIB * 4**power for power in range(11))  # in bytes, 1 KiB to 1 GiB


def predict_time_s(size_bytes: float, latency_s: float, both_ways_gb_per_s: float, start_s: float) -> float:
    """Return the seconds of an all-reduce between two cards, of which each sends all its bytes to the other.

    A kernel starts, its first bytes take the latency, and the rest follow at the rate of one direction, half of what
    both directions give at once.
    """
    return start_s + latency_s + size_bytes / (both_ways_gb_per_s / 2 * 1e9)


def bound_time_s(size_bytes: float, link_gb_per_s: float, cards: int = 2, latency_s: float = 0.0) -> float:
    """Return the least seconds of an all-reduce of `size_bytes` on each of `cards`, by the rate of one direction.

    A card sends and receives 2 (n - 1) / n of its bytes, by whatever order of sends. Where a switch adds, a card sends
    its bytes once and receives 1 / n of the sums, which it passes on: 1 + 1 / n, less from four cards on.
    """
    share = min(2 * (cards - 1) / cards, 1 + 1 / cards)
    return max(latency_s, share * size_bytes / (link_gb_per_s * 1e9))
