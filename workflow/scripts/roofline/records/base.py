"""Records: one JSON file each, validated when written and when read.

What is not known is null; NaN and Infinity are refused. Keys carry their unit.
"""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from roofline.core.terms import UserError
from roofline.records.files import write_text

RECORD_VERSION: Final = 9  # of what measuring jobs write; roofline.json, the public format, has its own

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, le=1e9)]  # TFLOPS or GB/s
Cores = Annotated[float, Field(ge=0, le=1e5)]  # CPU time over wall time
UpToOne = Annotated[float, Field(ge=0, le=1.05)]  # a share of two unlike counts
Whole = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Mhz = Annotated[float, Field(ge=0, le=1e5)]
Seconds = Annotated[float, Field(ge=0, le=1e7)]  # no block or job takes a hundred days
Share = Annotated[float, Field(gt=0, le=1)]
Interval = tuple[NotNegative, NotNegative]


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("should have a time zone")
    return text


Time = Annotated[str, AfterValidator(_check_time)]  # ISO 8601

RecordT = TypeVar("RecordT", bound="Record")


class Record(BaseModel):
    """The base of records and their parts: unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class RunRecord(Record):
    """A file that a job of a run writes, with the version of its format."""

    schema_version: Literal[9] = RECORD_VERSION


def shared_fields(record: Record, base: type[Record]) -> dict[str, Any]:
    """Return the fields of a base class of a record, by name, for a row of the same base class to embed."""
    return {name: getattr(record, name) for name in base.model_fields}


def copy_fields(source: object, *names: str) -> dict[str, Any]:
    """Return these fields of a record or dataclass, by name, for a record that has fields of the same names."""
    return {name: getattr(source, name) for name in names}


def write(record: Record, path: Path | str) -> None:
    """Write a record as JSON, validated first and renamed into place, so that half a record is never seen."""
    text = json.dumps(record.model_dump(), indent=1, allow_nan=False)  # mode="json" would make null of NaN
    type(record).model_validate_json(text)
    write_text(_numbers_on_one_line(text) + "\n", path)


def read(kind: type[RecordT], path: Path | str) -> RecordT:
    """Read a record of a kind. Raises UserError, in one line, for another version or for anything but a record."""
    try:
        return kind.model_validate_json(Path(path).read_bytes())
    except (ValidationError, ValueError) as error:
        raise UserError(f"{path}: {_first_line(error)}") from None


def _numbers_on_one_line(text: str) -> str:
    return re.sub(r"\[[\s\d.,eE+-]+\]", lambda numbers: " ".join(numbers.group().split()), text)


def _first_line(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[0]
    version_faults = [fault for fault in error.errors() if fault["loc"] == ("schema_version",)]
    fault = [*version_faults, *error.errors()][0]
    if fault["loc"] == ("schema_version",) and fault["type"] == "literal_error":
        return f"is of version {fault['input']}, and this code reads version {fault['ctx']['expected']}"
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place + ': ' if place else ''}{fault['msg'].removeprefix('Value error, ')}"
