"""All pictures of a run at once: the same bytes as one by one."""

from pathlib import Path

import pytest
from pictures import overlapping_texts, texts_of, texts_outside, texts_over_dots

from roofline.records.base import read
from roofline.report import (
    instruction_figure,
    load_figure,
    operator_figure,
    roofline_figure,
    sweep_figure,
)
from roofline.report.figure_style import headline, save
from roofline.run import pictures
from roofline.table.rows import Roofline

RUN = Path(__file__).parents[1] / "reference/nvidia-h200"


def test_drawn_side_by_side_they_are_the_same(tmp_path):
    roofline = read(Roofline, RUN / "roofline.json")
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir(), alone.mkdir()
    pictures.draw(
        together,
        roofline,
        {"attention": "decode_attention", "gemm": "gemm"},
        72,
        instructions=True,
    )
    save(roofline_figure.draw(roofline), [alone / "roofline.png", alone / "roofline.svg"])
    for picture, name in (("attention", "decode_attention"), ("gemm", "gemm")):
        save(operator_figure.draw(roofline, name), [alone / f"{picture}.png"])
    save(sweep_figure.draw(roofline), [alone / "sweep.png"])
    save(load_figure.draw(roofline), [alone / "load.png"])
    save(instruction_figure.draw(roofline), [alone / "instruction_roofline.png"])
    made = {path.name: path.read_bytes() for path in together.iterdir()}
    assert made == {path.name: path.read_bytes() for path in alone.iterdir()} and len(made) == 7


def test_what_failed_stands_above_a_picture_which_stays_as_it_is():
    """A long reason wraps; every text keeps its distance from the bottom, which the new lines do not touch."""
    roofline = read(Roofline, RUN / "roofline.json")
    lines = ["FAIL, cpu: a busy host: " + "one of 49 blocks disturbed " * 9, "FAIL, gpu0: another"]
    places = {text.get_text(): box for text, *box in texts_of(operator_figure.draw(roofline, "gemm"))}
    figure = headline(operator_figure.draw(roofline, "gemm"), lines)
    assert overlapping_texts(figure) == [] and texts_outside(figure) == [] and texts_over_dots(figure) == []
    now = {text.get_text(): box for text, *box in texts_of(figure)}
    assert " ".join(" ".join(text for text in now if text not in places).split()) == " ".join(" ".join(lines).split())
    assert all(now[text] == pytest.approx(box, abs=0.01) for text, box in places.items())
