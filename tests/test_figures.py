"""The picture of the roofline, by the boxes that the renderer really gives its texts and lines."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from math import cos, radians, sin

import numpy as np
import pytest
import samples
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from PIL import Image

from roofline.records.roofline import Roofline
from roofline.report import figure_content, figure_layout, figures, load_figure, sweep_figure, text_metrics

FEW = [name for name in samples.SAMPLES if name != "eight_devices"]  # its panels are like the first


@pytest.fixture(scope="module")
def drawn():
    """Every sample's figure, made once."""
    made = {}

    def of(name):
        if name not in made:
            roofline = samples.SAMPLES[name]()
            with figures.matplotlib.rc_context(figures.STYLE):
                made[name] = roofline, figures.painted(roofline, 100)
        return made[name]

    return of


# ------------------------------------------------------------------------------- what the renderer makes of it


def corners(text, figure):
    """The four corners of a text, turned as it is drawn, in pixels."""
    turned, anchor = radians(text.get_rotation()), text.get_transform().transform(text.get_position())
    text.set_rotation(0)
    flat = text.get_window_extent(figure.canvas.get_renderer())
    text.set_rotation(turned * 180 / np.pi)
    turn = np.array([[cos(turned), -sin(turned)], [sin(turned), cos(turned)]])
    ends = [(flat.x0, flat.y0), (flat.x1, flat.y0), (flat.x1, flat.y1), (flat.x0, flat.y1)]
    return np.array([turn @ (np.array(end) - anchor) + anchor for end in ends])


def texts_of(figure):
    """Each text that is not empty, and its corners without the blank above and below lower-case letters."""
    found = [*figure.texts]
    for axes in figure.axes:
        found += axes.texts
    return [(text, shrunk(corners(text, figure), 0.12)) for text in found if text.get_text()]


def shrunk(quad, by):
    up = (quad[3] - quad[0]) * by
    return np.array([quad[0] + up, quad[1] + up, quad[2] - up, quad[3] - up])


def strokes_of(figure, least_width):
    """Ceilings: the drawn lines of such a width, in pixels. Leaders are thinner."""
    lines = [line for axes in figure.axes for line in axes.artists + axes.lines]
    return [
        line.get_transform().transform(np.column_stack(line.get_data()))
        for line in lines
        if line.get_linestyle() != "None" and line.get_linewidth() >= least_width
    ]


def apart(one, other):
    """Are two convex shapes disjoint? (Separating axes: the normals of all their edges.)"""
    for shape in (one, other):
        for start, end in zip(shape, np.roll(shape, -1, axis=0), strict=True):
            normal = np.array([start[1] - end[1], end[0] - start[0]])
            a, b = one @ normal, other @ normal
            if a.max() <= b.min() or b.max() <= a.min():
                return True
    return False


@pytest.mark.parametrize("name", FEW)
def test_no_text_over_another(drawn, name):
    _, figure = drawn(name)
    touching = [
        (a.get_text(), b.get_text())
        for (a, first), (b, second) in combinations(texts_of(figure), 2)
        if not apart(first, second)
    ]
    assert touching == []


@pytest.mark.parametrize("name", FEW)
def test_no_text_over_a_line(drawn, name):
    _, figure = drawn(name)
    lines = [pair for stroke in strokes_of(figure, 0.45) for pair in pairwise(stroke)]
    touching = [text.get_text() for text, quad in texts_of(figure) for pair in lines if not apart(quad, np.array(pair))]
    assert touching == []


@pytest.mark.parametrize("name", FEW)
def test_no_text_over_a_dot(drawn, name):
    _, figure = drawn(name)
    lines = [line for axes in figure.axes for line in axes.artists + axes.lines]
    dots = [line for line in lines if line.get_linestyle() == "None"]
    assert dots or name == "no_dots"
    for dot in dots:
        radius = min(2.5, dot.get_markersize() / 2) * figure.dpi / 72
        (at,) = dot.get_transform().transform(np.column_stack(dot.get_data()))
        square = at + radius * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
        assert [text.get_text() for text, quad in texts_of(figure) if not apart(quad, square)] == []


@pytest.mark.parametrize("name", FEW)
def test_every_text_within_the_picture(drawn, name):
    _, figure = drawn(name)
    width, height = figure.get_size_inches() * figure.dpi
    outside = [
        text.get_text()
        for text, quad in texts_of(figure)
        if quad.min() < 0 or quad[:, 0].max() > width or quad[:, 1].max() > height
    ]
    assert outside == []


@pytest.mark.parametrize("name", FEW)
def test_no_text_too_small_at_900_pixels(drawn, name):
    _, figure = drawn(name)
    pixels_a_point = 900 / (figure.get_size_inches()[0] * 72)
    assert min(text.get_size() for text, _ in texts_of(figure)) * pixels_a_point > 9


# ------------------------------------------------------------------------------------------------ what it says


def words_of(path):
    return [e.text for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text") if e.text]


@pytest.fixture(scope="module")
def said(drawn, tmp_path_factory):
    """The texts of a sample's vector picture."""

    def of(name):
        path = tmp_path_factory.mktemp("drawn") / "roofline.svg"
        with figures.matplotlib.rc_context(figures.STYLE):
            drawn(name)[1].savefig(path)
        return words_of(path)

    return of


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_everything_is_named(drawn, said, name):
    roofline, told = drawn(name)[0], " ".join(said(name))
    for ceiling in roofline["ceilings"]:
        value = ceiling.get("tflops") or ceiling.get("gb_per_s")
        assert figure_content.level_words(ceiling["name"]) in told and figure_content.number(value) in told
    for operator in roofline["operators"]:
        if operator["fraction_of_roof"]:
            share = figure_content.percent(operator["fraction_of_roof"]).removesuffix(" %")
            assert re.search(rf"(?<![\d.]){re.escape(share)}(,| %)", told)  # in a list of a series, or alone
    for device in roofline["devices"].values():
        assert device["name"] in told
    for item in roofline["skipped"]:
        assert f"{item['dtype']} ({item['reason']})" in told  # no two for one reason


def test_labels_as_the_issue_words_them(said):
    told = said("default_run")
    assert "fp16 tensor cores 778 TFLOPS · 79 % of vendor" in told
    assert "d2d 4258 GB/s · 89 % of vendor" in told


def whole_panels():
    return figure_content.panels(samples.whole_run())


def drawn_names(ceilings):
    return [ceiling.text.split()[0] for ceiling in ceilings]


def test_what_no_dot_needs_is_not_drawn_but_told(said):
    gpu, cpu = whole_panels()
    assert drawn_names(gpu.compute) == [*samples.GEMM_DTYPES, "fp32_fma"]
    assert [(c.text.split()[0], c.weight) for c in gpu.memory] == [
        ("hbm_read", "bold"),
        ("L2", "normal"),
        ("L1", "normal"),
        ("host", "faint"),
    ]
    assert [(c.text, c.weight) for c in cpu.memory] == [
        ("dram_read 118 GB/s · 38 % of vendor", "bold"),
        ("L1 5400 GB/s, from the sweep", "normal"),
        ("L2 2300 GB/s, from the sweep", "normal"),
        ("L3 640 GB/s, from the sweep", "normal"),  # of all cores: one alone has other levels
    ]
    told = " ".join(said("whole_run"))
    assert "Measured and not drawn: fp64_fma 32.8 TFLOPS; fp16_fma 126 TFLOPS; hbm_write 4598 GB/s" in told


def test_the_roofs_of_more_than_products_stand_out():
    gpu, _ = whole_panels()
    assert drawn_names(c for c in gpu.compute if c.strong) == ["fp32", "fp16"]
    (only_gemm,) = figure_content.panels(samples.one_dot())
    assert all(ceiling.strong for ceiling in only_gemm.compute)


def test_a_register_kernels_peak_is_drawn_where_a_dot_stands_under_it():
    roofline = samples.whole_run()
    ceilings = roofline["ceilings"]
    row = samples.operation(ceilings, "gpu0", "sums", 1e12, 1e9, 0.1) | {"compute_ceiling": "fp64_fma"}
    roofline["operators"].append(row)
    gpu, _ = figure_content.panels(roofline)
    assert "fp64_fma" in drawn_names(gpu.compute) and "fp16_fma" not in drawn_names(gpu.compute)


def test_what_load_leaves_is_drawn_where_it_differs(said):
    """By more than 1 %: of fp32, 55.0 of 55.2 are left."""
    gpu, cpu = whole_panels()
    kept = {ceiling.text.split()[0]: ceiling.sustained for ceiling in gpu.compute}
    assert kept["fp16"] == 665.0 and kept["fp32"] is None and kept["fp32_fma"] is None
    assert [entry.text for entry in gpu.legend].count("lighter: under sustained load") == 1
    assert "lighter: under sustained load" not in [entry.text for entry in cpu.legend]
    assert "lighter: under sustained load" in said("whole_run")


def test_every_gemm_roof_and_every_roof_of_a_dot_is_labelled_in_its_panel(said):
    told = said("whole_run")
    for ceiling in samples.whole_run()["ceilings"]:
        if ceiling["kind"] == "compute" and ceiling["method"] == "gemm":
            start = re.compile(rf"{ceiling['name']} ([A-Za-z ]+ )?{figure_content.number(ceiling['tflops'])} TFLOPS")
            assert any(start.match(text) for text in told), ceiling["name"]
    assert "hbm_read 4641 GB/s · 97 % of vendor" in told and "dram_read 118 GB/s · 38 % of vendor" in told


def test_a_level_that_an_operator_stands_under_keeps_the_ceilings_name():
    roofline = samples.whole_run()
    roofline["operators"][0]["memory_ceiling"] = "l2"
    gpu, _ = figure_content.panels(roofline)
    assert {"l2", "L1"} <= set(drawn_names(gpu.memory))


@pytest.mark.parametrize(
    ("name", "words"),
    [("l1", "L1"), ("l2_following", "L2_following"), ("hbm_read", "hbm_read"), ("fp16_fma", "fp16_fma"), ("l", "l")],
)
def test_levels_are_written_as_people_write_them(name, words):
    assert figure_content.level_words(name) == words


def test_what_was_skipped_is_one_note_with_each_reason_once():
    roofline = samples.whole_run()
    dtypes = {
        "tf32": "NumPy has no tf32 arithmetic of its own, it converts; a ceiling would mislead",
        "int8": "NumPy has no int8 arithmetic of its own, it converts; a ceiling would mislead",
        "fp8_e4m3": "compute capability 8.0, fp8 needs 8.9",
    }
    skipped = [{"device": "cpu", "what": "peak_flops", "dtype": key, "reason": why} for key, why in dtypes.items()]
    named = {"device": "cpu", "what": "operation", "name": "sums", "dtype": "fp64", "reason": "no ceiling of fp64"}
    roofline["skipped"] = [*skipped, named]
    _, cpu = figure_content.panels(roofline)
    assert [note for note in cpu.notes if note.startswith("Skipped")] == [
        "Skipped: tf32, int8 (NumPy has no such arithmetic of its own); "
        "fp8_e4m3 (compute capability 8.0, fp8 needs 8.9); sums (no ceiling of fp64)."
    ]


def test_predictions_are_lighter_and_smaller_than_measurements(drawn):
    _, figure = drawn("whole_run")
    spots = [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == "None"]
    small = [line for line in spots if line.get_markeredgewidth() < 0.5]
    assert small and {line.get_markersize() for line in small} == {figure_content.PREDICTED_SIZE}
    assert all(line.get_markersize() > 2 * figure_content.PREDICTED_SIZE for line in spots if line not in small)


@pytest.mark.parametrize("text", ["", "A", "AVATAR To Ty", "Every filled dot, 4096³ · 79 %"])
@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_a_text_is_as_wide_as_it_is_drawn(text, weight):
    font = FontProperties(family=text_metrics.FONT, size=8, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    assert text_metrics.text_width(text, 8, weight) == pytest.approx(width, abs=0.4)  # of ligatures nothing is known


def test_products_of_one_size_name_it_once(said):
    assert "gemm, cublas, 4096³" in said("default_run")
    roofline = samples.default_run()
    roofline["operators"][1]["shape"] = {"m": 8192, "n": 4096, "k": 4096}
    gpu, _ = figure_content.panels(roofline)
    assert [dot.name for dot in gpu.dots[:2]] == ["GEMM 4096³", "GEMM 8192×4096×4096"]
    assert "gemm, cublas" in [entry.text for entry in gpu.legend]


def test_a_label_for_the_dots_of_a_series(said):
    told = " ".join(said("default_run"))
    assert "b=1 0.038, 0.075, 0.15, 0.3 %" in told
    assert "joined: S = 128, 256, 512, 1024" in told


def test_where_series_differ_in_their_lengths_each_label_tells_its_own(tmp_path):
    roofline = samples.only_cpu()
    left_out = (1, 512)
    roofline["operators"] = [
        o for o in roofline["operators"] if (o["shape"].get("batch"), o["shape"].get("seq_len")) != left_out
    ]
    figures.draw(roofline, [tmp_path / "roofline.svg"], 100)
    told = " ".join(words_of(tmp_path / "roofline.svg"))
    assert "b=1 S=128: 16 %, 256: 26 %, 1024: 46 %" in told and "joined" not in told


def test_many_lengths_are_counted():
    ceilings = samples.cpu_ceilings()
    lengths = [128 * 2**i for i in range(8)]
    operators = [samples.decode_attention(ceilings, "cpu", "fp32", s, 1, "core", "dram_read") for s in lengths]
    (panel,) = figure_content.panels(samples.sample_roofline(samples.cpu(), ceilings, operators, []))
    assert panel.seq_lens == tuple(lengths)
    assert "joined: S = 8 from 128 to 16384" in [entry.text for entry in panel.legend]


def test_dots_of_a_series_that_are_far_apart_have_labels_of_their_own(tmp_path):
    roofline = samples.only_cpu()
    series = [o for o in roofline["operators"] if o["shape"].get("batch") == 1]
    for i, operator in enumerate(series):
        operator["attained_tflops"] *= 100.0**-i
    figures.draw(roofline, [tmp_path / "roofline.svg"], 100)
    said = words_of(tmp_path / "roofline.svg")
    assert {"S=128 b=1 16 %", "S=1024 b=1 46 %"} <= set(said)


def test_a_cpu_is_held_against_a_formula(said):
    assert "fp32 1.43 TFLOPS · 67 % of formula" in said("only_cpu")


def test_what_has_no_place_is_told(said):
    told = " ".join(said("many_operations"))
    assert "infinite intensity: random numbers in registers" in told
    assert "Without FLOPs, so without a place on these axes: embedding lookup" in told
    assert "faster than a copy 108 %" in told
    assert "layer 0 of the user's model not measured" in told


def test_every_implementation_is_told_apart_and_has_few_labels(said):
    told = said("every_implementation")
    gpu, cpu = figure_content.panels(samples.every_implementation())
    assert len(gpu.dots) == 71 and len(cpu.dots) == 34
    names = [entry.text for entry in gpu.legend]
    for name in ("eager", "eager, block", "fused", "fused_graph"):
        assert f"decode attention, {name}" in names
    steps = [text for text in told if re.fullmatch(r"(eager|fused|fused_graph) b=\d+( block)?", text)]
    assert len(steps) == 16  # of 64 dots
    assert not any("No room" in text for text in told)


def test_series_that_coincide_share_a_label():
    """Batch 256 by one kernel and by a graph of it, from the device's memory: not batch 1."""
    gpu, _ = figure_content.panels(samples.every_implementation())
    layout = figure_layout.lay_out(gpu)
    lines = {(text.text, text.colour): text.at for text in layout.texts}
    colours = {text.colour for text in layout.texts if text.text == "fused b=256"}
    assert len(colours) == 2
    for colour in colours:
        apart_by = {
            batch: abs(lines[f"fused b={batch}", colour].y - lines[f"fused_graph b={batch}", colour].y)
            for batch in (1, 256)
        }
        assert apart_by[256] == pytest.approx(2 * figure_layout.LABEL_LINE) and apart_by[1] > apart_by[256]


def test_a_marker_means_the_same_in_every_run():
    eager, fused = ({"operator": "decode_attention", "implementation": i, "scope": "core"} for i in ("eager", "fused"))
    alone, both = figure_content.markers_of([fused]), figure_content.markers_of([eager, fused])
    key = figure_content.marker_key(fused)
    assert alone[key] == both[key] != both[figure_content.marker_key(eager)]
    assert len(set(both.values())) == len(both)
    others = [{"operator": "sums", "implementation": str(i), "scope": None} for i in range(9)]
    assert len(set(figure_content.markers_of(others).values())) == 6 + 9


def test_hair_lines_lead_from_predictions_where_no_other_dot_is_on_the_way(drawn):
    gpu, _ = figure_content.panels(samples.every_implementation())
    layout = figure_layout.lay_out(gpu)
    hairs = [stroke for stroke in layout.strokes if stroke.width < 0.4]
    dots = [layout.scale.of(dot) for dot in gpu.dots]
    assert 4 < len(hairs) < len(gpu.predicted) / 2
    for hair in hairs:
        (x, start), (_, end) = hair.points
        low, high = sorted((start, end))
        assert sum(abs(at.x - x) < 1 and low - 1 < at.y < high + 1 for at in dots) == 1


def test_an_implementation_has_one_marker_and_a_dtype_one_colour():
    panels = figure_content.panels(samples.eight_devices())
    assert len({dot.marker for panel in panels for dot in panel.dots}) == 2
    colours = {ceiling.text.split()[0]: ceiling.colour for ceiling in panels[0].compute}
    assert {dot.colour for dot in panels[0].dots} == {colours["fp16"], colours["fp32"]}


def test_hollow_without_a_measurement():
    roofline = samples.many_operations()
    (panel,) = figure_content.panels(roofline)
    by_name = {dot.name: dot for dot in panel.dots}
    unmeasured = by_name["layer 0 of the user's model"]
    assert unmeasured.hollow and unmeasured.y == roofline["operators"][0]["roof_tflops"]
    assert not by_name["faster than a copy"].hollow


@pytest.mark.parametrize("text", ["", "word", "a few short words", "averyverylongwordindeed " * 9])
def test_wrapped_lines_fit(text):
    assert all(text_metrics.text_width(line, 8) <= 60 for line in text_metrics.wrapped(text, 60, 8))


@pytest.mark.parametrize(
    ("fraction", "told"),
    [
        (0.009, "0.9 %"),
        (0.0002, "0.02 %"),
        (0.000999, "0.1 %"),
        (0.0991, "9.9 %"),
        (0.0999, "10 %"),
        (0.788, "79 %"),
        (1.08, "108 %"),
        (1.2e-7, "0.000012 %"),
        (0, "0 %"),
    ],
)
def test_percent(fraction, told):
    assert figure_content.percent(fraction) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(779.7, "780"), (1483.0, "1483"), (51.3, "51.3"), (1.43, "1.43"), (0.0123, "0.0123"), (92.0, "92.0")],
)
def test_number(value, told):
    assert figure_content.number(value) == told


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_samples_are_in_the_public_format(name):
    Roofline.model_validate(samples.SAMPLES[name]())


# ---------------------------------------------------------------------------------------------- sweeps and loads


def words_in(figure, path):
    figures.save(figure, [path], 100)
    return words_of(path)


def without_overlaps(figure):
    with figures.matplotlib.rc_context(figures.STYLE):
        quads = texts_of(figure)
    return all(apart(first, second) for (_, first), (_, second) in combinations(quads, 2))


def test_levels_and_knees_of_a_sweep_are_told(tmp_path):
    figure = sweep_figure.draw(samples.sweep_records())
    told = words_in(figure, tmp_path / "sweep.svg")
    assert {"gpu0: one multiprocessor, through L1", "gpu0: the device, past L1", "cpu: one core"} <= set(told)
    assert {"L1 248 GB/s", "L2 9300 GB/s", "memory 4600 GB/s", "L3 640 GB/s", "memory 118 GB/s"} <= set(told)
    assert {"knee 51 MiB,", "device reports 60 MiB", "knee 6 MiB"} <= set(told)  # of an L3 nothing is reported
    assert without_overlaps(figure)


def test_a_sweep_without_levels_is_drawn(tmp_path):
    (record, *_) = samples.sweep_records()
    for sweep in record.sweeps:
        sweep.levels = []
    record.sweeps[0].points = record.sweeps[0].points[:1]
    told = words_in(sweep_figure.draw([record]), tmp_path / "sweep.svg")
    assert "gpu0: the device, past L1" in told and not any("knee" in text for text in told)


def test_load_names_what_was_left_and_who_held_it_back(tmp_path):
    figure = load_figure.draw(samples.peak_records())
    told = words_in(figure, tmp_path / "load.svg")
    said = "778 TFLOPS in a burst, 665 sustained (85 %), settled after 1.20 s · held back by: power cap"
    assert "gpu0: fp16" in told and said in told
    assert "66.0 TFLOPS in a burst, the same sustained, settled after 1.20 s · held back by: nothing named" in told
    assert any("1700 TOPS" in text for text in told)
    assert told.count("not told on this device") == 4 and "cpu: bf16" not in told
    assert without_overlaps(figure)


def test_load_that_gave_more_than_the_burst_says_so(tmp_path):
    record = next(record for record in samples.peak_records() if record.dtype == "fp16" and record.peak)
    record.peak.burst_tflops = 0.9 * record.peak.sustained.tflops
    told = words_in(load_figure.draw([record]), tmp_path / "load.svg")
    assert any("sustained (111 %)" in text for text in told)


@pytest.mark.parametrize("make", [sweep_figure.draw, load_figure.draw])
def test_small_figures_keep_within_their_paper(make):
    figure = make(samples.sweep_records() if make is sweep_figure.draw else samples.peak_records())
    with figures.matplotlib.rc_context(figures.STYLE):
        quads = [quad for _, quad in texts_of(figure)]
    width, height = figure.get_size_inches() * figure.dpi
    assert all(quad.min() >= 0 and quad[:, 0].max() <= width and quad[:, 1].max() <= height for quad in quads)


@pytest.mark.parametrize(
    ("draw", "told"), [(sweep_figure.draw, "No sweep over sizes"), (load_figure.draw, "No curve of sustained load")]
)
def test_nothing_to_draw_is_said(tmp_path, draw, told):
    assert any(text.startswith(told) for text in words_in(draw([]), tmp_path / "none.svg"))


def test_small_figures_are_drawn_the_same_twice(tmp_path):
    for name in ("one", "other"):
        figures.save(sweep_figure.draw(samples.sweep_records()), [tmp_path / f"sweep_{name}.svg"], 100)
        figures.save(load_figure.draw(samples.peak_records()), [tmp_path / f"load_{name}.svg"], 100)
    for what in ("sweep", "load"):
        assert (tmp_path / f"{what}_one.svg").read_bytes() == (tmp_path / f"{what}_other.svg").read_bytes()


# ---------------------------------------------------------------------------------------------- what is written


def test_files(tmp_path):
    paths = [tmp_path / "roofline.png", tmp_path / "roofline.svg"]
    figures.draw(samples.only_cpu(), paths, 150)
    with Image.open(paths[0]) as image:
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)
        assert image.width == 1500
        assert len(image.convert("RGB").getcolors(1 << 20)) > 10
    assert paths[1].stat().st_size > 1000


def test_only_the_number_of_pixels_depends_on_the_resolution(tmp_path):
    for dpi in (72, 200):
        figures.draw(samples.only_cpu(), [tmp_path / f"{dpi}.svg"], dpi)
    assert (tmp_path / "72.svg").read_bytes() == (tmp_path / "200.svg").read_bytes()


def test_drawn_twice_the_same_bytes(tmp_path):
    suffixes = ("svg", "png")
    for name in ("one", "other"):
        figures.draw(samples.default_run(), [tmp_path / f"{name}.{suffix}" for suffix in suffixes], 100)
    for suffix in suffixes:
        written = (tmp_path / f"one.{suffix}").read_bytes()
        assert written == (tmp_path / f"other.{suffix}").read_bytes()
        assert b"<dc:date>" not in written


def test_the_input_is_left_as_it_was(tmp_path):
    roofline = samples.only_cpu()
    figures.draw(roofline, [tmp_path / "roofline.svg"], 100)
    assert roofline == samples.only_cpu()


def _without_compute():
    ceilings = samples.gpu_ceilings("gpu0", ())
    return samples.sample_roofline(samples.gpu(), ceilings, [], [])


def _without_anything():
    return samples.sample_roofline(samples.gpu(), [], [], [])


def _without_memory():
    return samples.sample_roofline(samples.gpu(), samples.gpu_ceilings("gpu0", memory=()), [], [])


def _with_long_names():
    name = "an extraordinarily long name " * 8
    roofline = samples.many_operations()
    roofline["devices"]["gpu0"]["name"] = name
    for operator in roofline["operators"]:
        operator["name"] = name
    return roofline


@pytest.mark.parametrize("make", [_without_compute, _without_anything, _without_memory, _with_long_names])
def test_odd_rooflines_are_drawn(tmp_path, make):
    figures.draw(make(), [tmp_path / "roofline.svg", tmp_path / "roofline.png"], 72)
    assert (tmp_path / "roofline.svg").stat().st_size > 1000
