"""The one table of a run, built once from its records."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline.core.roofline_model import SECTOR_BYTES
from roofline.operators.about import StoredAbout, UnknownAbout, load_abouts
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters_record import CountedCell
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import Measurement
from roofline.table import ceiling_rows
from roofline.table.cell_rows import CellContext, build_cell_row, build_operation_row
from roofline.table.checks import judge
from roofline.table.energy_roofline import fit_energy
from roofline.table.instruction_roofline import build_instruction_row
from roofline.table.rows import Ceiling, CellRow, Counted, DeviceRow, NotCounted, Roofline, Skipped, case_key
from roofline.table.run_records import Results
from roofline.table.scores import score_predictions
from roofline.table.seals import find_violations
from roofline.table.standing import select_comparable_runs

# How far a count may be from the declared one: the larger of a share of that and an amount.
OF_FLOPS, OF_TRAFFIC = (0.02, 0), (0.05, 1e6)


@dataclass(frozen=True)
class Request:
    """What the config asks for besides records: the user's operations, and what devices lack of the rest."""

    effort: str | None = None
    dtypes: list[str] = field(default_factory=list)
    shapes: dict[str, list[dict[str, int]]] = field(default_factory=dict)  # by operator; empty if not known
    operations: list[dict[str, Any]] = field(default_factory=list)
    without: list[dict[str, str]] = field(default_factory=list)  # device, operator and reason


def build_table(found: Results, asked: Request | None = None, sha256: Mapping[str, str] | None = None) -> Roofline:
    """`sha256` has the hash of every record, by its path below results/: seals are checked by it where it is given."""
    asked = asked or Request()
    bandwidths = found.of_kind(BandwidthRecord)
    ceilings = list(_ceilings(found, asked.effort))
    cells = list(_cells(found, ceilings))
    users = [
        build_operation_row(name, record.device_kind, one, _of(ceilings, name))
        for name, record in found.device_records().items()
        for one in asked.operations
        if one.get("device") in (None, name)
    ]
    roofline = Roofline(
        devices={name: _device(found, name, sha256) for name in found.devices},
        ceilings=ceilings,
        operators=[*cells, *(one for one in users if isinstance(one, CellRow))],
        sweeps=[row for one in bandwidths for row in ceiling_rows.sweep_rows(*one)],
        levels=[row for one in bandwidths for row in ceiling_rows.plateau_rows(*one)],
        energy_fits=[fit for one in bandwidths for fit in fit_energy(*one, _of(ceilings, one[1].device))],
        peers=[ceiling_rows.peer_path_row(*one) for one in bandwidths if one[1].peer and not one[1].skipped],
        instructions=[
            build_instruction_row(path, one, _of(ceilings, one.device), cells, found.counted_on(one.device))
            for path, one in found.of_kind(InstructionsRecord)
        ],
        counted=counted_rows(found, cells),
        not_counted=[NotCounted(device=d, reason=p.refused) for d, p in found.profilers.items() if p.refused],
        skipped=[*_skipped(found, asked), *(one for one in users if isinstance(one, Skipped))],
        score=score_predictions(cells),
        own_operators=list(found.own_operators.values()),
        checks=[],
    )
    return roofline.model_copy(update={"checks": judge.check_run(roofline, found, asked)})


def _device(found: Results, name: str, sha256: Mapping[str, str] | None) -> DeviceRow:
    path, record = found.devices[name]
    idle = [one.idle for _, one in found.of_kind(BandwidthRecord) if one.device == name and one.idle]
    return DeviceRow.like(
        record,
        kind=record.device_kind,
        record=path,
        by_formula=record.vendor.match == "formula",
        idle_w=idle[0].power_w if idle else None,
        idle_clock_mhz=idle[0].sm_clock_mhz if idle else None,
        seals={path: seal.sealed_at for path, seal in found.seals.items() if seal.device == name},
        first_measurement_at=min((one.started_at for _, one in found.measured if one.device == name), default=None),
        violations=[] if sha256 is None else find_violations(found, name, sha256),
    )


def _ceilings(found: Results, effort: str | None) -> Iterator[Ceiling]:
    """Compute ceilings of all devices, then memory ceilings."""
    devices = found.device_records()
    known = {
        name: select_comparable_runs(devices[name], cards.runs, effort) for name, cards in found.known_cards.items()
    }
    for name, device in devices.items():
        peaks = [one for one in found.of_kind(PeakFlopsRecord) if one[1].device == name]
        yield from ceiling_rows.compute_ceiling_rows(peaks, device, known.get(name, []))
    for path, record in found.of_kind(BandwidthRecord):
        yield from ceiling_rows.memory_ceiling_rows(path, record, devices[record.device], known.get(record.device, []))


def _of(ceilings: list[Ceiling], device: str) -> dict[str, Ceiling]:
    return {ceiling.name: ceiling for ceiling in ceilings if ceiling.device == device}


def _cells(found: Results, ceilings: list[Ceiling]) -> Iterator[CellRow]:
    abouts = load_abouts() | {name: StoredAbout(one) for name, one in found.own_operators.items()}
    alike: dict[tuple, dict[str, Measurement]] = {}
    for _, record in found.measured:
        for one in record.measurements:
            alike.setdefault(case_key(record.device, one), {})[one.implementation] = one
    of_device = {name: _of(ceilings, name) for name in found.devices}
    for path, record in found.measured:
        for one in record.measurements:
            around = CellContext(
                kind=found.devices[record.device][1].device_kind,
                about=abouts.get(one.operator) or UnknownAbout(one.operator),
                ceilings=of_device[record.device],
                seal=found.device_seal(record.device),
                constants=found.constants(record.device, one.operator),
                alike=alike[case_key(record.device, one)],
            )
            yield build_cell_row(path, record, one, around)


def _skipped(found: Results, asked: Request) -> list[Skipped]:
    """What was asked for and a device lacks: by its own record, or as it turned out when it was measured."""
    turned_out = {(record.device, record.dtype): record.skipped for _, record in found.of_kind(PeakFlopsRecord)}
    skipped = [
        Skipped(device=name, what="peak_flops", dtype=dtype, name=None, reason=reason)
        for name, record in found.device_records().items()
        for dtype in asked.dtypes
        if (reason := record.unsupported.get(dtype) or turned_out.get((name, dtype)))
    ]
    skipped += [
        Skipped(device=record.device, what="bandwidth", dtype="", name=record.level, reason=record.skipped)
        for _, record in found.of_kind(BandwidthRecord)
        if record.skipped
    ]
    return skipped + [
        Skipped(device=one["device"], what="operator", dtype="", name=one["operator"], reason=one["reason"])
        for one in asked.without
    ]


# ---------------------------------------------------------------- what the hardware counted


def counted_rows(found: Results, timed: Iterable[CellRow]) -> list[Counted]:
    regimes = {(one.implementation, *case_key(one.device, one)): one.regime for one in timed}
    return [_counts(path, record.device, cell, regimes) for path, record in found.counters for cell in record.cells]


def _counts(path: str, device: str, cell: CountedCell, regimes: dict) -> Counted:
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
        regime=regimes.get((cell.implementation, *case_key(device, cell))),
        reads_agree=_agree(cell.declared_read_bytes, cell.dram_read_bytes, *OF_TRAFFIC),
        writes_agree=_agree(cell.declared_write_bytes, written, *OF_TRAFFIC),
        flops_agree=None if own is None else _agree(own, flops, *OF_FLOPS),
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
