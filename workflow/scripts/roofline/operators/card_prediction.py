"""Predictions of cells on a card that need not be there: by its datasheet and the committed constants."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from roofline.core.terms import UserError
from roofline.devices.gpu.datasheet_gpu import DatasheetGpu
from roofline.operators.base import Case, Operator, count_rotation_copies
from roofline.operators.predicting import Seals, is_cold_cell, make_entry
from roofline.operators.registry import builtin_operators
from roofline.records.seal_records import CellPrediction, SealedEntry


def predict_cell(
    operator: str, implementation: str, shape: Mapping[str, int], dtype: str, card: str, copies: int | None = None
) -> CellPrediction:
    """Return the prediction of a cell on a card by its datasheet and the committed constants, on any machine.

    `card` is a name such as "NVIDIA H200". Steps rotate among so many `copies` of the inputs (of GEMM, of B); None:
    enough that all are read from memory. Raises UserError in one line for a name or shape that is not there.
    """
    device = DatasheetGpu(card)
    chosen_operator = _choose("operator", operator, {offered.name: offered for offered in builtin_operators()})
    _choose("dtype", dtype, {name: name for name in chosen_operator.tolerance if _computes_in(chosen_operator, name)})
    if wrong := [name for name, size in shape.items() if not isinstance(size, int) or size < 1]:
        raise UserError(f"{operator}: {wrong[0]} {shape[wrong[0]]!r}; allowed: whole numbers from 1")
    try:
        return plan_cell(chosen_operator, implementation, Case(dict(shape), dtype), device, copies).predict(device.seal)
    except KeyError as error:
        raise UserError(f"{operator}: the shape lacks {error}") from None
    except TypeError as error:  # of a shape's class, which names the size that it lacks or does not know
        raise UserError(f"{operator}: {error}") from None


def plan_cell(
    operator: Operator,
    implementation: str,
    case: Case,
    device: DatasheetGpu,
    copies: int | None = None,
    scope: str | None = None,
) -> SealedEntry:
    """Return what determines the prediction of a cell by the datasheet of its card, in its first scope by default.

    Raises UserError in one line for what the card cannot compute.
    """
    offered = {offer.name: offer for offer in operator.implementations_on("gpu")}
    implementation_class = _choose("implementation", implementation, offered)
    ceiling = device.compute_ceiling_name(case.dtype, operator.unit)
    promised, _ = device.seal.rates(ceiling, [])
    absent = None if promised else device.figures.absent.get(ceiling, f"no peak of {ceiling}")
    if reason := absent or implementation_class.unsupported(device, case) or operator.unsupported(device, case):  # type: ignore[arg-type]  # planning runs nothing
        raise UserError(f"{device.identity.name}: {reason}")
    rotated_bytes = operator.rotated_bytes(case, operator.first_scope)
    count = copies or count_rotation_copies(rotated_bytes, device.last_level_cache_bytes)
    cell, scope = implementation_class(operator, device, case, count), scope or implementation_class.scopes[0]
    constants = {name: constant[0] for name, constant in operator.constants["gpu"].items()}
    cold = copies is None or is_cold_cell(cell, scope)
    return make_entry(cell, scope, Seals(device.seal, constants), cold)


def _computes_in(operator: Operator, dtype: str) -> bool:
    """Return whether the operator is measured in a dtype: as a ceiling, where shapes are drawn, or by its settings."""
    if operator.measured_with_ceilings or dtype in operator.drawn_dtypes:
        return True
    try:
        operator.Settings.model_validate({"dtypes": [dtype]})
    except ValidationError:
        return False
    return True


def _choose(kind: str, name: str, offered: Mapping[str, Any]) -> Any:
    if name not in offered:
        raise UserError(f"{kind}: {name!r}; allowed: {', '.join(offered)}")
    return offered[name]
