"""Predictions next to measurements, in the words of verification.md and of the pages."""

from collections.abc import Sequence

from roofline.core.formatting import axis_value_text, duration
from roofline.core.grouping import group_by
from roofline.report.markdown import MarkdownTable
from roofline.report.rendering import render_table
from roofline.report.report_model import Cell, MeasuredCell, SealedCell, select_sealed
from roofline.report.words import CAUSES, format_error, format_percent_span
from roofline.table.rows import Roofline


def build_verification_table(cells: Sequence[SealedCell], table: Roofline) -> MarkdownTable:
    """Return the table of verification.md, a row for each cell."""
    return render_table("verification", {"cells": cells, "table": table, "causes": CAUSES}, left_columns=5)


def build_shape_rows(cells: Sequence[MeasuredCell], table: Roofline) -> list[list[str]]:
    """Return the rows of ROOFLINE.md on predictions; the cells of a row differ along the operator's axis alone."""
    return [_shape_row(series, table) for series in group_by_series(select_sealed(cells), table)]


def _shape_row(series: Sequence[SealedCell], table: Roofline) -> list[str]:
    first, axis = series[0], table.operator_info[series[0].operator].axis
    times = []
    for cell in series:
        size = f"{axis_value_text(axis, cell.axis_value(axis))}: " if axis else ""
        times.append(f"{size}{_format_both(cell.sealed_cpu_time_s, cell.cpu_time_s)}")
    errors = [cell.sealed_cpu_time_error for cell in series]
    predicted = "/".join(dict.fromkeys(cell.sealed.regime for cell in series))
    found = "/".join(dict.fromkeys(cell.shown_regime or "-" for cell in series))
    return [
        " ".join(filter(None, [first.device, table.title(first.operator), first.dtype, table.series(first)])),
        predicted if predicted == found else f"{predicted}, found {found}",
        "; ".join(times),
        " to ".join(dict.fromkeys([format_error(min(errors)), format_error(max(errors))])),
        format_percent_span(cell.reliable_fraction_of_roof for cell in series if cell.reliable_fraction_of_roof),
    ]


def _format_both(predicted_s: float, measured_s: float) -> str:
    """Return two times, 2.54/2.36 us; each with its unit where these differ."""
    predicted, measured = duration(predicted_s), duration(measured_s)
    value, _, unit = predicted.partition(" ")
    return f"{value}/{measured}" if measured.endswith(f" {unit}") else f"{predicted}/{measured}"


def group_by_series(cells: Sequence[Cell], table: Roofline) -> list[list[Cell]]:
    """Return the cells in groups that differ along the axis of their operator alone."""
    groups = group_by(cells, lambda cell: (cell.device, cell.operator, cell.preset, cell.dtype, table.series(cell)))
    return list(groups.values())
