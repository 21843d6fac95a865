"""All that tools may import: runs, Nsight Compute's reports, number formats, tables and pictures."""

from roofline.analysis.quantities import Run
from roofline.analysis.table import ComputeCeiling, MemoryCeiling
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
from roofline.devices import memory_ceilings
from roofline.devices.gpu import counter_names
from roofline.devices.levels import TITLES as LEVEL_TITLES
from roofline.measure import kernel_report as ncu
from roofline.records.cards import METHOD, CardRun, Cards, card_id, cards, write_cards
from roofline.records.files import write_text
from roofline.records.manifest import Manifest
from roofline.report import figure_style
from roofline.report.markdown import Table, filled
from roofline.report.palette import LEVEL_COLOURS
from roofline.run.archive import Refused
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive
from roofline.run.folder import measure
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run as open_run

__all__ = [
    "LEVEL_COLOURS",
    "LEVEL_TITLES",
    "METHOD",
    "RESULTS",
    "CardRun",
    "Cards",
    "ComputeCeiling",
    "Manifest",
    "MemoryCeiling",
    "Refused",
    "Run",
    "Table",
    "card_id",
    "cards",
    "counted",
    "counter_names",
    "duration",
    "figure_style",
    "filled",
    "flops_unit",
    "issue_peak",
    "level_words",
    "listed",
    "measure",
    "memory_ceilings",
    "ncu",
    "newest_archive",
    "number",
    "open_archive",
    "open_run",
    "percent",
    "print_what_can_be_printed",
    "regime",
    "regime_words",
    "write_cards",
    "write_text",
]
