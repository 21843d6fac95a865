"""The one table of a run, built once from its records."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from roofline.core.grouping import group_by
from roofline.core.levels import main_memory_ceiling
from roofline.core.roofline_model import SECTOR_BYTES
from roofline.core.terms import Regime
from roofline.operators.about import StoredAbout, UnknownAbout, load_abouts
from roofline.operators.drawing import DRAWN
from roofline.records.all_reduce_record import AllReduceRecord
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import copy_fields, shared_fields
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters_record import CountedCell, CountFigures
from roofline.records.device_record import DeviceFacts
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import CellKey
from roofline.table import ceiling_rows, seals
from roofline.table.all_reduce_rows import all_reduce_rows
from roofline.table.baselines import compare_with_baselines, select_runs
from roofline.table.cell_rows import Ceilings, CellContext, build_cell_row, build_operation_row
from roofline.table.checks import judge
from roofline.table.energy_roofline import fit_energy
from roofline.table.instruction_roofline import build_instruction_row
from roofline.table.own_scores import build_own_rows, score_own
from roofline.table.rows import AskedCell, Ceiling, CellRow, Counted, DeviceRow, NotCounted, Roofline, Skipped, case_key
from roofline.table.run_records import Request, Results
from roofline.table.scores import score_predictions
from roofline.table.standing import NO_RUNS, select_comparable_runs

# A count agrees with the declared one within the larger of a share of that and an amount.
FLOPS_SHARE, FLOPS_AMOUNT = 0.02, 0
TRAFFIC_SHARE, TRAFFIC_BYTES = 0.05, 1e6


def build_table(results: Results, request: Request | None = None, sha256: Mapping[str, str] | None = None) -> Roofline:
    """Return the table of a run from its records.

    `sha256` has the hash of every record, by its path below results/: with it the seals are checked too.
    """
    request = request or Request()
    ceilings = list(_ceilings(results, request.effort))
    ceilings_by_device = {name: _ceilings_of(ceilings, name) for name in results.devices}
    by_kind = group_by(_cells(results, ceilings_by_device), lambda row: PurePath(row.record or "").stem == DRAWN)
    cells, drawn = by_kind.get(False, []), by_kind.get(True, [])
    runs = select_runs(results, request.effort)
    operations, sweeps, energy_fits, peers, instructions, refused = [], [], [], [], [], []
    for name, record in results.devices.items():
        for operation in request.operations:
            if operation.get("device") in (None, name):
                operations.append(build_operation_row(name, record.device_kind, operation, ceilings_by_device[name]))
    for path, bandwidth in results.of_kind(BandwidthRecord):
        sweeps += ceiling_rows.sweep_rows(path, bandwidth)
        energy_fits += list(fit_energy(path, bandwidth, ceilings_by_device[bandwidth.device].compute))
        if bandwidth.peer and not bandwidth.skipped_reason:
            peers.append(ceiling_rows.peer_path_row(path, bandwidth, bandwidth.peer))
    for path, rates in results.of_kind(InstructionsRecord):
        memory = ceilings_by_device[rates.device].memory
        counts = [cell for _, record in results.counters if record.device == rates.device for cell in record.cells]
        instructions.append(build_instruction_row(path, rates, memory, cells, counts))
    for device, profiler in results.profilers.items():
        if profiler.refused_reason:
            refused.append(NotCounted(device=device, refused_reason=profiler.refused_reason))
    own_predictions = list(build_own_rows(results, cells))
    roofline = Roofline(
        devices={name: _device(results, name, sha256) for name in results.devices},
        ceilings=ceilings,
        operators=[*cells, *(row for row in operations if isinstance(row, CellRow))],
        drawn=drawn,
        sweeps=sweeps,
        energy_fits=energy_fits,
        peers=peers,
        all_reduces=list(all_reduce_rows(results, [row for row in ceilings if row.kind == "memory"])),
        instructions=instructions,
        counters=counted_rows(results, cells),
        refused_counters=refused,
        what_if=[*_what_if(results)],
        skipped=[*_skipped(results, request), *(row for row in operations if isinstance(row, Skipped))],
        own_predictions=own_predictions,
        own_scores=score_own(own_predictions),
        score=score_predictions(cells, compare_with_baselines(cells, runs)),
        drawn_score=score_predictions(drawn, compare_with_baselines(drawn, runs)) if drawn else None,
        own_operators=list(results.own_operators.values()),
        checks=[],
    )
    return roofline.model_copy(update={"checks": list(judge.check_run(roofline, results, request))})


def _device(results: Results, name: str, sha256: Mapping[str, str] | None) -> DeviceRow:
    record = results.devices[name]
    bandwidths = [bandwidth for _, bandwidth in results.of_kind(BandwidthRecord) if bandwidth.device == name]
    idle = next((bandwidth.idle for bandwidth in bandwidths if bandwidth.idle), None)
    predictions = results.predictions.get(name)
    return DeviceRow(
        **shared_fields(record, DeviceFacts),
        record=f"{name}/device_query.json",
        peaks_by=record.datasheet.peaks_by,
        idle_power_w=idle and idle.power_w,
        idle_sm_clock_mhz=idle and idle.sm_clock_mhz,
        seals={path: seal.sealed_at for path, seal in results.seals.items() if seal.device == name},
        timed_before_count=sum(cell.started_at is not None for cell in predictions.cells) if predictions else 0,
        constants_sha256=seals.hash_fitted_constants(results, name),
        violations=[] if sha256 is None else seals.find_violations(results, name, sha256),
    )


def _ceilings(results: Results, effort: str | None) -> Iterator[Ceiling]:
    """Yield the compute ceilings of all devices, then the memory ceilings."""
    devices, known_cards = results.devices, results.known_cards.devices.items()
    known_runs = {name: select_comparable_runs(devices[name], cards.runs, effort) for name, cards in known_cards}
    memory: list[Ceiling] = []
    for path, record in results.of_kind(BandwidthRecord):
        runs = known_runs.get(record.device, NO_RUNS)
        memory += ceiling_rows.memory_ceiling_rows(path, record, devices[record.device], runs)
    for name, device in devices.items():
        peaks = [(path, record) for path, record in results.of_kind(PeakFlopsRecord) if record.device == name]
        reads = _ceilings_of(memory, name).memory.get(main_memory_ceiling(device.device_kind, "read"))
        gb_per_s = reads.gb_per_s if reads and not reads.doubt else None
        yield from ceiling_rows.compute_ceiling_rows(peaks, device, known_runs.get(name, NO_RUNS), gb_per_s)
    yield from memory


def _ceilings_of(ceilings: list[Ceiling], device: str) -> Ceilings:
    own = [row for row in ceilings if row.device == device]
    compute = {row.name: row for row in own if row.kind == "compute"}
    return Ceilings(compute, {row.name: row for row in own if row.kind == "memory"})


def _cells(results: Results, ceilings_by_device: Mapping[str, Ceilings]) -> Iterator[CellRow]:
    abouts = load_abouts() | {name: StoredAbout(operator) for name, operator in results.own_operators.items()}
    cells = [(path, record, measurement) for path, record in results.measured for measurement in record.measurements]
    cells_by_case = group_by(cells, lambda cell: case_key(cell[1].device, cell[2]))
    for path, record, measurement in cells:
        context = CellContext(
            kind=results.devices[record.device].device_kind,
            about=abouts.get(measurement.operator) or UnknownAbout(measurement.operator),
            ceilings=ceilings_by_device[record.device],
            seal=results.device_seal(record.device),
            constants=results.constants(record.device, measurement.operator),
            same_case=[other[1:] for other in cells_by_case[case_key(record.device, measurement)]],
        )
        yield build_cell_row(path, record, measurement, context)


def _skipped(results: Results, request: Request) -> Iterator[Skipped]:
    """Yield the ceilings and operators that were requested and a device lacks, by its record or by a measurement's."""
    skip_reasons = {(peak.device, peak.name): peak.skipped_reason for _, peak in results.of_kind(PeakFlopsRecord)}
    for device, record in results.devices.items():
        for dtype in request.dtypes:
            if reason := record.unsupported.get(dtype) or skip_reasons.get((device, dtype)):
                yield Skipped(device=device, kind="peak_flops", name=dtype, reason=reason)
    jobs: list[BandwidthRecord | AllReduceRecord] = [job for _, job in results.of_kind(BandwidthRecord)]
    for job in jobs + [job for _, job in results.of_kind(AllReduceRecord)]:
        if job.skipped_reason:
            yield Skipped(device=job.device, kind="bandwidth", name=job.name, reason=job.skipped_reason)
    for row in request.without:
        yield Skipped(device=row["device"], kind="operator", name=row["operator"], reason=row["reason"])


def _what_if(results: Results) -> Iterator[AskedCell]:
    """The cells that a reader may ask about, by device, in the order in which they were predicted."""
    for device, predictions in sorted(results.predictions.items()):
        for cell in predictions.what_if:
            if cell.entry and cell.sealed:
                counts = copy_fields(cell.entry, "flops", "bytes") | copy_fields(cell.sealed, "cpu_time_s", "regime")
                yield AskedCell(**shared_fields(cell, CellKey), device=device, **counts)


# ---------------------------------------------------------------- hardware counters


def counted_rows(results: Results, timed: Iterable[CellRow]) -> list[Counted]:
    """Return a row for each cell that a profiler counted, with the regime of the timed cell."""
    regimes = {(cell.implementation, *case_key(cell.device, cell)): cell.regime for cell in timed}
    return [_counts(path, record.device, cell, regimes) for path, record in results.counters for cell in record.cells]


def _counts(path: str, device: str, cell: CountedCell, regimes: dict[tuple, Regime | None]) -> Counted:
    formula_flops = cell.formula_flops_by_pipe.total if cell.formula_flops_by_pipe else None
    counted_flops = _on_pipes(cell)
    # The bytes that multiprocessors wrote to the L2: most of them are still in it when a kernel ends.
    written_bytes = None if cell.sm_write_sectors is None else SECTOR_BYTES * cell.sm_write_sectors
    # Of several kernels the first write what the next one reads.
    judged_bytes = written_bytes if len(cell.kernels) < 2 else None
    return Counted(
        **shared_fields(cell, CellKey),
        **shared_fields(cell, CountFigures),
        device=device,
        sm_write_bytes=written_bytes,
        formula_flops=formula_flops,
        counted_flops=counted_flops,
        regime=regimes.get((cell.implementation, *case_key(device, cell))),
        reads_agree=_agree(cell.declared_read_bytes, cell.dram_read_bytes, TRAFFIC_SHARE, TRAFFIC_BYTES),
        writes_agree=_agree(cell.declared_write_bytes, judged_bytes, TRAFFIC_SHARE, TRAFFIC_BYTES),
        flops_agree=_agree(formula_flops, counted_flops, FLOPS_SHARE, FLOPS_AMOUNT),
        record=path,
    )


def _agree(declared: float | None, counted: float | None, share: float, amount: float) -> bool | None:
    """Return whether the count is the declared one, within a share of it or an amount; None if either is not known."""
    if declared is None or counted is None:
        return None
    return abs(counted - declared) <= max(share * declared, amount)


def _on_pipes(cell: CountedCell) -> float | None:
    """The FLOPs counted on the pipes of the kernel's FLOP formula, or on all pipes without a formula.

    Conversions from fp16 to fp32 are counted as fp16 additions although no formula has them.
    """
    counts, formula = cell.counted_flops_by_pipe, cell.formula_flops_by_pipe
    pipes = formula.model_dump(exclude_none=True) if formula is not None else {}
    if not pipes:
        return counts.total
    counted = [flops for flops in map(counts.of_pipe, pipes) if flops is not None]
    return sum(counted) if len(counted) == len(pipes) else None
