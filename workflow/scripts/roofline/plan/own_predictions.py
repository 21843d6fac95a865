"""The user's own predictions: a file that names cells of this run, read and checked before anything is measured."""

import difflib
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from roofline.core.architectures import architecture_of, parse_capability
from roofline.core.formatting import join_words
from roofline.core.terms import Regime, UserError
from roofline.operators.about import StoredAbout, describe_own_operator, load_abouts
from roofline.operators.base import Case, Operator
from roofline.operators.gemm.operator import Gemm
from roofline.operators.setting_types import Settings
from roofline.plan.settings import describe_errors
from roofline.plan.targets import RunPlan
from roofline.records.files import read_yaml
from roofline.records.operator_record import CellKey, OwnPrediction


def _refuse_text(value: Any) -> Any:
    """Return the value. Raises ValueError for text, such as 12 us."""
    if isinstance(value, str):
        raise ValueError("should be a plain number, since its key has the unit")
    return value


Time = Annotated[Annotated[float, Field(gt=0, le=1e12)] | None, BeforeValidator(_refuse_text)]
Percent = Annotated[Annotated[float, Field(gt=0, le=100)] | None, BeforeValidator(_refuse_text)]


class PlannedCell(NamedTuple):
    """A cell of this run, with its device and the name of its record."""

    device: str
    record: str
    cell: CellKey


class OwnPredictionSettings(Settings):
    """The user's prediction of a cell: any of its regime, its CPU time and its share of the compute peak."""

    regime: Regime | None = None
    time_us: Time = None
    time_ms: Time = None
    percent_of_peak: Percent = None

    @model_validator(mode="after")
    def _require_one_of_each(self) -> "OwnPredictionSettings":
        names = list(type(self).model_fields)
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"needs one of {', '.join(names)}")
        if self.time_us and self.time_ms:
            raise ValueError("time_us or time_ms is needed, not both")
        return self

    def as_fields(self) -> dict[str, Any]:
        """Return the regime, the time in seconds and the share as a fraction, as fields of an OwnPrediction."""
        seconds = self.time_us / 1e6 if self.time_us else self.time_ms / 1e3 if self.time_ms else None
        share = self.percent_of_peak / 100 if self.percent_of_peak else None
        return {"regime": self.regime, "cpu_time_s": seconds, "fraction_of_compute_peak": share}


def read_own_predictions(plan: RunPlan) -> dict[str, list[dict]]:
    """Return what the user's file predicts of cells, by device: each prediction with the name of its record.

    Raises UserError with a line for each error.
    """
    path = plan.config.predictions
    if path is None:
        return {}
    named_cells = name_cells(plan)
    predictions: dict[str, list[dict]] = {}
    faults = []
    for name, value in _read_file(path, named_cells).items():
        planned = named_cells.get(str(name))
        if planned is None:
            nearest = difflib.get_close_matches(str(name), named_cells, 2, cutoff=0)
            hint = f"nearest: {' or '.join(map(repr, nearest))}"
            if str(name).partition(" ")[0] not in plan.devices:
                hint = f"its names begin with {join_words(plan.devices)}"
            faults.append(f"{path}: {name!r} is not a cell of this run; {hint}")
            continue
        if not isinstance(value, dict):
            faults.append(f"{path}: {name}: should be what is predicted, such as {{time_us: 12}} (got {value!r:.100})")
            continue
        try:
            given = OwnPredictionSettings.model_validate(value)
        except ValidationError as error:
            lines = describe_errors(error, value, OwnPredictionSettings)
            faults += [f"{path}: {name}: {line.removeprefix(': ')}" for line in lines]
            continue
        prediction = OwnPrediction(**planned.cell.model_dump(), **given.as_fields())
        line = {"record": planned.record, "prediction": prediction.model_dump()}
        predictions.setdefault(planned.device, []).append(line)
    if faults:
        raise UserError(faults)
    return predictions


def _read_file(path: str, names: Iterable[str]) -> dict:
    """Return the content of the user's file. Raises UserError if it is missing or malformed, or names no cell."""
    try:
        content = read_yaml(path)
    except OSError as error:
        raise UserError(f"predictions: {path}: {error.strerror}") from None
    if content in (None, {}):
        raise UserError([f"{path}: names no cell; known:", *(f"  {name}" for name in names)])
    if not isinstance(content, dict):
        raise UserError(f"{path}: should be a mapping of cells to what is predicted, but is a {type(content).__name__}")
    return content


def name_cells(plan: RunPlan) -> dict[str, PlannedCell]:
    """Return the cells of a run by the names that verification.md gives them. The settings alone decide: a device may
    still lack an implementation of a case."""
    abouts = load_abouts()
    own = [operator for operator in plan.operators.values() if operator.path]
    abouts |= {operator.name: StoredAbout(describe_own_operator(operator)) for operator in own}
    all_planned = [planned for device in plan.devices for planned in _plan_cells(plan, device)]
    scopes: dict[str, set[str | None]] = {}
    for planned in all_planned:
        scopes.setdefault(planned.cell.operator, set()).add(planned.cell.scope)
    named = {}
    for planned in all_planned:
        operator = planned.cell.operator
        scope = planned.cell.scope if len(scopes[operator]) > 1 else None
        named[f"{planned.device} {abouts[operator].full_name(planned.cell, scope)}"] = planned
    return named


def _plan_cells(plan: RunPlan, device: str) -> Iterable[PlannedCell]:
    """Yield the reference GEMMs of a device, then the cells of its operators."""
    identity = plan.present[device]
    capability = parse_capability(identity.compute_capability or "0.0")
    unopened: Any = SimpleNamespace(kind=identity.kind, capability=capability)  # all that cells are chosen by
    unopened.supports_overlap = architecture_of(capability).clusters
    for dtype, size in plan.gemm_sizes(device).items():
        for product in Gemm().plan_cells(unopened, dtype, size):
            yield _plan_cell(device, dtype, Gemm(), product.name, product.case)
    for rule, operator in plan.timed.items():
        settings = getattr(plan.config, rule)
        wanted_scopes = getattr(settings, "scopes", None)  # of operators that have several
        for path in plan.cases(rule, device):
            for case in plan.jobs[rule][path].cases:
                for implementation in operator.implementations_on(identity.kind, settings.implementations):
                    for scope in implementation.scopes_on(unopened):
                        if wanted_scopes is None or scope in wanted_scopes:
                            yield _plan_cell(device, path, operator, implementation.name, case, scope)


def _plan_cell(
    device: str, path: str, operator: Operator, implementation: str, case: Case, scope: str | None = None
) -> PlannedCell:
    shared = {"preset": case.preset, "dtype": case.dtype, "shape": case.shape}
    key = CellKey(operator=operator.name, implementation=implementation, scope=scope, **shared)
    return PlannedCell(device, f"{device}/{operator.rule}/{path}", key)
