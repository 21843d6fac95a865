"""The instruction roofline of each GPU: its roofs and walls, and the operators' kernels under them."""

from collections.abc import Iterable, Mapping

from roofline.analysis.results import Results
from roofline.analysis.table import (
    InstructionRoofline,
    InstructionWall,
    MemoryCeiling,
    Operator,
    PlacedKernel,
    TransactionRoof,
)
from roofline.core.model import issue_peak, transaction_bytes, transactions
from roofline.devices.levels import TRANSACTION_ROOFS
from roofline.records.counters import CountedCell
from roofline.records.instructions import InstructionsRecord

MOST = 0.6  # of a measured rate: what is nearer to it than this is limited by it
LATENCY = "latency"
CELL = ("operator", "implementation", "preset", "scope", "dtype", "cache", "shape")


def instruction_rooflines(found: Results, ceilings: Iterable, operators: Iterable) -> list[InstructionRoofline]:
    ceilings, operators = list(ceilings), list(operators)
    return [
        _of_device(path, record, ceilings, operators, counts_of(found, record.device))
        for path, record in found.of_kind(InstructionsRecord)
    ]


def counts_of(found: Results, device: str) -> list[CountedCell]:
    """What ncu counted of the operators' cells on a device, as of one application each."""
    return [cell for _, record in found.counters if record.device == device for cell in record.cells]


def _of_device(path: str, record: InstructionsRecord, ceilings, operators, counts) -> InstructionRoofline:
    issue, device = record.issue, record.device
    peak = issue.sm_clock_mhz and issue_peak(issue.multiprocessors, issue.sm_clock_mhz)
    levels = transaction_roofs([c for c in ceilings if c.device == device and c.kind == "memory"])
    mine = [operator for operator in operators if operator.device == device]
    rates = {level.level: level.transactions_per_s for level in levels}
    return InstructionRoofline(
        device=device,
        warp_instructions_per_s=issue.warp_instructions_per_s,
        sm_clock_mhz=issue.sm_clock_mhz,
        fraction_of_peak=issue.warp_instructions_per_s / peak if peak else None,
        samples=len(issue.latency.samples_s),
        levels=levels,
        walls=[
            InstructionWall(
                pattern=wall.pattern,
                of=wall.of,
                transactions_per_request=wall.transactions_per_request,
                requests_per_s=wall.requests_per_s,
                cycles_per_request=wall.cycles_per_request,
            )
            for wall in record.walls
        ],
        kernels=_kernels(mine, counts, issue.warp_instructions_per_s, rates),
        record=path,
    )


def transaction_roofs(ceilings: Iterable[MemoryCeiling]) -> list[TransactionRoof]:
    named = {ceiling.name: ceiling for ceiling in ceilings}
    return [
        TransactionRoof(
            level=level,
            ceiling=name,
            transaction_bytes=transaction_bytes(level),
            transactions_per_s=transactions(named[name].gb_per_s * 1e9, level),
        )
        for level, name in TRANSACTION_ROOFS.items()
        if name in named
    ]


def _kernels(operators, counts, issue_per_s: float, rates: Mapping[str, float]) -> list[PlacedKernel]:
    """Of the cells that were profiled; others are left out."""
    by_cell = {_key(one): one for one in counts if one.warp_instructions}
    both = ((operator, by_cell.get(_key(operator))) for operator in operators)
    return [placed_kernel(operator, _counted(one), issue_per_s, rates) for operator, one in both if one]


def _key(cell) -> tuple:
    return tuple(str(sorted(v.items())) if isinstance(v := getattr(cell, name), dict) else v for name in CELL)


def _counted(cell) -> dict:
    """Of a profiled cell: loads and stores of each level added up; one that was not counted is not there."""
    by_level = {
        "l1": (cell.l1_load_sectors, cell.l1_store_sectors),
        "shared": (cell.shared_load_wavefronts, cell.shared_store_wavefronts),
        "l2": (cell.l2_read_sectors, cell.l2_write_sectors),
        "hbm": tuple(
            None if moved is None else transactions(moved, "hbm")
            for moved in (cell.dram_read_bytes, cell.declared_write_bytes)
        ),
    }
    threads = cell.predicated_on_thread_instructions
    return {
        "warp_instructions": cell.warp_instructions,
        "lanes_on": threads / cell.warp_instructions if threads else None,
        "transactions": {level: sum(both) for level, both in by_level.items() if None not in both},
        "sectors_per_request": cell.l1_load_sectors / cell.l1_load_requests if cell.l1_load_requests else None,
    }


def placed_kernel(operator: Operator, counts: dict, issue_per_s: float, rates: Mapping[str, float]) -> PlacedKernel:
    seconds = operator.device_latency_s or operator.latency_s
    per_s = counts["warp_instructions"] / seconds
    shares = {
        level: number / seconds / rates[level] for level, number in counts["transactions"].items() if level in rates
    }
    return PlacedKernel(
        **{name: getattr(operator, name) for name in CELL},
        warp_instructions_per_s=per_s,
        fraction_of_issue=per_s / issue_per_s,
        fraction_of_level=shares,
        fraction_of_roof=operator.device_fraction_of_roof or operator.fraction_of_roof,
        limited_by=limit({"issue": per_s / issue_per_s} | shares),
        **counts,
    )


def limit(shares: Mapping[str, float]) -> str:
    """What is used most, where that is most of what there is; else the time goes to waiting."""
    name = max(shares, key=shares.get)
    return name if shares[name] >= MOST else LATENCY
