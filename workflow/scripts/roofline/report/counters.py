"""What the hardware counters show: sentences, and tables of declared and counted figures."""

from collections.abc import Iterable

from roofline.core.formatting import counted, listed, number, percent, traffic
from roofline.report.markdown import Table, filled
from roofline.table.rows import Counted, Roofline

PASSED_BY = (
    "Counts of L1 and shared memory are of the load-store unit, which cp.async, TMA and the operands of wgmma bypass; "
    "those of L2, memory and FLOPs are complete."
)
FLOPS = "FLOPs"
QUANTITIES = {"bytes read": "reads_agree", "bytes written": "writes_agree", FLOPS: "flops_agree"}
FIELDS = {
    "dram_read_bytes": "bytes read",
    "sm_write_sectors": "bytes written",
    "tensor_pipe_active_fraction": "activity of tensor cores",
    "achieved_occupancy_fraction": "occupancy",
}
EXTRA = 1.02  # times the declared FLOPs: more is worth a sentence


def sentences(table: Roofline) -> list[str]:
    """A line per refusal, the counts that agree, and the gaps. Empty if counting was off."""
    refused = [f"{one.device}: not counted: {one.reason}." for one in table.not_counted]
    if not table.counted:
        return refused
    return [*refused, _agreement(table), " ".join([*_gaps(table.counted), PASSED_BY])]


def largest(entries: Iterable[Counted]) -> list[Counted]:
    """Of each operator the cell that moves most."""
    most: dict[tuple, Counted] = {}
    for one in entries:
        key = (one.device, one.operator)
        if key not in most or _declared_bytes(one) >= _declared_bytes(most[key]):
            most[key] = one
    return list(most.values())


def _declared_bytes(one: Counted) -> float:
    return one.declared_read_bytes + one.declared_write_bytes


def _agreement(table: Roofline) -> str:
    """Bytes of memory-bound cells, whose time they set, and FLOPs of all; then what else differs."""
    entries, bound = table.counted, [one for one in table.counted if one.limited_by_memory]
    shares, wrong = [], []
    for what, field in QUANTITIES.items():
        known = [one for one in (entries if what == FLOPS else bound) if getattr(one, field) is not None]
        if known:
            shares.append(f"{what} in {sum(getattr(one, field) for one in known)} of {len(known)}")
        wrong += [one for one in known if getattr(one, field) is False and one not in wrong]
    said = f"{counted(len(entries), 'cell')} profiled, after everything was timed."
    if shares:
        cells = counted(len(bound), "memory-bound cell")
        of_bound = f" Memory traffic is checked for the {cells}." if bound else ""
        said += f"{of_bound} As declared, or as the kernel's own formula has it: {listed(shares)}."
    said += f" Not as declared: {listed(counted_name(one, table) for one in wrong)}." if wrong else ""
    more = [one for one in entries if one.flops_agree and one.flops > EXTRA * one.declared_flops > 0]
    if more:
        most = max(more, key=lambda one: one.flops / one.declared_flops)
        times = number(most.flops / most.declared_flops)
        said += f" {counted_name(most, table)} executes {times} times its declared FLOPs, the most of all."
    return said


def _gaps(cells: Iterable[Counted]) -> Iterable[str]:
    """What was not counted of profiled cells, by the reason."""
    groups: dict[str, dict[str, int]] = {}
    for cell in cells:
        for field, reason in cell.not_counted.items():
            if field in FIELDS:
                group = groups.setdefault(reason, {})
                group[FIELDS[field]] = group.get(FIELDS[field], 0) + 1
    for reason, whats in groups.items():
        missing = listed(f"{what} of {counted(count, 'cell')}" for what, count in whats.items())
        yield f"Not counted: {missing}, because {reason}."


def table_of(entries: Iterable[Counted], table: Roofline) -> Table:
    """Declared and counted side by side."""
    columns = ("cell", "read: declared", "counted", "written: declared", "counted")
    columns += ("FLOPs: declared", "kernel's formula", "counted", "tensor cores active", "occupancy")
    rows = []
    for one in entries:
        moved = (one.declared_read_bytes, one.read_bytes, one.declared_write_bytes, one.write_bytes)
        flops = (one.declared_flops, one.kernel_flops, one.flops)
        shares = (one.tensor_pipe_active_fraction, one.achieved_occupancy_fraction)
        words = [traffic(value) if value is not None else "-" for value in moved]
        words += [f"{value:.4g}" if value is not None else "-" for value in flops]
        words += [percent(value) if value is not None else "-" for value in shares]
        rows.append([counted_name(one, table), *words])
    return filled(columns, rows)


def counted_name(one: Counted, table: Roofline) -> str:
    names = (one.device, one.preset, one.scope, one.dtype, table.label(one))
    return f"{table.title(one.operator)}, {one.implementation}: {' '.join(filter(None, names))}"
