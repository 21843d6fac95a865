"""What `make health` says of a card, and of all of them: from its checks alone."""

from collections.abc import Iterable, Sequence

from roofline.analysis.checks.card import MEASURED
from roofline.analysis.checks.ceilings import MATMULS, READS, REGISTERS
from roofline.analysis.checks.other_cards import OTHERS
from roofline.analysis.checks.registry import Evidence, judge
from roofline.analysis.quantities import Quantity
from roofline.records.check import CheckResult
from roofline.records.health import CardHealth, HealthFigure, HealthStatus

TIMED = (READS, REGISTERS, MATMULS, OTHERS)  # one of them at least must have been judged


def card(name: str, uuid: str, known: Evidence, figures: Sequence[Quantity]) -> CardHealth:
    checks = judge(known, lambda one: one.health)
    return CardHealth(
        device=known.device,
        name=name,
        uuid=uuid,
        status=status(checks),
        checks=checks,
        figures=[HealthFigure(name=q.name, value=q.value, unit=q.unit, clock_mhz=q.clock_mhz) for q in figures],
        unused=known.health.unused,
        xids=known.health.xids,
    )


def status(checks: Sequence[CheckResult]) -> HealthStatus:
    if any(one.result == "fail" for one in checks):
        return "not healthy"
    results = {one.check: one.result for one in checks}
    judged = any(results.get(one) == "pass" for one in TIMED)
    return "healthy" if judged and results[MEASURED] == "pass" else "cannot tell"


def overall(cards: Iterable[HealthStatus]) -> HealthStatus:
    """Of several cards: one that is not healthy decides, then one of which it cannot be told."""
    found = set(cards)
    return next((one for one in ("not healthy", "cannot tell") if one in found), "healthy" if found else "cannot tell")
