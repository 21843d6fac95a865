"""What work costs a host, per call, byte or number, from timed blocks of it.

A cost that cores divide has two parts: `time = amount x (own / cores + shared)`. Each core takes the first for its part
of the work. The second all cores take together, however many they are: memory, a cache, or the interpreter's lock.
A cost of threads, rows or arguments is a line: `time = start + count x each`.
"""

from collections.abc import Iterable
from typing import NamedTuple

SHARED = "shared_"
CALL, HANDOVER = "core_operation_s", "handover_s"  # known before all others, which are timed with some of these
DIVIDED = (
    CALL,
    "product_read_s_per_byte",
    "fp16_read_s_per_element",
    "bf16_read_s_per_element",
    "projection_s_per_flop",
    "pass_s_per_byte",
    "memory_pass_s_per_byte",
    "copy_s_per_byte",
)
# The slope of each cost that is a line, by the name of its start.
SLOPES = {
    HANDOVER: "thread_s",
    "loop_s": "loop_thread_s",
    "pack_s_per_element": "row_s_per_element",
    "kernel_launch_s": "kernel_argument_s",
}
LEAST_LEFT = 0.1  # of a block's time once its calls are taken off


class Block(NamedTuple):
    """One timed block: `seconds` for so much work. `count` is of cores, threads, rows or arguments; `calls` are NumPy's
    on all cores together, and `threads` those that were handed the work, where either is no part of the cost."""

    name: str
    count: int
    amount: float
    seconds: float
    calls: float = 0.0
    threads: int = 0


def divided(name: str, amount: float, cores: float) -> dict[str, float]:
    """The terms of so much work of a cost, divided among so many cores."""
    return {name: amount / cores, SHARED + name: amount}


def added(some: dict[str, float], more: dict[str, float]) -> dict[str, float]:
    """The terms of both."""
    return {name: some.get(name, 0.0) + more.get(name, 0.0) for name in {**some, **more}}


def constants(blocks: Iterable[Block]) -> dict[str, float]:
    """By name; of a cost that was timed for one count and for more, its two parts."""
    by_name: dict[str, list[Block]] = {}
    for block in blocks:
        by_name.setdefault(block.name, []).append(block)
    found: dict[str, float] = {}
    for name in sorted(by_name, key=(CALL, HANDOVER).__contains__, reverse=True):
        few, *more = sorted(by_name[name], key=lambda block: block.count)
        many = more[-1] if more else few
        seconds = [_of_one(block, found) for block in (few, many)]
        if name in SLOPES:
            found[name], found[SLOPES[name]] = _line(*seconds, few.count, many.count)
        elif name in DIVIDED:
            found[name], found[SHARED + name] = _own_and_shared(*seconds, many.count)
        else:
            found[name] = seconds[0]
    return found


def _of_one(block: Block, known: dict[str, float]) -> float:
    """Seconds per unit of the amount, without the calls and the handover of the block."""
    calls_s = block.calls * (known[CALL] / block.count + known[SHARED + CALL]) if block.calls else 0.0
    handover_s = known[HANDOVER] + block.threads * known[SLOPES[HANDOVER]] if block.threads else 0.0
    return max(block.seconds - calls_s - handover_s, LEAST_LEFT * block.seconds) / block.amount


def _line(few_s: float, many_s: float, few: int, many: int) -> tuple[float, float]:
    """Start and slope, neither below 0; of a single point all is start."""
    each = max(0.0, (many_s - few_s) / (many - few)) if many > few else 0.0
    each = min(each, few_s / few)
    return few_s - each * few, each


def _own_and_shared(alone_s: float, all_s: float, cores: int) -> tuple[float, float]:
    """What a core takes alone is own + shared, and all of them take own / cores + shared; neither is below 0."""
    if cores == 1:
        return alone_s, 0.0
    own_s = min(max((alone_s - all_s) * cores / (cores - 1), 0.0), alone_s)
    return own_s, max(0.0, all_s - own_s / cores)
