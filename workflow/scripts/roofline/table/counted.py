"""What the hardware counted next to what was declared, and whether they agree."""

from collections.abc import Iterable

from roofline.records.counters import CountedCell
from roofline.table.rows import Cell, Counted, NotCounted, case_of
from roofline.table.run_records import Results

NEAR = 0.02
NEAR_BYTES = 1e6
FEWEST_CACHES = 2.0  # that a range writes, for its writes to be judged: fewer may stay in the cache


def counted_rows(found: Results, timed: Iterable[Cell]) -> list[Counted]:
    regimes = {(one.implementation, *case_of(one.device, one)): one.regime for one in timed}
    return [_row(path, record.device, cell, regimes) for path, record in found.counters for cell in record.cells]


def not_counted(found: Results) -> list[NotCounted]:
    """The device's refusal, once; else those of single records."""
    told = [NotCounted(device=d, record=None, reason=p.refused) for d, p in found.profilers.items() if p.refused]
    return told + [
        NotCounted(device=record.device, record=path, reason=record.refused)
        for path, record in found.counters
        if record.refused and not found.profilers[record.device].refused
    ]


def _row(path: str, device: str, cell: CountedCell, regimes: dict) -> Counted:
    own, flops = cell.kernel_flops.total if cell.kernel_flops else None, on_pipes(cell)
    stays = cell.written_caches is not None and 0 < cell.written_caches < FEWEST_CACHES
    return Counted.like(
        cell,
        device=device,
        read_bytes=cell.dram_read_bytes,
        write_bytes=cell.dram_write_bytes,
        kernel_flops=own,
        flops=flops,
        regime=regimes.get((cell.implementation, *case_of(device, cell))),
        reads_agree=agree(_expected_reads(cell), cell.dram_read_bytes, NEAR_BYTES),
        writes_agree=None if stays else agree(cell.declared_write_bytes, cell.dram_write_bytes, NEAR_BYTES),
        flops_agree=agree(cell.declared_flops if own is None else own, flops),
        record=path,
    )


def agree(declared: float, counted: float | None, least: float = 0.0) -> bool | None:
    """Within 2 % of the declared, or `least` where that is more; None where nothing was counted."""
    return None if counted is None else abs(counted - declared) <= max(NEAR * declared, least)


def _expected_reads(cell: CountedCell) -> float:
    """The declared, or what is nearest to the counted of what the cache may leave of it."""
    least, most = cell.declared_read_bytes - cell.kept_read_bytes, cell.declared_read_bytes
    return most if cell.dram_read_bytes is None else min(max(cell.dram_read_bytes, least), most)


def on_pipes(cell: CountedCell) -> float | None:
    """Counted on the pipes that the kernel's FLOP formula is of, else on all: fp16 to fp32 conversions are counted as
    fp16 additions, and are no FLOPs of anybody's."""
    formula = cell.kernel_flops.model_dump(exclude_none=True) if cell.kernel_flops else {}
    counted = [getattr(cell.flops, pipe) for pipe in formula]
    return cell.flops.total if not formula else None if None in counted else sum(counted)
