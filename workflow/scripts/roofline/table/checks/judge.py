"""The registry: a check is a function of the evidence on one device, with what to do if it fails."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from roofline.core.terms import DEVICE_TRAITS
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.operator_record import JobRecord
from roofline.table.rows import CheckResult, ComputeCeiling, MemoryCeiling, Result, Roofline
from roofline.table.run_records import Results

OF_MACHINE = ("surroundings", "card", "ceilings")
MODULES = (*OF_MACHINE, "consistency", "acceptance")  # in the order of their rows

DISTURBED = ("disturbed", "throttled")  # doubts of which surroundings report the reason


@dataclass(frozen=True)
class Evidence:
    """What is known of one device."""

    device: DeviceRecord
    table: Roofline | None = None
    records: Mapping[str, JobRecord | CalibrationRecord] = field(default_factory=dict)  # by path
    dtypes: Sequence[str] = ()  # asked for; empty if not known
    shapes: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)  # asked for, by operator
    profiled: bool = False  # whether counters were asked for

    @property
    def compute(self) -> list[ComputeCeiling]:
        return [one for one in self._ceilings if one.kind == "compute"]

    @property
    def memory(self) -> list[MemoryCeiling]:
        return [one for one in self._ceilings if one.kind == "memory"]

    @property
    def _ceilings(self) -> list[ComputeCeiling | MemoryCeiling]:
        mine = self.mine(self.table.ceilings)
        return [one for one in mine if one.doubt not in DISTURBED]

    def mine(self, rows: Sequence) -> list:
        return [one for one in rows if one.device == self.device.device]


class Outcome(NamedTuple):
    result: Result
    reason: str
    value: float | None = None
    limit: float | None = None
    records: Sequence[str] = ()  # to measure again
    doubts_figures: bool = True  # False if this failure leaves the figures reliable


Judge = Callable[[Evidence], Outcome | None]  # None if what it looks at was not asked for


REGISTRY: dict[str, list[Callable[[Evidence], CheckResult | None]]] = {}  # by module


def register_check(
    name: str, *, action: str | None = None, of_cpus: bool = False, doubts_figures: bool = False
) -> Callable[[Judge], Judge]:
    """Register a function as the check of this name.

    `doubts_figures` says whether a failure makes the figures of the device, or of the records named, doubtful.
    """

    def register(judge: Judge) -> Judge:
        def judged(evidence: Evidence) -> CheckResult | None:
            if not of_cpus and not DEVICE_TRAITS[evidence.device.device_kind].accelerator:
                return None
            outcome = judge(evidence)
            if outcome is None:
                return None
            return CheckResult(
                device=evidence.device.device,
                check=name,
                result=outcome.result,
                reason=outcome.reason,
                action=action if outcome.result in ("fail", "note") else None,
                value=outcome.value,
                limit=outcome.limit,
                doubts_figures=doubts_figures and outcome.doubts_figures,
                records=list(outcome.records),
            )

        REGISTRY.setdefault(judge.__module__.rpartition(".")[2], []).append(judged)
        return judge

    return register


def run_checks(known: Evidence, modules: Sequence[str] = MODULES) -> list[CheckResult]:
    """The checks of one device. What was disturbed is reported once, and left out of other checks."""
    for module in modules:
        import_module(f"{__package__}.{module}")
    rows = (judged(known) for module in modules for judged in REGISTRY[module])
    return [row for row in rows if row]


def check_run(table: Roofline, found: Results, asked) -> list[CheckResult]:
    """All checks of a run, device by device; `asked` has the settings `dtypes` and `shapes`."""
    rows: list[CheckResult] = []
    for name, device in found.device_records().items():
        records = {path: one for path, one in found.measured if one.device == name}
        records |= {path: one for path, one in found.seals.items() if one.kind == "calibration" and one.device == name}
        known = Evidence(device, table, records, asked.dtypes, asked.shapes, bool(found.profilers))
        rows += run_checks(known)
    return rows
