"""The picture of the roofline, by the boxes that the renderer really gives its texts and lines."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

import pytest
import samples
from pictures import (
    coinciding_dots,
    labels_of,
    overlapping_texts,
    texts_of,
    texts_outside,
    texts_over_dots,
    texts_over_lines,
    words_of,
)
from PIL import Image

from roofline.analysis.results import read_table
from roofline.analysis.table import Roofline
from roofline.core.formatting import level_words, number, percent
from roofline.report import roofline_content, roofline_figure
from roofline.report.figure_style import PAPER, save

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"
RUNS = {
    "reference": lambda: read_table(REFERENCE / "roofline.json"),
    "examples": lambda: read_table(REFERENCE / "examples/roofline.json"),
    **{name: lambda make=make: samples.table(make()) for name, make in samples.SAMPLES.items()},
}
FEW = [name for name in RUNS if name != "eight_devices"]  # its panels are like the first


def roofline_of(content: dict) -> Roofline:
    return samples.table(content)


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


@pytest.mark.parametrize("name", FEW)
def test_no_text_covers_another_or_a_line_or_a_dot(drawn, name):
    _, figure = drawn(name)
    assert overlapping_texts(figure) == []
    assert texts_over_lines(figure) == []
    assert texts_over_dots(figure) == []


@pytest.mark.parametrize("name", FEW)
def test_no_dot_hides_another(drawn, name):
    assert coinciding_dots(drawn(name)[1]) == []


def test_of_equal_cells_all_dots_are_seen_and_none_stands_left_of_its_intensity(tmp_path):
    content = samples.default_run()
    for row in content["operators"]:
        if row["device"] == "gpu0":
            row |= {"intensity_flops_per_byte": 1.0, "attained_tflops": 2.0}
    figure = roofline_figure.draw(roofline_of(content))
    assert coinciding_dots(figure) == []
    dots = [line for line in figure.axes[0].lines if line.get_markersize() == roofline_figure.DOT]
    assert min(x for line in dots for x in line.get_xdata()) == 1.0


@pytest.mark.parametrize(
    ("cells", "told"), [(35, "Not labelled: "), (42, "Not labelled: 10 dots (see roofline.json).")]
)
def test_what_has_no_label_is_named_or_if_many_counted(tmp_path, cells, told):
    ceilings = samples.gpu_ceilings("gpu0", ("fp32",))
    rows = [
        samples.operation(ceilings, "gpu0", f"operation {i}", 1.3**i * 1e9, 1e9, 1e-2, "fp32") for i in range(cells)
    ]
    figure = roofline_figure.draw(roofline_of(samples.sample_roofline(samples.gpu(), ceilings, rows, [])))
    words = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    assert told in words and len(labels_of(figure)) == 32
    if cells == 35:
        (named,) = re.findall(r"Not labelled: (.*?)\.(?= [A-Z])", words)
        assert re.fullmatch(r"(operation \d+ [\d.]+ %(; )?){3}", named)


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_cut_off_and_nothing_too_small_at_900_pixels(drawn, name):
    _, figure = drawn(name)
    assert texts_outside(figure) == []
    pixels_per_point = 900 / (figure.get_size_inches()[0] * 72)
    assert min(text.get_size() for text, _ in texts_of(figure)) * pixels_per_point > 9


@pytest.mark.parametrize("name", RUNS)
def test_labels_are_no_more_than_can_be_read_and_shared_out_among_devices(drawn, name):
    run, figure = drawn(name)
    assert len(labels_of(figure)) <= 32
    if name == "reference":  # every series of a default run on the GPU, and most of the CPU's
        gpu, cpu = roofline_content.panels(run)
        assert len(gpu.shown) == 18 and len(labels_of(figure)) >= 18 + 0.7 * len(cpu.shown)
    if name == "eight_devices":
        assert len(labels_of(figure)) == 32 and len(run.devices) == 8


# ------------------------------------------------------------------------------------------------ what it says


@pytest.mark.parametrize("name", RUNS)
def test_every_ceiling_and_device_is_named(drawn, tmp_path, name):
    run, figure = drawn(name)
    told = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    for ceiling in run.ceilings:
        value = ceiling.burst_tflops or ceiling.tflops if ceiling.kind == "compute" else ceiling.gb_per_s
        shown = "|".join({ceiling.name, level_words(ceiling.name)})
        assert re.search(rf"\b({shown}) ([A-Za-z ]+ )?{re.escape(number(value))}\*? (TFLOPS|GB/s|burst)", told), (
            ceiling.name
        )
    for device in run.devices.values():
        assert device.name in told
    for item in run.skipped:
        assert item.name or item.dtype in told


def test_ceilings_with_their_share_of_what_was_promised(drawn, tmp_path):
    run, figure = drawn("reference")
    told = words_of(figure, tmp_path / "roofline.svg")
    found = {(one.device, one.name): one for one in run.ceilings}
    fp16, read_, on_cpu = found["gpu0", "fp16"], found["gpu0", "hbm_read"], found["cpu", "fp32"]
    shares = [percent(one.fraction_of_vendor) for one in (fp16, read_, on_cpu)]
    both = f"{number(fp16.tflops)} burst, {number(fp16.sustained_tflops)} sustained"
    left = percent(fp16.sustained_tflops / fp16.vendor_tflops)
    assert f"fp16 {both} · {shares[0].removesuffix(' %')}, {left} of vendor" in told
    assert f"hbm_read {number(read_.gb_per_s)} GB/s · {shares[1]} of vendor" in told
    assert f"fp32 {number(on_cpu.tflops)} TFLOPS · {shares[2]} of formula" in told


@pytest.mark.parametrize(("device", "best"), [("gpu0", "fused_graph"), ("cpu", "numpy")])
def test_the_reference_products_and_every_cell_of_the_best_implementation(drawn, device, best):
    run, figure = drawn("reference")
    told = "\n".join(labels_of(figure))
    mine = [o for o in run.operators if o.device == device]
    for dtype in {o.dtype for o in mine if o.operator == "gemm"}:
        highest = max(o.fraction_of_roof for o in mine if (o.operator, o.dtype) == ("gemm", dtype))
        assert f"{dtype} {percent(highest)}" in told
    for operator in mine:
        if (operator.operator, operator.implementation, operator.scope) == ("decode_attention", best, "core"):
            share = percent(operator.fraction_of_roof).removesuffix(" %")
            assert re.search(rf"{operator.dtype} {operator.series}\n.*(?<![\d.]){re.escape(share)}(,| %)", told)


def test_what_is_not_best_is_a_bar_about_its_intensity_from_its_worst_to_its_best_cell(drawn, tmp_path):
    gpu, _ = roofline_content.panels(drawn("reference")[0])
    attention = [worst for worst, _ in gpu.ranges if worst.operator == "decode_attention"]
    assert {worst.dtype for worst in attention} == {"fp32", "fp16"}
    for worst, best in gpu.ranges:
        assert worst.fraction_of_roof <= best.fraction_of_roof
        assert 1 / 4 < worst.intensity_flops_per_byte / best.intensity_flops_per_byte < 4
    told = " ".join(words_of(drawn("reference")[1], tmp_path / "roofline.svg"))
    assert "Bars, worst to best cell: decode attention by eager core, eager block, fused core" in told
    assert "all cells in attention.png" in told


def test_equal_shares_are_decided_by_time():
    content = samples.two_implementations()
    for row in content["operators"]:
        if row["operator"] == "decode_attention":
            row |= {"fraction_of_roof": 0.5, "latency_s": 2e-6 if row["implementation"] == "eager" else 1e-6}
    (panel,) = roofline_content.panels(roofline_of(content))
    assert {c.implementation for s in panel.shown for c in s.cells if c.operator == "decode_attention"} == {"kernel"}


def test_a_dtype_that_the_best_implementation_lacks_is_shown_by_the_next(drawn):
    gpu, _ = roofline_content.panels(drawn("reference")[0])
    products = {c.dtype: c.implementation for s in gpu.shown for c in s.cells if c.operator == "gemm"}
    assert products["fp64"] == "cupy.matmul" and products["int8"] == "cuBLASLt" and len(products) == 7


def test_bytes_are_counted_in_the_operators_own_words(drawn, tmp_path):
    run, _ = drawn("one_dot")
    run = run.model_copy(deep=True)
    run.operator_info["gemm"] = run.operator_info["gemm"].model_copy(
        update={"title": "my product", "counted": "only the result"}
    )
    told = " ".join(words_of(roofline_figure.draw(run), tmp_path / "roofline.svg"))
    assert "my product (only the result)" in told and "GEMM" not in told


def test_where_series_differ_in_their_lengths_each_label_tells_its_own():
    content = samples.only_cpu()
    content["operators"] = [o for o in content["operators"] if o["label"] != "batch 1, S 512"]
    told = labels_of(roofline_figure.draw(roofline_of(content)))
    assert "fp32 batch 1\nS 128: 16 %, 256: 26 %, 1024: 46 %" in told


def test_of_many_lengths_the_ends_are_told():
    ceilings = samples.cpu_ceilings()
    lengths = [128 * 2**i for i in range(8)]
    cells = [samples.decode_attention(ceilings, "cpu", "fp32", s, 1, "core", "dram_read") for s in lengths]
    (told,) = labels_of(roofline_figure.draw(roofline_of(samples.sample_roofline(samples.cpu(), ceilings, cells, []))))
    assert re.fullmatch(r"fp32\nS 128: [\d.]+ %\nS 16384: [\d.]+ %", told)


def test_a_register_kernels_peak_is_drawn_where_a_dot_stands_under_it():
    content = samples.whole_run()
    row = samples.operation(content["ceilings"], "gpu0", "sums", 1e12, 1e9, 0.1) | {"compute_ceiling": "fp64_fma"}
    content["operators"].append(row)
    gpu, _ = roofline_content.panels(roofline_of(content))
    names = [level.text.split()[0] for level in gpu.compute]
    assert "fp64_fma" in names and "fp16_fma" not in names


def test_the_bold_slope_is_the_whole_machines_whatever_number_of_cores_its_cells_use():
    ceilings = samples.cpu_ceilings(memory=("dram_read", "dram_read_one_core"))
    cells = [samples.decode_attention(ceilings, "cpu", "fp32", s, 1, "core", "dram_read_one_core") for s in (128, 256)]
    panels = roofline_content.panels(roofline_of(samples.sample_roofline(samples.cpu(), ceilings, cells, [])))
    looks = {level.text.split()[0]: level.look for level in panels[0].memory}
    assert looks == {"dram_read": "bold", "dram_read_one_core": "normal"}


def test_sustained_lines_where_load_leaves_more_than_1_percent_less():
    gpu, cpu = roofline_content.panels(roofline_of(samples.whole_run()))
    kept = {level.text.split()[0]: level.sustained for level in gpu.compute}
    assert kept["fp16"] == 665.0 and kept["fp32"] is None and kept["fp32_fma"] is None
    assert not any(level.sustained for level in cpu.compute)


def test_what_was_skipped_is_one_note_with_each_reason_once():
    content = samples.whole_run()
    reason = "NumPy has no {} arithmetic of its own, it converts; a ceiling would mislead"
    content["skipped"] = [
        *({"device": "cpu", "what": "peak_flops", "dtype": d, "reason": reason.format(d)} for d in ("tf32", "int8")),
        {"device": "cpu", "what": "operation", "name": "sums", "dtype": "fp64", "reason": "no ceiling of fp64"},
    ]
    _, cpu = roofline_content.panels(roofline_of(content))
    assert "Skipped: tf32, int8 (NumPy has no such arithmetic of its own); sums (no ceiling of fp64)." in cpu.notes


def test_predictions_are_smaller_and_hollow(drawn):
    dots = [line for line in drawn("reference")[1].axes[0].lines if line.get_linestyle() == "None"]
    small = [line for line in dots if line.get_markersize() == roofline_figure.PREDICTED]
    assert small and all(line.get_markerfacecolor() == PAPER for line in small)
    assert all(line.get_markersize() > 2 * roofline_figure.PREDICTED for line in dots if line not in small)


def test_an_implementation_has_one_marker_and_a_dtype_one_colour():
    panels = roofline_content.panels(roofline_of(samples.eight_devices()))
    assert len({tuple(panel.kinds.items()) for panel in panels}) == 1 and len(set(panels[0].kinds.values())) == 2
    ceilings = {level.text.split()[0]: level.colour for level in panels[0].compute}
    assert {series.colour for series in panels[0].shown} == {ceilings["fp16"], ceilings["fp32"]}


# ---------------------------------------------------------------------------------------- the user's operations


def test_operations_without_time_traffic_or_flops(drawn, tmp_path):
    run, figure = drawn("many_operations")
    told = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    assert "infinite intensity: random numbers in registers" in told
    assert "Without FLOPs, so without a place on these axes: embedding lookup" in told
    assert "faster than a copy 108 %" in told and "layer 0 of the user's model not measured" in told
    (panel,) = roofline_content.panels(run)
    assert len(panel.cells) == 21


def a_thousand_operations() -> Roofline:
    ceilings, chance = samples.gpu_ceilings("gpu0", ("fp32", "fp16")), Random(1)
    rows = []
    for i in range(1000):
        flops, traffic = 10 ** chance.uniform(9, 13), 10 ** chance.uniform(8, 11)
        roof_s = max(flops / 778e12, traffic / 4258e9)
        share = {0: 0.999, 1: 0.0003}.get(i, chance.uniform(0.01, 0.9))
        rows.append(samples.operation(ceilings, "gpu0", f"operation {i}", flops, traffic, roof_s / share, "fp16"))
    return roofline_of(samples.sample_roofline(samples.gpu(), ceilings, rows, []))


def test_of_a_thousand_operations_all_are_drawn_soon_and_the_extremes_labelled(tmp_path):
    run, started = a_thousand_operations(), time.process_time()
    figure = roofline_figure.draw(run)
    assert time.process_time() - started < 5
    labels = labels_of(figure)
    assert 2 <= len(labels) <= 32
    assert any(label.startswith("operation 0 100 %") for label in labels)
    assert any(label.startswith("operation 1 0.030 %") for label in labels)
    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "None") >= 1000
    assert overlapping_texts(figure) == []
    told = " ".join(words_of(figure, tmp_path / "roofline.svg"))
    assert f"Not labelled: {1000 - len(labels)} dots (see roofline.json)." in told


@pytest.mark.parametrize(
    ("name", "shown"),
    [("softmax 🚀", "softmax □"), ("日本語", "□□□"), ("a\x07b\nc", "a□b c"), ("$x_1$ <b>&", "$x_1$ <b>&")],
)
def test_a_box_for_what_the_font_lacks(tmp_path, name, shown):
    content = samples.many_operations()
    content["operators"][1]["name"] = content["devices"]["gpu0"]["name"] = name
    figure = roofline_figure.draw(roofline_of(content))
    save(figure, [tmp_path / "roofline.png"], 72)
    told = words_of(figure, tmp_path / "roofline.svg")
    assert shown in told and any(text.startswith(f"{shown} ") for text in told)


# ---------------------------------------------------------------------------------------------- what is written


def test_files(tmp_path):
    paths = [tmp_path / "roofline.png", tmp_path / "roofline.svg"]
    save(roofline_figure.draw(roofline_of(samples.only_cpu())), paths, 150)
    with Image.open(paths[0]) as image:
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
        assert image.width == 1500
        assert len(image.convert("RGB").getcolors(1 << 20)) > 10
    assert paths[1].stat().st_size > 1000


def test_drawn_twice_the_same_bytes_whatever_the_resolution_of_the_other(tmp_path):
    run = RUNS["reference"]()
    for name, dpi in (("one", 100), ("other", 200)):
        figure = roofline_figure.draw(run)
        save(figure, [tmp_path / f"{name}.svg"], dpi)
        save(figure, [tmp_path / f"{name}.png"], 100)
    for suffix in ("svg", "png"):
        written = (tmp_path / f"one.{suffix}").read_bytes()
        assert written == (tmp_path / f"other.{suffix}").read_bytes()
        assert b"<dc:date>" not in written


def without(kind=None):
    content = samples.default_run()
    content["operators"] = []
    content["ceilings"] = [c for c in content["ceilings"] if kind and c["kind"] != kind]
    return content


def with_long_names():
    content, name = samples.many_operations(), "an extraordinarily long name " * 8
    content["devices"]["gpu0"]["name"] = name
    for operator in content["operators"]:
        operator["name"] = name
    return content


@pytest.mark.parametrize("make", [without, lambda: without("compute"), lambda: without("memory"), with_long_names])
def test_odd_rooflines_are_drawn_within_their_paper(tmp_path, make):
    figure = roofline_figure.draw(roofline_of(make()))
    save(figure, [tmp_path / "roofline.png"], 72)
    assert texts_outside(figure) == [] and overlapping_texts(figure) == []


def test_a_run_that_measured_nothing_says_so(tmp_path):
    told = words_of(roofline_figure.draw(roofline_of(without())), tmp_path / "one.svg")
    assert told.count("Nothing was measured on this device.") == 2
    content = samples.sample_roofline({}, [], [], [])
    told = words_of(roofline_figure.draw(roofline_of(content)), tmp_path / "other.svg")
    assert "Nothing to draw: no device was measured." in told
