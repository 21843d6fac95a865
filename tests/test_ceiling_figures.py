"""The pictures of sweeps and of sustained load."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import overlapping_texts, texts_outside, texts_over_dots, words_of
from records_factory import peak_record, skipped_peak

from roofline.core.formatting import capacity, number
from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.report import load_figure, sweep_figure

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"


def sweeps() -> list[BandwidthRecord]:
    return [read(BandwidthRecord, REFERENCE / "gpu0/bandwidth/sweep.json")]


def peaks() -> list[PeakFlopsRecord]:
    dtypes = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8", "fp32_fma")
    return [read(PeakFlopsRecord, REFERENCE / f"gpu0/peak_flops/{dtype}.json") for dtype in dtypes]


def without_readings() -> list[PeakFlopsRecord]:
    return [
        peak_record("gpu0", "fp16", 778, sustained=665, reasons=["sw_power_cap"]),
        peak_record("gpu0", "int8", 1700, sustained=1695, reasons=[]),
        peak_record("cpu", "fp32", 1.43, sustained=1.33),
        skipped_peak("cpu", "bf16", "NumPy has none"),
    ]


FIGURES = {
    "sweeps": lambda: sweep_figure.draw(sweeps()),
    "load": lambda: load_figure.draw(peaks()),
    "load without readings": lambda: load_figure.draw(without_readings()),
}


@pytest.mark.parametrize("name", FIGURES)
def test_they_can_be_read(name):
    figure = FIGURES[name]()
    assert overlapping_texts(figure) == [] and texts_outside(figure) == [] and texts_over_dots(figure) == []


def test_every_level_and_knee_is_told_with_the_capacity_that_the_device_reports(tmp_path):
    told = words_of(sweep_figure.draw(sweeps()), tmp_path / "sweep.svg")
    assert {"gpu0: one multiprocessor, through L1", "gpu0: the device, past L1"} <= set(told)
    for level in (level for record in sweeps() for sweep in record.sweeps for level in sweep.levels):
        assert any(f" {number(level.gb_per_s)} GB/s" in text for text in told)
        if level.knee_bytes:
            reported = f" (reported {capacity(level.reported_bytes)})" if level.reported_bytes else ""
            assert any(text.endswith(f", knee {capacity(level.knee_bytes)}{reported}") for text in told)


def test_a_sweep_without_levels_is_drawn(tmp_path):
    (record,) = sweeps()
    for sweep in record.sweeps:
        sweep.levels = []
    record.sweeps[0].points = record.sweeps[0].points[:1]
    told = words_of(sweep_figure.draw([record]), tmp_path / "sweep.svg")
    assert "gpu0: the device, past L1" in told and not any(", knee" in text for text in told)


def test_burst_and_sustained_lines_and_what_the_sustained_rate_is_of():
    figure = load_figure.draw(peaks())
    assert len(figure.axes) == 4 * 7  # our own kernels are not held under load
    for record, (first, *row) in zip(peaks(), (figure.axes[i : i + 4] for i in range(0, 28, 4)), strict=False):
        load = record.peak.sustained
        assert len(first.lines[0].get_ydata()) == len(load.first_products_s) > 30, "product by product"
        assert [line.get_ydata()[0] for line in row[0].lines[1:]] == [record.peak.burst_tflops, load.tflops]
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
    assert any(text.startswith(told) for text in words_of(draw([]), tmp_path / "none.svg"))
