"""One check of a device or of a run, with its verdict."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from roofline.records.base import Record

Result = Literal["pass", "note", "fail", "not_applicable"]


class CheckResult(Record):
    device: str | None = Field(description="null only in tables of earlier versions")
    check: str = Field(description="what must hold")
    result: Result
    reason: str = Field(description="what was found; why it could not be judged")
    action: str | None = Field(default=None, description="what to do; null where nothing is to be done")
    value: float | None = Field(default=None, description="the figure that decides, where there is one")
    limit: float | None = Field(default=None, description="that it is held to")
    doubts_figures: bool = Field(default=False, description="whether a failure makes the device's figures doubtful")
    records: list[str] = Field(default=[], description="to measure again, where what failed may be over by then")


def passed(checks: Iterable[CheckResult]) -> str:
    """How many checks passed, of those that either passed or failed."""
    results = [one.result for one in checks]
    return f"{results.count('pass')} of {results.count('pass') + results.count('fail')} checks passed"
