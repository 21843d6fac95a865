"""Which cells the picture of the roofline shows, and what is written beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from roofline.analysis.table import Operator
from roofline.core.formatting import percent, place_words
from roofline.operators.about import About
from roofline.report.cells import USERS, Infos, by_operator, series_of, share, title
from roofline.report.figure_style import SMALL_SIZE, shortened
from roofline.report.palette import dtype_colour

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


def common_axis(groups: Sequence[Sequence[Operator]], info: About | None) -> tuple[str, ...]:
    """The values of the axis in words, where every series of several cells has the same few; else none."""
    lists = {
        tuple(place_words(info.axis, cell.along(info.axis)) for cell in group) for group in groups if len(group) > 1
    }
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
    for one in sorted(series, key=lambda one: share(one.cells[-1])):
        queues.setdefault(one.cells[0].operator, []).append(one)
    for name, mine in queues.items():
        measured = [one for one in mine if one.cells[0].attained_tflops is not None]
        ends = [*chain.from_iterable(zip(reversed(measured), measured, strict=True))][: len(measured)]
        queues[name] = ends + [one for one in mine if one.cells[0].attained_tflops is None]
    return [one for turn in zip_longest(*queues.values()) for one in turn if one]


def operation_name(cell: Operator) -> str:
    return shortened(cell.name or cell.implementation or cell.operator, LONGEST_NAME, SMALL_SIZE)


def _values(cells: Sequence[Operator], info: About | None, axis_is_told: bool) -> str:
    """Each cell's share of its roof; of many the first and the last."""
    told = [_value(cell) for cell in cells]
    if len(cells) == 1:
        return told[0]
    if axis_is_told:
        return ", ".join(value.removesuffix(" %") for value in told) + " %"
    axis = info.axis
    sized = [f"{place_words(axis, cell.along(axis))}: {value}" for cell, value in zip(cells, told, strict=True)]
    if len(cells) > MOST_LISTED:
        return f"{axis.symbol} {sized[0]}\n{axis.symbol} {sized[-1]}"
    return f"{axis.symbol} {', '.join(sized)}"


def _value(cell: Operator) -> str:
    if cell.attained_tflops is None:
        return "not measured"
    return "no roof" if cell.fraction_of_roof is None else percent(cell.fraction_of_roof)
