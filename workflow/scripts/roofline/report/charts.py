"""The page's charts as Plotly reads them: traces and axes, without looks, which the page gives them.

A named colour (`@ink`) follows the light or dark scheme of the page. Every word of a record is escaped: Plotly takes
text for a kind of HTML.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from roofline.core.formatting import duration, flops_rate_text, percent, regime_text
from roofline.core.grouping import group_by
from roofline.report.palette import SYMBOLS, assign_in_turn, dtype_colour
from roofline.report.report_model import ReportView, SealedCell
from roofline.report.roofline_content import Dot, Roof, RooflineContent, Slope, choose_dots
from roofline.table.rows import USERS, CellRow, ComputeCeiling, Roofline

BELOW_INTENSITIES, ABOVE_INTENSITIES = 5.0, 30.0  # factors beyond the cells' intensities, where ceilings begin and end
POINTS_PER_LINE = 30  # each with the words that are shown where it is pointed at


def colour(dtype: str) -> str:
    """Return the colour of a dtype; black, which cannot be seen on a dark page, becomes the page's ink."""
    return "@ink" if dtype_colour(dtype) == "#000000" else dtype_colour(dtype)


def _assign_symbols(roofline: Roofline) -> dict[str, str]:
    """A symbol for each operator, by name, the same on every chart; the user's operations are last."""
    operators = {cell.operator for cell in roofline.operators}
    return assign_in_turn(sorted(operators, key=lambda name: (name == USERS, name)), SYMBOLS)


def _trace(
    x: Iterable[float], y: Iterable[float], text: str | list[str] = "", mode: str = "markers", **options: Any
) -> dict:
    """`text` is shown where the trace is pointed at; numbers have four digits, more than a screen shows."""
    hover = {"text": text, "hovertemplate": "%{text}<extra></extra>"} if text else {"hoverinfo": "skip"}
    points = {"x": [float(f"{value:.4g}") for value in x], "y": [float(f"{value:.4g}") for value in y]}
    return {**points, "mode": mode, **hover, **options}


def _log_log(traces: list[dict], x_title: str, y_title: str, **layout: Any) -> dict:
    axes = {"xaxis": {"title": {"text": x_title}, "type": "log"}, "yaxis": {"title": {"text": y_title}, "type": "log"}}
    return {"data": traces, "layout": axes | layout}


# ---------------------------------------------------------------- the roofline


def build_roofline_chart(roofline: Roofline, content: RooflineContent) -> dict | None:
    """Return the chart of every cell of a device under its ceilings, by its `content`; None if no cell has a place."""
    if not content.dots:
        return None
    intensities = [dot.intensity_flops_per_byte for dot in content.dots]
    ends = min(intensities + content.crossings()) / BELOW_INTENSITIES, max(intensities) * ABOVE_INTENSITIES
    symbols, best = _assign_symbols(roofline), {id(cell) for cell in choose_dots(roofline, content.device)}
    traces = list(_lines(content, ends))
    for (operator, _), group in group_by(content.dots, lambda dot: (dot.cell.operator, dot.cell.dtype)).items():
        traces.append(_sealed_dots(group, content.scale))
        traces.append(_dots(group, content.scale, best, symbols[operator], roofline))
    crossed = [dot for dot in content.dots if dot.cell.doubt]
    traces += [_crosses(crossed, content.scale)] if crossed else []
    return _log_log(traces, "intensity, FLOP/byte", f"attained, {content.unit}")


def _sealed_dots(dots: Sequence[Dot], scale: float) -> dict:
    look = {"symbol": "circle-open", "color": colour(dots[0].cell.dtype), "size": 6, "opacity": 0.8}
    intensities = [dot.intensity_flops_per_byte for dot in dots if dot.sealed_tflops]
    rates = [scale * dot.sealed_tflops for dot in dots if dot.sealed_tflops]
    return _trace(intensities, rates, marker=look, meta={"kind": "predicted"})


def _dots(dots: Sequence[Dot], scale: float, best: set[int], symbol: str, roofline: Roofline) -> dict:
    large = [id(dot.cell) in best for dot in dots]
    look = {
        "symbol": [f"{symbol}{'-open' if dot.hollow else ''}" for dot in dots],
        "color": colour(dots[0].cell.dtype),
        "size": [11 if is_large else 7 for is_large in large],
        "opacity": [1.0 if is_large else 0.45 for is_large in large],
        "line": {"width": 1, "color": "@paper"},
    }
    words = [hover_text(dot.cell, roofline) for dot in dots]
    intensities = [dot.intensity_flops_per_byte for dot in dots]
    return _trace(intensities, [scale * dot.tflops for dot in dots], words, marker=look, meta={"kind": "cell"})


def _crosses(dots: Sequence[Dot], scale: float) -> dict:
    """Crosses over dots that are not to be relied on, as in roofline.png."""
    look = {"symbol": "x-thin", "size": 11, "line": {"width": 1.5, "color": "@ink"}}
    intensities, rates = [dot.intensity_flops_per_byte for dot in dots], [scale * dot.tflops for dot in dots]
    return _trace(intensities, rates, marker=look, meta={"kind": "crossed"})


def _lines(content: RooflineContent, ends: tuple[float, float]) -> Iterable[dict]:
    for line, kind, x_ends, y_ends in content.segments(*ends):
        intensities = np.geomspace(*x_ends, POINTS_PER_LINE)
        heights = content.scale * np.geomspace(*y_ends, POINTS_PER_LINE)
        bold = isinstance(line, Slope) and line.emphasised
        look = {"color": "@ink" if bold else "@muted", "width": 2.5 if bold else 1.2, "dash": "solid"}
        if isinstance(line, Roof):
            look = _roof_look(line.ceiling, kind)
        label = escape(line.label)
        meta = {"kind": kind, "bold": bold, "label": label}
        yield _trace(intensities, heights, label, "lines", line=look, meta=meta)


def _roof_look(ceiling: ComputeCeiling, kind: str) -> dict:
    dash = "dashdot" if ceiling.workload == "fma" else "solid"
    if kind == "sustained":
        dash = "dash"
    return {"color": colour(ceiling.dtype), "width": 2 if dash == "solid" else 1.2, "dash": dash}


def hover_text(cell: CellRow, roofline: Roofline) -> str:
    """Return what is shown where a cell is pointed at: its name, shape, measured and predicted time, and share."""
    title = cell.name or " ".join(
        filter(None, [roofline.title(cell.operator), roofline.scope_label(cell), cell.implementation])
    )
    case = " ".join(filter(None, [cell.dtype, roofline.label(cell), cell.preset, f"on {cell.device}"]))
    rate = f" · {flops_rate_text(cell.attained_tflops)}" if cell.attained_tflops else ""
    doubt, seal = cell.doubt or cell.roof_doubt, cell.sealed
    lines = [
        f"<b>{escape(title)}</b>",
        escape(case),
        f"measured {duration(cell.cpu_time_s)}{rate}" if cell.cpu_time_s else "",
        f"predicted {duration(seal.cpu_time_s)}, {regime_text(seal.regime)}" if seal and seal.cpu_time_s else "",
        f"{percent(cell.reliable_fraction_of_roof)} of its roof" if cell.reliable_fraction_of_roof else "",
        f"do not rely on it: {doubt}" if doubt else "",
        regime_text(cell.shown_regime) if cell.shown_regime else "",
    ]
    return "<br>".join(filter(None, lines))


# ---------------------------------------------------------------- predicted against measured


def build_prediction_chart(report: ReportView) -> dict | None:
    """Return the chart of sealed over measured times, or None if there are none.

    A band shows the factor of two; the worst cells are numbered in their order.
    """
    cells, worst, roofline = report.predicted_cells, report.worst_cells, report.table
    if not cells:
        return None
    times = [time_s for cell in cells for time_s in (cell.cpu_time_s, cell.sealed_cpu_time_s)]
    ends = [min(times) / 2, max(times) * 2]
    band: dict[str, Any] = {"mode": "lines", "showlegend": False, "line": {"width": 0}}
    traces = [
        _trace(ends, [end / 2 for end in ends], **band),
        _trace(ends, [end * 2 for end in ends], **band, fill="tonexty", fillcolor="@band"),
        _trace(ends, ends, **band | {"line": {"width": 1.2, "color": "@muted"}}),
    ]
    symbols, devices = _assign_symbols(roofline), [cell.device for cell in cells]
    for (device, operator), group in group_by(cells, lambda cell: (cell.device, cell.operator)).items():
        symbol = symbols[operator] + ("" if device == devices[0] else "-open")
        look = {"symbol": symbol, "color": [colour(cell.dtype) for cell in group], "size": 8, "opacity": 0.85}
        name = escape(f"{roofline.title(operator)}, {device}")
        traces.append(_trace(*_times(group), [hover_text(cell, roofline) for cell in group], name=name, marker=look))
    look = {"symbol": "circle-open", "size": 15, "color": "@accent", "line": {"width": 1.5}}
    numbers = {"text": [str(place) for place in range(1, len(worst) + 1)], "textposition": "top center"}
    traces.append(_trace(*_times(worst), mode="markers+text", showlegend=False, marker=look) | numbers)
    return _log_log(traces, "measured, seconds", "predicted, seconds", showlegend=True)


def _times(cells: Sequence[SealedCell]) -> tuple[list[float], list[float]]:
    """Measured and sealed CPU times in seconds."""
    return [cell.cpu_time_s for cell in cells], [cell.sealed_cpu_time_s for cell in cells]
