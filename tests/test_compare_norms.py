"""The comparison of the normalisations with PyTorch, as far as it needs neither: cells, arithmetic and words."""

import math

import pytest
from commands import load

from roofline.operators.base import Case
from roofline.operators.rmsnorm_matmul import RmsNormMatmul
from roofline.operators.row_norm import RowNorm


@pytest.fixture(scope="module")
def command():
    return load("compare_norms")


def fused(command, waiting_s, others, batch=1, overlapped_s=None):
    times = {"fused_graph waiting": waiting_s, **others}
    times |= {"fused_graph overlapped": overlapped_s} if overlapped_s else {}
    return command.row(RmsNormMatmul(), Case({"batch": batch, "hidden": 2048}, "fp16"), times, {})


def test_four_shapes_and_twenty_four_cells(command):
    names = [operator.name for operator, _ in command.cells()]
    assert (names.count("row_norm"), names.count("rmsnorm_matmul")) == (4, 24)
    assert len({repr(case) for _, case in command.cells()}) == 28


def test_a_cell_is_held_against_the_fastest_of_the_others(command):
    others = {"unfused_graph waiting": 8e-6, "pytorch eager": 9e-6, "pytorch compiled": 7e-6}
    found = fused(command, 5e-6, others, overlapped_s=3.5e-6)
    assert found["fastest_other"] == "pytorch compiled"
    assert (found["ratio"], found["overlapped_ratio"]) == (pytest.approx(1.4), pytest.approx(2))


def test_a_cell_without_the_other_or_without_overlap_has_no_such_ratio(command):
    alone = fused(command, 5e-6, {})
    assert alone["ratio"] is alone["overlapped_ratio"] is None
    waiting = fused(command, 5e-6, {"pytorch eager": 1e-5})
    assert waiting["ratio"] == pytest.approx(2) and waiting["overlapped_ratio"] is None
    assert "| - |" in command.table([alone]).splitlines()[-1]


def test_means_are_geometric_for_each_operator_and_for_the_largest_batch(command):
    times = {"welford_graph waiting": 2e-6, "pytorch eager": 3e-6}
    rows = [command.row(RowNorm(), Case({"rows": 1024, "columns": 128}, "fp32"), times, {})]
    rows += [fused(command, 4e-6, {"pytorch eager": 8e-6}), fused(command, 4e-6, {"pytorch eager": 2e-6}, batch=128)]
    told = command.summary(rows)
    assert told["row_norm"]["ratio"]["geometric_mean"] == pytest.approx(1.5)
    assert told["rmsnorm_matmul"]["ratio"] == {"geometric_mean": pytest.approx(math.sqrt(2 * 0.5)), "least": 0.5}
    assert told["rmsnorm_matmul, batch 128"]["ratio"]["least"] == 0.5
    words = command.in_words(told).splitlines()
    assert (
        words[0] == "row_norm: waiting 1.50 times as fast as the fastest other (geometric mean; at least 1.50 times)."
    )
