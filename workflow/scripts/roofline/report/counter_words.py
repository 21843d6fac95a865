"""What the hardware's counters say of a run: sentences, and the cells that tell most."""

from collections.abc import Iterable, Mapping, Sequence

from roofline.analysis.results import Results
from roofline.analysis.table import CountedEntry, Roofline
from roofline.core.formatting import counted, listed, number
from roofline.report.verification_page import counted_name

PASSED_BY = (
    "Counts of L1 and shared memory are of the load-store unit, which cp.async, TMA and the operands of wgmma bypass; "
    "those of L2, memory and FLOPs are complete."
)
QUANTITIES = {"bytes read": "reads_agree", "bytes written": "writes_agree", "FLOPs": "flops_agree"}
FIELDS = {
    "dram_read_bytes": "bytes read",
    "dram_write_bytes": "bytes written",
    "tensor_pipe_active_fraction": "activity of tensor cores",
    "achieved_occupancy_fraction": "occupancy",
}
EXTRA = 1.02  # times the declared FLOPs: what is more than this is told


def counter_words(found: Results, verification: Roofline) -> list[str]:
    """A line per refusal; how many counts are as declared; what was not counted. Empty where counting was off."""
    refused = [f"{one.record or one.device}: not counted: {one.reason}." for one in verification.not_counted]
    if not verification.counted:
        return refused
    return [*refused, _agreement(verification.counted, verification.titles), " ".join([*_gaps(found), PASSED_BY])]


def telling(entries: Iterable[CountedEntry]) -> list[CountedEntry]:
    """Of each implementation the cell that moves most."""
    most: dict[tuple, CountedEntry] = {}
    for one in entries:
        key = (one.device, one.operator, one.implementation, one.scope)
        if key not in most or _declared_bytes(one) > _declared_bytes(most[key]):
            most[key] = one
    return list(most.values())


def _declared_bytes(one: CountedEntry) -> float:
    return one.declared_read_bytes + one.declared_write_bytes


def _agreement(entries: Sequence[CountedEntry], titles: Mapping[str, str]) -> str:
    shares, wrong = [], []
    for what, field in QUANTITIES.items():
        known = [one for one in entries if getattr(one, field) is not None]
        if known:
            shares.append(f"{what} in {sum(getattr(one, field) for one in known)} of {len(known)}")
        wrong += [one for one in known if not getattr(one, field) and one not in wrong]
    said = f"{counted(len(entries), 'cell')} profiled, after everything was timed."
    if shares:
        said += f" As declared, or as the kernel's own formula has it: {listed(shares)}."
    said += "".join(f" {counted_name(one, titles)}: {one.explanation}." for one in wrong)
    more = [one for one in entries if one.flops_agree and one.flops > EXTRA * one.declared_flops > 0]
    if more:
        most = max(more, key=lambda one: one.flops / one.declared_flops)
        times = number(most.flops / most.declared_flops)
        said += f" {counted_name(most, titles)} executes {times} times its declared FLOPs, the most of all."
    return said


def _gaps(found: Results) -> Iterable[str]:
    """What was not counted of profiled cells, by the reason."""
    cells = [cell for _, record in found.counters for cell in record.cells]
    groups: dict[str, dict[str, int]] = {}
    for cell in cells:
        for field, reason in cell.not_counted.items():
            if field in FIELDS:
                group = groups.setdefault(reason, {})
                group[FIELDS[field]] = group.get(FIELDS[field], 0) + 1
    for reason, whats in groups.items():
        told = listed(f"{what} of {counted(count, 'cell')}" for what, count in whats.items())
        yield f"Not counted: {told}, since {reason}."
