"""All that tools and users' operators may import: runs, operators, kernels, number formats, tables and pictures."""

import contextlib
from collections.abc import Iterator
from importlib import import_module

from roofline.analysis.checks.conditions import ALONE, QUIET
from roofline.analysis.load import card_facts
from roofline.analysis.quantities import Run, sound
from roofline.analysis.ranks import comparable
from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core import student_t
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
from roofline.core.statistics import few
from roofline.devices import datasheets, discovery
from roofline.devices.base import Device
from roofline.devices.discovery import discover, unsupported
from roofline.devices.gpu import counter_names, kernel_compiler
from roofline.devices.levels import TITLES as LEVEL_TITLES
from roofline.devices.levels import roofs as memory_ceilings
from roofline.measure import kernel_report as ncu
from roofline.measure.lock import HOST, measuring
from roofline.measure.lock import of_gpu as lock_of
from roofline.operators.base import WORKSPACE_BYTES, Case, Implementation, Job, Operator
from roofline.operators.constants import Constant, of_gpu_host
from roofline.operators.decode_attention import fused as attention_kernel
from roofline.operators.gemm import products_on
from roofline.operators.registry import builtin as builtin_operators
from roofline.operators.rmsnorm_matmul import hopper as product_kernel
from roofline.operators.settings import Budget, ByEffort, EachOnce, Field, OperatorSettings, Whole
from roofline.records.base import CorruptRecord
from roofline.records.base import read as read_record
from roofline.records.cards import METHOD, CardRun, Cards, card_id, cards, write_cards
from roofline.records.cards import path_of as cards_path
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
from roofline.run.folder import Failed, measure, require_no_living_run
from roofline.run.jobs import Failure, exit_with, print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run as open_run
from roofline.run.settings import Faults


@contextlib.contextmanager
def open_device(name: str) -> Iterator[Device]:
    """A device of this machine, such as gpu0, opened while nothing else measures on it. Raises LookupError."""
    one = discover()[name]
    with measuring([HOST if one.kind == "cpu" else lock_of(one.uuid)]):
        yield discovery.open_device(name)


def __getattr__(name: str):
    """`figure_style`, on demand: it loads Matplotlib, which jobs that measure do without."""
    if name != "figure_style":
        raise AttributeError(name)
    return import_module("roofline.report.figure_style")
