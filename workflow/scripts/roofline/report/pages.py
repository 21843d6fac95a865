"""The pages of a run, each a template of the model of the report."""

from collections.abc import Callable

from roofline.core import formatting
from roofline.core.grouping import group_by
from roofline.core.terms import BYTES_AXIS_KEY
from roofline.report import counter_agreement, interpretation, predictions_page, rendering
from roofline.report.charts import assign_symbols, build_prediction_chart, build_roofline_chart
from roofline.report.markdown import MarkdownTable, drop_empty_columns
from roofline.report.report_model import MeasuredCell, OperatorView, ReportView, reliable_share
from roofline.report.what_if import build_what_if
from roofline.report.words import describe_limit
from roofline.table.rows import USERS, Roofline, count_passed

SHAPE_COLUMNS = ("cells", "limited by, as predicted", "CPU time: predicted/measured", "error", "of roof")


def build_pages(report: ReportView) -> dict[str, str]:
    """Return the content of each page, by its name in results/."""
    table = report.table
    by_error = sorted(report.predicted_cells, key=lambda cell: -abs(cell.sealed_cpu_time_error or 0))
    common = {
        "report": report,
        "paragraphs": interpretation.write_paragraphs(report),
        "verification": predictions_page.build_verification_table(by_error, table),
        "peers": rendering.render_macro("sentences.j2", "peers", table),
        "energy": rendering.render_macro("sentences.j2", "energy", table),
        "counters": rendering.render_macro("sentences.j2", "counters", counter_agreement.counter_facts(table)),
        "counted": counter_agreement.build_counter_table(table.counters, table),
        "lessons": interpretation.write_lessons(report),
        "operations": build_operation_table(report),
        "checks_passed": count_passed(table.checks),
    }
    return {
        "interpretation.md": rendering.render_text("interpretation.md.j2", **common),
        "ROOFLINE.md": rendering.render_text("ROOFLINE.md.j2", **common, shapes=_shapes(report)),
        "verification.md": rendering.render_text("verification.md.j2", **common),
        "report.html": rendering.render_html(**common, **_html_facts(report)),
    }


def _shapes(report: ReportView) -> MarkdownTable:
    operators = [operator for device in report.tabulated_devices for operator in device.operators]
    cells = [cell for operator in operators for cell in operator.fastest_cells]
    return drop_empty_columns(SHAPE_COLUMNS, predictions_page.build_shape_rows(cells, report.table), left_columns=3)


def _html_facts(report: ReportView) -> dict:
    """The facts that only report.html has."""
    symbols = assign_symbols(cell.operator for cell in report.table.operators)
    charts = {
        "roofline": build_roofline_chart(report.table, report.first_device.device),
        "predictions": build_prediction_chart(report, symbols),
    }
    return {
        "charts": {name: chart for name, chart in charts.items() if chart},
        "what_if": build_what_if(report),
        "worst_predictions": predictions_page.build_verification_table(report.worst_cells, report.table),
        "build_cell_table": build_cell_table,
        "group_heat_rows": group_heat_rows,
    }


def group_heat_rows(operator: OperatorView, table: Roofline) -> dict[str, list[tuple[str, MeasuredCell]]]:
    """Return cells with their labels, by the name of their row: along the operator's axis, or by dtype."""
    axis = operator.about.axis
    if axis is None:
        rows = group_by(operator.fastest_cells, table.label)
        return {name: [(cell.dtype, cell) for cell in cells] for name, cells in rows.items()}
    symbol = "" if axis.key == BYTES_AXIS_KEY else f"{axis.symbol} "
    rows = group_by(operator.fastest_cells, lambda cell: f"{cell.dtype} {table.series(cell)}")

    def label(cell: MeasuredCell) -> str:
        return f"{symbol}{formatting.axis_value_text(axis, cell.axis_value(axis))}"

    return {name: [(label(cell), cell) for cell in cells] for name, cells in rows.items()}


def build_cell_table(operator: OperatorView, report: ReportView) -> MarkdownTable:
    """Return every cell of an operator on a device; with its baselines the columns of SPEC B."""
    baselines = [name for name in operator.about.baselines if any(name in cell.speed_up for cell in operator.cells)]
    columns = ["implementation", "case", "time", "of roof", "GPU time", "predicted", "GB/s", "rate", "FLOP/byte"]
    columns += ["limited by", *(f"times as fast as {name}" for name in baselines)]
    rows = []
    for cell in sorted(operator.cells, key=reliable_share, reverse=True):
        speed_ups = [cell.speed_up.get(name) for name in baselines]
        ratios = [(faster.gpu_time_ratio or faster.cpu_time_ratio) if faster else None for faster in speed_ups]
        rows.append(
            [
                " ".join(filter(None, [cell.implementation, cell.scope if cell.scope != operator.scope else None])),
                " ".join([cell.dtype, report.table.label(cell)]),
                formatting.mark_doubtful(formatting.duration(cell.cpu_time_s), cell.doubt),
                _text(formatting.percent, cell.reliable_fraction_of_roof),
                _text(formatting.duration, cell.gpu_time_s),
                _text(formatting.duration, cell.sealed.cpu_time_s if cell.sealed else None),
                formatting.number(cell.attained_gb_per_s or 0.0),
                _text(formatting.flops_rate_text, cell.attained_tflops),
                _text(formatting.number, cell.intensity_flops_per_byte),
                describe_limit(cell),
                *(_text(formatting.number, ratio) for ratio in ratios),
            ]
        )
    return drop_empty_columns(columns, rows, left_columns=2)


def _text(format_figure: Callable[[float], str], figure: float | None) -> str:
    return format_figure(figure) if figure else "-"


def build_operation_table(report: ReportView) -> MarkdownTable:
    """Return the user's own operations, with the columns of SPEC C."""
    columns = ("operation", "dtype", "FLOP/byte", "attainable", "efficiency", "estimated", "roofline's time", "yours")
    rows = [
        [
            f"{cell.device}: {' '.join((cell.name or '').split())}",
            cell.dtype,
            "infinite" if cell.no_traffic else formatting.number(cell.intensity_flops_per_byte or 0),
            _text(formatting.flops_rate_text, cell.roof_tflops),
            _text(lambda share: f"{formatting.number(100 * share)} %", cell.roof_fraction_of_compute_peak),
            _text(formatting.duration, cell.estimated_time_s),
            _text(formatting.duration, cell.roofline_time_s),
            _text(formatting.duration, cell.cpu_time_s),
            _text(formatting.percent, cell.reliable_fraction_of_roof),
            cell.lower_ceiling,
        ]
        for cell in report.table.operators
        if cell.operator == USERS
    ]
    return drop_empty_columns([*columns, "of roof", "limited by"], rows, left_columns=2)
