"""The page's charts as plotly reads them: traces and axes, without looks, which the page gives them.

Of a colour the page knows by name (`@ink`) it shows the one of its light or dark scheme. Every word of a record is
escaped: plotly takes text for a kind of HTML.
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


# ---------------------------------------------------------------- the roofline


def roofline_chart(roofline: Roofline, device: str) -> dict | None:
    """Every cell of a device under its ceilings."""
    one = content(roofline, device, [cell for cell in roofline.operators if cell.device == device])
    dots = [dot for dot in one.dots if dot.intensity]
    if not dots:
        return None
    intensities = [dot.intensity for dot in dots]
    ends = min(intensities + one.ridges()) / LEFT, max(intensities) * RIGHT
    symbols = symbols_of(cell.operator for cell in roofline.operators)
    best = {id(cell) for cell in chosen(roofline, device)}
    traces = [*_slopes(one, ends), *_roofs(one, ends)]
    for operator, dtype in dict.fromkeys((dot.cell.operator, dot.dtype) for dot in dots):
        group = [dot for dot in dots if (dot.cell.operator, dot.dtype) == (operator, dtype)]
        traces += [_predicted(group), _dots(group, best, symbols[operator], roofline)]
    return {"data": traces, "layout": _log_log("intensity, FLOP/byte", "attained, TFLOPS")}


def _log_log(x: str, y: str, **others) -> dict:
    axes = {"xaxis": x, "yaxis": y}
    return {key: {"title": {"text": words}, "type": "log"} for key, words in axes.items()} | others


def _dots(dots: Sequence[Dot], best: set[int], symbol: str, roofline: Roofline) -> dict:
    large = [id(dot.cell) in best for dot in dots]
    return {
        "x": [dot.intensity for dot in dots],
        "y": [_rounded(dot.tflops) for dot in dots],
        "text": [_hover(dot.cell, roofline) for dot in dots],
        "hovertemplate": "%{text}<extra></extra>",
        "mode": "markers",
        "marker": {
            "symbol": [f"{symbol}{'-open' if dot.hollow else ''}" for dot in dots],
            "color": colour(dots[0].dtype),
            "size": [11 if one else 7 for one in large],
            "opacity": [1.0 if one else 0.45 for one in large],
            "line": {"width": 1, "color": "@paper"},
        },
        "meta": {"kind": "cell"},
    }


def _predicted(dots: Sequence[Dot]) -> dict:
    known = [dot for dot in dots if dot.predicted]
    return {
        "x": [dot.intensity for dot in known],
        "y": [_rounded(dot.predicted) for dot in known],
        "hoverinfo": "skip",
        "mode": "markers",
        "marker": {"symbol": "circle-open", "color": colour(dots[0].dtype), "size": 6, "opacity": 0.8},
        "meta": {"kind": "predicted"},
    }


def _slopes(one: Content, ends: tuple[float, float]) -> Iterable[dict]:
    """Up to the highest roof."""
    highest = max((roof.value for roof in one.roofs), default=None)
    for slope in one.slopes:
        rate = slope.value / 1e3
        along = _along(ends[0], highest / rate if highest else ends[1])
        look = {"color": "@ink" if slope.main else "@muted", "width": 2.5 if slope.main else 1.2}
        meta = {"kind": "slope", "bold": slope.main}
        yield _ceiling(along, [_rounded(rate * x) for x in along], look, slope.label, meta)


def _roofs(one: Content, ends: tuple[float, float]) -> Iterable[dict]:
    """From the steepest slope on, burst and sustained."""
    fastest = max((slope.value for slope in one.slopes), default=None)
    for roof in one.roofs:
        along = _along(min(roof.value * 1e3 / fastest, ends[1] / 10) if fastest else ends[0], ends[1])
        look = {
            "color": colour(roof.dtype),
            "width": 1.2 if roof.fma else 2,
            "dash": "dashdot" if roof.fma else "solid",
        }
        yield _ceiling(along, [roof.value] * POINTS, look, roof.label, {"kind": "burst"})
        if roof.sustained:
            look |= {"dash": "dash", "width": 1.2}
            yield _ceiling(along, [roof.sustained] * POINTS, look, roof.label, {"kind": "sustained"})


def _ceiling(x: list[float], y: list[float], look: dict, label: str, meta: dict) -> dict:
    label = escape(label)
    return {
        "x": x,
        "y": y,
        "mode": "lines",
        "line": look,
        "hovertemplate": f"{label}<extra></extra>",
        "meta": meta | {"label": label},
    }


def _along(start: float, end: float) -> list[float]:
    return [_rounded(start * (end / start) ** (place / (POINTS - 1))) for place in range(POINTS)]


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
    band = {"mode": "lines", "hoverinfo": "skip", "showlegend": False, "line": {"width": 0}}
    traces: list[dict] = [
        {**band, "x": ends, "y": [end / 2 for end in ends]},
        {**band, "x": ends, "y": [end * 2 for end in ends], "fill": "tonexty", "fillcolor": "@band"},
        {**band, "x": ends, "y": ends, "line": {"width": 1.2, "color": "@muted"}},
    ]
    groups: dict[tuple[str, str], list[Cell]] = {}
    for entry in known:
        groups.setdefault((entry.device, entry.operator), []).append(entry)
    devices = list(dict.fromkeys(e.device for e in known))
    for (device, operator), mine in groups.items():
        hollow = "" if device == devices[0] else "-open"
        traces.append(
            {
                "x": [e.cpu_time_s for e in mine],
                "y": [e.sealed.cpu_time_s for e in mine],
                "text": [_hover_error(e, roofline) for e in mine],
                "hovertemplate": "%{text}<extra></extra>",
                "mode": "markers",
                "name": escape(f"{operator.replace('_', ' ')}, {device}"),
                "marker": {
                    "symbol": f"{symbols[operator]}{hollow}",
                    "color": [colour(e.dtype) for e in mine],
                    "size": 8,
                    "opacity": 0.85,
                },
            }
        )
    traces.append(
        {
            "x": [e.cpu_time_s for e in worst],
            "y": [e.sealed.cpu_time_s for e in worst],
            "text": [str(place) for place in range(1, len(worst) + 1)],
            "mode": "markers+text",
            "textposition": "top center",
            "hoverinfo": "skip",
            "showlegend": False,
            "marker": {"symbol": "circle-open", "size": 15, "color": "@accent", "line": {"width": 1.5}},
        }
    )
    return {"data": traces, "layout": _log_log("measured, seconds", "predicted, seconds", showlegend=True)}


def _hover_error(entry: Cell, roofline: Roofline) -> str:
    how = " ".join(filter(None, [entry.operator.replace("_", " "), entry.scope, entry.implementation]))
    case = " ".join(filter(None, [entry.dtype, roofline.label(entry), entry.preset, f"on {entry.device}"]))
    times = f"predicted {duration(entry.sealed.cpu_time_s)}<br>measured {duration(entry.cpu_time_s)}"
    return f"<b>{escape(how)}</b><br>{escape(case)}<br>{times}"


def _key(way: str, symbol: str) -> dict:
    """A line of the legend: its marker without a dtype's or level's colour."""
    return {
        "x": [None],
        "y": [None],
        "mode": "markers",
        "name": escape(way),
        "legendgroup": escape(way),
        "marker": {"symbol": symbol, "size": 8, "color": "@muted"},
    }


# ---------------------------------------------------------------- the instruction roofline


def instruction_chart(one: InstructionRoofline, roofline: Roofline) -> dict | None:
    """A GPU's roofs and walls, and of each kernel a dot per level that it moves transactions of."""
    peak, slopes = (
        one.warp_instructions_per_s / 1e9,
        {level: rate / 1e9 for level, rate in one.transactions_per_s.items()},
    )
    if not slopes:
        return None
    dots = [(k, level) for k in one.kernels for level in slopes if k.transactions.get(level) and k.warp_instructions]
    places = [k.warp_instructions / k.transactions[level] for k, level in dots]
    places += [1 / wall.transactions_per_request for wall in one.walls] + [peak / slope for slope in slopes.values()]
    first, last = min(places) / 2, max(places) * 4
    traces = [
        _roof([peak / max(slopes.values()), last], [peak] * 2, "@ink", f"issue, {number(peak)} G warp instructions/s")
    ]
    for level, slope in slopes.items():
        words = f"{LEVELS[level]}, {number(slope)} G transactions/s"
        traces.append(_roof([first, peak / slope], [first * slope, peak], LEVEL_COLOURS[level], words))
    if one.walls:
        traces.append(
            {
                "x": [_rounded(1 / wall.transactions_per_request) for wall in one.walls],
                "y": [_rounded(wall.requests_per_s / 1e9) for wall in one.walls],
                "text": [
                    f"{wall.pattern} {wall.of}: {number(wall.transactions_per_request)} each" for wall in one.walls
                ],
                "hovertemplate": "%{text}<extra></extra>",
                "mode": "markers",
                "name": "walls: loads by stride or conflict",
                "marker": {"symbol": "line-ns-open", "size": 10, "color": "@muted"},
            }
        )
    for way, symbol in markers_of((_way_placed(kernel) for kernel, _ in dots), SYMBOLS).items():
        mine = [(kernel, level) for kernel, level in dots if _way_placed(kernel) == way]
        traces.append(_key(way, symbol))
        traces.append(
            {
                "x": [_rounded(k.warp_instructions / k.transactions[level]) for k, level in mine],
                "y": [_rounded(k.warp_instructions_per_s / 1e9) for k, _ in mine],
                "text": [_hover_placed(k, level, roofline) for k, level in mine],
                "hovertemplate": "%{text}<extra></extra>",
                "mode": "markers",
                "legendgroup": escape(way),
                "showlegend": False,
                "marker": {
                    "symbol": symbol,
                    "color": [LEVEL_COLOURS[level] for _, level in mine],
                    "size": 8,
                },
            }
        )
    axes = "warp instructions per transaction", "G warp instructions/s"
    return {"data": traces, "layout": _log_log(*axes, showlegend=True)}


def _roof(x: list[float], y: list[float], shade: str, words: str) -> dict:
    return {
        "x": x,
        "y": y,
        "mode": "lines",
        "name": words,
        "line": {"color": shade, "width": 2},
        "hovertemplate": f"{words}<extra></extra>",
    }


def _way_placed(kernel: PlacedKernel) -> str:
    return ", ".join(filter(None, [kernel.operator.replace("_", " "), kernel.implementation]))


def _hover_placed(kernel: PlacedKernel, level: str, roofline: Roofline) -> str:
    lines = [
        f"<b>{escape(roofline.full_name(kernel))}</b>",
        f"over {LEVELS[level]}: {percent(kernel.fraction_of_level[level])}",
    ]
    lines += [f"issue: {percent(kernel.fraction_of_issue)}"]
    lines += [f"{kernel.lanes_on:.0f} of 32 lanes on"] if kernel.lanes_on is not None else []
    return "<br>".join(lines)


# ---------------------------------------------------------------- sustained load


def load_chart(roofline: Roofline) -> dict | None:
    """What sustained load leaves of each burst, over seconds."""
    loaded = [c for c in roofline.ceilings if c.kind == "compute" and c.load]
    if not loaded:
        return None
    devices = len({c.device for c in loaded}) > 1
    traces = [
        {
            "x": [_rounded(point.at_s) for point in c.load.curve],
            "y": [_rounded(100 * point.tflops / c.burst_tflops) for point in c.load.curve],
            "mode": "lines",
            "name": f"{c.device} {c.name}" if devices else c.name,
            "line": {"color": colour(c.name), "width": 1.5},
            "hovertemplate": f"{c.name}: %{{y}} % of the burst after %{{x}} s<extra></extra>",
        }
        for c in loaded
    ]
    layout = {
        "xaxis": {"title": {"text": "seconds under load"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "of the burst, %"}},
        "showlegend": True,
        "shapes": [_line(100)],
    }
    return {"data": traces, "layout": layout}


def _line(y: float) -> dict:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": "@muted", "width": 1, "dash": "dot"},
        "layer": "below",
    }


def _rounded(value: float) -> float:
    """To four digits, which is more than a screen shows."""
    return float(f"{value:.4g}")
