"""What `make health` found, on one screen."""

from collections.abc import Iterable

from roofline.core.formatting import number
from roofline.records.health import CardHealth, Finding, HealthRecord

MARKS = {"pass": "ok", "note": "note", "fail": "FAIL", "unknown": "?"}
ORDER = ("fail", "note", "unknown", "pass")  # what a reader must see first


def screen(record: HealthRecord) -> str:
    """Every check of one card; of several cards what is not as it should be, or why it cannot be told."""
    alone = len(record.cards) == 1
    return "\n".join(line for card in record.cards for line in _card(card, alone))


def _card(card: CardHealth, whole: bool) -> Iterable[str]:
    yield f"{card.device} {card.name} ({card.uuid}): {card.status}"
    if card.figures:
        yield f"  {', '.join(f'{one.name} {number(one.value)} {one.unit}' for one in card.figures)}"
    shown = [one for result in ORDER for one in card.findings if one.result == result]
    told = ("fail", "note", "unknown") if card.status == "cannot tell" else ("fail", "note")
    for finding in shown if whole else [one for one in shown if one.result in told]:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterable[str]:
    yield f"  {MARKS[finding.result]:<4}  {finding.check}: {finding.found}"
    if finding.advice:
        yield f"        -> {finding.advice}"
