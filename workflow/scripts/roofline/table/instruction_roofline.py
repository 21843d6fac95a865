"""The instruction roofline of a GPU: its roofs and walls, and the operators' kernels under them."""

from collections.abc import Iterable, Mapping

from roofline.core.levels import TRANSACTION_ROOFS, fewest_transactions
from roofline.core.repeatability import find_doubt
from roofline.core.roofline_model import peak_issue_rate
from roofline.records.base import shared_fields
from roofline.records.counters_record import CountedCell
from roofline.records.instructions_record import AccessLimit, InstructionsRecord
from roofline.records.operator_record import CellKey
from roofline.table.cell_rows import MemoryCeilings
from roofline.table.rows import CellRow, InstructionRoofline, PlacedKernel, case_key

LIMITING_SHARE = 0.6  # of a measured rate: a kernel that reaches more of it is limited by it


def build_instruction_row(
    path: str, record: InstructionsRecord, memory: MemoryCeilings, cells: list[CellRow], counts: Iterable[CountedCell]
) -> InstructionRoofline:
    """Return the instruction roofline of a GPU, with the cells that were profiled under it.

    `memory`, its memory ceilings by name, and `counts`, as of one application each, are of this device.
    """
    issue = record.issue
    peak = issue.sm_clock_mhz and peak_issue_rate(issue.multiprocessors, issue.sm_clock_mhz)
    gb_per_s = {level: memory[name].gb_per_s for level, name in TRANSACTION_ROOFS.items() if name in memory}
    transactions_per_s = {level: fewest_transactions(rate * 1e9, level) for level, rate in gb_per_s.items()}
    counts_by_cell = {_cell_key(counted, record.device): counted for counted in counts if counted.warp_instructions}
    pairs = [(cell, counts_by_cell.get(_cell_key(cell, cell.device))) for cell in cells]
    issue_per_s = issue.warp_instructions_per_s
    return InstructionRoofline(
        device=record.device,
        warp_instructions_per_s=issue_per_s,
        sm_clock_mhz=issue.sm_clock_mhz,
        fraction_of_issue_peak=issue_per_s / peak if peak else None,
        sample_count=len(issue.timing.samples_s),
        doubt=find_doubt(kind="gpu", samples=len(issue.timing.samples_s), throttled=issue.timing.all_throttled),
        transactions_per_s=transactions_per_s,
        walls=[AccessLimit(**shared_fields(wall, AccessLimit)) for wall in record.walls],
        kernels=[place_kernel(cell, counted, issue_per_s, transactions_per_s) for cell, counted in pairs if counted],
        record=path,
    )


def _cell_key(cell: CellRow | CountedCell, device: str) -> tuple:
    return cell.implementation, *case_key(device, cell)


def place_kernel(
    cell: CellRow, counts: CountedCell, issue_per_s: float, transactions_per_s: Mapping[str, float]
) -> PlacedKernel:
    """Return a cell on the instruction roofline, and what limits it.

    `issue_per_s` is the measured issue rate in warp instructions per second, `transactions_per_s` what each level was
    measured to give.
    """
    seconds, issued, transactions = cell.own_time_s, counts.warp_instructions, _transactions(counts)
    assert seconds is not None and issued is not None  # a cell of a run has a time, and this one was counted
    rates = {level: count / seconds for level, count in transactions.items() if level in transactions_per_s}
    fraction_of_level = {level: rate / transactions_per_s[level] for level, rate in rates.items()}
    fraction_of_issue = issued / seconds / issue_per_s
    shares = [(fraction_of_issue, "issue"), *((share, level) for level, share in fraction_of_level.items())]
    largest_share, limit = max(shares)
    return PlacedKernel(
        **shared_fields(cell, CellKey),
        device=cell.device,
        warp_instructions=issued,
        warp_instructions_per_s=issued / seconds,
        active_lanes=(counts.predicated_on_thread_instructions or 0) / issued or None,
        transactions=transactions,
        fraction_of_issue=fraction_of_issue,
        fraction_of_level=fraction_of_level,
        fraction_of_roof=cell.gpu_fraction_of_roof or cell.fraction_of_roof,
        limit=limit if largest_share >= LIMITING_SHARE else "latency",
    )


def _transactions(counts: CountedCell) -> dict[str, float]:
    """The sum of loads and stores of each level; a level that was not counted is absent."""
    read, written = counts.dram_read_bytes, counts.declared_write_bytes
    by_level: dict[str, tuple[float | None, float | None]] = {
        "l1": (counts.l1_load_sectors, counts.l1_store_sectors),
        "shared": (counts.shared_load_wavefronts, counts.shared_store_wavefronts),
        "l2": (counts.l2_read_sectors, counts.l2_write_sectors),
        "hbm": (None if read is None else fewest_transactions(read, "hbm"), fewest_transactions(written, "hbm")),
    }
    pairs = by_level.items()
    return {level: loads + stores for level, (loads, stores) in pairs if loads is not None and stores is not None}
