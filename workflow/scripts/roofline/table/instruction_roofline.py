"""The instruction roofline of a GPU: its roofs and walls, and the operators' kernels under them."""

from collections.abc import Iterable, Mapping

from roofline.core.repeatability import find_doubt
from roofline.core.roofline_model import fewest_transactions, peak_issue_rate
from roofline.devices.levels import TRANSACTION_ROOFS
from roofline.records.counters_record import CountedCell
from roofline.records.instructions_record import InstructionsRecord
from roofline.table.cell_rows import Ceilings
from roofline.table.rows import AccessLimitRow, CellRow, InstructionRoofline, PlacedKernel, case_key

MOST = 0.6  # of a measured rate: what is nearer to it than this is limited by it


def build_instruction_row(
    path: str, record: InstructionsRecord, ceilings: Ceilings, cells: Iterable[CellRow], counts: Iterable[CountedCell]
) -> InstructionRoofline:
    """`ceilings` and `counts`, as of one application each, are the device's own. Cells not profiled are left out."""
    issue = record.issue
    peak = issue.sm_clock_mhz and peak_issue_rate(issue.multiprocessors, issue.sm_clock_mhz)
    rates = {
        level: fewest_transactions(ceilings[name].gb_per_s * 1e9, level)
        for level, name in TRANSACTION_ROOFS.items()
        if name in ceilings
    }
    by_cell = {_key(one, record.device): one for one in counts if one.warp_instructions}
    return InstructionRoofline.like(
        issue,
        device=record.device,
        fraction_of_peak=issue.warp_instructions_per_s / peak if peak else None,
        samples=len(issue.latency.samples_s),
        doubt=find_doubt(kind="gpu", samples=len(issue.latency.samples_s), throttled=issue.latency.all_throttled),
        transactions_per_s=rates,
        walls=[AccessLimitRow.like(wall) for wall in record.walls],
        kernels=[
            place_kernel(cell, one, issue.warp_instructions_per_s, rates)
            for cell in cells
            if (one := by_cell.get(_key(cell, cell.device)))
        ],
        record=path,
    )


def _key(cell: CellRow | CountedCell, device: str) -> tuple:
    return cell.implementation, *case_key(device, cell)


def place_kernel(cell: CellRow, counts: CountedCell, issue_per_s: float, rates: Mapping[str, float]) -> PlacedKernel:
    seconds, issued, moved = cell.own_time_s, counts.warp_instructions, _transactions(counts)
    shares = {level: number / seconds / rates[level] for level, number in moved.items() if level in rates}
    of_issue = issued / seconds / issue_per_s
    most = max([(of_issue, "issue"), *((share, level) for level, share in shares.items())])
    return PlacedKernel.like(
        cell,
        warp_instructions=issued,
        warp_instructions_per_s=issued / seconds,
        lanes_on=(counts.predicated_on_thread_instructions or 0) / issued or None,
        transactions=moved,
        fraction_of_issue=of_issue,
        fraction_of_level=shares,
        fraction_of_roof=cell.gpu_fraction_of_roof or cell.fraction_of_roof,
        limited_by=most[1] if most[0] >= MOST else "latency",
    )


def _transactions(counts: CountedCell) -> dict[str, float]:
    """Loads and stores of each level added up; a level that was not counted is not there."""
    by_level = {
        "l1": (counts.l1_load_sectors, counts.l1_store_sectors),
        "shared": (counts.shared_load_wavefronts, counts.shared_store_wavefronts),
        "l2": (counts.l2_read_sectors, counts.l2_write_sectors),
        "hbm": tuple(
            None if moved is None else fewest_transactions(moved, "hbm")
            for moved in (counts.dram_read_bytes, counts.declared_write_bytes)
        ),
    }
    return {level: sum(both) for level, both in by_level.items() if None not in both}
