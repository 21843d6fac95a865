"""Records made up by hand that agree with one another: what a run would leave of these figures, sealed and predicted.

`assemble(records)` gives them their seals and predictions and fills in what a run has next to them; `results` is what
the library reads of that. The operator is one of nobody's: `scan`, along N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import factories
from factories import datasheet_figures
from pydantic import PrivateAttr

from roofline.core.dtypes import TOLERANCES
from roofline.core.terms import Axis
from roofline.measure.sustained import LoadedWork, summarise_load
from roofline.operators.about import ImplementationAdvice, OwnOperatorRecord
from roofline.records.bandwidth_record import Bandwidth, BandwidthRecord
from roofline.records.base import Record
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.compute import LoadPoint, PeakFlops, PeakFlopsRecord, WorkloadSpec
from roofline.records.counters_record import CountedCell, CountersRecord, ProfilerRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.instructions_record import InstructionsRecord, IssueRate, MeasuredAccessLimit
from roofline.records.operator_record import JobRecord, Measurement, OperatorRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord, Seal, predict_sealed
from roofline.records.timing_record import Check, Contention, Search, Timing
from roofline.table.load import build_table
from roofline.table.rows import Roofline
from roofline.table.run_records import Request, Results

US = 1e-6
DAY = "2026-11-05T"
QUERIED, SEALED, STARTED = f"{DAY}12:00:05+00:00", f"{DAY}12:00:10+00:00", f"{DAY}12:00:20+00:00"
PROMISED = {"gpu": {"fp32": 67.0, "fp16": 990.0, "hbm_read": 4800.0}, "cpu": {"fp32": 2.0, "dram_read": 160.0}}
CONSTANTS = {"gpu": {"call_s": 8 * US, "start_s": 3.5 * US, "share": 0.95}, "cpu": {"call_s": 30 * US, "share": 0.8}}
COSTS = {
    "gpu": {"calls": {"call_s": 1}, "start": {"start_s": 1}, "share": "share"},
    "cpu": {"calls": {"call_s": 1}, "share": "share"},
}
LEVELS = {name: (name, "read") for name in ("shared", "l2", "l1")} | {"d2d": ("hbm", "copy"), "h2d": ("pcie", "copy")}
SCAN = OwnOperatorRecord(
    name="scan",
    title="scan",
    picture="scan",
    counted="inputs once",
    axis=Axis(key="n", symbol="N", at_least=4),
    usual_share_of_peak=(0.003, 0.01),
)


class MadeUpCell(Measurement):
    """Perhaps in a graph, which no record says."""

    _graph: bool = PrivateAttr(default=False)


class MadeUpRecord(OperatorRecord):
    _operator: OwnOperatorRecord = PrivateAttr(default=SCAN)


MADE_UP_CHECK = Check(compared="made up", relative_error=0, tolerance=1e-12)
DATASHEET = datasheet_figures(peaks_by="formula", rate_class=None)


def kind_of(device: str) -> str:
    return device.rstrip("0123456789")


# ---------------------------------------------------------------- parts of records


def timing(median_s: float, interval: float = 0.01, **fields) -> Timing:
    """`interval`: the half width of the 95 % interval over the median; None if the samples are too few."""
    low_s, high_s = (1 - interval) * median_s, (1 + interval) * median_s
    known = {"timed_by": "made up", "warmup": 3, "requested": 100, "stopped_by": "time_budget"}
    known |= {"samples_s": [low_s, high_s] * 4 + [median_s] if interval else [median_s] * 3, "median_s": median_s}
    known |= {"ci95_s": (low_s, high_s) if interval else None}
    return Timing(**known | fields)


def load_next_to(**fields) -> Contention:
    """What ran next to a block of a second on 8 cores: nothing, unless the fields say otherwise."""
    quiet = dict.fromkeys(
        ("other_cores", "waiting_share", "stolen_share", "quota_throttled_share", "other_processes"), 0
    )
    return Contention(**{"wall_s": 1, "cores": 8, "own_cores": 1} | quiet | fields)


def rates(counted: float, taken: Timing) -> tuple[float, float] | None:
    """The interval of a rate from that of its times."""
    return taken.ci95_s and (counted / taken.ci95_s[1], counted / taken.ci95_s[0])


def product() -> WorkloadSpec:
    how = {"layout": "TN", "algorithm": "12", "accumulation": "fp32", "output": "fp16"}
    return WorkloadSpec(library="cuBLASLt", shape=dict.fromkeys("mnk", 8192), **how)


def loaded_work(spec: WorkloadSpec, **fields) -> LoadedWork:
    return LoadedWork(lambda index: None, 1.0, spec, **fields)


def stream(name: str, gb_per_s: float, interval: float = 0.01, **fields) -> Bandwidth:
    level, mix = LEVELS.get(name) or name.split("_")[:2]
    counted = 1 << 30
    taken = timing(counted / gb_per_s / 1e9, interval)
    known = {
        "name": name,
        "level": level,
        "mix": mix,
        "bytes": counted,
        "gb_per_s": gb_per_s,
        "ci95_gb_per_s": rates(counted / 1e9, taken),
        "search": Search(offered=1, tried=1, refused=[]),
        "repeats_gb_per_s": [gb_per_s],
        "timing": taken,
    }
    known |= dict.fromkeys(("datasheet_gb_per_s", "threads", "sm_clock_mhz", "all_throttled"))
    known |= dict.fromkeys(("counting_rule", "grid", "checked_against"), "made up")
    return Bandwidth(**known | {key: [] for key in ("trials", "throttle_reasons", "states")} | fields)


def cell(device: str, cpu_time_s: float, gpu_time_s: float | None = None, **fields) -> Measurement:
    """One measurement: 0.5 FLOP/byte at N = 1024 by default. Its prediction is filled in by `assemble`."""
    on_gpu, n = device != "cpu", fields.pop("n", 1024)
    known = {
        **dict.fromkeys(("preset", "scope", "overhead_s")),
        "operator": "scan",
        "implementation": "plain" if on_gpu else "numpy",
        "dtype": "fp32",
        "cache": "cold",
        "shape": {"n": n},
        "flops": 10**9,
        "bytes": 2 * 10**9,
        "compute_ceiling": fields.get("dtype", "fp32"),
        "memory_ceilings": ["hbm_read", "d2d"] if on_gpu else ["dram_read", "dram_copy"],
        "memory_level": "hbm" if on_gpu else "dram",
        "costs": COSTS[kind_of(device)],
        "sealed": {"regime": "memory", "cpu_time_s": 1, "fraction_of_compute_peak": 1},
        "check": MADE_UP_CHECK,
        "cpu_time": timing(cpu_time_s),
        "gpu_time": timing(gpu_time_s) if gpu_time_s else None,
        "states": [],
    }
    graph = fields.pop("graph", False)
    made = MadeUpCell.model_validate(known | fields)
    made._graph = graph
    return made


def reference_gemm(device: str, dtype: str, tflops: float) -> Measurement:
    size = 4096
    flops = 2 * size**3
    known = {
        "operator": "gemm",
        "implementation": "cupy.matmul" if device != "cpu" else "numpy.matmul",
        "shape": {"m": size, "n": size, "k": size},
        "dtype": dtype,
        "cache": "warm",
        "flops": flops,
        "bytes": 3 * size**2 * 4,
        "check": Check(compared="made up", relative_error=0, tolerance=TOLERANCES[dtype]),
    }
    return cell(device, flops / tflops / 1e12, **known)


# ---------------------------------------------------------------- records


def device_record(device: str = "cpu", **fields) -> DeviceRecord:
    kind = kind_of(device)
    known = {
        "name": {"cpu": "A CPU (8 cores)", "gpu": "NVIDIA H200"}[kind],
        "hardware": {},
        "datasheet": DATASHEET.model_copy(update={"peaks_by": "formula" if kind == "cpu" else "datasheet"}),
        "host": {"os": "Linux", "cpu": "A CPU (8 cores)"},
        "queried_at": QUERIED,
    }
    return factories.device_record(device, **known | fields)


def promised_seal(device: str, promised: dict[str, float] | None = None) -> PredictionRecord:
    """A device's seal; ceilings of memory are found by their names."""
    ceilings = []
    for name, value in (PROMISED[kind_of(device)] if promised is None else promised).items():
        memory = name in LEVELS or name.startswith(("hbm", "dram"))
        figure = {"kind": "memory", "gb_per_s": value} if memory else {"kind": "compute", "tflops": value}
        source = {"source": "made up", "verified": True, "derived": device == "cpu"}
        ceilings.append({"name": name, **source, **figure})
    return PredictionRecord(device=device, device_kind=kind_of(device), sealed_at=SEALED, ceilings=ceilings)


def operator_seal(device: str, operator: str) -> OperatorPredictionRecord:
    kind = kind_of(device)
    constants = {"constants": CONSTANTS[kind], "constant_sources": dict.fromkeys(CONSTANTS[kind], "made up")}
    return OperatorPredictionRecord(device=device, device_kind=kind, operator=operator, sealed_at=SEALED, **constants)


def job_fields(device: str, fields: dict) -> dict:
    return {"device": device, "seals": {}, "started_at": STARTED, "elapsed_s": 1.5} | fields


def peak_record(
    device: str,
    dtype: str,
    burst: float,
    *,
    reference: float | None = None,
    chosen_at: float | None = None,
    sustained: float | None = None,
    reasons: list[str] | None = None,
    datasheet: float | None = None,
    clock: tuple[float, float] | None = None,
    interval: float = 0.01,
    **fields,
) -> PeakFlopsRecord:
    """`reference` is the TFLOPS of the reference product (no _fma ceiling has one), `chosen_at` those of a third block,
    `clock` the MHz of the burst and the TFLOPS that it allows."""
    fma, best = dtype.endswith("_fma"), product()
    flops = 2 * best.shape["m"] * best.shape["n"] * best.shape["k"]
    reference_product = None if fma else reference_gemm(device, dtype, reference or 0.98 * burst)
    load = None
    if sustained:
        points = [LoadPoint(at_s=0.05 * i, tflops=sustained, throttle_reasons=reasons) for i in range(40)]
        load = summarise_load(points, loaded_work(best), 2.0)
    clock_mhz, clock_tflops = clock or (None, None)
    taken = timing(flops / burst / 1e12, interval)
    ceiling = max(burst, load.tflops if load else 0)
    block = {"product": best, "inputs": "made up", "flops": flops, "check": MADE_UP_CHECK, "timing": taken}
    block |= {"tflops": burst, "states": [], "sm_clock_mhz": clock_mhz}
    known = {
        "workload": "fma" if fma else "gemm",
        "compute_unit": "cpu"
        if device == "cpu"
        else "cuda_core"
        if fma or dtype in ("fp32", "fp64")
        else "tensor_core",
        "tflops": ceiling,
        "reference_tflops": None if fma else reference or 0.98 * burst,
        "burst_tflops": burst,
        "sustained_tflops": load and load.tflops,
        "datasheet_tflops": datasheet,
        "sm_clock_mhz": clock_mhz,
        "fraction_of_clock": clock_tflops and burst / clock_tflops,
        "inputs": "made up",
        "throttle_reasons": load.throttle_reasons if load else [],
        "all_throttled": None if device == "cpu" else False,
        **{key: [] for key in ("remarks", "not_repeated", "variants")},
        "search": Search(offered=1, tried=1, refused=[]),
        "candidates": [{"product": best, "flops": flops, "trial_tflops": burst, "flops_per_cycle": None}],
        "repeats": [block, block, block | {"tflops": chosen_at or burst}],
        "sustained": load,
        "kernel": {"name": None, "tensor_cores": None, "how_known": "made up"},
        "investigation": None,
    }
    ours = {"measurements": [reference_product]} if reference_product else {}
    peak = PeakFlops.model_validate(known | fields)
    return PeakFlopsRecord(name=dtype, skipped_reason=None, peak=peak, **job_fields(device, ours))


def skipped_peak(device: str, dtype: str, reason: str) -> PeakFlopsRecord:
    return PeakFlopsRecord(name=dtype, skipped_reason=reason, peak=None, **job_fields(device, {}))


def bandwidth_record(device: str, level: str | None = None, sweeps=(), **streams) -> BandwidthRecord:
    """Of streams by name, as a rate in GB/s or as a whole Bandwidth."""
    made = [one if isinstance(one, Bandwidth) else stream(name, one) for name, one in streams.items()]
    level = level or (made[0].level if made else "sweep")
    return BandwidthRecord(name=level, bandwidths=made, sweeps=list(sweeps), **job_fields(device, {}))


def operator_record(device: str, *cells: Measurement, operator: OwnOperatorRecord = SCAN, **fields) -> OperatorRecord:
    known = {"case": f"N{cells[0].shape.get('n', '')}_{cells[0].dtype}" if cells else "none"}
    made = MadeUpRecord(**job_fields(device, known | {"measurements": list(cells)} | fields))
    made._operator = operator
    return made


def own_operators(records: Iterable[Record]) -> dict[str, OwnOperatorRecord]:
    """The text of the made-up operators of these records."""
    found = {}
    for record in records:
        if isinstance(record, MadeUpRecord):
            one = record._operator
            ways = {cell.implementation: ImplementationAdvice(graph=cell._graph) for cell in record.measurements}
            ways |= found[one.name].ways if one.name in found else {}
            found[one.name] = one.model_copy(update={"ways": ways})
    return found


def counted_cell(one: Measurement, **fields) -> CountedCell:
    """What a profiler counted of a cell: the declared bytes, all of them read, and the declared FLOPs."""
    shared = set(CountedCell.model_fields) & set(Measurement.model_fields)
    known = {
        "declared_read_bytes": one.bytes,
        "declared_write_bytes": 0,
        "declared_flops": one.flops,
        "dram_read_bytes": one.bytes,
        "sm_write_sectors": 0,
        "counted_flops_by_pipe": {"fp32": one.flops},
    }
    return CountedCell.model_validate({key: getattr(one, key) for key in shared} | known | fields)


def counters_record(device: str, *cells: CountedCell, **fields) -> CountersRecord:
    known = {"started_at": STARTED, "elapsed_s": 1.5, "cells": list(cells)}
    return CountersRecord(device=device, **known | fields)


def profiler_record(device: str, refused: str | None = None) -> ProfilerRecord:
    return ProfilerRecord(device=device, ncu_version=None if refused else "2026.3.1.0", refused_reason=refused)


def instructions_record(device: str, issued_per_s: float) -> InstructionsRecord:
    """At 1 GHz, with one wall of loads eight words apart: a request every ten cycles of each of 100 multiprocessors."""
    taken, clock_mhz, requests_per_s = timing(1e-3), 1000, 1e10
    issue = IssueRate(
        kernel="made up",
        warp_instructions=round(issued_per_s * 1e-3),
        multiprocessors=100,
        warp_instructions_per_s=issued_per_s,
        sm_clock_mhz=clock_mhz,
        search=Search(offered=1, tried=1, refused=[]),
        check=MADE_UP_CHECK,
        timing=taken,
        states=[],
    )
    wall = MeasuredAccessLimit(
        pattern="stride",
        degree=8,
        requests=round(requests_per_s * 1e-3),
        transactions_per_request=32,
        requests_per_s=requests_per_s,
        sm_clock_mhz=clock_mhz,
        cycles_per_request=10,
        timing=taken,
        checked_against="made up",
    )
    return InstructionsRecord(issue=issue, walls=[wall], **job_fields(device, {}))


# ---------------------------------------------------------------- a run of them


def path_of(record: Record) -> str:
    """Where a run keeps a record, below results/."""
    places = {
        DeviceRecord: lambda r: "device_query",
        PredictionRecord: lambda r: "prediction",
        CalibrationRecord: lambda r: "calibration",
        OperatorPredictionRecord: lambda r: f"{rule_of(r.operator)}/prediction",
        PeakFlopsRecord: lambda r: f"peak_flops/{r.name}",
        BandwidthRecord: lambda r: f"bandwidth/{r.name}",
        MadeUpRecord: lambda r: f"{rule_of(r._operator.name)}/{r.case}",
        InstructionsRecord: lambda r: "instructions/rates",
        ProfilerRecord: lambda r: "profiler",
        CountersRecord: lambda r: f"counters/{rule_of(r.cells[0].operator) if r.cells else 'scan'}/case",
    }
    return f"{record.device}/{places[type(record)](record)}.json"


def rule_of(operator: str) -> str:
    return "peak_flops" if operator == "gemm" else operator


def pretended(path: str, record: Record) -> str:
    """The hash of a file that is not written."""
    return f"of {path}"


def assemble(*records: Record, keep: Callable[[str, Record], str] = pretended) -> dict[str, Record]:
    """These records by path, with the device records and seals that are missing, each record under its seals and each
    cell as they predict it. `keep` writes a record and returns the hash of its file."""
    found: dict[str, Record] = {}
    given = {path_of(record): record for record in records}
    jobs = [record for record in given.values() if isinstance(record, JobRecord)]
    found |= {path: one for path, one in given.items() if isinstance(one, ProfilerRecord | CountersRecord)}
    for device in dict.fromkeys(record.device for record in records):
        path = f"{device}/device_query.json"
        found[path] = given.get(path) or device_record(device)
        keep(path, found[path])
        mine = [job for job in jobs if job.device == device]
        operators = dict.fromkeys(one.operator for job in mine for one in job.measurements)
        seals = [promised_seal(device), *(operator_seal(device, operator) for operator in operators)]
        measured = [one for one in given.values() if isinstance(one, CalibrationRecord) and one.device == device]
        hashes = {}
        for seal in [*seals, *measured]:
            path = path_of(seal)
            found[path] = given.get(path) or seal
            hashes[path] = keep(path, found[path])
        of_all = path_of(seals[0])
        for job in mine:
            of_operators = {path_of(operator_seal(device, one.operator)): one.operator for one in job.measurements}
            cells = [predicted(one, found, device) for one in job.measurements]
            of_host = map(path_of, measured if of_operators else [])
            carried = {path: hashes[path] for path in [of_all, *of_operators, *of_host]}
            path = path_of(job)
            found[path] = job.model_copy(update={"seals": carried, "measurements": cells})
            keep(path, found[path])
    return found


def predicted(one: Measurement, found: dict[str, Record], device: str) -> Measurement:
    """A cell as the seals predict it."""
    constants = found[f"{device}/{rule_of(one.operator)}/prediction.json"].constants
    made = predict_sealed(
        found[f"{device}/prediction.json"],
        constants,
        flops=one.flops,
        traffic_bytes=one.bytes,
        compute_ceiling=one.compute_ceiling,
        memory_ceilings=one.memory_ceilings,
        memory_level=one.memory_level,
        terms=one.costs,
    )
    return one.model_copy(update={"sealed": made})


def results(*records: Record) -> Results:
    """What the library would read of a run with these records."""
    found = Results(own_operators=own_operators(records))
    for path, record in assemble(*records).items():
        if isinstance(record, DeviceRecord):
            found.devices[record.device] = record
        elif isinstance(record, Seal):
            found.seals[path] = record
        elif isinstance(record, ProfilerRecord):
            found.profilers[record.device] = record
        elif isinstance(record, CountersRecord):
            found.counters.append((path, record))
        else:
            found.measured.append((path, record))
    return found


def hashes_of(found: Results) -> dict[str, str]:
    paths = [f"{name}/device_query.json" for name in found.devices]
    paths += [*found.seals, *(path for path, _ in found.measured)]
    return {path: pretended(path, None) for path in paths}


def verified(*records: Record, **asked) -> Roofline:
    found = results(*records)
    return build_table(found, Request(**asked), hashes_of(found))
