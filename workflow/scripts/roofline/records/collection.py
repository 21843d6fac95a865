"""The records of one rule on one device, side by side."""

from typing import Literal

from roofline.records.base import RECORD_VERSION, Record
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord


class Collection(Record):
    schema_version: Literal[4] = RECORD_VERSION
    kind: Literal["collection"] = "collection"
    device: str
    records: list[PeakFlopsRecord] | list[BandwidthRecord]
