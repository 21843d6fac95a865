"""Which cells the picture of the roofline shows, and what is written beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from statistics import median

from roofline.core.formatting import percent
from roofline.records.operator import OperatorInfo
from roofline.records.roofline import Operator
from roofline.report.figure_style import SMALL_SIZE, dtype_colour, shortened

Infos = Mapping[str, OperatorInfo]
USERS = "operation"  # the operator of the config's `operations`
MOST_LISTED, LONGEST_NAME = 6, 130.0  # values of an axis, one by one; points
FEW = 2  # operators, whose dots are told apart without their names


@dataclass(frozen=True)
class Series:
    """Cells that differ in the operator's axis alone, in its order, and what is written beside them."""

    cells: tuple[Operator, ...]
    text: str

    @property
    def colour(self) -> str:
        return dtype_colour(self.cells[0].dtype)


def height_of(cell: Operator) -> float | None:
    """In TFLOPS. What was not measured stands at its roof."""
    return cell.roof_tflops if cell.attained_tflops is None else cell.attained_tflops


def predicted(cell: Operator) -> float | None:
    """In TFLOPS, as the seal has it."""
    sealed = cell.predicted.sealed
    known = sealed and sealed.latency_s and cell.flops and cell.intensity_flops_per_byte and cell.attained_tflops
    return cell.flops / sealed.latency_s / 1e12 if known else None


def has_place(cell: Operator) -> bool:
    """Zero has no place on a logarithmic axis."""
    return bool(height_of(cell) and (cell.intensity_flops_per_byte or cell.no_traffic))


def chosen(cells: Sequence[Operator], infos: Infos) -> list[Operator]:
    """Those that have a dot: of each operator the first scope by the best implementation, and in a dtype that this one
    lacks by the next best; of the user's operations all."""
    found = []
    for name, mine in by_operator(cells).items():
        scope = first_scope(mine, infos.get(name))
        ranked = sorted(
            {c.implementation: 0 for c in mine if c.scope == scope}, key=lambda one: _merit(mine, one, scope)
        )
        for dtype in dict.fromkeys(cell.dtype for cell in mine):
            of_dtype = [cell for cell in mine if (cell.dtype, cell.scope) == (dtype, scope)]
            best = next((one for one in ranked if any(cell.implementation == one for cell in of_dtype)), None)
            found += [cell for cell in of_dtype if name == USERS or cell.implementation == best]
    return found


def ranges(cells: Iterable[Operator]) -> dict[tuple, tuple[Operator, Operator]]:
    """The worst and the best cell of each operator, implementation, scope and dtype."""
    found: dict[tuple, list[Operator]] = {}
    for cell in cells:
        found.setdefault((cell.operator, cell.implementation, cell.scope, cell.dtype), []).append(cell)
    return {key: (min(mine, key=_share), max(mine, key=_share)) for key, mine in found.items()}


def by_operator(cells: Iterable[Operator]) -> dict[str, list[Operator]]:
    found: dict[str, list[Operator]] = {}
    for cell in cells:
        found.setdefault(cell.operator, []).append(cell)
    return found


def first_scope(cells: Sequence[Operator], info: OperatorInfo | None) -> str | None:
    there = dict.fromkeys(cell.scope for cell in cells)
    return next((scope for scope in (info.scopes if info else ()) if scope in there), next(iter(there), None))


def series_of(cells: Iterable[Operator], info: OperatorInfo | None) -> list[list[Operator]]:
    """Cells that differ in the operator's axis alone, in its order."""
    axis, found = info and info.axis, {}
    for place, cell in enumerate(cells):
        alone = None if axis and cell.along(axis) is not None else place
        key = cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, cell.series, alone
        found.setdefault(key, []).append(cell)
    return [sorted(mine, key=lambda cell: cell.along(axis)) if len(mine) > 1 else mine for mine in found.values()]


def common_axis(groups: Sequence[Sequence[Operator]], info: OperatorInfo | None) -> tuple[str, ...]:
    """The values of the axis in words, where every series of several cells has the same few; else none."""
    lists = {tuple(info.axis.words(cell.along(info.axis)) for cell in group) for group in groups if len(group) > 1}
    return lists.pop() if len(lists) == 1 and len(min(lists)) <= MOST_LISTED else ()


def labelled(cells: Sequence[Operator], infos: Infos) -> list[Series]:
    """All cells as series."""
    found, operators = [], by_operator(cells)
    many = len(operators.keys() - {USERS}) > FEW
    for name, mine in operators.items():
        info = infos.get(name)
        groups = series_of(mine, info)
        varying = [key for key in ("series", "cache", "preset") if len({getattr(cell, key) for cell in mine}) > 1]
        axis_is_told = bool(common_axis(groups, info))
        for group in groups:
            first, words = group[0], [title(name, infos)] if many else []
            words += [first.dtype, ", ".join(str(value) for key in varying if (value := getattr(first, key)))]
            words = operation_name(first) if name == USERS else " ".join(filter(None, words))
            between = " " if len(group) == 1 else "\n"
            found.append(Series(tuple(group), f"{words}{between}{_values(group, info, axis_is_told)}"))
    return found


def most_telling(series: Sequence[Series]) -> list[Series]:
    """Operators in turn; of each first the extremes, and what was not measured last."""
    queues: dict[str, list[Series]] = {}
    for one in sorted(series, key=lambda one: _share(one.cells[-1])):
        queues.setdefault(one.cells[0].operator, []).append(one)
    for name, mine in queues.items():
        measured = [one for one in mine if one.cells[0].attained_tflops is not None]
        ends = [*chain.from_iterable(zip(reversed(measured), measured, strict=True))][: len(measured)]
        queues[name] = ends + [one for one in mine if one.cells[0].attained_tflops is None]
    return [one for turn in zip_longest(*queues.values()) for one in turn if one]


def title(name: str, infos: Infos) -> str:
    return infos[name].title if name in infos else name.replace("_", " ")


def operation_name(cell: Operator) -> str:
    return shortened(cell.name or cell.implementation or cell.operator, LONGEST_NAME, SMALL_SIZE)


def _merit(cells: Sequence[Operator], implementation: str | None, scope: str | None) -> tuple[float, float]:
    """The lower the better: by the share of the roof, then by the time."""
    mine = [cell for cell in cells if (cell.implementation, cell.scope) == (implementation, scope)]
    return -median(map(_share, mine)), median(cell.latency_s or 0.0 for cell in mine)


def _share(cell: Operator) -> float:
    return cell.fraction_of_roof or 0.0


def _values(cells: Sequence[Operator], info: OperatorInfo | None, axis_is_told: bool) -> str:
    """Each cell's share of its roof; of many the first and the last."""
    told = [_value(cell) for cell in cells]
    if len(cells) == 1:
        return told[0]
    if axis_is_told:
        return ", ".join(value.removesuffix(" %") for value in told) + " %"
    axis = info.axis
    sized = [f"{axis.words(cell.along(axis))}: {value}" for cell, value in zip(cells, told, strict=True)]
    if len(cells) > MOST_LISTED:
        return f"{axis.symbol} {sized[0]}\n{axis.symbol} {sized[-1]}"
    return f"{axis.symbol} {', '.join(sized)}"


def _value(cell: Operator) -> str:
    if cell.attained_tflops is None:
        return "not measured"
    return "no roof" if cell.fraction_of_roof is None else percent(cell.fraction_of_roof)
