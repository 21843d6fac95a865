"""The picture of an operator, whichever it is: shares of the roof over bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import samples
from pictures import (
    coinciding_dots,
    overlapping_texts,
    texts_of,
    texts_outside,
    texts_over_dots,
    texts_over_lines,
    words_of,
)

from roofline.analysis.results import read_table
from roofline.analysis.table import Axis, Roofline
from roofline.core.formatting import percent
from roofline.report import operator_figure
from roofline.report.figure_style import PAPER, save
from roofline.report.roofline_cells import common_axis, labelled

CHECKOUT = Path(__file__).parents[1]
OWN = {
    "name": "squares",
    "title": "squares of 🚀",
    "picture": "squares",
    "counted": "inputs and outputs once",
    "axis": {"key": "count", "symbol": "N"},
}


def reference() -> Roofline:
    return read_table(CHECKOUT / "reference/nvidia-h200/roofline.json")


def own_operator(cells: int) -> Roofline:
    """An operator of a user's own, that the project knows nothing of."""
    ceilings = samples.gpu_ceilings("gpu0")
    rows = [
        samples.operator_row(ceilings, "gpu0", "squares", "fp32", 1e6 * n, 8e6 * n, 4e-6 * n, "fp32", "d2d")
        | {"implementation": "loop 🚀", "shape": {"count": n}, "label": f"N {n}", "series": "", "overhead_s": 5e-6}
        for n in range(1, cells + 1)
    ]
    content = samples.sample_roofline(samples.gpu(), ceilings, rows, [])
    return samples.table(content | {"operator_info": {"squares": OWN}})


def batch_1() -> Roofline:
    roofline = reference()
    return roofline.model_copy(update={"operators": [o for o in roofline.operators if o.series == "batch 1"]})


def several_presets() -> Roofline:
    roofline = reference()
    others = [cell.model_copy(update={"preset": "gpt2"}) for cell in roofline.operators]
    return roofline.model_copy(update={"operators": roofline.operators + others})


def above_the_roof() -> Roofline:
    roofline = reference()
    for cell in roofline.operators:
        cell.fraction_of_roof *= 3.3
    return roofline


CASES = {
    "reference": (reference, "decode_attention"),
    "reference GEMM": (reference, "gemm"),
    "one series": (batch_1, "decode_attention"),
    "presets": (several_presets, "decode_attention"),
    "above the roof": (above_the_roof, "decode_attention"),
    "one dot": (lambda: own_operator(1), "squares"),
    "a line": (lambda: own_operator(5), "squares"),
    "very many": (lambda: own_operator(300), "squares"),
}


def drawn(case: str):
    make, operator = CASES[case]
    return operator_figure.draw(make(), operator)


def dots_of(figure) -> list:
    return [line for axes in figure.axes for line in axes.lines if line.get_marker() != "None"]


@pytest.mark.parametrize("case", CASES)
def test_it_can_be_read(case):
    figure = drawn(case)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    assert texts_over_dots(figure) == []
    assert texts_over_lines(figure, 0.7) == []
    assert case == "very many" or coinciding_dots(figure) == []  # a line's own dots may
    assert any(text.get_text().endswith(" %") for text, _ in texts_of(figure))


def test_it_shows_every_cell_of_every_implementation_and_scope(tmp_path):
    run, figure = reference(), drawn("reference")
    for axes, device in zip(figure.axes, ("gpu0", "cpu"), strict=True):
        there = np.array([place for line in dots_of(figure) if line.axes is axes for place in line.get_xydata()])
        cells = [c for c in run.operators if (c.device, c.operator) == (device, "decode_attention")]
        assert cells
        for cell in cells:  # dots are shifted right where they would hide others
            x = there[np.isclose(there[:, 1], cell.fraction_of_roof), 0]
            assert (x >= cell.bytes).any() and x.min() <= 1.6 * cell.bytes, cell.full_name
    told = words_of(figure, tmp_path / "attention.svg")
    assert {"eager core", "eager block", "fused core", "fused_graph core", "numpy core", "fp32", "fp16"} <= set(told)
    assert {"batch 1", "batch 256", "100 %", "1 MB", "1 GB", "of the roof", "bytes moved per step"} <= set(told)
    best = max(c.fraction_of_roof for c in run.operators if c.implementation == "fused_graph")
    assert percent(best) in told  # at the end of its line


def test_of_very_many_series_the_extremes_are_labelled_and_it_says_so(tmp_path):
    run, said = own_operator(100), operator_figure.MANY
    for cell in run.operators:
        cell.series, cell.fraction_of_roof = cell.label, 1 / cell.shape["count"]
    run.operator_info["squares"].axis = None
    figure = operator_figure.draw(run, "squares")
    told = words_of(figure, tmp_path / "squares.svg")
    labels = [text for text in told if text.startswith("fp32 ") and text.endswith(" %")]
    assert 2 <= len(labels) <= 24 and "fp32 100 %" in labels
    assert said in " ".join(told) and said not in " ".join(words_of(drawn("a line"), tmp_path / "squares.svg"))


def test_a_name_that_the_font_lacks_is_that_of_its_cells():
    run = own_operator(3)
    run.operator_info["操作"] = run.operator_info.pop("squares")
    for cell in run.operators:
        cell.operator = "操作"
    assert len(dots_of(operator_figure.draw(run, "操作"))) == len(dots_of(drawn("a line")))


def test_lines_join_cells_that_differ_in_the_axis_alone():
    """On the GPU 16 series of four, on the CPU 8; each hollow dot hangs on a line of its own."""
    joined = [line for line in dots_of(drawn("reference")) if line.get_linewidth() == 0.8]
    assert [len(line.get_xdata()) for line in joined] == [4] * 24
    alone = [line for line in dots_of(drawn("reference GEMM")) if line.get_linewidth() == 0.8]
    products = [cell for cell in reference().operators if cell.operator == "gemm"]
    assert [len(line.get_xdata()) for line in alone] == [1] * len(products)


def test_an_axis_of_bytes_joins_cells_of_any_shape(tmp_path):
    run = own_operator(4)
    run.operator_info["squares"].axis = Axis(key="bytes", symbol="sizes")
    for cell in run.operators:
        cell.shape = {"rows": cell.shape["count"], "columns": 8}
    figure = operator_figure.draw(run, "squares")
    joined = [line for line in dots_of(figure) if line.get_linewidth() == 0.8]
    assert [len(line.get_xdata()) for line in joined] == [4]
    told = " ".join(words_of(figure, tmp_path / "squares.svg"))
    assert "Lines join cells that differ in sizes alone." in told
    (series,) = labelled(run.operators, run.operator_info)
    assert series.text.startswith("fp32") and common_axis([series.cells], run.operator_info["squares"]) == (
        "8 MB",
        "16 MB",
        "24 MB",
        "32 MB",
    )


def test_shares_that_range_over_more_than_twenty_times_have_a_logarithmic_axis():
    shares = {}
    for cell in reference().operators:
        if cell.operator == "decode_attention":
            shares.setdefault(cell.device, []).append(cell.fraction_of_roof)
    expected = ["log" if max(those) > 20 * min(those) else "linear" for those in shares.values()]
    assert [axes.get_yscale() for axes in drawn("reference").axes] == expected and "log" in expected
    assert [axes.get_yscale() for axes in drawn("reference GEMM").axes] == ["linear", "linear"]


def test_hollow_where_the_devices_part_differs_by_more_than_5_percent():
    roofline = own_operator(2)
    for cell, times in zip(roofline.operators, (1.04, 1.2), strict=True):
        cell.device_fraction_of_roof = times * cell.fraction_of_roof
    hollow = [d for d in dots_of(operator_figure.draw(roofline, "squares")) if d.get_markerfacecolor() == PAPER]
    assert len(hollow) == 1
    assert hollow[0].get_ydata()[1] == pytest.approx(1.2 * roofline.operators[1].fraction_of_roof)


def test_presets_have_panels_of_their_own():
    titles = [axes.get_title(loc="left") for axes in drawn("presets").axes]
    assert titles[:2] == ["gpu0: NVIDIA H200, minigpt", "gpu0: NVIDIA H200, gpt2"] and len(titles) == 4


@pytest.mark.parametrize("operator", ["decode_attention", "gemm", "never_heard_of"])
def test_nothing_to_draw_is_said(tmp_path, operator):
    figure = operator_figure.draw(samples.table(samples.no_dots()), operator)
    assert "Nothing to draw: it was not measured, or has no roof." in words_of(figure, tmp_path / "none.svg")


def test_cells_without_a_roof_have_no_place(tmp_path):
    roofline = own_operator(3)
    for cell in roofline.operators:
        cell.fraction_of_roof = None
    told = words_of(operator_figure.draw(roofline, "squares"), tmp_path / "none.svg")
    assert any(text.startswith("Nothing to draw") for text in told)


def test_drawn_the_same_twice(tmp_path):
    for name in ("one", "other"):
        save(drawn("reference"), [tmp_path / f"{name}.svg", tmp_path / f"{name}.png"])
    for suffix in ("svg", "png"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"other.{suffix}").read_bytes()


def test_no_part_of_the_report_knows_an_operator_by_heart():
    for path in (CHECKOUT / "workflow/scripts/roofline/report").rglob("*.*"):
        if path.suffix in (".py", ".j2"):
            words = path.read_text(encoding="utf-8").lower()
            assert "attention" not in words and "seq_len" not in words, path
