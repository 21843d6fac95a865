"""Whether a record is what its own parts, its place and its seals allow; figures that follow from samples, records hold
themselves to."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from roofline.measure.sustained import summarise
from roofline.records.base import Record, require_same, require_same_interval
from roofline.records.calibration import CalibrationRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters import CountersRecord
from roofline.records.device import DeviceRecord
from roofline.records.health import RepeatabilityRecord
from roofline.records.instructions import InstructionsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord, Measurement, OperatorRecord
from roofline.records.prediction import OperatorPredictionRecord, PredictionRecord
from roofline.records.profile import ProfileRecord

CLOCK_S = 0.25  # that stopwatches may lie apart


def contradictions(path: str, record: Record) -> list[str]:
    """A line for everything in a record, of this place below results/, that contradicts something else in it."""
    told = [] if is_at_home(path, record) else [f"it is a record of another place than {path}"]
    if isinstance(record, JobRecord):
        told += [*_of_time(record), *_of_cells(record), *_of_load(record)]
    if isinstance(record, BandwidthRecord):
        names = [one.name for one in record.bandwidths]
        told += [f"{name} is no ceiling of {record.level}" for name in names if not name.startswith(record.level)]
        told += [f"{name} is there twice" for name in {name for name in names if names.count(name) > 1}]
    return told


def is_at_home(path: str, record: Record) -> bool:
    """Whether a path below results/ is that of the job which leaves such a record."""
    device, _, rest = path.removesuffix(".json").partition("/")
    if getattr(record, "device", device) != device:
        return False
    match record:
        case DeviceRecord():
            return rest == "device_query"
        case PredictionRecord():
            return rest == "prediction"
        case OperatorPredictionRecord():
            return rest.endswith("/prediction")
        case CalibrationRecord():
            return rest == "calibration"
        case PeakFlopsRecord():
            return rest == f"peak_flops/{record.dtype}"
        case BandwidthRecord():
            level = f"{record.level}_{record.peer.device}" if record.peer else record.level
            return rest in (f"bandwidth/{level}", f"bandwidth/{record.level}")
        case RepeatabilityRecord():
            return rest.endswith(f"/{record.dtype}")
        case InstructionsRecord():
            return rest == "instructions/rates"
        case OperatorRecord():
            return rest.endswith(f"/{record.case}")
        case CountersRecord():
            return rest.startswith("counters/")
        case ProfileRecord():
            return (device, rest) == ("profiles", record.name)
    return True


def _of_time(record: JobRecord) -> Iterator[str]:
    try:
        started_at = datetime.fromisoformat(record.started_at)
    except ValueError:
        yield f"started_at is {record.started_at!r}, and no moment"
        return
    if started_at > datetime.now(UTC) + timedelta(days=1):
        yield f"started_at is {record.started_at}, and that is to come"
    if record.whole_job and abs(record.whole_job.wall_s - record.elapsed_s) > CLOCK_S:
        yield f"elapsed_s is {record.elapsed_s:g}, and whole_job.wall_s {record.whole_job.wall_s:g}"
    timed = [timing for one in record.measurements for timing in (one.latency, one.device_latency) if timing]
    if sum(timing.contention.wall_s for timing in timed if timing.contention) > record.elapsed_s + CLOCK_S:
        yield f"elapsed_s is {record.elapsed_s:g}, and its timed blocks took longer"


def _of_cells(record: JobRecord) -> Iterator[str]:
    cells = [_cell(one) for one in record.measurements]
    for cell in {cell for cell in cells if cells.count(cell) > 1}:
        yield f"{' '.join(map(str, filter(None, cell)))} is there twice"


def _cell(one: Measurement) -> tuple:
    return one.operator, one.implementation, one.scope, one.preset, one.dtype, one.cache, *sorted(one.shape.items())


def _of_load(record: JobRecord) -> list[str]:
    """Where a sustained rate is not what its curve gives."""
    load = record.peak.sustained if isinstance(record, PeakFlopsRecord) and record.peak else None
    if not load or load.rule != "mean":  # earlier records had another rule
        return []
    again = summarise(load.curve, load.product, load.seconds, with_starved=load.starved_points is None)
    try:
        require_same("sustained tflops", load.tflops, again.tflops)
        require_same_interval("sustained ci95", load.ci95, again.ci95)
    except ValueError as error:
        return [str(error)]
    return []
