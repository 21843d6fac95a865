"""The picture of the roofline, by the boxes that the renderer really gives its texts and lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import samples
from pictures import labels_of, overlapping_texts, texts_of, texts_outside, texts_over_dots, words_of
from PIL import Image
from records_factory import bandwidth_record, peak_record, verified

from roofline.core.formatting import level_words, number, percent
from roofline.records.base import read
from roofline.report import roofline_content, roofline_figure
from roofline.report.figure_style import save
from roofline.table.rows import Roofline

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"
RUNS = {
    "reference": lambda: read(Roofline, REFERENCE / "roofline.json"),
    **{name: lambda make=make: samples.table(make()) for name, make in samples.SAMPLES.items()},
}


@pytest.fixture(scope="module")
def drawn():
    """A run and its figure, made once."""
    made = {}

    def of(name):
        if name not in made:
            run = RUNS[name]()
            made[name] = run, roofline_figure.draw(run)
        return made[name]

    return of


# ------------------------------------------------------------------------------------------------ can it be read


@pytest.mark.parametrize("name", RUNS)
def test_nothing_overlaps_is_cut_off_or_too_small_at_900_pixels(drawn, name):
    _, figure = drawn(name)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    pixels_per_point = 900 / (figure.get_size_inches()[0] * 72)
    assert min(text.get_size() for text, *_ in texts_of(figure)) * pixels_per_point > 9


@pytest.mark.parametrize("name", RUNS)
def test_every_device_has_axes_of_its_own_with_few_labels(drawn, name):
    run, figure = drawn(name)
    assert len(figure.axes) == len(run.devices)
    assert all(len(labels_of(axes)) <= 14 for axes in figure.axes)


def test_the_labs_dots_are_labelled_with_their_shares(drawn):
    """GEMM in fp16 and fp32; decode attention at each S, in ranges where the dots are nearer than their labels."""
    run, figure = drawn("reference")
    told = labels_of(figure.axes[0])
    mine = [c for c in run.operators if c.device == "gpu0"]
    for dtype in ("fp16", "fp32"):
        best = max(c.fraction_of_roof for c in mine if (c.operator, c.dtype) == ("gemm", dtype))
        assert f"GEMM {dtype} {percent(best)}" in told
    for cell in mine:
        if cell.operator == "decode_attention" and (cell.implementation, run.series(cell)) == (
            "fused_graph",
            "batch 1",
        ):
            assert any(text.endswith(f"S {cell.shape['seq_len']}: {percent(cell.fraction_of_roof)}") for text in told)
    assert sum(text.startswith("batch 256, S 128–1024: ") for text in told) == 2
    assert not set(texts_over_dots(figure)) & set(told)


@pytest.mark.parametrize(("block", "labelled"), [(1.5, ["gemm"]), (1.2, [])])
def test_a_product_that_nothing_is_divided_by_has_no_share_at_its_dot(block, labelled):
    """Its blocks differ by more than a fifth."""
    records = peak_record("cpu", "fp32", 1.5, chosen_at=block), bandwidth_record("cpu", dram_read=100)
    (panel,) = roofline_content.panels(verified(*records))
    assert [cell.operator for cell in panel.labelled] == labelled and panel.cells


# ------------------------------------------------------------------------------------------------ what it says


@pytest.mark.parametrize("name", RUNS)
def test_every_ceiling_and_device_is_named(drawn, tmp_path, name):
    run, figure = drawn(name)
    told = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    for ceiling in run.ceilings:
        value = ceiling.burst_tflops if ceiling.kind == "compute" else ceiling.gb_per_s
        shown = "|".join({ceiling.name, level_words(ceiling.name)})
        assert re.search(rf"\b({shown}) ([A-Za-z ]+ )?{re.escape(number(value))}\b", told), ceiling.name
    for device in run.devices.values():
        assert device.name in told
    for item in run.skipped:
        assert item.name or item.dtype in told


# ---------------------------------------------------------------------------------------- the user's operations


def test_operations_without_time_traffic_or_flops(drawn, tmp_path):
    run, figure = drawn("many_operations")
    told = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    assert "random numbers in registers" in told and "embedding lookup" in told  # neither has a place on these axes
    (panel,) = roofline_content.panels(run)
    assert len(panel.cells) == 21


@pytest.mark.parametrize(
    ("name", "shown"),
    [("softmax 🚀", "softmax □"), ("日本語", "□□□"), ("a\x07b\nc", "a□b c"), ("$x_1$ <b>&", "$x_1$ <b>&")],
)
def test_a_box_for_what_the_font_lacks(tmp_path, name, shown):
    content = samples.many_operations()
    content["devices"]["gpu0"]["name"] = name
    figure = roofline_figure.draw(samples.table(content))
    save(figure, [tmp_path / "roofline.png"], 72)
    told = words_of(figure, tmp_path / "roofline.svg")
    assert shown in told


# ---------------------------------------------------------------------------------------------- what is written


def test_files(tmp_path):
    paths = [tmp_path / "roofline.png", tmp_path / "roofline.svg"]
    save(roofline_figure.draw(samples.table(samples.no_dots())), paths, 150)
    with Image.open(paths[0]) as image:
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
        assert image.width == 1500
        assert len(image.convert("RGB").getcolors(1 << 20)) > 10
    assert paths[1].stat().st_size > 1000


def test_long_names_stay_within_the_paper():
    figure = roofline_figure.draw(samples.table(samples.long_names()))
    assert texts_outside(figure) == [] and overlapping_texts(figure) == []


@pytest.mark.parametrize("kind", ["compute", "memory"])
def test_a_run_without_ceilings_of_a_kind_is_drawn_within_its_paper(kind):
    content = samples.no_dots()
    content["ceilings"] = [one for one in content["ceilings"] if one["kind"] != kind]
    figure = roofline_figure.draw(samples.table(content))
    assert texts_outside(figure) == [] and overlapping_texts(figure) == []


def test_a_run_that_measured_nothing_says_so(tmp_path):
    told = words_of(roofline_figure.draw(samples.table(samples.sample_roofline({}, [], [], []))), tmp_path / "one.svg")
    assert any(text.startswith("Nothing ") for text in told)
