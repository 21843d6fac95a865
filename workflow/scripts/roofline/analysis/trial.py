"""A trial of the model beside the workflow: cells predicted, then measured at once, and scored.

For cells drawn at random, and for devices that the constants were not taken from.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from roofline.analysis.baselines import baselines, is_fitted
from roofline.analysis.collect import found_regime, from_ceilings
from roofline.analysis.score import score
from roofline.analysis.table import Score
from roofline.core import host_costs
from roofline.core.terms import Regime
from roofline.measure import memory_ceiling
from roofline.measure.calibration import faster, timed_blocks
from roofline.measure.device_seal import promised_ceilings
from roofline.measure.operator_job import Options, Seals, declare, measure
from roofline.measure.timing import time_caller, time_device
from roofline.operators.about import Unknown, builtin
from roofline.operators.base import Job, Operator
from roofline.operators.constants import sealed
from roofline.operators.gemm import Gemm, products_on
from roofline.records.base import NotNegative, Positive, Record
from roofline.records.device import DeviceRecord
from roofline.records.operator import Measurement
from roofline.records.prediction import CellPrediction, CostTerms, PredictionRecord

CEILING_BUDGET_S, CEILING_SIZE = 0.2, 4096  # of a GEMM that stands for a compute ceiling
PASSES = 3
SMALLEST = 64  # sides of the product that shows what a call and a start cost
CELL = {"warmup": 3, "iterations": 200, "time_budget_s": 0.05}


class TrialCell(Record):
    device: str
    operator: str
    implementation: str
    scope: str | None
    preset: str | None
    dtype: str
    label: str
    shape: dict[str, int] = Field(default={})
    flops: int | None = None
    bytes: int
    costs: CostTerms | None = Field(default=None, description="beside its roof; with the next two what was sealed")
    promised_tflops: Positive | None = None
    promised_gb_per_s: Positive | None = None
    overhead_s: Positive | None = Field(default=None, description="of the smallest case by the same code")
    latency_s: Positive
    device_latency_s: Positive | None
    samples: int
    sealed: CellPrediction
    roof: CellPrediction | None = None
    roof_and_start: CellPrediction | None = None
    fitted: bool = False
    from_ceilings: CellPrediction
    regime: Regime | None
    textbook_regime: Regime | None

    @property
    def what(self) -> str:
        return " ".join(filter(None, [self.preset, self.scope, self.dtype, self.label]))


class Trial(Record):
    """One device: `ceilings` by name, in TFLOPS and GB/s, as far as a short look shows them."""

    device: str
    name: str
    ceilings: dict[str, NotNegative]
    cells: list[TrialCell]
    score: Score
    faults: list[str]


@dataclass(frozen=True)
class Product:
    """A GEMM to multiply by the library's first choice."""

    dtype: str
    shape: dict[str, int]

    def __str__(self) -> str:
        return f"GEMM {self.dtype} {' x '.join(map(str, self.shape.values()))}"


@dataclass(frozen=True)
class Cells:
    """A job of an operator, by one or more of its implementations."""

    operator: Operator
    job: Job
    implementations: list[str] | None

    def __str__(self) -> str:
        return f"{self.operator.name} {self.job.path}"


def jobs(operator: Operator, config, implementations: list[str] | None = None) -> list[Cells]:
    """What a completed config asks of an operator, with the files made that its jobs need."""
    found = [Cells(operator, job, implementations) for job in operator.jobs(config)]
    for path in {path for one in found for path in one.job.files}:
        if operator.prerequisite and not Path(path).is_file():
            operator.prerequisite.make(Path(path), operator.prerequisite.params(config, Path(path).stem))
    return found


def run(
    device, record: DeviceRecord, wanted: Iterable[Product | Cells], deadline: float, say: Callable[[str], None] = print
) -> Trial:
    """Measure ceilings, then what is wanted, until the deadline (of time.monotonic). What fails is told, and the rest
    goes on. Of each cell the faster of PASSES measurements apart counts: what disturbs a host for seconds only adds."""
    promised = PredictionRecord(
        device=device.name,
        device_kind=device.kind,
        sealed_at="",
        device_record_sha256="",
        source_sha256="",
        ceilings=promised_ceilings(record),
    )
    wanted, faults = list(wanted), []
    dtypes = {case.dtype for one in wanted if isinstance(one, Cells) for case in one.job.cases}
    dtypes |= {one.dtype for one in wanted if isinstance(one, Product)}
    before = timed_blocks(device)
    ceilings = _ceilings(device, record, sorted(dtypes), faults)
    blocks = faster(before, timed_blocks(device))  # seconds apart, since a host is slow for seconds at a time
    costs = host_costs.constants(one.block for one in blocks)
    fastest: dict[int, list[TrialCell]] = {}
    failed: set[int] = set()
    for turn, (place, one) in enumerate([*enumerate(wanted)] * PASSES):
        if time.monotonic() > deadline:
            done, left = turn // len(wanted), len(wanted) - turn % len(wanted)
            faults.append(f"no time for {left} of {len(wanted)} in pass {done + 1} of {PASSES}: {one} and what follows")
            break
        if place in failed:
            continue
        try:
            found, constants = _measured(device, promised, one, costs)
            cells = [trial_cell(device.name, measured, ceilings, constants, promised) for measured in found]
            both = zip(cells, fastest.get(place, cells), strict=True)
            fastest[place] = [min(pair, key=lambda cell: cell.latency_s) for pair in both]
        except Exception as error:
            failed.add(place)
            faults.append(f"{one}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
            say(faults[-1])
            continue
        say(f"{device.name}: {one}, {len(cells)} cells")
    cells = [cell for place in sorted(fastest) for cell in fastest[place]]
    return Trial(
        device=device.name, name=record.name, ceilings=ceilings, cells=cells, score=score(cells), faults=faults
    )


def _ceilings(device, record: DeviceRecord, dtypes: list[str], faults: list[str]) -> dict[str, float]:
    """What one short block of a product and of reads shows; the first read is what cells stand under."""
    found: dict[str, float] = {}
    read, *_ = device.memory_ceilings("read")
    for level, name in [(device.memory_level, read), *((one, one) for one in device.cache_ceilings)]:
        try:
            stream = next(one for one in device.streams(level, None) if one.name == name)
            measured = memory_ceiling.measure(device, record, stream, 3, 100, CEILING_BUDGET_S)
            found[name] = measured.gb_per_s
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
    for dtype in dtypes:
        ceiling = device.compute_ceiling(dtype, "tensor_core")
        if ceiling not in found:
            try:
                workload = products_on(device).reference_product(device, ceiling, CEILING_SIZE, 1)
                times = time_caller(device, workload.step, warmup=2, iterations=50, time_budget_s=CEILING_BUDGET_S)
                found[ceiling] = workload.flops / times.median_s / 1e12
            except Exception as error:
                faults.append(f"{ceiling}: {type(error).__name__}: {error}")
    return found


def _measured(
    device, promised: PredictionRecord, one: Product | Cells, costs: Mapping[str, float]
) -> tuple[list[Measurement], Mapping]:
    operator = one.operator if isinstance(one, Cells) else Gemm()
    constants = {name: value for name, (value, _) in sealed(operator.constants[device.kind], costs).items()}
    seals = Seals(promised, constants)
    if isinstance(one, Product):
        return [_product(device, operator, seals, one)], constants
    return measure(operator, device, one.job, seals, Options(one.implementations, cold=True, **CELL)), constants


def _product(device, operator: Gemm, seals: Seals, one: Product) -> Measurement:
    smallest = products_on(device).product_of_shape(device, one.dtype, dict.fromkeys(one.shape, SMALLEST))
    call = time_caller(device, smallest.step, **CELL)
    start = time_device(device, smallest.step, call, time_budget_s=CELL["time_budget_s"])
    workload = products_on(device).product_of_shape(device, one.dtype, one.shape)
    if workload.product.shape != one.shape:
        raise LookupError(f"no library offers it: {workload.product.shape} instead")
    case, cell = operator.measured(device, one.dtype, workload)
    declared = declare(operator, device, case, cell, None, seals, cold=False)
    check = workload.check()
    latency = time_caller(device, workload.step, **CELL)
    on_device = time_device(device, workload.step, latency, time_budget_s=CELL["time_budget_s"])
    return Measurement(
        **declared,
        check=check,
        latency=latency,
        device_latency=on_device,
        overhead_s=min(call.median_s, latency.median_s),
        device_overhead_s=min(start.median_s, on_device.median_s) if start and on_device else None,
        states=[],
    )


def trial_cell(
    device: str,
    measured: Measurement,
    ceilings: Mapping[str, float],
    constants: Mapping[str, float],
    promised: PredictionRecord,
) -> TrialCell:
    """The cell under measured ceilings; its regime is not found where one of them is missing."""
    peak = ceilings.get(measured.compute_ceiling)
    gb_per_s = next((ceilings[name] for name in measured.memory_ceilings if name in ceilings), None)
    about = builtin().get(measured.operator) or Unknown(measured.operator)
    tflops, bandwidth = rates = promised.rates(measured.compute_ceiling, measured.memory_ceilings)
    roof, roof_and_start = baselines(measured.flops, measured.bytes, rates, measured.costs)
    return TrialCell(
        device=device,
        operator=measured.operator,
        implementation=measured.implementation,
        scope=measured.scope,
        preset=measured.preset,
        dtype=measured.dtype,
        label=about.label(measured),
        shape=measured.shape,
        flops=measured.flops,
        bytes=measured.bytes,
        costs=measured.costs,
        promised_tflops=tflops,
        promised_gb_per_s=bandwidth,
        overhead_s=measured.overhead_s,
        latency_s=measured.latency.median_s,
        device_latency_s=measured.device_latency.median_s if measured.device_latency else None,
        samples=len(measured.latency.samples_s),
        sealed=measured.predicted,
        roof=roof,
        roof_and_start=roof_and_start,
        fitted=is_fitted(promised.device_kind, measured.operator, measured.dtype, measured.shape),
        from_ceilings=from_ceilings(measured, peak, gb_per_s, constants),
        regime=found_regime(measured, peak, gb_per_s),
        textbook_regime=about.textbook_regime(measured, device.rstrip("0123456789")),
    )
