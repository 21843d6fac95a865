"""PyTorch's products beside the ceilings, as far as they need no PyTorch: the shapes that it is given."""

import pytest
from commands import load
from workflow_run import CHECKOUT

from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord

RECORDS = CHECKOUT / "reference" / "nvidia-h200" / "gpu0" / "peak_flops"


@pytest.fixture(scope="module")
def command():
    return load("compare_pytorch")


def test_it_is_given_every_shape_and_layout_of_the_ceilings_search_once_the_fastest_first(command):
    shapes = command.searched(RECORDS / "fp16.json")
    assert len(shapes) == len(set(shapes)) == 33
    best = read(PeakFlopsRecord, RECORDS / "fp16.json").peak.candidates[0].product
    assert shapes[0] == (*(best.shape[side] for side in "mnk"), best.layout)
    assert str(command.Shape(2048, 2048, 16384, "NT")) == "2048 x 2048 x 16384 NT"
    assert {shape.layout for shape in command.searched(RECORDS / "int8.json")} == {"TN"}


def test_without_a_record_or_products_it_is_given_none(command, tmp_path):
    assert command.searched(tmp_path / "fp16.json") == command.searched(RECORDS / "fp32_fma.json") == []


def test_a_shape_that_pytorch_lacks_is_no_finalist_and_the_budget_ends_the_trials(command, monkeypatch):
    def product(torch, dtype, shape):
        if shape.layout == "NN":
            raise RuntimeError("no such product")

    monkeypatch.setattr(command, "product", product)
    monkeypatch.setattr(command, "tflops", lambda torch, multiply, shape, **protocol: shape.m)
    shapes = [command.Shape(m, 64, 64, layout) for m in (64, 128, 256) for layout in ("NN", "TN")]
    found = command.finalists(None, "fp16", shapes)
    assert [(shape.m, shape.layout) for shape in found] == [(256, "TN"), (128, "TN")]
    assert command.finalists(None, "fp16", shapes, budget_s=0) == []


def test_the_ceiling_is_held_against_the_best_shape_of_all(command, monkeypatch):
    monkeypatch.setattr(command, "REST_S", 0)
    monkeypatch.setattr(command, "product", lambda torch, dtype, shape: None)
    monkeypatch.setattr(command, "tflops", lambda torch, multiply, shape, **protocol: 900 if shape.k == 16384 else 700)
    (row,) = command.compare(None, {"fp16": 776}, {"fp16": 743}, RECORDS)
    assert " x 16384 " in row["fastest"] and row["ratio"] == pytest.approx(776 / 900)
    assert row["below"] and row["shapes_offered"] == 33
    head, rule, line = command.table([row]).splitlines()
    assert line.startswith(f"| fp16 | 776 | 743 | 700 | 700 | 900 | {row['fastest']} |")
    assert head.count("|") == rule.count("|") == line.count("|")
    assert "of 1 dtypes with the range: 0.86 (0.86 to 0.86)" in command.in_words([row])
