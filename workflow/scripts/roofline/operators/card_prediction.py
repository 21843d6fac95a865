"""Predictions of cells on a card that need not be there: by its datasheet and the committed constants."""

from collections.abc import Mapping
from typing import Any

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
    found = _choose("operator", operator, {offered.name: offered for offered in builtin_operators()})
    _choose("dtype", dtype, found.tolerance)
    if small := [name for name, size in shape.items() if size < 1]:
        raise UserError(f"{operator}: {small[0]} {shape[small[0]]}; allowed: whole numbers from 1")
    try:
        return plan_cell(found, implementation, Case(dict(shape), dtype), device, copies).predict(device.seal)
    except KeyError as error:
        raise UserError(f"{operator}: the shape lacks {error}") from None


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
    way = _choose("implementation", implementation, {way.name: way for way in operator.implementations_on("gpu")})
    ceiling = device.compute_ceiling_name(case.dtype, operator.unit)
    absent = None if ceiling in device.figures.peaks else device.figures.absent.get(ceiling, f"no peak of {ceiling}")
    if reason := absent or way.unsupported(device, case) or operator.unsupported(device, case):  # type: ignore[arg-type]  # planning runs nothing
        raise UserError(f"{device.identity.name}: {reason}")
    rotated_bytes = operator.rotated_bytes(case, operator.first_scope)
    count = copies or count_rotation_copies(rotated_bytes, device.last_level_cache_bytes)
    cell, scope = way(operator, device, case, count), scope or way.scopes[0]
    constants = {name: constant[0] for name, constant in operator.constants["gpu"].items()}
    cold = copies is None or is_cold_cell(cell, scope)
    return make_entry(cell, scope, Seals(device.seal, constants), cold)


def _choose(kind: str, name: str, offered: Mapping[str, Any]) -> Any:
    if name not in offered:
        raise UserError(f"{kind}: {name!r}; allowed: {', '.join(offered)}")
    return offered[name]
