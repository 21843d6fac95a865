"""The instruction roofline of a GPU in words: what limits kernels that bytes and FLOPs do not explain."""

from collections.abc import Sequence

from roofline.core.formatting import counted, listed, number, percent
from roofline.core.model import LANES
from roofline.core.statistics import median
from roofline.report.words import LEVELS as TITLES
from roofline.table.rows import InstructionRoofline, PlacedKernel, Roofline

EXPLAINED = 0.6  # of a kernel's own roof: from there on bytes and FLOPs say what limits it
FULL = 0.95  # of the lanes: fewer are worth a sentence
LOADS = {
    "stride": ("a global load of lanes {} words apart", "sectors"),
    "conflict": ("a shared load of {} lanes on a bank", "wavefronts"),
}
LEVELS = TITLES | {"issue": "instruction issue"}


def paragraph(one: InstructionRoofline, table: Roofline) -> str:
    """The issue rate, and the kernels under it."""
    peak = f", {percent(one.fraction_of_peak)} of one per scheduler and cycle" if one.fraction_of_peak else ""
    issued = f"{one.device} issues {number(one.warp_instructions_per_s / 1e9)} G warp instructions/s{peak}."
    return f"{issued} {_kernels(one, table)}"


def _kernels(one: InstructionRoofline, table: Roofline) -> str:
    """The cells of each implementation together."""
    if not one.kernels:
        return "No kernel was counted, so none is placed under these ceilings."
    groups: dict[str, list[PlacedKernel]] = {}
    for kernel in one.kernels:
        if (kernel.fraction_of_roof or 0) < EXPLAINED:
            name = " ".join(filter(None, [table.title(kernel.operator), kernel.implementation]))
            groups.setdefault(name, []).append(kernel)
    few = sum(map(len, groups.values()))
    said = f"Bytes and FLOPs explain {len(one.kernels) - few} of {counted(len(one.kernels), 'counted cell')}"
    others = "; ".join(_group(*group) for group in groups.items())
    return f"{said}. The others: {others}." if few else f"{said}."


def _group(name: str, kernels: Sequence[PlacedKernel]) -> str:
    by_limit: dict[str, list[PlacedKernel]] = {}
    for kernel in kernels:
        by_limit.setdefault(kernel.limited_by, []).append(kernel)
    parts = [_limited(limit, of_limit) for limit, of_limit in by_limit.items()]
    lanes = [kernel.lanes_on for kernel in kernels if kernel.lanes_on is not None]
    if lanes and median(lanes) < FULL * LANES:
        parts.append(f"{median(lanes):.0f} of {LANES} lanes active")
    return f"{name}, {listed(parts)}"


def _limited(limit: str, kernels: Sequence[PlacedKernel]) -> str:
    if limit in LEVELS:
        shares = [k.fraction_of_issue if limit == "issue" else k.fraction_of_level[limit] for k in kernels]
        return f"{counted(len(kernels), 'cell')} limited by {LEVELS[limit]}, at {percent(median(shares))} of its rate"
    highest = max(max([k.fraction_of_issue, *k.fraction_of_level.values()]) for k in kernels)
    return f"{counted(len(kernels), 'cell')} limited by latency (no ceiling reached beyond {percent(highest)})"


def walls(one: InstructionRoofline) -> str:
    """What a request takes by its pattern; empty if no wall was timed."""
    said = []
    for pattern, (what, transaction) in LOADS.items():
        mine = [wall for wall in one.walls if wall.pattern == pattern and wall.cycles_per_request]
        if mine:
            cycles, moved = (
                listed([number(getattr(wall, name)) for wall in mine])
                for name in ("cycles_per_request", "transactions_per_request")
            )
            said.append(
                f"{what.format(listed([str(wall.of) for wall in mine]))} takes {cycles} for {moved} {transaction}"
            )
    return f"Memory walls, in cycles of a multiprocessor: {'; '.join(said)}." if said else ""
