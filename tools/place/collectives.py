"""Communication between GPUs: its kernels, the bytes that a link must carry for a call, and the rate of that link."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy
from formulas.base import CallWork, Tensor, item_bytes

from roofline.api import Run

# NCCL; symmetric memory; the all-reduces of vLLM, TensorRT-LLM, FlashInfer, SGLang; DeepEP, NVSHMEM, userbuffers,
# MSCCL; copies between cards.
KERNELS = re.compile(
    r"nccl|nvshmem|userbuffers|msccl|deep_?ep|(?:intra|inter)node(?:_ll)?::|multimem|lamport|quick_?reduce"
    r"|cross_device_reduce|(?-i:All(?:Reduce|Gather|ToAll)|ReduceScatter)|(?<![a-z])all_?(?:reduce|gather|to_?all)|(?<![a-z])(?:reduce_?scatter|a2a)|one_?shot_|two_?shot_"
    r"|(?:push|pull)_?(?:send|recv)|Memcpy (?:PtoP|P2P)",
    re.IGNORECASE,
)
ALL_REDUCE = r"all_?reduce|cross_device_reduce|quick_?reduce|lamport|one_?shot|two_?shot"
PAIR_ALL_REDUCE = "all_reduce"  # the family of those of two cards, whose times are measured
# The least that a link carries in one direction, by the bytes of the whole buffer, among n cards; the first that
# matches. An all-reduce is a ring, or the switch adds up.
TRAFFIC: dict[str, Callable[[int], float]] = {
    r"reduce_?scatter|all_?to_?all|a2a": lambda n: (n - 1) / n,
    ALL_REDUCE: lambda n: min(2 * (n - 1) / n, 1 + 1 / n),
    r"gather|scatter": lambda n: (n - 1) / n,
    r"broadcast|reduce|send|recv|memcpy": lambda n: 1,
}


@dataclass(frozen=True)
class Link:
    """The rate of the links of one card in one direction, and all-reduces over them."""

    name: str
    gb_per_s: float
    all_reduces: tuple[tuple[int, float], ...] = ()  # bytes and seconds, of two cards

    def all_reduce_s(self, size_bytes: float) -> float | None:
        """Return the seconds that two cards were measured to take, between two sizes in proportion; None beyond."""
        if not self.all_reduces or not self.all_reduces[0][0] <= size_bytes <= self.all_reduces[-1][0]:
            return None
        sizes, seconds = zip(*self.all_reduces, strict=True)
        return float(numpy.interp(size_bytes, sizes, seconds))


@cache
def is_collective(name: str) -> bool:
    """Return whether an event of this name communicates between GPUs. Triton names kernels for what surrounds them."""
    return bool(KERNELS.search(name)) and not name.startswith("triton_")


def find_link(run: Run, device: str) -> Link | None:
    """Return the fastest path from a card to another, one way: of those that were measured, else of the datasheet."""
    ceilings = [row for row in run.roofline.ceilings if row.device == device and row.kind == "memory"]
    links = [row for row in ceilings if row.level == "p2p" and not row.both_ways and not row.doubt]
    rates = {link.name: link.gb_per_s for link in links}
    if nvlink := run.devices[device].datasheet.nvlink:
        rates = rates or {"NVLink's datasheet": nvlink.gb_per_s}
    if not rates:
        return None
    name = max(rates, key=rates.__getitem__)
    return Link(name, rates[name], tuple(sorted(_find_all_reduces(run, device).items())))


def _find_all_reduces(run: Run, device: str) -> dict[int, float]:
    """Return the seconds of each size that a card and another added up, by the fastest way and pair."""
    rows = [row for row in run.roofline.all_reduces if device in (row.device, row.peer)]
    sizes = [size for row in rows for size in row.sizes if not size.doubt]
    times_s = [(size.size_bytes, min(size.time_s, size.nccl_graph_time_s or size.time_s)) for size in sizes]
    return dict(sorted(times_s, reverse=True))  # of a size, the fastest comes last and stays


def count_carried(name: str, args: dict, tensors: list[Tensor]) -> tuple[CallWork, str] | None:
    """Return what a link carries for a collective, and PAIR_ALL_REDUCE or ""; None if its size was not recorded.

    The size is what NCCL's kernel was recorded with (`args`), else the largest of the caller's tensors. A group whose
    size was not recorded has two cards at least. Raises UnknownTypeError.
    """
    operation = f"{args.get('Collective name', '')} {name}".lower()
    pattern = next((pattern for pattern in TRAFFIC if re.search(pattern, operation)), None)
    known_cards, buffer_bytes = args.get("Group size"), args.get("bytes") or 0
    cards = known_cards or 2
    if "In msg nelems" in args:
        buffer_bytes = max(args["In msg nelems"], args["Out msg nelems"]) * item_bytes(args["dtype"])
    elif tensors and not buffer_bytes:
        buffer_bytes = max(tensor.count * tensor.item_bytes for tensor in tensors)
    if pattern is None or not buffer_bytes:
        return None
    shape = f"{buffer_bytes} bytes, {cards if known_cards else 'at least 2'} cards"
    family = PAIR_ALL_REDUCE if pattern == ALL_REDUCE and known_cards == 2 else ""
    return CallWork(0, TRAFFIC[pattern](cards) * buffer_bytes, 0, shape=shape), family
