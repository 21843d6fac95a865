"""The page's charts as plotly reads them: traces and axes, without looks, which the page gives them.

Of a colour the page knows by name (`@ink`) it shows the one of its light or dark scheme. Every word of a record is
escaped: plotly takes text for a kind of HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import cycle

from roofline.core.formatting import duration, flops_rate, flops_unit, number, percent, regime_words
from roofline.devices.levels import SWEPT_CACHES
from roofline.report.cells import USERS, chosen, has_place, height_of, predicted
from roofline.report.palette import LEVEL_COLOURS, LEVEL_NAMES, dtype_colour
from roofline.report.roofline_ceilings import compute_levels, drawn, memory_levels
from roofline.table.rows import (
    Cell,
    InstructionRoofline,
    PlacedKernel,
    Roofline,
)

SYMBOLS = (
    "circle",
    "diamond",
    "square",
    "triangle-up",
    "triangle-down",
    "star",
    "cross",
    "x",
    "pentagon",
    "hexagon",
)
LEFT, RIGHT = 5.0, 30.0  # times beyond the cells' intensities, where the ceilings begin and end
POINTS = 30  # of a line, each with the words that are shown where it is pointed at


def colour(dtype: str) -> str:
    """Black is no colour on a dark page."""
    return "@ink" if dtype_colour(dtype) == "#000000" else dtype_colour(dtype)


def symbols_of(operators: Iterable[str]) -> dict[str, str]:
    """The same on every chart: in the order of the names, the user's operations last."""
    names = sorted(set(operators), key=lambda name: (name == USERS, name))
    return dict(zip(names, cycle(SYMBOLS), strict=False))


# ---------------------------------------------------------------- the roofline


def roofline_chart(roofline: Roofline, device: str) -> dict | None:
    """Every cell of a device under its ceilings."""
    cells = [c for c in roofline.operators if c.device == device and has_place(c) and c.intensity_flops_per_byte]
    if not cells:
        return None
    intensities = [cell.intensity_flops_per_byte for cell in cells]
    ends = min([*intensities, *_ridges(roofline, device)]) / LEFT, max(intensities) * RIGHT
    symbols = symbols_of(cell.operator for cell in roofline.operators)
    traces = []
    traces += _ceilings(roofline, device, ends)
    best = {id(cell) for cell in chosen(cells, roofline.operator_info)}
    for operator, dtype in dict.fromkeys((cell.operator, cell.dtype) for cell in cells):
        of = {"device": device, "operator": operator, "dtype": dtype}
        group = [cell for cell in cells if (cell.operator, cell.dtype) == (operator, dtype)]
        traces.append(_predicted(group, of))
        traces.append(_dots(group, best, symbols[operator], of, roofline))
    layout = {
        "xaxis": {"title": {"text": "intensity, FLOP/byte"}, "type": "log"},
        "yaxis": {"title": {"text": "attained, TFLOPS"}, "type": "log"},
    }
    return {"data": traces, "layout": layout}


def _ridges(roofline: Roofline, device: str) -> Iterable[float]:
    """The leftmost ridge point: where the steepest slope meets the lowest compute ceiling."""
    mine = [c for c in roofline.ceilings if c.device == device]
    shown = drawn(mine, [o for o in roofline.operators if o.device == device])
    rates = [c.tflops for c in shown if c.kind == "compute"]
    slopes = [c.gb_per_s / 1e3 for c in shown if c.kind == "memory"]
    slopes += [one.gb_per_s / 1e3 for one in roofline.levels if one.device == device and one.name in SWEPT_CACHES]
    if rates and slopes:
        yield min(rates) / max(slopes)


def _dots(cells: Sequence[Cell], best: set[int], symbol: str, of: dict, roofline: Roofline) -> dict:
    return {
        "x": [cell.intensity_flops_per_byte for cell in cells],
        "y": [_rounded(height_of(cell)) for cell in cells],
        "text": [_hover(cell, roofline) for cell in cells],
        "hovertemplate": "%{text}<extra></extra>",
        "mode": "markers",
        "marker": {
            "symbol": [f"{symbol}{'' if cell.cpu_time_s else '-open'}" for cell in cells],
            "color": colour(of["dtype"]),
            "size": [11 if id(cell) in best else 7 for cell in cells],
            "opacity": [1.0 if id(cell) in best else 0.45 for cell in cells],
            "line": {"width": 1, "color": "@paper"},
        },
        "meta": {**of, "kind": "cell"},
    }


def _predicted(cells: Sequence[Cell], of: dict) -> dict:
    known = [(cell, at) for cell in cells if (at := predicted(cell))]
    return {
        "x": [cell.intensity_flops_per_byte for cell, _ in known],
        "y": [_rounded(at) for _, at in known],
        "hoverinfo": "skip",
        "mode": "markers",
        "marker": {"symbol": "circle-open", "color": colour(of["dtype"]), "size": 6, "opacity": 0.8},
        "meta": {**of, "kind": "predicted"},
    }


def _ceilings(roofline: Roofline, device: str, ends: tuple[float, float]) -> Iterable[dict]:
    """Compute ceilings from the steepest slope on, burst and sustained; slopes up to the highest of them."""
    operators, ceilings, levels = (
        [item for item in items if item.device == device]
        for items in (roofline.operators, roofline.ceilings, roofline.levels)
    )
    shown = drawn(ceilings, operators)
    compute, memory = compute_levels(shown, operators), memory_levels(shown, operators, levels)
    slopes = [level.value / 1e3 for level in memory]
    highest = max((level.value for level in compute), default=None)
    for level, slope in zip(memory, slopes, strict=True):
        end = highest / slope if highest else ends[1]
        look = {"bold": ("@ink", 2.5), "normal": ("@muted", 1.2)}.get(level.look, ("@muted", 1.0))
        yield {
            "x": (along := _along(ends[0], end)),
            "y": [_rounded(slope * x) for x in along],
            "mode": "lines",
            "line": {"color": look[0], "width": look[1], "dash": "dot" if level.look == "faint" else "solid"},
            "hovertemplate": f"{escape(level.text)}<extra></extra>",
            "meta": {
                "device": device,
                "kind": "slope",
                "label": escape(level.text),
                "gb_per_s": level.value,
                "bold": level.look == "bold",
            },
        }
    found = zip((c for c in shown if c.kind == "compute"), compute, strict=True)
    for ceiling, level in sorted(found, key=lambda pair: -pair[1].value):
        start = min(level.value / max(slopes), ends[1] / 10) if slopes else ends[0]
        of = {"device": device, "dtype": level.dtype}
        look = {"color": colour(level.dtype), "width": 2 if ceiling.method == "gemm" else 1.2}
        yield {
            "x": _along(start, ends[1]),
            "y": [level.value] * POINTS,
            "mode": "lines",
            "line": look | {"dash": "solid" if ceiling.method == "gemm" else "dashdot"},
            "hovertemplate": f"{escape(level.text)}<extra></extra>",
            "meta": {**of, "kind": "burst", "label": f"{ceiling.name} {number(level.value)}"},
        }
        if level.sustained:
            yield {
                "x": _along(start, ends[1]),
                "y": [level.sustained] * POINTS,
                "mode": "lines",
                "line": look | {"dash": "dash", "width": 1.2},
                "hovertemplate": f"{ceiling.name} sustained: {number(level.sustained)} {flops_unit(ceiling.name)}"
                "<extra></extra>",
                "meta": {**of, "kind": "sustained"},
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
    layout = {
        "xaxis": {"title": {"text": "measured, seconds"}, "type": "log"},
        "yaxis": {"title": {"text": "predicted, seconds"}, "type": "log"},
        "showlegend": True,
    }
    return {"data": traces, "layout": layout}


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
        words = f"{LEVEL_NAMES[level]}, {number(slope)} G transactions/s"
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
    ways = list(dict.fromkeys(_way_placed(kernel) for kernel, _ in dots))
    for way, symbol in zip(ways, cycle(SYMBOLS), strict=False):
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
    layout = {
        "xaxis": {"title": {"text": "warp instructions per transaction"}, "type": "log"},
        "yaxis": {"title": {"text": "G warp instructions/s"}, "type": "log"},
        "showlegend": True,
    }
    return {"data": traces, "layout": layout}


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
        f"over {LEVEL_NAMES[level]}: {percent(kernel.fraction_of_level[level])}",
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
