"""What the instruction roofline says of a GPU's kernels that bytes and FLOPs do not, in a paragraph."""

from collections.abc import Sequence

from roofline.core.formatting import counted, listed, number, percent
from roofline.core.model import LANES
from roofline.core.statistics import median
from roofline.report.words import LEVELS as TITLES
from roofline.table.rows import InstructionRoofline, PlacedKernel

EXPLAINED = 0.6  # of a kernel's own roof: from there on bytes and FLOPs say what limits it
FULL = 0.95  # of the lanes: what is less is told
LOADS = {
    "stride": ("a global load of lanes {} words apart", "sectors"),
    "conflict": ("a shared load of {} lanes on a bank", "wavefronts"),
}
LEVELS = TITLES | {"issue": "instruction issue"}


def sentences(one: InstructionRoofline) -> list[str]:
    return [words for words in (paragraph(one), walls(one)) if words]


def paragraph(one: InstructionRoofline) -> str:
    """In plain text; of each operator's implementation its cells together."""
    rate = f"{one.device} issues {number(one.warp_instructions_per_s / 1e9)} G warp instructions/s"
    if one.fraction_of_peak is not None:
        rate += f", {percent(one.fraction_of_peak)} of one per scheduler and cycle"
    open_cells = [kernel for kernel in one.kernels if (kernel.fraction_of_roof or 0) < EXPLAINED]
    if not one.kernels:
        return f"{rate}. No kernel is plotted: nothing was counted."
    if not open_cells:
        return f"{rate}. Bytes and FLOPs explain all of {counted(len(one.kernels), 'plotted cell')}."
    said = [
        f"{rate}. Of {counted(len(one.kernels), 'plotted cell')}, {_are(len(open_cells))} below {percent(EXPLAINED)} of"
    ]
    said[0] += " their roof by FLOPs and bytes"
    groups: dict[tuple, list[PlacedKernel]] = {}
    for kernel in open_cells:
        groups.setdefault((kernel.operator, kernel.implementation), []).append(kernel)
    return ". ".join([*said, *(_group(*names, kernels) for names, kernels in groups.items())]) + "."


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def walls(one: InstructionRoofline) -> str:
    """What a request takes by its pattern; empty where no wall was timed."""
    said = []
    for pattern, (what, transaction) in LOADS.items():
        mine = [wall for wall in one.walls if wall.pattern == pattern and wall.cycles_per_request]
        if mine:
            cycles, moved = (
                listed([number(getattr(wall, name)) for wall in mine])
                for name in ("cycles_per_request", "transactions_per_request")
            )
            patterns = listed([str(wall.of) for wall in mine])
            said.append(f"{what.format(patterns)} takes {cycles} for {moved} {transaction}")
    if not said:
        return ""
    return f"Walls, in cycles of a multiprocessor: {'; '.join(said)}."


def _group(operator: str, implementation: str | None, kernels: Sequence[PlacedKernel]) -> str:
    name = f"{operator.replace('_', ' ')}, {implementation}" if implementation else operator.replace("_", " ")
    by_limit: dict[str, list[PlacedKernel]] = {}
    for kernel in kernels:
        by_limit.setdefault(kernel.limited_by, []).append(kernel)
    parts = [_limited(limit, of_limit) for limit, of_limit in by_limit.items()]
    lanes = [kernel.lanes_on for kernel in kernels if kernel.lanes_on is not None]
    if lanes and median(lanes) < FULL * LANES:
        parts.append(f"{median(lanes):.0f} of {LANES} lanes are active")
    return f"{name[0].upper()}{name[1:]}: {listed(parts)}"


def _limited(limit: str, kernels: Sequence[PlacedKernel]) -> str:
    if limit in LEVELS:
        shares = [k.fraction_of_issue if limit == "issue" else k.fraction_of_level[limit] for k in kernels]
        return f"{counted(len(kernels), 'cell')} limited by {LEVELS[limit]}, at {percent(median(shares))} of its rate"
    highest = max(max([k.fraction_of_issue, *k.fraction_of_level.values()]) for k in kernels)
    return f"{counted(len(kernels), 'cell')} limited by latency (nothing above {percent(highest)} of its rate)"
