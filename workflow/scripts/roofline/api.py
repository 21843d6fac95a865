"""All that tools and users' operators may import: runs, operators, kernels, number formats, tables and pictures."""

import contextlib
import hashlib
import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

from roofline import devices
from roofline.core.dtypes import array_dtype, relative_error, require_close
from roofline.core.formatting import (
    capacity,
    count_words,
    duration,
    flops_unit,
    join_words,
    level_label,
    number,
    percent,
    regime_text,
)
from roofline.core.regimes import classify_regime
from roofline.core.roofline_model import peak_issue_rate
from roofline.core.statistics import is_too_few
from roofline.core.terms import UserError
from roofline.devices import datasheets, discovery
from roofline.devices.base import Device
from roofline.devices.discovery import discover, unsupported_reason
from roofline.devices.gpu import counter_names, kernel_compiler
from roofline.devices.levels import LEVEL_COLOURS as LEVEL_COLOURS
from roofline.devices.levels import LEVEL_TITLES as LEVEL_TITLES
from roofline.devices.levels import memory_ceiling_names as memory_ceilings
from roofline.measure import ncu
from roofline.measure.lock import HOST_LOCK, hold_locks
from roofline.measure.lock import gpu_lock_name as lock_of
from roofline.measure.memory_load import measure_memory_load
from roofline.operators.base import LIBRARY_WORKSPACE_BYTES, Case, Implementation, Job, Operator
from roofline.operators.constants import Constant, gpu_host_constants
from roofline.operators.decode_attention import fused_attention as attention_kernel
from roofline.operators.gemm.operator import workloads_module
from roofline.operators.registry import builtin_operators as builtin_operators
from roofline.operators.rmsnorm_matmul import hopper_gemm as product_kernel
from roofline.operators.setting_types import Budget, ByEffort, EachOnce, Field, OperatorSettings, Whole
from roofline.records.base import read as read_record
from roofline.records.cards import CardRun, Cards, card_id, cards, write_cards
from roofline.records.cards import path_of as cards_path
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS, write_text
from roofline.records.manifest_record import Manifest
from roofline.records.operator_record import OperatorRecord
from roofline.records.seal_records import CostTerms
from roofline.records.timing_record import Check
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.run.archive import manifest_of, unpacked
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive
from roofline.run.folder import measure, require_no_living_run
from roofline.run.jobs import Failure, print_what_can_be_printed
from roofline.run.make_manifest import differing_files
from roofline.table.checks import judge
from roofline.table.checks.surroundings import QUIET
from roofline.table.load import build_table
from roofline.table.quantities import Quantity, list_quantities
from roofline.table.rows import CheckResult, ComputeCeiling, MemoryCeiling, Roofline
from roofline.table.run_records import read_results
from roofline.table.standing import rank_among_cards, select_comparable_runs


@dataclass(frozen=True)
class Run:
    """A run by its records: what it was measured on and with, and every figure."""

    source: str  # the archive or folder
    devices: Mapping[str, DeviceRecord]
    roofline: Roofline
    manifest: Manifest
    quantities: list[Quantity]
    fingerprint: str  # the same for one run and its copies, whatever else an archive holds

    @property
    def effort(self) -> str | None:
        return self.manifest.config.get("effort")

    @property
    def commit(self) -> str | None:
        return self.manifest.sources.commit

    def of_device(self, device: str) -> dict[str, Quantity]:
        """The quantities of one device, by key."""
        return {one.key: one for one in self.quantities if one.device == device}


def open_run(path: Path | str) -> Run:
    """A run from its archive, its results folder, or a folder that holds either: its table and its device records.

    Raises UserError, in one line, for what is not a run, has another version, or differs from its manifest.
    """
    with unpacked(Path(path)) as root:
        try:
            manifest, roofline = manifest_of(root), read_record(Roofline, root / RESULTS / "roofline.json")
            records = {name: f"{RESULTS}/{name}/device_query.json" for name in roofline.devices}
            devices = {name: read_record(DeviceRecord, root / record) for name, record in records.items()}
        except (UserError, OSError) as error:
            raise UserError(f"{path}: {str(error).replace(f'{root}/', '')}") from None
        used = [f"{RESULTS}/roofline.json", *records.values()]
        if differing := differing_files(root, (one for one in manifest.outputs if one.path in used)):
            raise UserError(f"{path}: {differing[0]}")
    figures = list_quantities(roofline)
    return Run(str(path), devices, roofline, manifest, figures, _fingerprint(figures, devices))


def _fingerprint(figures: list[Quantity], queried: Mapping[str, DeviceRecord]) -> str:
    """SHA-256 over every figure in full and over which devices were queried when."""
    asked = sorted((record.device, record.uuid, record.queried_at) for record in queried.values())
    values = sorted((one.device, one.key, repr(one.value)) for one in figures)
    return hashlib.sha256(json.dumps([asked, values]).encode()).hexdigest()


class CardFacts(NamedTuple):
    """One device, without a whole run."""

    record: DeviceRecord
    figures: list[Quantity]  # without a doubt
    checks: list[CheckResult]
    roofline: Roofline


def card_facts(results: Path, later: Mapping[str, Mapping]) -> dict[str, CardFacts]:
    """By device, of the records in a folder; `later` has hardware facts read later. Raises UserError and OSError."""
    found = read_results(results, sorted(results.rglob("*.json")))
    table, facts = build_table(found), {}
    for name, record in found.device_records().items():
        record = record.model_copy(update={"hardware": record.hardware | later.get(name, {})})
        known = judge.Evidence(record, table, {path: one for path, one in found.measured if one.device == name})
        figures = [one for one in list_quantities(table) if one.device == name and not one.doubt]
        facts[name] = CardFacts(record, figures, judge.run_checks(known, judge.OF_MACHINE), table)
    return facts


@contextlib.contextmanager
def open_device(name: str) -> Iterator[Device]:
    """A device of this machine, such as gpu0, opened while nothing else measures on it. Raises LookupError."""
    one = discover()[name]
    with hold_locks([HOST_LOCK if one.kind == "cpu" else lock_of(one.uuid)]):
        yield discovery.open_device(name)


def exit_with(main: Callable[[list[str]], int], unforeseen: int) -> NoReturn:
    """End with the status of a command; after an error that it did not foresee with that one, since 1 is a verdict."""
    print_what_can_be_printed()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as of `| head`
    try:
        status = main(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        status = unforeseen
    sys.exit(status)


def roofline_figure(run: Run, dots: Sequence[tuple[float, float, str, str]], device: str):
    """A device's measured ceilings with dots (FLOP/byte, TFLOPS, label, dtype) of one's own, as a Matplotlib figure."""
    return import_module("roofline.report.roofline_figure").draw_dots(run.roofline, device, dots)


def __getattr__(name: str):
    """`figure_style`, on demand: it loads Matplotlib, which jobs that measure do without."""
    if name != "figure_style":
        raise AttributeError(name)
    return import_module("roofline.report.figure_style")
