"""Cells of operators, as every picture and page sorts and chooses them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import median

from roofline.operators.about import About
from roofline.table.rows import USERS, Cell

Infos = Mapping[str, About]


def height_of(cell: Cell) -> float | None:
    """In TFLOPS. What was not measured stands at its roof."""
    return cell.roof_tflops if cell.attained_tflops is None else cell.attained_tflops


def predicted(cell: Cell) -> float | None:
    """In TFLOPS, as the seal has it."""
    sealed = cell.sealed
    known = sealed and sealed.cpu_time_s and cell.flops and cell.intensity_flops_per_byte and cell.attained_tflops
    return cell.flops / sealed.cpu_time_s / 1e12 if known else None


def has_place(cell: Cell) -> bool:
    """Zero has no place on a logarithmic axis."""
    return bool(height_of(cell) and (cell.intensity_flops_per_byte or cell.no_traffic))


def chosen(cells: Sequence[Cell], infos: Infos) -> list[Cell]:
    """Those that have a dot: of each operator the first scope, in each dtype by its best implementation; of the user's
    operations all."""
    found = []
    for name, mine in by_operator(cells).items():
        scope = first_scope(mine, infos.get(name))
        for dtype in dict.fromkeys(cell.dtype for cell in mine):
            of_dtype = [cell for cell in mine if (cell.dtype, cell.scope) == (dtype, scope)]
            ways = dict.fromkeys(cell.implementation for cell in of_dtype)
            best = min(ways, key=partial(_merit, of_dtype), default=None)
            found += [cell for cell in of_dtype if name == USERS or cell.implementation == best]
    return found


def by_operator(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.operator, []).append(cell)
    return found


def first_scope(cells: Sequence[Cell], info: About | None) -> str | None:
    there = dict.fromkeys(cell.scope for cell in cells)
    return next((scope for scope in (info.scopes if info else ()) if scope in there), next(iter(there), None))


def series_of(cells: Iterable[Cell], info: About | None) -> list[list[Cell]]:
    """Cells that differ in the operator's axis alone, in its order."""
    axis, found = info and info.axis, {}
    for place, cell in enumerate(cells):
        alone = None if axis and cell.along(axis) is not None else place
        key = cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, info and info.series(cell), alone
        found.setdefault(key, []).append(cell)
    return [sorted(mine, key=lambda cell: cell.along(axis)) if len(mine) > 1 else mine for mine in found.values()]


def title(name: str, infos: Infos) -> str:
    return infos[name].title if name in infos else name.replace("_", " ")


def _merit(cells: Sequence[Cell], implementation: str | None) -> tuple[float, float]:
    """The lower the better: by the share of the roof, then by the time."""
    mine = [cell for cell in cells if cell.implementation == implementation]
    return -median(cell.share or 0.0 for cell in mine), median(cell.cpu_time_s or 0.0 for cell in mine)
