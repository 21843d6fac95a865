"""What if: the cells from which a reader of report.html chooses, as the predictions of the run have them."""

from typing import Any

from roofline.core.formatting import duration, flops_rate_text, regime_text
from roofline.report.report_model import ReportView
from roofline.report.roofline_content import build_content
from roofline.table.rows import AskedCell

DTYPE = "dtype"


def build_what_if(report: ReportView) -> dict[str, Any] | None:
    """Return, as the page's script reads it, what a reader may choose and a row for each choice; None without cells.

    `choices` has the values of each size that differs between the cells, and of the dtype; a row has its choice, its
    place on the chart (`x`, FLOP/byte; `y`, the chart's unit) and its prediction in words.
    """
    device, table = report.first_device, report.table
    cells = [cell for cell in table.what_if if cell.device == device.device]
    if not cells:
        return None
    about = table.operator_info[cells[0].operator]
    scale = build_content(
        table, device.device, [cell for cell in table.operators if cell.device == device.device]
    ).scale
    values = {key: sorted({_choice(cell)[key] for cell in cells}) for key in _choice(cells[0])}
    choices = {key: allowed for key, allowed in values.items() if len(allowed) > 1}
    symbols = {about.axis.key: about.axis.symbol} if about.axis else {}
    return {
        "title": " of ".join(filter(None, [about.title, cells[0].preset])),
        "choices": [{"key": key, "label": symbols.get(key, key), "values": choices[key]} for key in choices],
        "rows": [_row(cell, list(choices), scale, device.row.memory_total_bytes) for cell in cells],
    }


def _choice(cell: AskedCell) -> dict[str, Any]:
    return {DTYPE: cell.dtype, **cell.shape}


def _row(cell: AskedCell, keys: list[str], scale: float, memory_bytes: int | None) -> dict[str, Any]:
    tflops = cell.flops / cell.cpu_time_s / 1e12
    words = [f"predicted {duration(cell.cpu_time_s)}", regime_text(cell.regime), flops_rate_text(tflops)]
    words.append(f"by {cell.implementation}")
    if memory_bytes and cell.bytes > memory_bytes:
        words.append("more than the memory holds")
    choice = [_choice(cell)[key] for key in keys]
    return {"choice": choice, "x": cell.flops / cell.bytes, "y": scale * tflops, "words": ", ".join(words)}
