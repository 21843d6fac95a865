"""The picture of an operator, whichever it is: shares of the roof over bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import samples
from pictures import dots_of, overlapping_texts, texts_outside, texts_over_dots, words_of

from roofline.operators.about import OwnOperator
from roofline.records.base import read
from roofline.report import operator_figure
from roofline.report.figure_style import PAPER
from roofline.table.rows import Cell, Roofline

CHECKOUT = Path(__file__).parents[1]
TEXT = {"title": "squares of 🚀", "picture": "squares", "counted": "inputs and outputs once"}
OWN = OwnOperator(name="squares", axis=("count", "N", None), **TEXT)


def changed(run: Roofline, change: Callable[[Cell], dict]) -> Roofline:
    """The run with other cells."""
    return run.model_copy(update={"operators": [cell.model_copy(update=change(cell)) for cell in run.operators]})


def reference() -> Roofline:
    return read(Roofline, CHECKOUT / "reference/nvidia-h200/roofline.json")


def own_operator(cells: int, **fields) -> Roofline:
    """An operator of a user's own, that the project knows nothing of."""
    ceilings = samples.gpu_ceilings("gpu0")
    rows = [
        samples.operator_row(ceilings, "gpu0", "squares", "fp32", 1e6 * n, 8e6 * n, 4e-6 * n, "fp32", "d2d")
        | {"implementation": "loop 🚀", "shape": {"count": n}, "overhead_s": 5e-6}
        for n in range(1, cells + 1)
    ]
    content = samples.sample_roofline(samples.gpu(), ceilings, rows, [])
    return samples.table(content, OWN.model_copy(update=fields))


def above_the_roof() -> Roofline:
    return changed(reference(), lambda cell: {"fraction_of_roof": 3.3 * cell.fraction_of_roof})


CASES = {
    "reference": (reference, "decode_attention"),
    "reference GEMM": (reference, "gemm"),
    "above the roof": (above_the_roof, "decode_attention"),
    "a line": (lambda: own_operator(5), "squares"),
    "many": (lambda: own_operator(100), "squares"),
}


def drawn(case: str):
    make, operator = CASES[case]
    return operator_figure.draw(make(), operator)


@pytest.mark.parametrize("case", CASES)
def test_it_can_be_read(case):
    figure = drawn(case)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == [] and texts_over_dots(figure) == []


def test_it_shows_every_cell_in_a_panel_of_its_dtype_and_batch(tmp_path):
    run, figure = reference(), drawn("reference")
    titles = ["fp32, batch 1", "fp32, batch 256", "fp16, batch 1", "fp16, batch 256"]
    of_cpu = titles[:2]
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles + of_cpu
    panels = [*product(("gpu0",), titles), *product(("cpu",), of_cpu)]
    for axes, (device, words) in zip(figure.axes, panels, strict=True):
        there = {tuple(place) for line in dots_of(figure) if line.axes is axes for place in line.get_xydata()}
        for cell in run.operators:
            if (cell.device, cell.operator, f"{cell.dtype}, {run.series(cell)}") == (device, "decode_attention", words):
                assert (cell.shape["seq_len"], cell.fraction_of_roof) in there, run.full_name(cell)
        low, high = axes.get_ylim()
        assert axes.get_yscale() == "linear" and low <= 0 and high >= 1
    told = words_of(figure, tmp_path / "attention.svg")
    assert {"eager core", "eager block", "fused core", "fused_graph core", "numpy core", "S"} <= set(told)


def test_hollow_where_the_devices_part_differs_by_more_than_5_percent():
    times = {1: 1.04, 2: 1.2}
    roofline = changed(
        own_operator(2),
        lambda cell: {"gpu_fraction_of_roof": times[cell.shape["count"]] * cell.fraction_of_roof},
    )
    hollow = [d for d in dots_of(operator_figure.draw(roofline, "squares")) if d.get_markerfacecolor() == PAPER]
    assert len(hollow) == 1
    assert hollow[0].get_ydata()[1] == pytest.approx(1.2 * roofline.operators[1].fraction_of_roof)


def test_nothing_to_draw_is_said(tmp_path):
    roofless = changed(own_operator(3), lambda cell: {"fraction_of_roof": None})
    for table, operator in ((samples.table(samples.no_dots()), "never_heard_of"), (roofless, "squares")):
        told = words_of(operator_figure.draw(table, operator), tmp_path / "none.svg")
        assert any(text.startswith("Nothing to draw") for text in told)


def test_no_part_of_the_report_knows_an_operator_by_heart():
    for path in (CHECKOUT / "workflow/scripts/roofline/report").rglob("*.*"):
        if path.suffix in (".py", ".j2"):
            words = path.read_text(encoding="utf-8").lower()
            assert "decode_attention" not in words and "seq_len" not in words, path
