"""The page's charts as Plotly reads them: traces and axes, without looks, which the page gives them.

A named colour (`@ink`) follows the light or dark scheme of the page. Every word of a record is escaped: Plotly takes
text for a kind of HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from roofline.core.formatting import duration, flops_rate_text, percent, regime_text
from roofline.report.palette import SYMBOLS, dtype_colour, markers_of
from roofline.report.roofline_content import Dot, RooflineContent, build_content, choose_dots
from roofline.table.rows import USERS, CellRow, Roofline

LEFT, RIGHT = 5.0, 30.0  # times beyond the cells' intensities, where the ceilings begin and end
POINTS = 30  # of a line, each with the words that are shown where it is pointed at


def colour(dtype: str) -> str:
    """Black cannot be seen on a dark page."""
    return "@ink" if dtype_colour(dtype) == "#000000" else dtype_colour(dtype)


def assign_symbols(operators: Iterable[str]) -> dict[str, str]:
    """The same on every chart: in the order of the names, the user's operations last."""
    return markers_of(sorted(set(operators), key=lambda name: (name == USERS, name)), SYMBOLS)


def _trace(x: Iterable[float], y: Iterable[float], text: str | list[str] = "", mode: str = "markers", **others) -> dict:
    """`text` is shown where the trace is pointed at; numbers have four digits, more than a screen shows."""
    shown = {"text": text, "hovertemplate": "%{text}<extra></extra>"} if text else {"hoverinfo": "skip"}
    places = {"x": [float(f"{one:.4g}") for one in x], "y": [float(f"{one:.4g}") for one in y]}
    return {**places, "mode": mode, **shown, **others}


def _log_log(traces: list[dict], x: str, y: str, **layout) -> dict:
    axes = {key: {"title": {"text": words}, "type": "log"} for key, words in (("xaxis", x), ("yaxis", y))}
    return {"data": traces, "layout": axes | layout}


# ---------------------------------------------------------------- the roofline


def build_roofline_chart(roofline: Roofline, device: str) -> dict | None:
    """Every cell of a device under its ceilings."""
    one = build_content(roofline, device, [cell for cell in roofline.operators if cell.device == device])
    dots = one.dots
    if not dots:
        return None
    intensities = [dot.intensity for dot in dots]
    ends = min(intensities + one.ridges()) / LEFT, max(intensities) * RIGHT
    symbols = assign_symbols(cell.operator for cell in roofline.operators)
    best = {id(cell) for cell in choose_dots(roofline, device)}
    traces = list(_lines(one, ends))
    for operator, dtype in dict.fromkeys((dot.cell.operator, dot.dtype) for dot in dots):
        group = [dot for dot in dots if (dot.cell.operator, dot.dtype) == (operator, dtype)]
        look = {"symbol": "circle-open", "color": colour(dtype), "size": 6, "opacity": 0.8}
        sealed = [dot for dot in group if dot.predicted]
        x, y = [dot.intensity for dot in sealed], [one.scale * dot.predicted for dot in sealed]
        traces.append(_trace(x, y, marker=look, meta={"kind": "predicted"}))
        traces.append(_dots(group, one.scale, best, symbols[operator], roofline))
    return _log_log(traces, "intensity, FLOP/byte", f"attained, {one.unit}")


def _dots(dots: Sequence[Dot], scale: float, best: set[int], symbol: str, roofline: Roofline) -> dict:
    large = [id(dot.cell) in best for dot in dots]
    look = {
        "symbol": [f"{symbol}{'-open' if dot.hollow else ''}" for dot in dots],
        "color": colour(dots[0].dtype),
        "size": [11 if one else 7 for one in large],
        "opacity": [1.0 if one else 0.45 for one in large],
        "line": {"width": 1, "color": "@paper"},
    }
    words = [hover_text(dot.cell, roofline) for dot in dots]
    x, y = [dot.intensity for dot in dots], [scale * dot.tflops for dot in dots]
    return _trace(x, y, words, marker=look, meta={"kind": "cell"})


def _lines(one: RooflineContent, ends: tuple[float, float]) -> Iterable[dict]:
    for line, kind, xs, ys in one.segments(*ends):
        dash = "dash" if kind == "sustained" else "dashdot" if line.fma else "solid"
        of = "@ink" if line.main else "@muted" if kind == "slope" else colour(line.dtype)
        width = 2.5 if line.main else 2 if kind == "burst" and dash == "solid" else 1.2
        meta = {"kind": kind, "bold": line.main, "label": escape(line.label)}
        along = np.geomspace(*xs, POINTS), one.scale * np.geomspace(*ys, POINTS)
        yield _trace(*along, meta["label"], "lines", line={"color": of, "width": width, "dash": dash}, meta=meta)


def hover_text(cell: CellRow, roofline: Roofline) -> str:
    """Cell, shape, measured, predicted, share of which roof."""
    what = cell.name or " ".join(filter(None, [roofline.title(cell.operator), cell.scope, cell.implementation]))
    case = " ".join(filter(None, [cell.dtype, roofline.label(cell), cell.preset, f"on {cell.device}"]))
    rate = f" · {flops_rate_text(cell.attained_tflops)}" if cell.attained_tflops else ""
    doubt, sealed = cell.doubt or cell.roof_doubt, cell.sealed and cell.sealed.cpu_time_s
    lines = [
        f"<b>{escape(what)}</b>",
        escape(case),
        f"measured {duration(cell.cpu_time_s)}{rate}" if cell.cpu_time_s else "",
        f"predicted {duration(sealed)}, {regime_text(cell.sealed.regime)}" if sealed else "",
        f"{percent(cell.reliable_fraction_of_roof)} of its roof" if cell.reliable_fraction_of_roof else "",
        f"do not rely on it: {doubt}" if doubt else "",
        regime_text(cell.regime) if cell.regime else "",
    ]
    return "<br>".join(filter(None, lines))


# ---------------------------------------------------------------- predicted against measured


def build_prediction_chart(roofline: Roofline, worst: Sequence[CellRow], symbols: Mapping[str, str]) -> dict | None:
    """Every cell's sealed time over its measured one, the factor of two as a band, and the worst by their number."""
    known = [e for e in roofline.measured_cells if e.cpu_time_s and e.sealed and e.sealed.cpu_time_s]
    if not known:
        return None
    times = [time for e in known for time in (e.cpu_time_s, e.sealed.cpu_time_s)]
    ends = [min(times) / 2, max(times) * 2]
    band = {"mode": "lines", "showlegend": False, "line": {"width": 0}}
    traces = [
        _trace(ends, [end / 2 for end in ends], **band),
        _trace(ends, [end * 2 for end in ends], **band, fill="tonexty", fillcolor="@band"),
        _trace(ends, ends, **band | {"line": {"width": 1.2, "color": "@muted"}}),
    ]
    devices = list(dict.fromkeys(e.device for e in known))
    for device, operator in dict.fromkeys((e.device, e.operator) for e in known):
        mine = [e for e in known if (e.device, e.operator) == (device, operator)]
        symbol = symbols[operator] + ("" if device == devices[0] else "-open")
        look = {"symbol": symbol, "color": [colour(e.dtype) for e in mine], "size": 8, "opacity": 0.85}
        name, words = escape(f"{roofline.title(operator)}, {device}"), [hover_text(e, roofline) for e in mine]
        traces.append(_trace(*_times(mine), words, name=name, marker=look))
    look = {"symbol": "circle-open", "size": 15, "color": "@accent", "line": {"width": 1.5}}
    numbers = {"text": [str(place) for place in range(1, len(worst) + 1)], "textposition": "top center"}
    traces.append(_trace(*_times(worst), mode="markers+text", showlegend=False, marker=look) | numbers)
    return _log_log(traces, "measured, seconds", "predicted, seconds", showlegend=True)


def _times(cells: Sequence[CellRow]) -> tuple[list[float], list[float]]:
    return [cell.cpu_time_s for cell in cells], [cell.sealed.cpu_time_s for cell in cells]
