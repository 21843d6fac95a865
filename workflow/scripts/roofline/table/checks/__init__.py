"""Every check of a run. A new one is a function with `@check` in one of these modules."""

from roofline.table.checks import agreement, card, ceilings, conditions, heat, registry, results  # noqa: F401
from roofline.table.checks.registry import Evidence, failed, judge
from roofline.table.rows import CheckResult, Roofline
from roofline.table.run_records import Results

__all__ = ["Evidence", "failed", "judge", "of_run"]


def of_run(table: Roofline, found: Results) -> list[CheckResult]:
    """All checks of a run, device by device."""
    checks = []
    for name, record in found.device_records().items():
        known = Evidence(
            name,
            record,
            found.measured_on(name),
            table=table,
            calibration=found.calibration(name),
            profiled=bool(found.profilers),
        )
        mine = {path: one for path, one in found.measured if one.device == name}
        mine |= {path: one for path, one in found.seals.items() if one is known.calibration}
        checks += registry.with_records(judge(known), record, mine)
    return [*checks, results.questions(table)]
