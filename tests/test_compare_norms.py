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


ROOFS = {"read": 4000.0, "copy": 2000.0}


def fused(command, waiting_s, others, batch=1, overlapped_s=None):
    times = {"fused_graph waiting": waiting_s, **others}
    times |= {"fused_graph overlapped": overlapped_s} if overlapped_s else {}
    return command.row(RmsNormMatmul(), Case({"batch": batch, "hidden": 2048}, "fp16"), times, {}, ROOFS)


def test_four_shapes_and_twenty_four_cells(command):
    names = [operator.name for operator, _ in command.cells()]
    assert (names.count("row_norm"), names.count("rmsnorm_matmul")) == (4, 24)
    assert len({repr(case) for _, case in command.cells()}) == 28


def test_a_cell_is_held_against_each_peer_and_the_fastest_of_them(command):
    others = {"unfused_graph waiting": 8e-6, "pytorch eager": 9e-6, "pytorch compiled": 7e-6}
    found = fused(command, 5e-6, others, overlapped_s=3.5e-6)
    assert found["fastest_peer"] == "pytorch compiled"
    fastest = {scope: ratios["fastest of them"] for scope, ratios in found["ratios"].items()}
    assert fastest == {"waiting": pytest.approx(1.4), "overlapped": pytest.approx(2)}
    assert found["ratios"]["waiting"]["unfused_graph waiting"] == pytest.approx(1.6)


def test_a_cell_without_the_other_or_without_overlap_has_no_such_ratio(command):
    alone = fused(command, 5e-6, {})
    assert alone["ratios"] == {"waiting": {}} and alone["fastest_peer"] is None
    assert fused(command, 5e-6, {"pytorch eager": 1e-5})["ratios"].keys() == {"waiting"}
    head, rule, row = command.table([alone]).splitlines()
    assert row.endswith("| - | - | - | - | - | - | - | - |") and head.count("|") == rule.count("|") == row.count("|")


def test_a_cell_has_its_share_of_what_the_memory_gives_to_its_accesses(command):
    """8.4 MB of W, x, g and y in 4 us are 2.1 TB/s of 4 read; 1 MB in 1 us is 1 TB/s of 2 copied."""
    found = fused(command, 4e-6, {}, overlapped_s=3e-6)
    assert found["share_of_read"] == {
        "waiting": pytest.approx(8.4009e6 / 4e-6 / 4e12, rel=1e-4),
        "overlapped": pytest.approx(8.4009e6 / 3e-6 / 4e12, rel=1e-4),
    }
    case = Case({"rows": 1024, "columns": 128}, "fp32")
    rows = command.row(RowNorm(), case, {"welford_graph waiting": 1e-6}, {}, ROOFS)
    assert rows["share_of_copy"] == {"waiting": pytest.approx(1.048576 / 2)}
    assert "| row_norm | fp32, rows 1024, columns 128 | 1 us | 52 % | - |" in command.table([rows])


def test_means_are_geometric_for_each_peer_and_slower_cells_are_counted(command):
    times = {"welford_graph waiting": 2e-6, "pytorch compiled": 3e-6, "pytorch layer_norm": 6e-6}
    rows = [command.row(RowNorm(), Case({"rows": 1024, "columns": 128}, "fp32"), times, {}, ROOFS)]
    rows += [fused(command, 4e-6, {"pytorch eager": 8e-6, "unfused_graph waiting": 16e-6}, overlapped_s=2e-6)]
    rows += [fused(command, 4e-6, {"pytorch eager": 2e-6}, batch=128)]
    told = command.summary(rows)
    assert told["row_norm"]["waiting"]["pytorch compiled"]["geometric_mean"] == pytest.approx(1.5)
    assert told["row_norm"]["waiting"]["pytorch layer_norm"]["geometric_mean"] == pytest.approx(3)
    waiting = told["rmsnorm_matmul"]["waiting"]
    mean = pytest.approx(math.sqrt(2 * 0.5))
    expected = {"cells": 2, "slower": 1, "geometric_mean": mean, "least": 0.5, "most": 2}
    assert waiting["fastest of them"] == waiting["pytorch eager"] == expected
    alone = {"cells": 1, "slower": 0, "geometric_mean": pytest.approx(4), "least": 4, "most": 4}
    assert waiting["unfused_graph waiting"] == alone
    assert told["rmsnorm_matmul"]["overlapped"]["fastest of them"] == alone
    assert told["rmsnorm_matmul, batch 128"]["waiting"]["fastest of them"]["least"] == 0.5
    words = command.in_words(told, ROOFS)
    assert "| rmsnorm_matmul | waiting | unfused_graph | 4.00 | 4.00 | 4.00 | 1 | 0 |" in words
    assert "| row_norm | waiting | F.layer_norm | 3.00 | 3.00 | 3.00 | 1 | 0 |" in words
