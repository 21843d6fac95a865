"""All that tools and users' operators may import: runs, operators, kernels, number formats, tables and pictures."""

import contextlib
import hashlib
import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from roofline.core.all_reduce_model import bound_time_s as bound_all_reduce_s
from roofline.core.architectures import architecture_of
from roofline.core.disturbance import throttle_reasons_text
from roofline.core.dtypes import COMMON_DTYPE, DTYPES, array_dtype, relative_error, require_close
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
from roofline.core.grouping import group_by
from roofline.core.levels import LEVEL_TITLES as LEVEL_TITLES
from roofline.core.levels import MAIN_MEMORY as MAIN_MEMORY
from roofline.core.levels import TRANSFER_TARGETS as TRANSFER_TARGETS
from roofline.core.levels import memory_ceiling_names as memory_ceilings
from roofline.core.regimes import classify_regime
from roofline.core.roofline_model import LANES_PER_WARP, peak_issue_rate
from roofline.core.roofline_model import place_under_roof as analyse
from roofline.core.terms import (
    CARD_QUANTITY_KINDS,
    PAIR_KEY_PREFIXES,
    Array,
    UnsupportedError,
    UserError,
)
from roofline.devices import datasheets, discovery
from roofline.devices.base import CudaDevice, Device
from roofline.devices.discovery import discover, unsupported_reason
from roofline.devices.gpu import counter_names
from roofline.devices.gpu.gpu_identity import list_lost_gpus
from roofline.measure import ncu
from roofline.measure.lock import HOST_LOCK, hold_locks
from roofline.measure.lock import gpu_lock_name as lock_of
from roofline.measure.memory_load import measure_memory_load
from roofline.operators.base import LIBRARY_WORKSPACE_BYTES, Case, CudaImplementation, Implementation, Job, Operator
from roofline.operators.card_prediction import predict_cell as predict_cell
from roofline.operators.constants import Constant, gpu_host_constants
from roofline.operators.decode_attention import fused_attention as attention_kernel
from roofline.operators.gemm.operator import workloads_module
from roofline.operators.registry import builtin_operators as builtin_operators
from roofline.operators.rmsnorm_matmul import hopper_gemm as product_kernel
from roofline.operators.setting_types import Budget, ByEffort, EachOnce, Field, OperatorSettings, Whole
from roofline.records.base import read as read_record
from roofline.records.cards import CardRun, Cards, DrawnErrors, card_id, cards_path, is_comparable, write_cards
from roofline.records.cards import read_cards as cards
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS, write_bytes, write_text
from roofline.records.manifest_record import Manifest, Output
from roofline.records.operator_record import OperatorRecord
from roofline.records.seal_records import CostTerms
from roofline.records.timing_record import Check
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.report.palette import LEVEL_COLOURS as LEVEL_COLOURS
from roofline.report.palette import dtype_colour as dtype_colour
from roofline.run.archive import manifest_of, unpacked
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive
from roofline.run.ending import exit_with
from roofline.run.folder import measure, require_no_living_run
from roofline.run.jobs import Failure
from roofline.run.make_manifest import differing_files
from roofline.table.checks import judge
from roofline.table.checks.ceilings import MATMULS, READS, REGISTERS
from roofline.table.checks.surroundings import QUIET
from roofline.table.load import build_table
from roofline.table.quantities import Quantity, list_quantities
from roofline.table.rows import Ceiling, CheckResult, ComputeCeiling, MemoryCeiling, Roofline
from roofline.table.run_records import read_results
from roofline.table.standing import rank_among_cards, select_comparable_runs


@dataclass(frozen=True)
class Run:
    """A run: its devices, its table, its manifest, and every quantity by which it is compared."""

    source: str  # the archive or folder
    devices: Mapping[str, DeviceRecord]
    roofline: Roofline
    manifest: Manifest
    quantities: list[Quantity]
    fingerprint: str  # the same for one run and its copies, whatever else an archive holds

    @property
    def effort(self) -> str | None:
        """The effort of the configuration, such as quick; None if it names none."""
        return self.manifest.config.get("effort")

    @property
    def commit(self) -> str | None:
        """The commit that the run was made by; None if it is not known."""
        return self.manifest.sources.commit

    def of_device(self, device: str) -> dict[str, Quantity]:
        """Return the quantities of one device, by key."""
        return {quantity.key: quantity for quantity in self.quantities if quantity.device == device}


def open_run(path: Path | str) -> Run:
    """Return the run of an archive, a results folder or a folder that holds either.

    Raises UserError, in one line, for anything else, for another version, and for a table or a device record that
    differs from the manifest.
    """
    with unpacked(Path(path)) as root:
        try:
            manifest, roofline = manifest_of(root), read_record(Roofline, root / RESULTS / "roofline.json")
            records = {name: f"{RESULTS}/{name}/device_query.json" for name in roofline.devices}
            devices = {name: read_record(DeviceRecord, root / record) for name, record in records.items()}
        except (UserError, OSError) as error:
            raise UserError(f"{path}: {str(error).replace(f'{root}/', '')}") from None
        used = [f"{RESULTS}/roofline.json", *records.values()]
        if differing := differing_files(root, (output for output in manifest.outputs if output.path in used)):
            raise UserError(f"{path}: {differing[0]}")
    quantities = list_quantities(roofline)
    return Run(str(path), devices, roofline, manifest, quantities, _fingerprint(quantities, devices))


def _fingerprint(quantities: list[Quantity], device_records: Mapping[str, DeviceRecord]) -> str:
    """The SHA-256 of every quantity in full, and of the devices with the times of their queries."""
    queries = sorted((record.device, record.uuid, record.queried_at) for record in device_records.values())
    values = sorted((quantity.device, quantity.key, repr(quantity.value)) for quantity in quantities)
    return hashlib.sha256(json.dumps([queries, values]).encode()).hexdigest()


class CardFacts(NamedTuple):
    """The facts about one device that its own records give, without a complete run."""

    record: DeviceRecord
    figures: list[Quantity]  # those without a doubt
    checks: list[CheckResult]
    roofline: Roofline


def card_facts(folder: Path, later: Mapping[str, Mapping]) -> dict[str, CardFacts]:
    """Return record, undoubted quantities, checks and table of each device, by name, from the records below a folder.

    `later` has hardware facts that were read after the record was written, by device. Raises UserError for a record
    that is not readable, OSError for a missing file.
    """
    results = read_results(folder, sorted(folder.rglob("*.json")))
    table, facts = build_table(results), {}
    for name, record in results.devices.items():
        record = record.model_copy(update={"hardware": {**record.hardware, **later.get(name, {})}})
        records = {path: measured for path, measured in results.measured if measured.device == name}
        checks = judge.run_checks(judge.Evidence(record, table, records), judge.MACHINE_MODULES)
        quantities = [row for row in list_quantities(table) if row.device == name and not row.doubt]
        facts[name] = CardFacts(record, quantities, checks, table)
    return facts


@contextlib.contextmanager
def open_device(name: str) -> Iterator[Device]:
    """Open a device of this machine, such as gpu0, and hold its lock until the block ends.

    Raises LookupError for a name that is not on this machine, and RuntimeError with the fault of an unusable GPU.
    """
    identity = discover()[name]
    with hold_locks([HOST_LOCK if identity.kind == "cpu" else lock_of(identity.uuid)]):
        yield discovery.open_device(name)


def wrap_for_terminal(text: str) -> str:
    """Return a text in lines as wide as the terminal, at most 120 characters; only a longer word is longer."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def __getattr__(name: str) -> ModuleType:
    """Return the module `figure_style` on demand: it loads Matplotlib, which measuring jobs do without."""
    if name != "figure_style":
        raise AttributeError(name)
    return import_module("roofline.report.figure_style")
