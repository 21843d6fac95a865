"""The registry: a check is one function of the evidence on a device, under its name and with what to do if it fails."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from roofline.core.device_kinds import KINDS
from roofline.records.calibration import CalibrationRecord
from roofline.records.device import DeviceRecord
from roofline.records.operator import JobRecord
from roofline.table.rows import CheckResult, Result, Roofline


@dataclass(frozen=True)
class Evidence:
    """What is known of one device."""

    device: str
    record: DeviceRecord | None = None
    records: Sequence[JobRecord] = ()
    table: Roofline | None = None  # of the whole run
    calibration: CalibrationRecord | None = None
    profiled: bool = False  # whether counters were asked for


class Outcome(NamedTuple):
    result: Result
    reason: str
    value: float | None = None
    limit: float | None = None
    action: str | None = None  # instead of that of the check
    name: str | None = None  # of a check that is made for each operator


# None where what the check looks at was not asked for.
Judge = Callable[[Evidence], Outcome | Iterable[Outcome] | None]
# The record of a device, what was measured on it, or the table of a run. Where there is none of that, the check is not
# made.
LooksAt = Literal["device", "measurements", "table"]


@dataclass(frozen=True)
class Registered:
    name: str
    judge: Judge
    looks_at: LooksAt
    action: str | None
    of_cpus: bool
    doubts_figures: bool  # whether a failure makes the device's figures doubtful
    passing: bool  # whether what fails may be over when it is measured again

    def can_look_at(self, known: Evidence) -> bool:
        return (known.table if self.looks_at == "table" else known.record) is not None


REGISTRY: dict[str, Registered] = {}


def check(
    name: str,
    *,
    looks_at: LooksAt,
    action: str | None = None,
    of_cpus: bool = False,
    doubts_figures: bool = False,
    passing: bool = False,
) -> Callable[[Judge], Judge]:
    """Register a function as the check of this name. Checks are listed in the order of their registration."""

    def register(judge: Judge) -> Judge:
        REGISTRY[name] = Registered(name, judge, looks_at, action, of_cpus, doubts_figures, passing)
        return judge

    return register


def judge(known: Evidence, wanted: Callable[[Registered], bool] = lambda one: True) -> list[CheckResult]:
    """The checks of one device."""
    cpu = known.record is not None and not KINDS[known.record.device_kind].accelerator
    asked = [one for one in REGISTRY.values() if wanted(one) and one.can_look_at(known) and (one.of_cpus or not cpu)]
    return [_row(one, known, outcome) for one in asked for outcome in _outcomes(one.judge(known))]


def failed(record: DeviceRecord, records: Sequence[JobRecord | CalibrationRecord]) -> list[CheckResult]:
    """What failed of these records alone; of the device itself where there are none."""
    looks_at = "measurements" if records else "device"
    jobs = [one for one in records if isinstance(one, JobRecord)]
    calibration = next((one for one in records if isinstance(one, CalibrationRecord)), None)
    known = Evidence(record.device, record, jobs, calibration=calibration)
    found = judge(known, lambda one: one.doubts_figures and one.looks_at == looks_at)
    return [one for one in found if one.result == "fail"]


def with_records(
    found: Iterable[CheckResult], record: DeviceRecord, records: Mapping[str, JobRecord | CalibrationRecord]
) -> list[CheckResult]:
    """The same checks; those that failed by what may be over by now name the records in which it was so."""
    names = {path: {one.check for one in failed(record, [measured])} for path, measured in records.items()}
    again = {one.name: [path for path in names if one.name in names[path]] for one in REGISTRY.values() if one.passing}
    return [one.model_copy(update={"records": again.get(one.check, [])}) for one in found]


def _outcomes(found: Outcome | Iterable[Outcome] | None) -> Iterable[Outcome]:
    return () if found is None else (found,) if isinstance(found, Outcome) else found


def _row(one: Registered, known: Evidence, outcome: Outcome) -> CheckResult:
    return CheckResult(
        device=known.device,
        check=outcome.name or one.name,
        result=outcome.result,
        reason=outcome.reason,
        action=(outcome.action or one.action) if outcome.result in ("fail", "note") else None,
        value=outcome.value,
        limit=outcome.limit,
        doubts_figures=one.doubts_figures,
    )
