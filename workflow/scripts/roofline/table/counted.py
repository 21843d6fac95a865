"""What the hardware counted next to what was declared, and whether they agree."""

from collections.abc import Iterable

from roofline.records.counters import CountedCell
from roofline.table.rows import Cell, Counted, case_of
from roofline.table.run_records import Results

# How far a count may be from the declared one: the larger of a share of that and an amount.
OF_FLOPS, OF_TRAFFIC = (0.02, 0), (0.05, 1e6)
SECTOR_BYTES = 32


def counted_rows(found: Results, timed: Iterable[Cell]) -> list[Counted]:
    regimes = {(one.implementation, *case_of(one.device, one)): one.regime for one in timed}
    return [_row(path, record.device, cell, regimes) for path, record in found.counters for cell in record.cells]


def _row(path: str, device: str, cell: CountedCell, regimes: dict) -> Counted:
    own, flops = cell.kernel_flops.total if cell.kernel_flops else None, _on_pipes(cell)
    # What multiprocessors wrote to the L2: most of it is still there when a kernel ends.
    written = None if cell.sm_write_sectors is None else SECTOR_BYTES * cell.sm_write_sectors
    return Counted.like(
        cell,
        device=device,
        read_bytes=cell.dram_read_bytes,
        write_bytes=written,
        kernel_flops=own,
        flops=flops,
        regime=regimes.get((cell.implementation, *case_of(device, cell))),
        reads_agree=_agree(cell.declared_read_bytes, cell.dram_read_bytes, *OF_TRAFFIC),
        writes_agree=_agree(cell.declared_write_bytes, written, *OF_TRAFFIC),
        flops_agree=_agree(cell.declared_flops if own is None else own, flops, *OF_FLOPS),
        record=path,
    )


def _agree(declared: float, counted: float | None, share: float, least: float) -> bool | None:
    """Whether what was counted is what was declared; None if nothing was counted."""
    return None if counted is None else abs(counted - declared) <= max(share * declared, least)


def _on_pipes(cell: CountedCell) -> float | None:
    """Counted on the pipes that the kernel's FLOP formula is of, else on all: fp16 to fp32 conversions are counted as
    fp16 additions, and are no FLOPs of anybody's."""
    formula = cell.kernel_flops.model_dump(exclude_none=True) if cell.kernel_flops else {}
    counted = [getattr(cell.flops, pipe) for pipe in formula]
    return cell.flops.total if not formula else None if None in counted else sum(counted)
