"""The pages of a run, each a template of the model of the report."""

from collections.abc import Sequence
from typing import Any

from roofline.core.formatting import duration, flops_rate_text, regime_text
from roofline.core.grouping import group_by
from roofline.report import counter_agreement, interpretation, rendering
from roofline.report.charts import build_prediction_chart, build_roofline_chart
from roofline.report.markdown import MarkdownTable, escape_tags
from roofline.report.report_model import (
    OperatorView,
    ReportView,
    SealedCell,
    error_factor,
    reliable_share,
    select_measured,
    select_sealed,
)
from roofline.report.roofline_content import build_content
from roofline.table.rows import USERS, AskedCell, EnergyFit, Roofline, Score, count_passed


def build_pages(report: ReportView) -> dict[str, str]:
    """Return the content of each page, by its name in results/."""
    table, device = report.table, report.first_device.device
    content = build_content(table, device, [cell for cell in table.operators if cell.device == device])
    charts = {"roofline": build_roofline_chart(table, content), "predictions": build_prediction_chart(report)}
    paragraphs = interpretation.write_paragraphs(report)
    by_error = sorted(report.predicted_cells, key=error_factor, reverse=True)
    common = {
        "report": report,
        "paragraphs": paragraphs,
        "verification": build_verification_table(by_error, table),
        "drawn_verification": build_verification_table(select_sealed(select_measured(table.drawn)), table),
        "own_predictions": rendering.render_table("own_predictions", table, left_columns=6),
        "baselines": build_baselines(table.score),
        "drawn_baselines": build_baselines(table.drawn_score),
        "peers": rendering.render_macro("sentences.j2", "peers", table),
        "all_reduces": rendering.render_macro("sentences.j2", "all_reduces", table),
        "all_reduce_tables": [rendering.render_table("all_reduces", row, left_columns=1) for row in table.all_reduces],
        "energy": _write_energy(table, table.energy_fits),
        "counters": rendering.render_macro("sentences.j2", "counters", counter_agreement.counter_facts(table)),
        "counted": counter_agreement.build_counter_table(table),
        "lessons": interpretation.write_lessons(report),
        "operations": build_operation_table(report),
        "checks_passed": count_passed(table.checks),
    }
    energy = _write_energy(table, [fit for fit in table.energy_fits if fit.device == device])
    shapes = build_shape_table(report)
    return {
        "interpretation.md": escape_tags("\n\n".join(["# What this roofline says", *paragraphs, ""])),
        "ROOFLINE.md": rendering.render_text("ROOFLINE.md.j2", **common | {"energy": energy}, shapes=shapes),
        "verification.md": rendering.render_text("verification.md.j2", **common),
        "report.html": rendering.render_html(
            **common,
            charts={name: chart for name, chart in charts.items() if chart},
            what_if=build_what_if(report, content.scale),
            worst_predictions=build_verification_table(report.worst_cells, table),
            build_cell_table=build_cell_table,
        ),
    }


def _write_energy(table: Roofline, fits: Sequence[EnergyFit]) -> list[str]:
    return rendering.render_macro("sentences.j2", "energy", {"table": table, "fits": fits})


def build_baselines(score: Score | None) -> tuple[MarkdownTable, list[str]]:
    """Return the baselines of a score, a row each, and a sentence on those that come nearer than the model."""
    rows = score.baselines if score else []
    table = rendering.render_table("baselines", rows, left_columns=2)
    return table, rendering.render_macro("sentences.j2", "better_baselines", rows)


def build_verification_table(cells: Sequence[SealedCell], table: Roofline) -> MarkdownTable:
    """Return predictions next to measurements, a row for each cell."""
    return rendering.render_table("verification", {"cells": cells, "table": table}, left_columns=5)


def build_shape_table(report: ReportView) -> MarkdownTable:
    """Return the fastest cells of each operator; those of a row differ along the operator's axis alone."""
    table = report.table
    operators = [operator for device in report.tabulated_devices for operator in device.operators]
    cells = select_sealed(cell for operator in operators for cell in operator.fastest_cells)
    groups = group_by(cells, lambda cell: (cell.device, cell.operator, cell.preset, cell.dtype, table.series(cell)))
    found = [
        [cell.shown_regime or "-" for cell in row if cell.shown_regime != cell.sealed.regime] for row in groups.values()
    ]
    rows = list(zip(groups.values(), found, strict=True))
    return rendering.render_table("shapes", {"rows": rows, "table": table}, left_columns=3)


def build_cell_table(operator: OperatorView, table: Roofline) -> MarkdownTable:
    """Return every cell of an operator on a device; with its baselines the columns of SPEC B."""
    cells = sorted(operator.cells, key=reliable_share, reverse=True)
    facts = {"cells": cells, "scope": operator.scope, "baselines": operator.about.baselines, "table": table}
    return rendering.render_table("cells", facts, left_columns=2)


def build_operation_table(report: ReportView) -> MarkdownTable:
    """Return the user's own operations, with the columns of SPEC C."""
    cells = [cell for cell in report.table.operators if cell.operator == USERS]
    return rendering.render_table("operations", cells, left_columns=2)


# ---------------------------------------------------------------- what if


def build_what_if(report: ReportView, scale: float) -> dict[str, Any] | None:
    """Return, as the page's script reads it, what a reader may choose and a row for each choice; None without cells.

    `choices` has the values of each size that differs between the cells, and of the dtype, with the index of the first
    to show; a row has its choice, its place on the chart (`x`, FLOP/byte; `y`, `scale` times TFLOPS) and its prediction
    in words.
    """
    device, table = report.first_device, report.table
    cells = [cell for cell in table.what_if if cell.device == device.device]
    if not cells:
        return None
    about = table.operator_info[cells[0].operator]
    values = {key: sorted({_choice(cell)[key] for cell in cells}) for key in _choice(cells[0])}
    choices = {key: allowed for key, allowed in values.items() if len(allowed) > 1}
    symbols = {about.axis.key: about.axis.symbol} if about.axis else {}
    rows = [_asked_row(cell, list(choices), scale, device.row.memory_total_bytes) for cell in cells]

    def from_middle(row: dict[str, Any]) -> int:
        places = zip(choices.values(), row["choice"], strict=True)
        return sum(abs(allowed.index(value) - len(allowed) // 2) for allowed, value in places)

    start = min(rows, key=from_middle)["choice"]  # a cell: a CPU may lack the dtype in the middle
    return {
        "title": " of ".join(filter(None, [about.title, cells[0].preset])),
        "choices": [
            {"key": key, "label": symbols.get(key, key), "values": allowed, "start": allowed.index(value)}
            for (key, allowed), value in zip(choices.items(), start, strict=True)
        ],
        "rows": rows,
    }


def _choice(cell: AskedCell) -> dict[str, Any]:
    return {"dtype": cell.dtype, **cell.shape}


def _asked_row(cell: AskedCell, keys: list[str], scale: float, memory_bytes: int | None) -> dict[str, Any]:
    tflops = cell.flops / cell.cpu_time_s / 1e12
    words = [f"predicted {duration(cell.cpu_time_s)}", regime_text(cell.regime), flops_rate_text(tflops)]
    words.append(f"by {cell.implementation}")
    if memory_bytes and cell.bytes > memory_bytes:
        words.append("more than the memory holds")
    choice = [_choice(cell)[key] for key in keys]
    return {"choice": choice, "x": cell.flops / cell.bytes, "y": scale * tflops, "words": ", ".join(words)}
