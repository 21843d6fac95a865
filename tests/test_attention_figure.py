"""The picture of decode attention: shares of the roof over bytes, by the boxes that the renderer gives its texts."""

from __future__ import annotations

from itertools import combinations

import pytest
import samples
from test_figures import apart, texts_of, words_in

from roofline.records.roofline import Roofline
from roofline.report import attention_figure, figures

EVERY_WAY = ("eager", "fused", "fused_graph", "numpy")


def content(keep=lambda row: True, make=samples.every_implementation):
    """A run, of whose steps those are left that are to be kept."""
    whole = make()
    kept = [row for row in whole["operators"] if row["operator"] != "decode_attention" or keep(row)]
    return whole | {"operators": kept}


def drawn(made, overheads_s=None):
    return attention_figure.draw(Roofline.model_validate(made), samples.attention_records(made, overheads_s))


def panels(made, overheads_s=None):
    return attention_figure.panels(Roofline.model_validate(made), samples.attention_records(made, overheads_s))


def several_presets():
    made = samples.every_implementation()
    others = [row | {"preset": "gpt2"} for row in made["operators"] if row["operator"] == "decode_attention"]
    return made | {"operators": made["operators"] + others}


def overlapping_batches():
    """Batch 1 and 4: the longest sequence of one moves as many bytes as a short one of the other."""
    made = samples.every_implementation()
    ceilings = made["ceilings"]
    steps = [
        samples.decode_attention(ceilings, "cpu", "fp32", seq_len, batch, "core", "dram_read", "numpy")
        for batch in (1, 4)
        for seq_len in samples.SEQ_LENS
    ]
    return samples.sample_roofline(samples.cpu(), ceilings, steps, [])


def above_the_roof():
    made = content(lambda row: row["device"] == "cpu")
    for row in made["operators"]:
        row["fraction_of_roof"] *= 3.3
    return made


KEPT = {
    "all": content(),
    "three dtypes": samples.every_implementation(("fp32", "fp16", "bf16")),
    "the CPU": content(lambda row: row["device"] == "cpu"),
    "the GPU": content(lambda row: row["device"] != "cpu"),
    "eager": content(lambda row: row["implementation"] == "eager"),
    "fused": content(lambda row: row["implementation"] == "fused"),
    "batch 1": content(lambda row: row["shape"]["batch"] == 1),
    "one S": content(lambda row: row["shape"]["seq_len"] == 128),
    "one dot": content(
        lambda row: (
            (row["implementation"], row["dtype"], row["scope"], *row["shape"].values())
            == ("eager", "fp32", "core", 256, 8, 8, 64, 1024)
        )
    ),
    "presets": several_presets(),
    "batches that overlap": overlapping_batches(),
    "above the roof": above_the_roof(),
}


@pytest.mark.parametrize("made", KEPT.values(), ids=KEPT.keys())
def test_no_text_over_another_and_all_within_the_paper(made):
    figure = drawn(made)
    with figures.matplotlib.rc_context(figures.STYLE):
        found = [(text.get_text(), quad) for text, quad in texts_of(figure)]
    over = [(a, b) for (a, first), (b, second) in combinations(found, 2) if not apart(first, second)]
    assert over == []
    width, height = figure.get_size_inches() * figure.dpi
    outside = [t for t, q in found if q.min() < 0 or q[:, 0].max() > width or q[:, 1].max() > height]
    assert outside == []


def test_what_it_tells(tmp_path):
    told = words_in(drawn(content()), tmp_path / "attention.svg")
    assert "gpu0: NVIDIA H200" in told and any(text.startswith("cpu: ") for text in told)
    assert {"eager", "fused", "fused_graph", "numpy", "fp32", "fp16", "hollow: the device alone"} <= set(told)
    assert {"batch 1", "batch 256", "100 %", "1 MB", "100 MB", "1 GB", "of the roof", "bytes moved a step"} <= set(told)
    assert "fused: starting takes 8 us, in which 4641 GB/s move 37.1 MB" in told
    assert "numpy: starting takes 30 us, in which 118 GB/s move 3.54 MB" in told
    assert {"99 %", "27 %", "70 %"} <= set(told)  # at the ends of lines


@pytest.mark.parametrize("times", [1.0, 2.0, 3.3])
def test_the_whole_roof_is_among_the_ticks(times):
    made = content(lambda row: row["device"] == "cpu")
    for row in made["operators"]:
        row["fraction_of_roof"] *= times
    (panel,) = panels(made)
    scale = attention_figure._scale(panel, figures.Box(0, 0, 100, 100))
    told = [words for _, words in attention_figure._shares(scale)]
    assert "100 %" in told and 3 <= len(told) <= 8


def test_blocks_are_left_out_and_series_differ_in_s_alone():
    gpu, cpu = panels(content())
    assert {cell.scope for panel in (gpu, cpu) for cell in panel.cells} == {"core"}
    assert (len(gpu.cells), len(gpu.series), len(cpu.cells), len(cpu.series)) == (48, 12, 16, 4)
    for cells in gpu.series:
        assert [cell.shape["seq_len"] for cell in cells] == list(samples.SEQ_LENS)


def test_a_zone_is_what_the_memory_moves_while_a_call_starts():
    gpu, _ = panels(content())
    assert [zone.implementation for zone in gpu.zones] == ["eager", "fused", "fused_graph"]
    for zone in gpu.zones:
        assert zone.bytes == pytest.approx(samples.CALLS_S[zone.implementation] * 4641e9)
        waiting = [c.bytes for c in gpu.cells if c.implementation == zone.implementation and c.regime == "overhead"]
        assert max(waiting) < zone.bytes


def test_without_what_starting_takes_there_is_no_zone():
    gpu, cpu = panels(content(), {"fused": 8e-6})
    assert [zone.implementation for zone in gpu.zones] == ["fused"] and cpu.zones == ()


def test_presets_have_panels_of_their_own():
    titles = [panel.title for panel in panels(several_presets())]
    assert titles[:2] == ["gpu0: NVIDIA H200, minigpt", "gpu0: NVIDIA H200, gpt2"] and len(titles) == 4


def test_markers_are_those_of_the_roofline():
    from roofline.report import figure_content

    markers = figure_content.markers_of(content()["operators"])
    for name in EVERY_WAY:
        assert attention_figure._marker(name) == markers[f"decode attention, {name}"]


@pytest.mark.parametrize(
    "made", [samples.no_dots(), content(lambda row: False), content(lambda row: row["scope"] == "block")]
)
def test_nothing_to_draw_is_said(tmp_path, made):
    assert any(text.startswith("No decode attention") for text in words_in(drawn(made), tmp_path / "none.svg"))


def test_steps_without_a_roof_have_no_place():
    made = content()
    for row in made["operators"]:
        row |= dict.fromkeys(("fraction_of_roof", "device_fraction_of_roof", "roof_tflops"))
    assert panels(made) == []


@pytest.mark.parametrize(
    ("size", "words"),
    [(0.5, "0.5 bytes"), (512, "512 bytes"), (262144, "262 kB"), (1.34e9, "1.34 GB"), (5e15, "5000 TB")],
)
def test_bytes_in_decimal(size, words):
    assert attention_figure.in_decimal(size) == words


def test_drawn_the_same_twice(tmp_path):
    for name in ("one", "other"):
        figures.save(drawn(content()), [tmp_path / f"{name}.svg"], 100)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
