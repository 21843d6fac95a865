"""Communication between GPUs: its kernels, the bytes that a link must carry for a call, and the rate of that link."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from formulas.base import Tensor, UnknownTypeError, item_bytes

from roofline.api import MemoryCeiling, Run

# NCCL; symmetric memory; the all-reduces of vLLM, TensorRT-LLM, FlashInfer, SGLang; DeepEP, NVSHMEM, userbuffers,
# MSCCL; copies between cards.
KERNELS = re.compile(
    r"nccl|nvshmem|userbuffers|msccl|deep_?ep|(?:intra|inter)node(?:_ll)?::|multimem|lamport|quick_?reduce"
    r"|cross_device_reduce|(?-i:All(?:Reduce|Gather|ToAll)|ReduceScatter)|(?<![a-z])all_?(?:reduce|gather|to_?all)|(?<![a-z])(?:reduce_?scatter|a2a)|one_?shot_|two_?shot_"
    r"|(?:push|pull)_?(?:send|recv)|Memcpy (?:PtoP|P2P)",
    re.IGNORECASE,
)
# The least that a link carries in one direction, by the bytes of the whole buffer, among n cards; the first that
# matches. An all-reduce is a ring, or the switch adds up.
TRAFFIC: dict[str, Callable[[int], float]] = {
    r"reduce_?scatter|all_?to_?all|a2a": lambda n: (n - 1) / n,
    r"all_?reduce|cross_device_reduce|quick_?reduce|lamport|one_?shot|two_?shot": lambda n: min(
        2 * (n - 1) / n, 1 + 1 / n
    ),
    r"gather|scatter": lambda n: (n - 1) / n,
    r"broadcast|reduce|send|recv|memcpy": lambda n: 1,
}


@dataclass(frozen=True)
class Link:
    """The rate of the links of one card in one direction."""

    name: str
    gb_per_s: float
    kind: str = "memory"
    sm_clock_mhz: None = None


@cache
def is_collective(name: str) -> bool:
    """Return whether an event of this name communicates between GPUs. Triton names kernels for what surrounds them."""
    return bool(KERNELS.search(name)) and not name.startswith("triton_")


def find_link(run: Run, device: str) -> Link | None:
    """Return the fastest path from a card to another, one way: of those that were measured, else of the datasheet."""
    measured = [
        ceiling
        for ceiling in run.roofline.ceilings
        if isinstance(ceiling, MemoryCeiling) and ceiling.device == device and ceiling.level == "p2p"
        if not ceiling.both_ways and not ceiling.doubt
    ]
    if measured:
        fastest = max(measured, key=lambda ceiling: ceiling.gb_per_s)
        return Link(fastest.name, fastest.gb_per_s)
    nvlink = run.devices[device].datasheet.nvlink
    return Link("NVLink's datasheet", nvlink.gb_per_s) if nvlink else None


def link_bytes(name: str, args: dict, tensors: list[Tensor]) -> tuple[float, str] | None:
    """Return the bytes that the link of a card carries for a collective, and its size in words.

    They follow from what NCCL's kernel was recorded with (`args`), else from the largest of the caller's tensors. None
    if neither says.
    """
    operation = f"{args.get('Collective name', '')} {name}".lower()
    traffic = next((traffic for pattern, traffic in TRAFFIC.items() if re.search(pattern, operation)), None)
    cards = args.get("Group size") or 2
    buffer_bytes = args.get("bytes") or 0
    try:
        if "In msg nelems" in args:
            buffer_bytes = max(args["In msg nelems"], args["Out msg nelems"]) * item_bytes(args["dtype"])
        elif tensors and not buffer_bytes:
            buffer_bytes = max(tensor.count * tensor.item_bytes for tensor in tensors)
    except UnknownTypeError:
        return None
    if traffic is None or not buffer_bytes:
        return None
    return traffic(cards) * buffer_bytes, f"{buffer_bytes} bytes, {cards} cards"
