"""What determines the prediction of a cell: its implementation's plan, and two seals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from roofline.core.terms import RegimeLevel, UserError
from roofline.devices.base import PlannedDevice
from roofline.operators.base import COLD_CACHE_MULTIPLE, Case, Implementation, Operator
from roofline.records.seal_records import PredictionRecord, SealedEntry, prediction_code_sha256

MOST_REREAD_SHARE = 0.05  # of the bytes of a cold step may come from inputs that do not rotate


@dataclass(frozen=True)
class Seals:
    """The seals of a device and of an operator, which hold for all predictions of a job."""

    device: PredictionRecord
    constants: Mapping[str, float]


def make_entry(cell: Implementation, scope: str | None, seals: Seals, cold: bool) -> SealedEntry:
    """Return what determines the prediction of a cell: counts, the names of its ceilings, costs and constants."""
    operator, device, case = cell.operator, cell.device, cell.case
    mix, cores, terms = operator.mix, cell.cores(scope), cell.costs(scope)
    flops, levels = operator.flops(case, scope), get_args(RegimeLevel)
    if unknown := [level for level in cell.level_bytes(scope) if level not in levels]:
        raise UserError(f"{operator.name}: level_bytes: {unknown[0]!r}; allowed: {', '.join(levels)}")
    traffic = operator.bytes(case, scope) if cold else cell.memory_bytes(scope)
    roof: dict[str, Any] = {"compute_ceiling": device.compute_ceiling_name(case.dtype, operator.unit)}
    if cold or traffic > device.last_level_cache_bytes or not operator.cached_when_warm:
        ceilings = device.memory_ceiling_names(mix, cores) if cores else device.memory_ceiling_names(mix)
        roof |= {"memory_ceilings": ceilings, "memory_level": device.memory_level}
    else:
        roof |= {"memory_ceilings": device.cache_ceilings, "memory_level": device.cache_level}
    entry = SealedEntry(
        flops=flops,
        bytes=traffic,
        costs=terms,
        constants={name: seals.constants[name] for name in sorted(terms.constant_names)},
        code_sha256=prediction_code_sha256(),
        **roof,
    )
    return SealedEntry.model_validate(entry.model_dump())  # with every field set, as in its file


def is_cold(operator: Operator, device: PlannedDevice, case: Case, copy_count: int, scope: str | None) -> bool:
    """Return whether what a step reads has left the last-level cache since it was read before.

    That is so if the inputs rotate through COLD_CACHE_MULTIPLE times its size, and at most MOST_REREAD_SHARE of the
    bytes counted do not rotate.
    """
    rotation_bytes = copy_count * operator.rotated_bytes(case, operator.first_scope)
    if rotation_bytes < COLD_CACHE_MULTIPLE * device.last_level_cache_bytes:
        return False
    counted_bytes = operator.bytes(case, scope)
    return counted_bytes - operator.rotated_bytes(case, scope) <= MOST_REREAD_SHARE * counted_bytes


def is_cold_cell(cell: Implementation, scope: str | None) -> bool:
    """Return whether a step of the cell reads cold inputs."""
    return is_cold(cell.operator, cell.device, cell.case, cell.count, scope)
