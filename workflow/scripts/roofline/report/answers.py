"""An answer to one of the three questions: a verdict, and what is to be said beside it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from roofline.report.markdown import Table
from roofline.report.rendering import sentences

NOTHING_CONCLUDED = "nothing is concluded, because of the failure above."


@dataclass(frozen=True)
class Answer:
    verdict: str
    caution: str = ""  # why nothing is concluded from the verdict
    remarks: str = ""
    tables: list[Table] = field(default_factory=list)


def answer(question: str, facts: dict, tables: Iterable[Table] = (), caution: str = "") -> Answer:
    """By the sentences of templates/answers.j2 on these facts."""
    verdict, remarks = (sentences(f"{question}_{part}", facts) for part in ("verdict", "remarks"))
    return Answer(verdict, caution if facts["failed"] else "", remarks, [one for one in tables if one.rows])
