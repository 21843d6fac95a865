"""What the hardware counted beside what was declared: whether they agree, and in one sentence why not."""

from collections.abc import Iterable

from roofline.analysis.results import Results
from roofline.analysis.table import CountedEntry, NotCounted, Operator
from roofline.core.formatting import percent, traffic
from roofline.records.counters import CountedCell

NEAR = 0.02  # of FLOPs
NEAR_TRAFFIC, NEAR_BYTES = 0.05, 1e6  # of bytes the larger of both
BUSY = 0.5  # of the cycles, tensor cores in a product that is to fill them
FILLED = "gemm"  # the operator whose reference product fills tensor cores
AGREE = "bytes and FLOPs as declared"
UNKNOWN = "the cause was not counted"
SECTOR_BYTES = 32
ASKED_AGAIN = 1.5  # times the declared reads, from which on data came to the L2 more than once


def agree(declared: float, counted: float | None) -> bool | None:
    """Whether counted FLOPs are the declared; None if nothing was counted."""
    return None if counted is None else abs(counted - declared) <= NEAR * declared


def traffic_agrees(declared: float, counted: float | None) -> bool | None:
    return None if counted is None else abs(counted - declared) <= max(NEAR_TRAFFIC * declared, NEAR_BYTES)


def counted_cells(found: Results, timed: Iterable[Operator]) -> list[CountedEntry]:
    regimes = {_key(one.device, one): one.regime for one in timed}
    return [
        entry(path, record.device, cell, regimes.get(_key(record.device, cell)))
        for path, record in found.counters
        for cell in record.cells
    ]


def _key(device: str, cell) -> tuple:
    return (
        device,
        cell.operator,
        cell.implementation,
        cell.preset,
        cell.scope,
        cell.dtype,
        *sorted(cell.shape.items()),
    )


def not_counted(found: Results) -> list[NotCounted]:
    return [NotCounted(device=d, reason=p.refused) for d, p in found.profilers.items() if p.refused]


def entry(path: str, device: str, cell: CountedCell, regime: str | None) -> CountedEntry:
    own = cell.kernel_flops.total if cell.kernel_flops else None
    flops, written = on_pipes(cell), written_bytes(cell)
    return CountedEntry(
        device=device,
        operator=cell.operator,
        implementation=cell.implementation,
        preset=cell.preset,
        scope=cell.scope,
        dtype=cell.dtype,
        cache=cell.cache,
        shape=cell.shape,
        declared_read_bytes=cell.declared_read_bytes,
        declared_write_bytes=cell.declared_write_bytes,
        read_bytes=cell.dram_read_bytes,
        write_bytes=written,
        declared_flops=cell.declared_flops,
        kernel_flops=own,
        flops=flops,
        tensor_pipe_active_fraction=cell.tensor_pipe_active_fraction,
        achieved_occupancy_fraction=cell.achieved_occupancy_fraction,
        regime=regime,
        reads_agree=traffic_agrees(cell.declared_read_bytes, cell.dram_read_bytes),
        writes_agree=traffic_agrees(cell.declared_write_bytes, written),
        flops_agree=agree(cell.declared_flops if own is None else own, flops),
        explanation=sentence(cell, own, flops),
        record=path,
    )


def written_bytes(cell: CountedCell) -> float | None:
    """What multiprocessors wrote to the L2: most of it is still there when a kernel ends."""
    return None if cell.sm_write_sectors is None else SECTOR_BYTES * cell.sm_write_sectors


def on_pipes(cell: CountedCell) -> float | None:
    """Counted on the pipes that the kernel's FLOP formula is of, else on all: fp16 to fp32 conversions are counted as
    fp16 additions, and are no FLOPs of anybody's."""
    formula = cell.kernel_flops.model_dump(exclude_none=True) if cell.kernel_flops else {}
    counted = [getattr(cell.flops, pipe) for pipe in formula]
    return cell.flops.total if not formula else None if None in counted else sum(counted)


def sentence(cell: CountedCell, own: float | None, flops: float | None) -> str:
    """On every difference that does not agree, with a cause if one was counted or declared."""
    said = [
        *(
            _of_traffic(which, declared, counted, why) if traffic_agrees(declared, counted) is False else None
            for which, declared, counted, why in (
                ("read from", cell.declared_read_bytes, cell.dram_read_bytes, _why_again(cell)),
                ("written to", cell.declared_write_bytes, written_bytes(cell), None),
            )
        ),
        _of_flops(cell, own, flops) if agree(cell.declared_flops, flops) is False else None,
    ]
    for what, field in (("reads", "dram_read_bytes"), ("writes", "sm_write_sectors")):
        if getattr(cell, field) is None:
            why = cell.not_counted.get(field)
            said.append(f"{what} were not counted" + (f" ({why})" if why else ""))
    said += ["FLOPs were not counted"] if flops is None else []
    return "; ".join(filter(None, said)) or AGREE


def _why_again(cell: CountedCell) -> str | None:
    """Where the L2 was asked for the same data several times, and had not kept all of it."""
    hits, misses = cell.l2_read_hit_sectors, cell.l2_read_miss_sectors
    if not (hits and misses and cell.declared_read_bytes and (cell.dram_read_bytes or 0) > cell.declared_read_bytes):
        return None
    asked = (hits + misses) * SECTOR_BYTES
    if asked < ASKED_AGAIN * cell.declared_read_bytes:
        return None
    return (
        f"the L2 was asked for {traffic(asked)}, {asked / cell.declared_read_bytes:.3g} times the declared, and "
        f"counted {percent(hits / (hits + misses))} of that as hits: it does not hold all until it is wanted again"
    )


def _of_traffic(which: str, declared: float, counted: float, why: str | None) -> str:
    more = "more" if counted > declared else "less"
    return f"{traffic(abs(counted - declared))} {more} was {which} memory than declared ({why or UNKNOWN})"


def _of_flops(cell: CountedCell, own: float | None, flops: float) -> str:
    ratio = (
        f"{flops / cell.declared_flops:.3g} times the declared FLOPs" if cell.declared_flops else f"{flops:.3g} FLOPs"
    )
    if own is None:
        return f"{ratio} were executed ({UNKNOWN})"
    if agree(own, flops):
        return f"{ratio} were executed, as the kernel's FLOP formula has it: {cell.kernel_flops_why}"
    formula = f"{own / cell.declared_flops:.3g} times" if cell.declared_flops else f"{own:.3g}"
    return f"{ratio} were executed, and the kernel's FLOP formula gives {formula} ({UNKNOWN})"


def contradictions(entry: CountedEntry) -> list[str]:
    """What of an entry is not as it must be."""
    return [said for ok, said in _judged(entry) if not ok]


def limited_by_memory(entry: CountedEntry) -> bool:
    """Of such cells alone the traffic must be as declared: it is what sets their time."""
    return entry.cache == "cold" and entry.regime == "memory"


def is_judged(entry: CountedEntry) -> bool:
    return bool(_judged(entry))


def _judged(entry: CountedEntry) -> list[tuple[bool, str]]:
    """Traffic of cold cells that memory limits, FLOPs of kernels that have a FLOP formula, and tensor cores in
    products that they limit: whether each is as it must be, and what it is."""
    found = []
    if limited_by_memory(entry):
        parts = (
            ("read", entry.reads_agree, entry.declared_read_bytes, entry.read_bytes),
            ("written", entry.writes_agree, entry.declared_write_bytes, entry.write_bytes),
        )
        for word, ok, declared, counted in parts:
            if ok is not None:
                found.append((ok, f"{traffic(counted)} {word}, {traffic(declared)} declared"))
    if entry.kernel_flops is not None and entry.flops_agree is not None:
        said = f"{entry.flops:.4g} FLOPs executed, {entry.kernel_flops:.4g} by the kernel's FLOP formula"
        found.append((entry.flops_agree, said))
    busy = entry.tensor_pipe_active_fraction
    if entry.operator == FILLED and entry.regime == "compute" and busy is not None:
        found.append((busy > BUSY, f"tensor cores active in {percent(busy)} of the cycles"))
    return found


def summary(entries: list[CountedEntry]) -> str:
    """How many cells were held against what, of those that can be."""
    judged = [entry for entry in entries if is_judged(entry)]
    busy = [one.tensor_pipe_active_fraction for one in judged if one.operator == FILLED]
    said = [f"{len(judged)} of {len(entries)} profiled cells judged"]
    if busy and None not in busy:
        said.append(f"tensor cores active in {percent(min(busy))} or more of the cycles of a GEMM")
    return "; ".join(said)
