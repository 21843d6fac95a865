"""The pages of a run, each a template of the model of the report."""

from collections.abc import Sequence

from roofline.core.formatting import duration, flops_rate, number, percent, place_words, regime_name
from roofline.core.terms import BYTES, Axis
from roofline.report import counter_agreement, interpretation, predictions_page, rendering
from roofline.report.charts import prediction_chart, roofline_chart, symbols_of
from roofline.report.markdown import Table, filled
from roofline.report.report_model import OperatorView, Report
from roofline.table.rows import Cell, Roofline

SHAPES = ("cells", "predicted", "found", "CPU time: predicted, measured", "error", "of roof")


def pages(report: Report) -> dict[str, str]:
    """The content of each page, by its name in results/."""
    table = report.table
    verified = sorted(report.predicted, key=lambda cell: -abs(cell.sealed_error or 0))
    views = [one for device in report.devices for one in device.operators]
    common = {
        "report": report,
        "paragraphs": interpretation.paragraphs(report),
        "verified": predictions_page.verified(verified, table),
        "between": rendering.macro("sentences.j2", "peers", table),
        "energy": rendering.macro("sentences.j2", "energy", table),
        "counters": rendering.macro("sentences.j2", "counters", counter_agreement.facts(table)),
        "counted": counter_agreement.table_of(table.counted, table),
        "lessons": interpretation.lessons(report),
        "operations": operations(report),
    }
    fast = [cell for device in report.shown for one in device.operators for cell in one.fast]
    shapes = filled(SHAPES, predictions_page.of_shapes(fast, table), left=4)
    return {
        "interpretation.md": rendering.text_page("interpretation.md.j2", **common),
        "ROOFLINE.md": rendering.text_page("ROOFLINE.md.j2", **common, shapes=shapes),
        "verification.md": rendering.text_page("verification.md.j2", **common),
        "report.html": rendering.html_page(**common, **_of_page(report, views)),
    }


def _of_page(report: Report, views: Sequence[OperatorView]) -> dict:
    table = report.table
    symbols = symbols_of(cell.operator for cell in table.operators)
    charts = {
        "roofline": roofline_chart(table, report.main.name),
        "predictions": prediction_chart(table, report.worst, symbols),
    }
    return {
        "charts": {name: one for name, one in charts.items() if one},
        "worst": predictions_page.verified(report.worst, table),
        "cells": {(one.device, one.name): cells_of(one, report) for one in views},
        "heat_rows": {(one.device, one.name): heat_rows(one, table) for one in views},
    }


def heat_rows(one: OperatorView, table: Roofline) -> dict[str, list[tuple[str, Cell]]]:
    """Cells with their labels, by the name of their row: along the operator's axis, or by dtype."""
    axis = table.operator_info[one.name].axis
    if axis:
        return {
            f"{alike[0].dtype} {table.series(alike[0])}": [(_place(axis, c), c) for c in alike]
            for alike in predictions_page.by_series(one.fast, table)
        }
    rows: dict[str, list[tuple[str, Cell]]] = {}
    for cell in one.fast:
        rows.setdefault(table.label(cell), []).append((cell.dtype, cell))
    return rows


def _place(axis: Axis, cell: Cell) -> str:
    place = place_words(axis, cell.along(axis))
    return place if axis.key == BYTES else f"{axis.symbol} {place}"


def cells_of(one: OperatorView, report: Report) -> Table:
    """Every cell of an operator on a device; with its baselines the columns of SPEC B."""
    about = report.table.operator_info[one.name]
    named = [name for name in about.baselines if any(name in cell.speed_up for cell in one.cells)]
    columns = ["implementation", "case", "time", "of roof", "GPU time", "predicted", "GB/s", "rate", "FLOP/byte"]
    columns += ["limited by", *(f"times as fast as {name}" for name in named)]
    rows = []
    for cell in sorted(one.cells, key=lambda cell: -(cell.share or 0)):
        faster = [cell.speed_up.get(name) for name in named]
        rows.append(
            [
                " ".join(filter(None, [cell.implementation, cell.scope if cell.scope != one.scope else None])),
                " ".join([cell.dtype, report.table.label(cell)]),
                f"{duration(cell.cpu_time_s)}{'*' if cell.doubt else ''}",
                percent(cell.share) if cell.share else "-",
                duration(cell.gpu_time_s) if cell.gpu_time_s else "-",
                duration(cell.sealed.cpu_time_s) if cell.sealed and cell.sealed.cpu_time_s else "-",
                number(cell.bytes / cell.cpu_time_s / 1e9),
                flops_rate(cell.attained_tflops) if cell.attained_tflops else "-",
                number(cell.intensity_flops_per_byte) if cell.intensity_flops_per_byte else "-",
                regime_name(cell.regime, cell.regime_level) if cell.regime else "-",
                *(number(times.device_latency or times.latency) if times else "-" for times in faster),
            ]
        )
    return filled(columns, rows, left=2)


def operations(report: Report) -> Table:
    """The user's own, with the columns of SPEC C."""
    columns = ("operation", "dtype", "FLOP/byte", "attainable", "efficiency", "estimated", "roofline's time", "yours")
    rows = [
        [
            f"{one.device}: {' '.join(one.name.split())}",
            one.dtype,
            "infinite" if one.no_traffic else number(one.intensity_flops_per_byte or 0),
            flops_rate(one.roof_tflops) if one.roof_tflops else "-",
            f"{number(one.efficiency_percent)} %" if one.efficiency_percent else "-",
            duration(one.estimated_time_s) if one.estimated_time_s else "-",
            duration(one.roofline_time_s) if one.roofline_time_s else "-",
            duration(one.cpu_time_s) if one.cpu_time_s else "-",
            percent(one.share) if one.share else "-",
            one.lower_ceiling,
        ]
        for one in report.users
    ]
    return filled([*columns, "of roof", "limited by"], rows, left=2)
