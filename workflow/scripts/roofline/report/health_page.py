"""What `make health` found, on one screen."""

from collections.abc import Iterable

from roofline.core.formatting import number
from roofline.records.check import CheckResult
from roofline.records.health import CardHealth, HealthRecord

MARKS = {"pass": "ok", "note": "note", "fail": "FAIL", "not_applicable": "?"}
ORDER = ("fail", "note", "not_applicable", "pass")  # what a reader must see first


def screen(record: HealthRecord) -> str:
    """Every check of one card; of several cards what is not as it should be, or why it cannot be told."""
    alone = len(record.cards) == 1
    return "\n".join(line for card in record.cards for line in _card(card, alone))


def _card(card: CardHealth, whole: bool) -> Iterable[str]:
    yield f"{card.device} {card.name} ({card.uuid}): {card.status}"
    if card.figures:
        yield f"  {', '.join(f'{one.name} {number(one.value)} {one.unit}' for one in card.figures)}"
    shown = [one for result in ORDER for one in card.checks if one.result == result]
    told = ("fail", "note", "not_applicable") if card.status == "cannot tell" else ("fail", "note")
    for one in shown if whole else [one for one in shown if one.result in told]:
        yield from _check(one)


def _check(one: CheckResult) -> Iterable[str]:
    yield f"  {MARKS[one.result]:<4}  {one.check}: {one.reason}"
    if one.action:
        yield f"        -> {one.action}"
