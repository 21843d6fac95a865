"""All that tools and users' operators may import: runs, operators, kernels, number formats, tables and pictures."""

from importlib import import_module

from roofline.analysis.quantities import Run
from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core.accuracy import relative_error, require_close
from roofline.core.dtypes import array_dtype
from roofline.core.formatting import (
    capacity,
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
from roofline.devices import datasheets, discover, memory_ceilings
from roofline.devices.gpu import counter_names, kernel_compiler
from roofline.devices.levels import TITLES as LEVEL_TITLES
from roofline.measure import kernel_report as ncu
from roofline.operators.base import WORKSPACE_BYTES, Case, Implementation, Job, Operator
from roofline.operators.constants import Constant, of_gpu_host
from roofline.operators.decode_attention import fused as attention_kernel
from roofline.operators.registry import builtin as builtin_operators
from roofline.operators.rmsnorm_matmul import hopper as product_kernel
from roofline.operators.settings import Budget, ByEffort, EachOnce, Field, OperatorSettings, Whole
from roofline.records.base import CorruptRecord
from roofline.records.base import read as read_record
from roofline.records.cards import METHOD, CardRun, Cards, card_id, cards, write_cards
from roofline.records.device import DeviceRecord
from roofline.records.files import write_text
from roofline.records.manifest import Manifest
from roofline.records.operator import OperatorRecord
from roofline.records.prediction import CostTerms
from roofline.records.timing import Check
from roofline.report.markdown import Table, filled
from roofline.report.palette import LEVEL_COLOURS
from roofline.run.archive import Refused
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive
from roofline.run.folder import Failed, measure
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run as open_run
from roofline.run.settings import Faults

__all__ = [
    "LEVEL_COLOURS",
    "LEVEL_TITLES",
    "METHOD",
    "RESULTS",
    "WORKSPACE_BYTES",
    "Budget",
    "ByEffort",
    "CardRun",
    "Cards",
    "Case",
    "Check",
    "ComputeCeiling",
    "Constant",
    "CorruptRecord",
    "CostTerms",
    "DeviceRecord",
    "EachOnce",
    "Failed",
    "Faults",
    "Field",
    "Implementation",
    "Job",
    "Manifest",
    "MemoryCeiling",
    "Operator",
    "OperatorRecord",
    "OperatorSettings",
    "Refused",
    "Run",
    "Table",
    "Whole",
    "array_dtype",
    "attention_kernel",
    "builtin_operators",
    "capacity",
    "card_id",
    "cards",
    "counted",
    "counter_names",
    "datasheets",
    "discover",
    "duration",
    "filled",
    "flops_unit",
    "issue_peak",
    "kernel_compiler",
    "level_words",
    "listed",
    "measure",
    "memory_ceilings",
    "ncu",
    "newest_archive",
    "number",
    "of_gpu_host",
    "open_archive",
    "open_run",
    "percent",
    "print_what_can_be_printed",
    "product_kernel",
    "read_record",
    "regime",
    "regime_words",
    "relative_error",
    "require_close",
    "write_cards",
    "write_text",
]


def __getattr__(name: str):
    """`figure_style`, on demand: it loads Matplotlib, which jobs that measure do without."""
    if name != "figure_style":
        raise AttributeError(name)
    return import_module("roofline.report.figure_style")
