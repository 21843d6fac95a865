"""All pictures, by the boxes that the renderer really gives their texts, lines and dots."""

from __future__ import annotations

import pytest
from pictures import crossed_texts, dots_of, overlapping_texts, reference, texts_of, texts_outside, words_of
from records_factory import bandwidth_record, peak_record, verified

from roofline.core.formatting import capacity, flops_rate_text, number, percent
from roofline.report import load_figure, operator_figure, roofline_figure, sweep_figure
from roofline.report.figure_style import CROSSED, styled
from roofline.report.palette import markers_of_kinds
from roofline.report.pictures import drawings
from roofline.report.roofline_content import build_content, choose_dots

RUN = reference()
OPERATIONS = [
    gemm.model_copy(update={"operator": "operation", "name": f"the user's operation {place} " * 8})
    for place, gemm in enumerate(cell for cell in RUN.operators if cell.operator == "gemm")
]
CEILINGS = 2.4  # lines below this are ceilings, those above lead labels to their dots


@pytest.fixture(autouse=True)
def style():
    with styled():
        yield


def ceilings_of(figure):
    return [line for axes in figure.axes for line in axes.lines if line.get_zorder() < CEILINGS]


@pytest.mark.parametrize("device", RUN.devices)
def test_every_dot_of_the_reference_run_is_labelled_and_nothing_crosses_a_label(device):
    figure = roofline_figure.draw_roofline(RUN, device)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    assert crossed_texts(figure, ceilings_of(figure)) == []
    shown = {text.get_text() for text, _ in texts_of(figure)}
    printed = build_content(RUN, device, choose_dots(RUN, device))
    assert {dot.label for dot in printed.dots if dot.label} <= shown
    assert {line.label for line in printed.roofs} <= shown
    assert all(any(line.label in text for text in shown) for line in printed.slopes)


def test_decode_attention_is_labelled_with_its_shares_of_the_roof_and_of_the_peak():
    dots = [cell for cell in choose_dots(RUN, "gpu0") if cell.operator == "decode_attention"]
    cells = [cell for cell in dots if cell.implementation != "eager"]
    assert {cell.dtype for cell in cells} == {"fp32", "fp16"} and {cell.shape["batch"] for cell in cells} == {1, 256}
    labels = [dot.label for dot in build_content(RUN, "gpu0", cells).dots]
    for cell in cells:
        shares = f"{percent(cell.reliable_fraction_of_roof)} ({percent(cell.fraction_of_compute_peak)})"
        if cell.shape["batch"] == 1:
            assert f"attention batch 1, S {cell.shape['seq_len']}: {shares}" in labels
    assert sum(label.startswith("attention batch 256, S 128–1024: ") for label in labels) == 2
    low = [row.model_copy(update={"attained_tflops": 0.01}) if row.shape["seq_len"] == 512 else row for row in cells]
    assert not any("–1024" in dot.label for dot in build_content(RUN, "gpu0", low).dots)


def test_the_labs_own_dots_are_drawn_next_to_the_fastest_and_look_the_same_on_every_card():
    dots = build_content(RUN, "gpu0", choose_dots(RUN, "gpu0")).dots
    of_cupy = [dot for dot in dots if dot.cell.implementation in ("cupy.matmul", "eager")]
    by_cupy = {(dot.cell.operator, dot.cell.dtype): dot for dot in of_cupy}
    assert {("gemm", "fp16"), ("gemm", "fp32"), ("decode_attention", "fp16")} <= {*by_cupy}
    assert by_cupy["decode_attention", "fp16"].label.endswith("%")
    kinds = [dot.kind for dot in dots]
    shown = markers_of_kinds(kinds)
    assert markers_of_kinds(reversed(kinds)) == shown and len({*shown.values()}) == len(shown)


@pytest.mark.parametrize("rows", [[], RUN.operators, OPERATIONS], ids=["no dots", "reference", "long names"])
def test_it_can_be_read_at_900_pixels(rows):
    figure = roofline_figure.draw_roofline(RUN.model_copy(update={"operators": rows}), "gpu0")
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    assert crossed_texts(figure, ceilings_of(figure)) == []
    assert min(text.get_size() for text, _ in texts_of(figure)) * 900 / 720 > 9


def test_slopes_near_one_another_have_names_apart():
    rates = {"dram_copy": 39.3, "dram_read": 30.8, "dram_read_one_core": 18}
    slopes = [row.model_copy(update={"gb_per_s": rates[row.name]}) for row in RUN.ceilings if row.name in rates]
    ceilings = [row for row in RUN.ceilings if not row.name.startswith("dram")] + slopes
    figure = roofline_figure.draw_roofline(RUN.model_copy(update={"ceilings": ceilings}), "cpu")
    assert overlapping_texts(figure) == []


@pytest.mark.parametrize(("block", "share"), [(1.5, True), (1.2, False)])
def test_a_doubted_cell_is_crossed_and_has_no_share(block, share):
    """Blocks of its GEMM differ by more than a fifth."""
    run = verified(peak_record("cpu", "fp32", 1.5, chosen_at=block), bandwidth_record("cpu", dram_read=100))
    (dot,) = build_content(run, "cpu", choose_dots(run, "cpu")).dots
    assert dot.label.endswith("%") == share
    markers = [drawn.get_marker() for drawn in dots_of(roofline_figure.draw_roofline(run, "cpu"))]
    assert (CROSSED["marker"] in markers) == bool(dot.cell.doubt)


# ---------------------------------------------------------------- operators


@pytest.mark.parametrize("operator", ["decode_attention", "gemm", "rmsnorm_matmul"])
def test_an_operators_picture_shows_every_cell(operator):
    figure = operator_figure.draw_operator_shares(RUN, operator)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    axes = [0, 1] if RUN.operator_info[operator].axis else [0]
    shares = {tuple(place)[axes[-1]] for dots in dots_of(figure) for place in dots.get_xydata()}
    assert {cell.fraction_of_roof for cell in RUN.operators if cell.operator == operator} <= shares


def test_row_normalisation_is_a_roofline_labelled_with_its_rates():
    figure = roofline_figure.draw_operator(RUN, "row_norm")
    assert overlapping_texts(figure) == [] and texts_outside(figure) == []
    assert crossed_texts(figure, ceilings_of(figure)) == []
    shown = [text.get_text() for text, _ in texts_of(figure)]
    for cell in RUN.operators:
        if cell.operator == "row_norm" and cell.device == "gpu0":
            rate = f"{RUN.label(cell)}: {flops_rate_text(cell.attained_tflops)}"
            gains = [f"{number(gain.cpu_time_ratio)}x {baseline}" for baseline, gain in cell.speed_up.items()]
            assert any(text.startswith(rate) and (not gains or gains[-1] in text) for text in shown)


# ---------------------------------------------------------------- levels and load


def test_sweeps_and_loads_can_be_read():
    for figure in (sweep_figure.draw_sweeps(RUN), load_figure.draw_loads(RUN)):
        assert overlapping_texts(figure) == [] and texts_outside(figure) == []


def test_every_level_is_named_with_its_knee_and_the_capacity_reported(tmp_path):
    printed = words_of(sweep_figure.draw_sweeps(RUN), tmp_path / "sweep.svg")
    for level in (plateau for sweep in RUN.sweeps for plateau in sweep.plateaus):
        assert any(f" {number(level.gb_per_s)} GB/s" in text for text in printed)
        if level.knee_bytes:
            reported = f" (reported {capacity(level.reported_bytes)})" if level.reported_bytes else ""
            assert any(f"knee {capacity(level.knee_bytes)}{reported}" in text for text in printed)


def test_load_has_burst_and_sustained_lines_and_axes_from_zero():
    loads = [ceiling for ceiling in RUN.ceilings if ceiling.kind == "compute" and ceiling.sustained]
    figure = load_figure.draw_loads(RUN)
    assert len(figure.axes) == 4 * len(loads) == 16  # our own kernels are not held under load
    for ceiling, (first, *row) in zip(
        loads, (figure.axes[i : i + 4] for i in range(0, len(figure.axes), 4)), strict=True
    ):
        assert len(first.lines[0].get_ydata()) == len(ceiling.sustained.first_products_s)
        assert [line.get_ydata()[0] for line in row[0].lines[1:]] == [ceiling.burst_tflops, ceiling.sustained_tflops]
        assert all(axes.get_ylim()[0] == 0 and max(axes.lines[0].get_ydata()) < axes.get_ylim()[1] for axes in row)


def test_a_picture_shows_what_failed_on_its_devices():
    shown = {name: devices for name, (_, devices) in drawings(RUN).items()}
    assert (shown["load.png"], shown["roofline_cpu.png"]) == ({"gpu0"}, {"cpu"})
