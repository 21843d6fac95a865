"""Records: one JSON file each, validated when written and when read.

What is not known is null; NaN and Infinity are refused. Keys carry their unit. A figure that can be computed from
others of its record must be what they give, and a file of a run begins with a digest of the rest: one edited by hand
has neither.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from roofline.records import convert
from roofline.records.files import write_text

RECORD_VERSION = 5  # of what measuring jobs write; roofline.json, the public format, has its own

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
MAYBE_OLD = re.compile(rf'"schema_version":\s*({"|".join(map(str, (*convert.OLD, convert.OLD_TABLE)))})\b')
OTHER_VERSION = re.compile(rf'"schema_version":\s*(?!{RECORD_VERSION}\b)')
DIGEST = re.compile(r'\A\{\n "digest": "([^"]*)",\n')  # SHA-256 of the file without this line
LARGEST = 1e21  # of any figure: a day of the fastest machine has fewer FLOPs
SIGNED = {"apart", "drift", "temperature_c"}
TOLERANCE = 1e-6  # of figures that are written in full: samples are rounded to a tenth of a nanosecond

R = TypeVar("R", bound="Record")


class CorruptRecord(Exception):
    """A record that cannot be read back: not JSON, or not of its schema. The message is one line."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


class RunRecord(Record):
    """What a job of a run leaves."""

    schema_version: Literal[5] = RECORD_VERSION

    @model_validator(mode="after")
    def _possible(self) -> Self:
        _require_possible(self.__dict__)
        return self


def _require_possible(parts: Mapping) -> None:
    """Raises ValueError for a negative figure where there can be none, and for one beyond every machine."""
    for name, value in parts.items():
        values = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else (value,)
        for one in values:
            if isinstance(one, Record | dict):
                _require_possible(one if isinstance(one, dict) else one.__dict__)
            elif isinstance(one, int | float) and not (-LARGEST if name in SIGNED else 0) <= one <= LARGEST:
                raise ValueError(f"{name} is {one:g}, which no measurement gives")


def write(record: Record, path: Path | str) -> None:
    """Write a record as JSON, validated first and renamed into place, so that half a record is never seen."""
    text = json.dumps(record.model_dump(), indent=1, allow_nan=False)  # mode="json" would make null of NaN
    type(record).model_validate_json(text)
    text = _numbers_on_one_line(text) + "\n"
    write_text(with_digest(text) if isinstance(record, RunRecord) else text, path)


def read(kind: type[R], path: Path | str) -> R:
    """Read a record of a kind, of an earlier version too. Raises CorruptRecord, in one line, where it is not one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if MAYBE_OLD.search(text) and convert.is_old(content := json.loads(text)):
            return kind.model_validate(convert.current(content))
        return kind.model_validate_json(_without_digest(text) if issubclass(kind, RunRecord) else text)
    except (ValidationError, ValueError, RecursionError) as error:
        raise CorruptRecord(f"{path}: {_first_line(error)}") from None


def with_digest(text: str) -> str:
    """A record's text with the digest of the rest as its first key."""
    return text.replace("{\n", f'{{\n "digest": "{hashlib.sha256(text.encode()).hexdigest()}",\n', 1)


def _without_digest(text: str) -> str:
    """Raises ValueError where the digest is missing, or not that of the rest."""
    written = DIGEST.match(text)
    if not written and OTHER_VERSION.search(text):
        return text  # whose version is refused
    if not written:
        raise ValueError("it has no digest of itself")
    rest = "{\n" + text[written.end() :]
    if hashlib.sha256(rest.encode()).hexdigest() != written[1]:
        raise ValueError("it is not what was written: its digest is that of other contents")
    return rest


def require_same(name: str, written: float | None, computed: float | None) -> None:
    """Raises ValueError where a figure is not what it follows from."""
    unknown = None in (written, computed)
    if written is not computed if unknown else not math.isclose(written, computed, rel_tol=TOLERANCE):
        shown = ["null" if value is None else f"{value:g}" for value in (written, computed)]
        raise ValueError(f"{name} is {shown[0]} and its samples give {shown[1]}")


def require_same_interval(name: str, written: Interval | None, computed: Interval | None) -> None:
    for end in (0, 1) if written or computed else ():
        require_same(f"{name}[{end}]", written and written[end], computed and computed[end])


def share(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


def _numbers_on_one_line(text: str) -> str:
    return re.sub(r"\[[\s\d.,eE+-]+\]", lambda numbers: " ".join(numbers.group().split()), text)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        return f"{place + ': ' if place else ''}{fault['msg'].removeprefix('Value error, ')}"
    return str(error).splitlines()[0]
