"""All that tools may import: runs, Nsight Compute's reports, number formats, tables and pictures."""

import contextlib
from collections.abc import Iterator

from roofline import devices
from roofline.analysis.checks.conditions import ALONE, QUIET
from roofline.analysis.load import card_facts
from roofline.analysis.quantities import Run, sound
from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core import student_t
from roofline.core.formatting import (
    counted,
    duration,
    flops_unit,
    level_words,
    listed,
    number,
    percent,
    regime_words,
)
from roofline.core.instructions import issue_peak
from roofline.core.regimes import regime
from roofline.core.statistics import few
from roofline.devices import discover, memory_ceilings, unsupported
from roofline.devices.base import Device
from roofline.devices.gpu import counter_names
from roofline.devices.levels import TITLES as LEVEL_TITLES
from roofline.measure import kernel_report as ncu
from roofline.measure.lock import HOST, measuring
from roofline.measure.lock import of_gpu as lock_of
from roofline.operators.gemm import products_on
from roofline.records.base import CorruptRecord
from roofline.records.cards import METHOD, CardRun, Cards, card_id, cards, write_cards
from roofline.records.cards import path_of as cards_path
from roofline.records.files import write_text
from roofline.records.manifest import Manifest
from roofline.report import figure_style
from roofline.report.markdown import Table, filled
from roofline.report.palette import LEVEL_COLOURS
from roofline.run.archive import Refused
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive
from roofline.run.folder import Failed, measure, require_no_living_run
from roofline.run.jobs import Failure, exit_with, print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run as open_run

__all__ = [
    "ALONE",
    "LEVEL_COLOURS",
    "LEVEL_TITLES",
    "METHOD",
    "QUIET",
    "RESULTS",
    "CardRun",
    "Cards",
    "ComputeCeiling",
    "CorruptRecord",
    "Failed",
    "Failure",
    "Manifest",
    "MemoryCeiling",
    "Refused",
    "Run",
    "Table",
    "card_facts",
    "card_id",
    "cards",
    "cards_path",
    "counted",
    "counter_names",
    "discover",
    "duration",
    "exit_with",
    "few",
    "figure_style",
    "filled",
    "flops_unit",
    "issue_peak",
    "level_words",
    "listed",
    "lock_of",
    "measure",
    "measuring",
    "memory_ceilings",
    "ncu",
    "newest_archive",
    "number",
    "open_archive",
    "open_device",
    "open_run",
    "percent",
    "print_what_can_be_printed",
    "products_on",
    "regime",
    "regime_words",
    "require_no_living_run",
    "sound",
    "student_t",
    "unsupported",
    "write_cards",
    "write_text",
]


@contextlib.contextmanager
def open_device(name: str) -> Iterator[Device]:
    """A device of this machine, such as gpu0, opened while nothing else measures on it. Raises LookupError."""
    one = discover()[name]
    with measuring([HOST if one.kind == "cpu" else lock_of(one.uuid)]):
        yield devices.open_device(name)
