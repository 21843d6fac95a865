"""acceptance.json: the stop conditions as a checklist."""

from typing import Literal

from roofline.records.base import Record
from roofline.records.roofline import SCHEMA_VERSION


class Criterion(Record):
    device: str | None
    criterion: str
    result: Literal["pass", "fail", "not_applicable"]
    reason: str


class Acceptance(Record):
    schema_version: Literal[2] = SCHEMA_VERSION
    criteria: list[Criterion]
