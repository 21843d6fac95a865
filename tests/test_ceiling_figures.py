"""The pictures of sweeps and of sustained load."""

from pathlib import Path

import pytest
from pictures import overlapping_texts, texts_outside, texts_over_dots, words_of

from roofline.core.formatting import capacity, number
from roofline.records.base import read
from roofline.report import load_figure, sweep_figure
from roofline.table.rows import Roofline

RUN = read(Roofline, Path(__file__).parents[1] / "reference/nvidia-h200/roofline.json")
LOADS = [one for one in RUN.ceilings if one.kind == "compute" and one.load]
NOTHING = RUN.model_copy(update={"ceilings": [], "sweeps": [], "levels": []})


@pytest.mark.parametrize("draw", [sweep_figure.draw, load_figure.draw])
def test_they_can_be_read(draw):
    figure = draw(RUN)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == [] and texts_over_dots(figure) == []


def test_every_level_and_knee_is_told_with_the_capacity_that_the_device_reports(tmp_path):
    told = words_of(sweep_figure.draw(RUN), tmp_path / "sweep.svg")
    assert {"gpu0: one multiprocessor, through L1", "gpu0: the device, past L1"} <= set(told)
    for level in RUN.levels:
        assert any(f" {number(level.gb_per_s)} GB/s" in text for text in told)
        if level.knee_bytes:
            reported = f" (reported {capacity(level.reported_bytes)})" if level.reported_bytes else ""
            assert any(text.endswith(f", knee {capacity(level.knee_bytes)}{reported}") for text in told)


def test_a_sweep_without_levels_is_drawn(tmp_path):
    short = [RUN.sweeps[0].model_copy(update={"points": RUN.sweeps[0].points[:1]}), *RUN.sweeps[1:]]
    run = RUN.model_copy(update={"sweeps": short, "levels": []})
    told = words_of(sweep_figure.draw(run), tmp_path / "sweep.svg")
    assert "gpu0: the device, past L1" in told and not any(", knee" in text for text in told)


def test_burst_and_sustained_lines_and_what_the_sustained_rate_is_of():
    figure = load_figure.draw(RUN)
    assert len(figure.axes) == 4 * len(LOADS) == 28  # our own kernels are not held under load
    for ceiling, (first, *row) in zip(LOADS, (figure.axes[i : i + 4] for i in range(0, 28, 4)), strict=True):
        load = ceiling.load
        assert len(first.lines[0].get_ydata()) == len(load.first_tflops) > 30, "product by product"
        assert [line.get_ydata()[0] for line in row[0].lines[1:]] == [ceiling.burst_tflops, ceiling.sustained_tflops]
        for axes in row:
            ((first_s, _), (last_s, _)) = axes.transData.inverted().transform(axes.patches[0].get_extents())
            end = load.curve[-1].at_s
            counted = 2 * end / 3 if load.settled_after_s is None else load.settled_after_s
            assert (first_s, last_s) == pytest.approx((counted, end))
            low, high = axes.get_ylim()
            assert all(low < value < high for value in axes.lines[0].get_ydata())
    assert len({axes.get_ylim() for axes in figure.axes[2::4]}) == 1  # one scale of clocks


@pytest.mark.parametrize(
    ("draw", "told"), [(sweep_figure.draw, "No sweep over the size"), (load_figure.draw, "No sustained load")]
)
def test_nothing_to_draw_is_said(tmp_path, draw, told):
    assert any(text.startswith(told) for text in words_of(draw(NOTHING), tmp_path / "none.svg"))
