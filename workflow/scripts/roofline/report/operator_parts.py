"""Each operator's part of the report: what limits it on each device, and every cell."""

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.core.formatting import (
    counted,
    duration,
    flops_rate,
    listed,
    number,
    percent,
    regime_name,
    regime_words,
    starred,
)
from roofline.operators.about import About
from roofline.report.charts import operator_chart
from roofline.report.markdown import Table, filled
from roofline.report.predictions import advice, cell_name, signed, why, worst
from roofline.report.tables import spans_percent
from roofline.table.rows import Cell, Roofline, SpeedUp


@dataclass(frozen=True)
class OperatorPart:
    """One operator."""

    title: str
    anchor: str
    picture: str | None
    words: list[str]  # on each device what limits it
    missed: list[str]  # and the worst prediction, where one was missed
    cells: Table
    overview: Table
    chart: dict | None
    dtypes: list[str]


def operator_part(info: About, roofline: Roofline, duplicates: Sequence[str] = ()) -> OperatorPart | None:
    cells = [cell for cell in roofline.operators if cell.operator == info.name and cell.cpu_time_s]
    if not cells:
        return None
    by_device = [[cell for cell in cells if cell.device == device] for device in dict.fromkeys(c.device for c in cells)]
    entries = [entry for entry in roofline.entries if entry.operator == info.name]
    return OperatorPart(
        title=info.title,
        anchor=f"operator-{info.name}".replace("_", "-"),
        picture=f"{info.picture}.png",
        words=[_limits(mine, [e for e in entries if e.device == mine[0].device], roofline) for mine in by_device],
        missed=[_missed([e for e in entries if e.device == mine[0].device], roofline) for mine in by_device],
        cells=_cells(info, cells),
        overview=_overview([cell for cell in cells if cell.device not in duplicates]),
        chart=operator_chart(cells, info, roofline),
        dtypes=list(dict.fromkeys(cell.dtype for cell in cells)),
    )


def _limits(cells: Sequence[Cell], entries: Sequence[Cell], roofline: Roofline) -> str:
    """What limits an operator on a device, and what helps."""
    regimes = [cell.regime for cell in cells if cell.regime]
    counts = [f"{regimes.count(one)} {regime_words(one)}" for one in dict.fromkeys(regimes)]
    told = [f"On {cells[0].device}, of {counted(len(cells), 'cell')}: {listed(counts)}."] if counts else []
    ranked = sorted((c for c in cells if c.share), key=lambda c: c.share)
    if len(ranked) > 1:
        told.append(
            f"Closest to its roof is {_name(ranked[-1], cells, roofline)} at {percent(ranked[-1].share)}, furthest "
            f"{_name(ranked[0], cells, roofline)} at {percent(ranked[0].share)}."
        )
    return " ".join([*told, *advice(entries, roofline)])


def _missed(entries: Sequence[Cell], roofline: Roofline) -> str:
    one = next(iter(worst(entries)), None)
    if one is None or one.cause is None:
        return ""
    name = " ".join(filter(None, [one.implementation, cell_name(one, roofline)]))
    return f"The seal missed most in {name} ({signed(one.sealed_error)}): {why(one)}."


def _name(cell: Cell, cells: Sequence[Cell], roofline: Roofline) -> str:
    names = [cell.implementation, cell.scope, cell.dtype, roofline.label(cell), _preset(cell, cells)]
    return " ".join(filter(None, names))


def _preset(cell: Cell, cells: Sequence[Cell]) -> str | None:
    """Where there are several."""
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _cells(info: About, cells: Sequence[Cell]) -> Table:
    """Every cell; rates by the caller's time."""
    columns = ["device", "implementation", "dtype", "case", "measured", "n", "GPU time", "predicted", "error"]
    columns += ["GB/s", "attained", "of roof", "FLOP/byte", "limited by"]
    named = [name for name in info.baselines if any(name in cell.speed_up for cell in cells)]
    columns += [f"times as fast as {name}" + (" (GPU time)" if _on_gpu(cells, name) else "") for name in named]
    rows = [
        [
            cell.device,
            " ".join(filter(None, [cell.implementation, cell.scope])),
            cell.dtype,
            " ".join(filter(None, [info.label(cell), _preset(cell, cells)])),
            starred(duration(cell.cpu_time_s), cell.doubt),
            str(cell.samples or "-"),
            duration(cell.gpu_time_s) if cell.gpu_time_s else "-",
            duration(cell.sealed.cpu_time_s) if cell.sealed and cell.sealed.cpu_time_s else "-",
            signed(cell.sealed_error),
            number(cell.bytes / cell.cpu_time_s / 1e9),
            flops_rate(cell.attained_tflops) if cell.attained_tflops else "-",
            percent(cell.share) if cell.share else "-",
            number(cell.intensity_flops_per_byte) if cell.intensity_flops_per_byte else "-",
            regime_name(cell.regime, cell.regime_level) if cell.regime else "-",
            *(_faster(cell.speed_up[name], _on_gpu(cells, name)) if name in cell.speed_up else "-" for name in named),
        ]
        for cell in cells
    ]
    return filled(columns, rows, left=4)


def _on_gpu(cells: Sequence[Cell], baseline: str) -> bool:
    return any(cell.speed_up[baseline].device_latency for cell in cells if baseline in cell.speed_up)


def _faster(times: SpeedUp, on_gpu: bool) -> str:
    """By the device's own time: what a caller gets of launches is the host's."""
    of_own_time = times.device_latency if on_gpu else times.latency
    return number(of_own_time) if of_own_time else "-"


def _overview(cells: Sequence[Cell]) -> Table:
    """A row per device, implementation and scope: between which shares of the roof its cells lie."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        if cell.share:
            groups.setdefault((cell.device, cell.implementation, cell.scope), []).append(cell)
    rows = []
    for (device, *way), mine in groups.items():
        regimes = [cell.regime for cell in mine if cell.regime]
        rows.append(
            [
                device,
                " ".join(filter(None, way)),
                str(len(mine)),
                spans_percent(cell.share for cell in mine),
                ", ".join(f"{regimes.count(one)} {one}" for one in dict.fromkeys(regimes)) or "-",
            ]
        )
    return filled(["device", "implementation", "cells", "of roof", "regimes found"], rows, left=2)
