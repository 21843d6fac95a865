"""The pages of a run, each a template of the model of the report."""

from collections.abc import Sequence

from roofline.core.formatting import axis_value_text, duration, flops_rate_text, number, percent, regime_key
from roofline.core.terms import BYTES_AXIS_KEY, Axis
from roofline.report import counter_agreement, interpretation, predictions_page, rendering
from roofline.report.charts import assign_symbols, build_prediction_chart, build_roofline_chart
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.report.report_model import OperatorView, ReportView
from roofline.table.rows import CellRow, Roofline

SHAPES = ("cells", "predicted", "found", "CPU time: predicted, measured", "error", "of roof")


def build_pages(report: ReportView) -> dict[str, str]:
    """The content of each page, by its name in results/."""
    table = report.table
    verified = sorted(report.predicted, key=lambda cell: -abs(cell.sealed_cpu_time_error or 0))
    views = [one for device in report.devices for one in device.operators]
    common = {
        "report": report,
        "paragraphs": interpretation.write_paragraphs(report),
        "verified": predictions_page.build_verification_table(verified, table),
        "between": rendering.render_macro("sentences.j2", "peers", table),
        "energy": rendering.render_macro("sentences.j2", "energy", table),
        "counters": rendering.render_macro("sentences.j2", "counters", counter_agreement.counter_facts(table)),
        "counted": counter_agreement.build_counter_table(table.counters, table),
        "lessons": interpretation.write_lessons(report),
        "operations": build_operation_table(report),
    }
    fast = [cell for device in report.shown for one in device.operators for cell in one.fast]
    shapes = drop_empty_columns(SHAPES, predictions_page.build_shape_rows(fast, table), left=4)
    return {
        "interpretation.md": rendering.render_text("interpretation.md.j2", **common),
        "ROOFLINE.md": rendering.render_text("ROOFLINE.md.j2", **common, shapes=shapes),
        "verification.md": rendering.render_text("verification.md.j2", **common),
        "report.html": rendering.render_html(**common, **_of_page(report, views)),
    }


def _of_page(report: ReportView, views: Sequence[OperatorView]) -> dict:
    table = report.table
    symbols = assign_symbols(cell.operator for cell in table.operators)
    charts = {
        "roofline": build_roofline_chart(table, report.main.name),
        "predictions": build_prediction_chart(table, report.worst, symbols),
    }
    return {
        "charts": {name: one for name, one in charts.items() if one},
        "worst": predictions_page.build_verification_table(report.worst, table),
        "cells": {(one.device, one.name): build_cell_table(one, report) for one in views},
        "heat_rows": {(one.device, one.name): group_heat_rows(one, table) for one in views},
    }


def group_heat_rows(one: OperatorView, table: Roofline) -> dict[str, list[tuple[str, CellRow]]]:
    """Cells with their labels, by the name of their row: along the operator's axis, or by dtype."""
    axis = table.operator_info[one.name].axis
    if axis:
        return {
            f"{alike[0].dtype} {table.series(alike[0])}": [(_place(axis, c), c) for c in alike]
            for alike in predictions_page.group_by_series(one.fast, table)
        }
    rows: dict[str, list[tuple[str, CellRow]]] = {}
    for cell in one.fast:
        rows.setdefault(table.label(cell), []).append((cell.dtype, cell))
    return rows


def _place(axis: Axis, cell: CellRow) -> str:
    place = axis_value_text(axis, cell.axis_value(axis))
    return place if axis.key == BYTES_AXIS_KEY else f"{axis.symbol} {place}"


def build_cell_table(one: OperatorView, report: ReportView) -> MarkdownTable:
    """Every cell of an operator on a device; with its baselines the columns of SPEC B."""
    about = report.table.operator_info[one.name]
    named = [name for name in about.baselines if any(name in cell.speed_up for cell in one.cells)]
    columns = ["implementation", "case", "time", "of roof", "GPU time", "predicted", "GB/s", "rate", "FLOP/byte"]
    columns += ["limited by", *(f"times as fast as {name}" for name in named)]
    rows = []
    for cell in sorted(one.cells, key=lambda cell: -(cell.reliable_fraction_of_roof or 0)):
        faster = [cell.speed_up.get(name) for name in named]
        rows.append(
            [
                " ".join(filter(None, [cell.implementation, cell.scope if cell.scope != one.scope else None])),
                " ".join([cell.dtype, report.table.label(cell)]),
                f"{duration(cell.cpu_time_s)}{'*' if cell.doubt else ''}",
                percent(cell.reliable_fraction_of_roof) if cell.reliable_fraction_of_roof else "-",
                duration(cell.gpu_time_s) if cell.gpu_time_s else "-",
                duration(cell.sealed.cpu_time_s) if cell.sealed and cell.sealed.cpu_time_s else "-",
                number(cell.bytes / cell.cpu_time_s / 1e9),
                flops_rate_text(cell.attained_tflops) if cell.attained_tflops else "-",
                number(cell.intensity_flops_per_byte) if cell.intensity_flops_per_byte else "-",
                regime_key(cell.regime, cell.regime_level) if cell.regime else "-",
                *(number(times.gpu_time_ratio or times.cpu_time_ratio) if times else "-" for times in faster),
            ]
        )
    return drop_empty_columns(columns, rows, left=2)


def build_operation_table(report: ReportView) -> MarkdownTable:
    """The user's own, with the columns of SPEC C."""
    columns = ("operation", "dtype", "FLOP/byte", "attainable", "efficiency", "estimated", "roofline's time", "yours")
    rows = [
        [
            f"{one.device}: {' '.join(one.name.split())}",
            one.dtype,
            "infinite" if one.no_traffic else number(one.intensity_flops_per_byte or 0),
            flops_rate_text(one.roof_tflops) if one.roof_tflops else "-",
            f"{number(one.roof_fraction_of_compute_peak)} %" if one.roof_fraction_of_compute_peak else "-",
            duration(one.estimated_time_s) if one.estimated_time_s else "-",
            duration(one.roofline_time_s) if one.roofline_time_s else "-",
            duration(one.cpu_time_s) if one.cpu_time_s else "-",
            percent(one.reliable_fraction_of_roof) if one.reliable_fraction_of_roof else "-",
            one.lower_ceiling,
        ]
        for one in report.users
    ]
    return drop_empty_columns([*columns, "of roof", "limited by"], rows, left=2)
