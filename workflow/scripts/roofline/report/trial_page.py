"""A trial of the model as a page (analysis/trial.py)."""

from roofline.analysis.score import score
from roofline.analysis.trial import Trial, TrialCell
from roofline.core.formatting import duration, number
from roofline.records.prediction import CellPrediction
from roofline.report.markdown import table
from roofline.report.predictions import score_words, signed


def markdown(trial: Trial) -> str:
    """A trial of the model as a page: its score, each group's, and every cell; the worst sealed time first."""
    cells = sorted(trial.cells, key=_times, reverse=True)
    groups: dict[tuple, list[TrialCell]] = {}
    for cell in trial.cells:
        groups.setdefault((cell.operator.replace("_", " "), cell.implementation), []).append(cell)
    grouped = [_group_row(*names, mine) for names, mine in groups.items()]
    rows = [_cell_row(cell) for cell in cells]
    ceilings = ", ".join(f"{name} {number(value)}" for name, value in trial.ceilings.items())
    parts = [f"**{score_words(trial.score)}**" if trial.score.cells else "No cell was measured."]
    parts.append(f"{trial.name} ({trial.device}); TFLOPS and GB/s of short blocks: {ceilings or 'none'}.")
    columns = ("operator", "implementation", "cells", "right", "regime right", "time right", "rule of thumb")
    parts.append(table(columns, grouped, left=2))
    columns = ("operator", "implementation", "cell", "n", "measured", "sealed", "error", "error from ceilings")
    parts.append(table((*columns, "predicted", "found", "rule of thumb"), rows, left=3))
    parts += [f"- not measured: {fault}" for fault in trial.faults]
    return "\n\n".join(part for part in parts if part) + "\n"


def _group_row(operator: str, implementation: str, cells: list[TrialCell]) -> list[str]:
    found = score(cells)
    counts = found.cells, found.both_right, found.regimes_right, found.times_right
    return [operator, implementation, *map(str, counts), f"{found.textbook_regimes_right} of {found.textbook_cells}"]


def _cell_row(cell: TrialCell) -> list[str]:
    times = [duration(one) if one else "-" for one in (cell.latency_s, cell.sealed.latency_s)]
    errors = [signed(_error(one, cell)) for one in (cell.sealed, cell.from_ceilings)]
    regimes = [one or "-" for one in (cell.sealed.regime, cell.regime, cell.textbook_regime)]
    named = [cell.operator.replace("_", " "), cell.implementation, cell.what, str(cell.samples)]
    return [*named, *times, *errors, *regimes]


def _error(predicted: CellPrediction, cell: TrialCell) -> float | None:
    return predicted.latency_s / cell.latency_s - 1 if predicted.latency_s else None


def _times(cell: TrialCell) -> float:
    """By which factor the sealed time is wrong."""
    ratio = (cell.sealed.latency_s or 0.0) / cell.latency_s
    return max(ratio, 1 / ratio) if ratio else 0.0
