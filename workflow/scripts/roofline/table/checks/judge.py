"""The registry of checks: a check is a function of the evidence on one device, with the action if it fails."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, TypeVar

from roofline.core.terms import DEVICE_TRAITS
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.operator_record import JobRecord
from roofline.table.rows import CheckResult, ComputeCeiling, MemoryCeiling, Result, Roofline, RowOfDevice
from roofline.table.run_records import Request, Results

MACHINE_MODULES = ("surroundings", "card", "ceilings")  # whose checks need no operators
MODULES = (*MACHINE_MODULES, "consistency", "acceptance")  # in the order of their rows

DISTURBED = ("disturbed", "throttled")  # doubts whose reason the checks of surroundings report

RowT = TypeVar("RowT", bound=RowOfDevice)


@dataclass(frozen=True)
class Evidence:
    """The facts about one device that its checks look at: its record, the table of the run, and the request."""

    device: DeviceRecord
    table: Roofline
    records: Mapping[str, JobRecord | CalibrationRecord] = field(default_factory=dict)  # by path
    request: Request = field(default_factory=Request)
    profiled: bool = False  # whether counters were requested

    @property
    def compute_ceilings(self) -> list[ComputeCeiling]:
        """The compute ceilings of the device that were not disturbed."""
        return [row for row in self.table.compute_ceilings(self.device.device) if row.doubt not in DISTURBED]

    @property
    def memory_ceilings(self) -> list[MemoryCeiling]:
        """The memory ceilings of the device that were not disturbed."""
        return [row for row in self.table.memory_ceilings(self.device.device) if row.doubt not in DISTURBED]

    def of_device(self, rows: Sequence[RowT]) -> list[RowT]:
        """Return the rows of the table that are of this device."""
        return [row for row in rows if row.device == self.device.device]


class Outcome(NamedTuple):
    """The verdict of a check on one device, with its reason and the figure that decides."""

    result: Result
    reason: str
    value: float | None = None
    limit: float | None = None
    records: Sequence[str] = ()  # paths of those to measure again
    doubts_figures: bool = True  # False if this failure leaves the figures reliable


CheckFunction = Callable[[Evidence], Outcome | None]  # None if what it looks at was not requested


REGISTRY: dict[str, list[Callable[[Evidence], CheckResult | None]]] = {}  # by module of this package


def register_check(
    name: str, *, action: str | None = None, of_cpus: bool = False, doubts_figures: bool = False
) -> Callable[[CheckFunction], CheckFunction]:
    """Return a decorator that registers a function as the check of this name and returns it unchanged.

    `action` is shown if the check fails or ends with a note. `of_cpus` says whether CPUs are checked too,
    `doubts_figures` whether a failure makes the figures of the device, or of the records that it names, doubtful.
    """

    def register(function: CheckFunction) -> CheckFunction:
        def run_check(evidence: Evidence) -> CheckResult | None:
            applies = of_cpus or DEVICE_TRAITS[evidence.device.device_kind].accelerator
            outcome = function(evidence) if applies else None
            if outcome is None:
                return None
            verdict = outcome._asdict() | {"doubts_figures": doubts_figures and outcome.doubts_figures}
            action_to_take = action if outcome.result in ("fail", "note") else None
            return CheckResult(device=evidence.device.device, check=name, action=action_to_take, **verdict)

        module = function.__module__.removeprefix(f"{__package__}.")
        REGISTRY.setdefault(module, []).append(run_check)
        return function

    return register


def run_checks(evidence: Evidence, modules: Sequence[str] = MODULES) -> list[CheckResult]:
    """Return the results of the checks that apply to one device, in the order of `modules`.

    A disturbed measurement is reported once, and left out of the other checks.
    """
    for module in modules:
        import_module(f"{__package__}.{module}")  # which registers its checks
    results = [run_check(evidence) for module in modules for run_check in REGISTRY[module]]
    return [result for result in results if result]


def check_run(table: Roofline, results: Results, request: Request) -> Iterator[CheckResult]:
    """Yield the results of all checks of a run, device by device."""
    for name, device in results.devices.items():
        records = {path: record for path, record in results.timed_records() if record.device == name}
        evidence = Evidence(device, table, records, request, profiled=bool(results.profilers))
        yield from run_checks(evidence)
