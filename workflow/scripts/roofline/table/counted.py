"""What the hardware counted next to what was declared, and whether they agree."""

from collections.abc import Iterable

from roofline.records.counters import CountedCell
from roofline.table.rows import Cell, Counted, NotCounted, case_of
from roofline.table.run_records import Results

NEAR = 0.02  # of FLOPs
NEAR_TRAFFIC, NEAR_BYTES = 0.05, 1e6  # of bytes the larger of both
SECTOR_BYTES = 32


def counted_rows(found: Results, timed: Iterable[Cell]) -> list[Counted]:
    regimes = {(one.implementation, *case_of(one.device, one)): one.regime for one in timed}
    return [_row(path, record.device, cell, regimes) for path, record in found.counters for cell in record.cells]


def not_counted(found: Results) -> list[NotCounted]:
    return [NotCounted(device=d, reason=p.refused) for d, p in found.profilers.items() if p.refused]


def _row(path: str, device: str, cell: CountedCell, regimes: dict) -> Counted:
    own, flops = cell.kernel_flops.total if cell.kernel_flops else None, on_pipes(cell)
    written = written_bytes(cell)
    return Counted.like(
        cell,
        device=device,
        read_bytes=cell.dram_read_bytes,
        write_bytes=written,
        kernel_flops=own,
        flops=flops,
        regime=regimes.get((cell.implementation, *case_of(device, cell))),
        reads_agree=traffic_agrees(cell.declared_read_bytes, cell.dram_read_bytes),
        writes_agree=traffic_agrees(cell.declared_write_bytes, written),
        flops_agree=agree(cell.declared_flops if own is None else own, flops),
        record=path,
    )


def agree(declared: float, counted: float | None) -> bool | None:
    """Whether counted FLOPs are the declared; None if nothing was counted."""
    return None if counted is None else abs(counted - declared) <= NEAR * declared


def traffic_agrees(declared: float, counted: float | None) -> bool | None:
    return None if counted is None else abs(counted - declared) <= max(NEAR_TRAFFIC * declared, NEAR_BYTES)


def written_bytes(cell: CountedCell) -> float | None:
    """What multiprocessors wrote to the L2: most of it is still there when a kernel ends."""
    return None if cell.sm_write_sectors is None else SECTOR_BYTES * cell.sm_write_sectors


def on_pipes(cell: CountedCell) -> float | None:
    """Counted on the pipes that the kernel's FLOP formula is of, else on all: fp16 to fp32 conversions are counted as
    fp16 additions, and are no FLOPs of anybody's."""
    formula = cell.kernel_flops.model_dump(exclude_none=True) if cell.kernel_flops else {}
    counted = [getattr(cell.flops, pipe) for pipe in formula]
    return cell.flops.total if not formula else None if None in counted else sum(counted)
