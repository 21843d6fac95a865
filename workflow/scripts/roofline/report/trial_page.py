"""A trial of the model as a page (analysis/trial.py)."""

from roofline.analysis.score import score
from roofline.analysis.trial import Trial, TrialCell
from roofline.core.formatting import duration, number
from roofline.records.prediction import CellPrediction
from roofline.report.markdown import table
from roofline.report.verification_page import score_words, signed


def markdown(trial: Trial) -> str:
    """A trial of the model as a page: its score, each group's, and every cell; the worst sealed time first."""
    cells = sorted(trial.cells, key=_times, reverse=True)
    groups: dict[tuple, list[TrialCell]] = {}
    for cell in trial.cells:
        groups.setdefault((cell.operator.replace("_", " "), cell.implementation), []).append(cell)
    scores = [(*names, score(mine)) for names, mine in groups.items()]
    grouped = [
        [operator, implementation, *map(str, (found.cells, found.both_right, found.regimes_right, found.times_right))]
        + [f"{found.textbook_regimes_right} of {found.textbook_cells}"]
        for operator, implementation, found in scores
    ]
    rows = [
        [cell.operator.replace("_", " "), cell.implementation, cell.what, str(cell.samples)]
        + [duration(cell.latency_s), duration(cell.sealed.latency_s), signed(_error(cell.sealed, cell))]
        + [
            signed(_error(cell.from_ceilings, cell)),
            cell.sealed.regime,
            cell.regime or "-",
            cell.textbook_regime or "-",
        ]
        for cell in cells
    ]
    ceilings = ", ".join(f"{name} {number(value)}" for name, value in trial.ceilings.items())
    parts = [f"**{score_words(trial.score)}**" if trial.score.cells else "No cell was measured."]
    parts.append(f"{trial.name} ({trial.device}); TFLOPS and GB/s of short blocks: {ceilings or 'none'}.")
    columns = ("operator", "implementation", "cells", "right", "regime right", "time right", "rule of thumb")
    parts.append(table(columns, grouped, left=2))
    columns = ("operator", "implementation", "cell", "n", "measured", "sealed", "error", "from ceilings: error")
    parts.append(table((*columns, "predicted", "found", "rule of thumb"), rows, left=3))
    parts += [f"- not measured: {fault}" for fault in trial.faults]
    return "\n\n".join(part for part in parts if part) + "\n"


def _error(predicted: CellPrediction, cell: TrialCell) -> float | None:
    return predicted.latency_s / cell.latency_s - 1 if predicted.latency_s else None


def _times(cell: TrialCell) -> float:
    """By which factor the sealed time is wrong."""
    ratio = (cell.sealed.latency_s or 0.0) / cell.latency_s
    return max(ratio, 1 / ratio) if ratio else 0.0
