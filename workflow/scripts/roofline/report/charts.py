"""The page's charts as Plotly reads them: traces and axes, without looks, which the page gives them.

Of a colour the page knows by name (`@ink`) it shows the one of its light or dark scheme. Every word of a record is
escaped: Plotly takes text for a kind of HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from roofline.core.formatting import duration, flops_rate, number, percent, regime_words
from roofline.report.palette import LEVEL_COLOURS, SYMBOLS, dtype_colour, markers_of
from roofline.report.roofline_content import Content, Dot, chosen, content
from roofline.report.words import LEVELS
from roofline.table.rows import USERS, Cell, InstructionRoofline, PlacedKernel, Roofline

LEFT, RIGHT = 5.0, 30.0  # times beyond the cells' intensities, where the ceilings begin and end
POINTS = 30  # of a line, each with the words that are shown where it is pointed at


def colour(dtype: str) -> str:
    """Black is no colour on a dark page."""
    return "@ink" if dtype_colour(dtype) == "#000000" else dtype_colour(dtype)


def symbols_of(operators: Iterable[str]) -> dict[str, str]:
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


def roofline_chart(roofline: Roofline, device: str) -> dict | None:
    """Every cell of a device under its ceilings."""
    one = content(roofline, device, [cell for cell in roofline.operators if cell.device == device])
    dots = one.dots
    if not dots:
        return None
    intensities = [dot.intensity for dot in dots]
    ends = min(intensities + one.ridges()) / LEFT, max(intensities) * RIGHT
    symbols = symbols_of(cell.operator for cell in roofline.operators)
    best = {id(cell) for cell in chosen(roofline, device)}
    traces = [*_slopes(one, ends), *_roofs(one, ends)]
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
    words = [_hover(dot.cell, roofline) for dot in dots]
    x, y = [dot.intensity for dot in dots], [scale * dot.tflops for dot in dots]
    return _trace(x, y, words, marker=look, meta={"kind": "cell"})


def _slopes(one: Content, ends: tuple[float, float]) -> Iterable[dict]:
    """Up to the highest roof."""
    highest = max((roof.value for roof in one.roofs), default=None)
    for slope in one.slopes:
        rate, label = slope.value / 1e3, escape(slope.label)
        along = _along(ends[0], highest / rate if highest else ends[1])
        look = {"color": "@ink" if slope.main else "@muted", "width": 2.5 if slope.main else 1.2}
        meta = {"kind": "slope", "bold": slope.main, "label": label}
        yield _trace(along, [one.scale * rate * x for x in along], label, "lines", line=look, meta=meta)


def _roofs(one: Content, ends: tuple[float, float]) -> Iterable[dict]:
    """From the steepest slope on, burst and sustained."""
    fastest = max((slope.value for slope in one.slopes), default=None)
    for roof in one.roofs:
        along = _along(min(roof.value * 1e3 / fastest, ends[1] / 10) if fastest else ends[0], ends[1])
        kinds = {"burst": (roof.value, "dashdot" if roof.fma else "solid"), "sustained": (roof.sustained, "dash")}
        for kind, (rate, dash) in kinds.items():
            if rate:
                look = {"color": colour(roof.dtype), "width": 2 if dash == "solid" else 1.2, "dash": dash}
                meta = {"kind": kind, "label": (label := escape(roof.label))}
                yield _trace(along, [one.scale * rate] * POINTS, label, "lines", line=look, meta=meta)


def _along(start: float, end: float) -> list[float]:
    return [start * (end / start) ** (place / (POINTS - 1)) for place in range(POINTS)]


def _hover(cell: Cell, roofline: Roofline) -> str:
    """Cell, shape, measured, predicted, share of which roof."""
    what = cell.name or " ".join(filter(None, [roofline.title(cell.operator), cell.scope, cell.implementation]))
    lines = [f"<b>{escape(what)}</b>"]
    lines.append(escape(" ".join(filter(None, [cell.dtype, roofline.label(cell), cell.preset, f"on {cell.device}"]))))
    if cell.cpu_time_s:
        rate = f" · {flops_rate(cell.attained_tflops)}" if cell.attained_tflops else ""
        lines.append(f"measured {duration(cell.cpu_time_s)}{rate}")
    if cell.sealed and cell.sealed.cpu_time_s:
        lines.append(f"predicted {duration(cell.sealed.cpu_time_s)}, {regime_words(cell.sealed.regime)}")
    if cell.share:
        lines.append(f"{percent(cell.share)} of its roof")
    if cell.doubt or cell.roof_doubt:
        lines.append(f"do not rely on it: {cell.doubt or cell.roof_doubt}")
    if cell.regime:
        lines.append(regime_words(cell.regime))
    return "<br>".join(lines)


# ---------------------------------------------------------------- predicted against measured


def prediction_chart(roofline: Roofline, worst: Sequence[Cell], symbols: Mapping[str, str]) -> dict | None:
    """Every cell's sealed time over its measured one, the factor of two as a band, and the worst by their number."""
    known = [e for e in roofline.entries if e.cpu_time_s and e.sealed and e.sealed.cpu_time_s]
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
        name, words = escape(f"{roofline.title(operator)}, {device}"), [_hover(e, roofline) for e in mine]
        traces.append(_trace(*_times(mine), words, name=name, marker=look))
    look = {"symbol": "circle-open", "size": 15, "color": "@accent", "line": {"width": 1.5}}
    numbers = {"text": [str(place) for place in range(1, len(worst) + 1)], "textposition": "top center"}
    traces.append(_trace(*_times(worst), mode="markers+text", showlegend=False, marker=look) | numbers)
    return _log_log(traces, "measured, seconds", "predicted, seconds", showlegend=True)


def _times(cells: Sequence[Cell]) -> tuple[list[float], list[float]]:
    return [cell.cpu_time_s for cell in cells], [cell.sealed.cpu_time_s for cell in cells]


# ---------------------------------------------------------------- the instruction roofline


def instruction_chart(one: InstructionRoofline, roofline: Roofline) -> dict | None:
    """A GPU's roofs and walls, and of each kernel a dot per level that it moves transactions of."""
    peak, slopes = one.warp_instructions_per_s / 1e9, {key: rate / 1e9 for key, rate in one.transactions_per_s.items()}
    if not slopes:
        return None
    dots = [(k, level, k.warp_instructions / k.transactions[level]) for k, level in one.placed() if level in slopes]
    walls = [1 / wall.transactions_per_request for wall in one.walls]
    places = [*walls, *(x for *_, x in dots), *(peak / slope for slope in slopes.values())]
    first, last = min(places) / 2, max(places) * 4
    lines = [("@ink", [peak / max(slopes.values()), last], [peak] * 2, f"issue, {number(peak)} G warp instructions/s")]
    for level, slope in slopes.items():
        words = f"{LEVELS[level]}, {number(slope)} G transactions/s"
        lines.append((LEVEL_COLOURS[level], [first, peak / slope], [first * slope, peak], words))
    traces = [_trace(x, y, words, "lines", name=words, line={"color": of, "width": 2}) for of, x, y, words in lines]
    words = [f"{wall.pattern} {wall.of}: {number(wall.transactions_per_request)} each" for wall in one.walls]
    look = {"symbol": "line-ns-open", "size": 10, "color": "@muted"}
    paces = [wall.requests_per_s / 1e9 for wall in one.walls]
    traces.append(_trace(walls, paces, words, name="loads by stride or conflict", marker=look))
    for way, symbol in markers_of((_way(kernel, roofline) for kernel, *_ in dots), SYMBOLS).items():
        mine = [dot for dot in dots if _way(dot[0], roofline) == way]
        look = {"symbol": symbol, "color": [LEVEL_COLOURS[level] for _, level, _ in mine], "size": 8}
        words = [_hover_placed(kernel, level, roofline) for kernel, level, _ in mine]
        y = [kernel.warp_instructions_per_s / 1e9 for kernel, *_ in mine]
        traces.append(_trace([x for *_, x in mine], y, words, name=escape(way), marker=look))
    return _log_log(traces, "warp instructions per transaction", "G warp instructions/s", showlegend=True)


def _way(kernel: PlacedKernel, roofline: Roofline) -> str:
    return f"{roofline.title(kernel.operator)}, {kernel.implementation}"


def _hover_placed(kernel: PlacedKernel, level: str, roofline: Roofline) -> str:
    lines = [f"<b>{escape(roofline.full_name(kernel))}</b>"]
    lines.append(f"over {LEVELS[level]}: {percent(kernel.fraction_of_level[level])}")
    lines.append(f"issue: {percent(kernel.fraction_of_issue)}")
    lines += [f"{kernel.lanes_on:.0f} of 32 lanes on"] if kernel.lanes_on is not None else []
    return "<br>".join(lines)


# ---------------------------------------------------------------- sustained load


def load_chart(roofline: Roofline) -> dict | None:
    """What sustained load leaves of each burst, over seconds."""
    loaded = [c for c in roofline.ceilings if c.kind == "compute" and c.load]
    if not loaded:
        return None
    several = len({c.device for c in loaded}) > 1
    traces = []
    for c in loaded:
        x, y = [at.at_s for at in c.load.curve], [100 * at.tflops / c.burst_tflops for at in c.load.curve]
        name = f"{c.device} {c.name}" if several else c.name
        traces.append(_trace(x, y, name, "lines", name=name, line={"color": colour(c.name), "width": 1.5}))
        traces[-1]["hovertemplate"] = "%{text}: %{y} % of the burst after %{x} s<extra></extra>"
    layout = {
        "xaxis": {"title": {"text": "seconds under load"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "of the burst, %"}, "rangemode": "tozero"},
        "showlegend": True,
    }
    return {"data": traces, "layout": layout}
