"""Records: one JSON file each, validated when written and when read.

What is not known is null; NaN and Infinity are refused. Keys carry their unit.
"""

import json
import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofline.records.files import write_text

RECORD_VERSION = 2  # of what measuring jobs write; roofline.json, the public format, has its own

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Interval = tuple[NotNegative, NotNegative]

R = TypeVar("R", bound="Record")


class CorruptRecord(Exception):
    """A record that cannot be read back: not JSON, or not of its schema. The message is one line."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def write(record: Record, path: Path | str) -> None:
    """Write a record as JSON, validated first and renamed into place, so that half a record is never seen."""
    text = json.dumps(record.model_dump(), indent=1, allow_nan=False)  # mode="json" would make null of NaN
    type(record).model_validate_json(text)
    write_text(_numbers_on_one_line(text) + "\n", path)


def read(kind: type[R], path: Path | str) -> R:
    """Read a record of a kind. Raises CorruptRecord, in one line, where it is not one."""
    try:
        return kind.model_validate_json(Path(path).read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise CorruptRecord(f"{path}: {_first_line(error)}") from None


def _numbers_on_one_line(text: str) -> str:
    return re.sub(r"\[[\s\d.,eE+-]+\]", lambda numbers: " ".join(numbers.group().split()), text)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        return f"{place + ': ' if place else ''}{fault['msg']}"
    return str(error).splitlines()[0]
