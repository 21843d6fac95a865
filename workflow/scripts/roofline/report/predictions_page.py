"""Predictions next to measurements, in the words of verification.md and of the pages."""

from collections.abc import Sequence

from roofline.core.formatting import axis_value_text, duration, regime_key
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.report.words import CAUSES, format_error, format_percent_span
from roofline.table.rows import CellRow, Roofline

COLUMNS = ("cell", "predicted", "measured", "error", "cause")


def build_verification_table(cells: Sequence[CellRow], table: Roofline) -> MarkdownTable:
    """A line of verification.md per cell."""
    rows = []
    for cell in cells:
        predicted = f"{regime_key(cell.sealed.regime, cell.sealed.regime_level)}, {duration(cell.sealed.cpu_time_s)}"
        found = regime_key(cell.regime, cell.regime_level) if cell.regime else "no regime found"
        measured = f"{found}, {duration(cell.cpu_time_s)}"
        name = f"{cell.device} {table.full_name(cell)}"
        rows.append([name, predicted, measured, format_error(cell.sealed_cpu_time_error), _cause(cell)])
    return drop_empty_columns(COLUMNS, rows, left=len(COLUMNS))


def _cause(cell: CellRow) -> str:
    """One sentence."""
    if cell.doubt:
        return f"Not judged: {cell.doubt}."
    if cell.cause is None:
        return "As predicted." if cell.sealed_cpu_time_error is not None else "Not known."
    cause, more = CAUSES[cell.cause], "more" if cell.cause_s > 0 else "less"
    return f"{cause[0].upper()}{cause[1:]}: {duration(abs(cell.cause_s))} {more} than predicted."


def build_shape_rows(cells: Sequence[CellRow], table: Roofline) -> list[list[str]]:
    """Rows of ROOFLINE.md: the cells of a line differ along the operator's axis alone."""
    rows = []
    for alike in group_by_series([cell for cell in cells if cell.sealed and cell.sealed.cpu_time_s], table):
        first, axis = alike[0], table.operator_info[alike[0].operator].axis
        times = "; ".join(
            (f"{axis_value_text(axis, cell.axis_value(axis))}: " if axis else "")
            + f"{duration(cell.sealed.cpu_time_s)}, {duration(cell.cpu_time_s)}"
            for cell in alike
        )
        rows.append(
            [
                " ".join(filter(None, [first.device, table.title(first.operator), first.dtype, table.series(first)])),
                "/".join(dict.fromkeys(cell.sealed.regime for cell in alike)),
                "/".join(dict.fromkeys(cell.regime or "-" for cell in alike)),
                times,
                " to ".join(
                    dict.fromkeys(
                        format_error(most(cell.sealed_cpu_time_error for cell in alike)) for most in (min, max)
                    )
                ),
                format_percent_span(cell.reliable_fraction_of_roof for cell in alike if cell.reliable_fraction_of_roof),
            ]
        )
    return rows


def group_by_series(cells: Sequence[CellRow], table: Roofline) -> list[list[CellRow]]:
    """Cells that differ along the axis of their operator alone."""
    found: dict[tuple, list[CellRow]] = {}
    for cell in cells:
        axis = table.operator_info[cell.operator].axis
        own = table.series(cell) if axis else table.label(cell)
        found.setdefault((cell.device, cell.operator, cell.preset, cell.dtype, own), []).append(cell)
    return list(found.values())
