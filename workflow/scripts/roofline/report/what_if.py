"""What if: the cells from which a reader of report.html chooses, as the predictions of the run have them."""

from typing import Any

from roofline.core.formatting import duration, flops_rate_text, regime_text
from roofline.records.operator_record import PredictedCell
from roofline.report.report_model import ReportView
from roofline.report.roofline_content import build_content

DTYPE = "dtype"


def build_what_if(report: ReportView) -> dict[str, Any] | None:
    """Return, as the page's script reads it, what a reader may choose and a row for each choice; None without cells.

    `choices` has the values of each size that differs between the cells, and of the dtype; a row has its choice, its
    place on the chart (`x`, FLOP/byte; `y`, the chart's unit) and its prediction in words.
    """
    cells = [cell for cell in report.what_if if cell.sealed and cell.entry and cell.entry.bytes]
    if not cells:
        return None
    device, about = report.first_device, report.table.operator_info[cells[0].operator]
    measured = [cell for cell in report.table.operators if cell.device == device.device]
    scale = build_content(report.table, device.device, measured).scale
    values = {key: sorted({_choice(cell)[key] for cell in cells}) for key in _choice(cells[0])}
    choices = {key: list(allowed) for key, allowed in values.items() if len(allowed) > 1}
    symbols = {about.axis.key: about.axis.symbol} if about.axis else {}
    return {
        "title": " of ".join(filter(None, [about.title, cells[0].preset])),
        "choices": [{"key": key, "label": symbols.get(key, key), "values": choices[key]} for key in choices],
        "rows": [_row(cell, list(choices), scale, device.row.memory_total_bytes) for cell in cells],
    }


def _choice(cell: PredictedCell) -> dict[str, Any]:
    return {DTYPE: cell.dtype, **cell.shape}


def _row(cell: PredictedCell, keys: list[str], scale: float, memory_bytes: int | None) -> dict[str, Any]:
    entry, sealed = cell.entry, cell.sealed
    assert entry and sealed and sealed.cpu_time_s  # as all cells that build_what_if chose
    tflops = entry.flops / sealed.cpu_time_s / 1e12
    words = [f"predicted {duration(sealed.cpu_time_s)}", regime_text(sealed.regime), flops_rate_text(tflops)]
    words += [f"by {cell.implementation}"]
    if memory_bytes and entry.bytes > memory_bytes:
        words.append("more than the memory holds")
    return {
        "choice": [_choice(cell)[key] for key in keys],
        "time_s": sealed.cpu_time_s,
        "regime": sealed.regime,
        "x": entry.flops / entry.bytes,
        "y": scale * tflops,
        "words": ", ".join(words),
    }
