"""Shapes that are drawn from the seals: always the same from the same, within their limits, and nobody's choice."""

from math import log
from statistics import median

import pytest
from records_factory import bandwidth_record, cell, operator_record, peak_record, verified

from roofline.operators.drawing import LARGEST_BYTES, Draw, draw_shapes
from roofline.operators.registry import builtin_operators
from roofline.report.pages import build_pages
from roofline.report.report_model import build_report
from roofline.report.words import describe_drawn

SEALS = {"gpu0/calibration.json": "c", "gpu0/prediction.json": "d", "gpu0/decode_attn/prediction.json": "o"}
DRAWN = [operator for operator in builtin_operators() if operator.drawn_sizes]


@pytest.fixture(params=DRAWN, ids=lambda operator: operator.rule)
def operator(request):
    return request.param


def test_the_same_seals_give_the_same_shapes_and_any_other_seal_gives_others(operator):
    job, drawn = draw_shapes(operator, SEALS, 4)
    assert draw_shapes(operator, dict(reversed(SEALS.items())), 4) == (job, drawn)
    assert draw_shapes(operator, SEALS, 3)[0].cases == job.cases[:3]
    for path in SEALS:
        other_job, other = draw_shapes(operator, SEALS | {path: "other"}, 4)
        assert other_job != job and other.seed != drawn.seed


def test_shapes_are_within_their_limits(operator):
    cases = draw_shapes(operator, SEALS, 200)[0].cases
    assert all(operator.bytes(case, operator.first_scope) <= LARGEST_BYTES for case in cases)
    assert {case.dtype for case in cases} == {*operator.drawn_dtypes}
    for name, (low, high, multiple) in operator.drawn_sizes.items():
        sizes = [case.shape[name] for case in cases]
        assert low <= min(sizes) < 2 * low and high / 4 < max(sizes) <= high
        assert not [size for size in sizes if size % multiple]


def test_sizes_are_log_uniform():
    draw = Draw("seed")
    sizes = [draw.size(1, 10_000, 1) for _ in range(2000)]
    assert log(median(sizes), 10) == pytest.approx(2, abs=0.1)
    assert sum(size < 10 for size in sizes) == pytest.approx(500, abs=60)


def test_the_presets_are_drawn_alike():
    attention = next(operator for operator in DRAWN if operator.rule == "decode_attn")
    presets = [case.preset for case in draw_shapes(attention, SEALS, 300)[0].cases]
    assert min(map(presets.count, {*presets})) > 60 and {*presets} == {"minigpt", "gpt2", "llama-3-8b"}


# ---------------------------------------------------------------- in the table and on the pages


def drawn_run(*planned):
    drawn = [
        cell("gpu0", 5e-4, 5e-4, n=size, implementation=name) for size in (300, 400) for name in ("plain", "other")
    ]
    return verified(
        peak_record("gpu0", "fp32", 60),
        bandwidth_record("gpu0", hbm_read=4000),
        *planned,
        operator_record("gpu0", *drawn, case="drawn"),
    )


def test_drawn_cells_are_apart_and_scored_apart():
    table = drawn_run(operator_record("gpu0", cell("gpu0", 9e-4, 9e-4)))
    assert [row.shape for row in table.operators if row.operator == "scan"] == [{"n": 1024}]
    assert (len(table.drawn), table.score.cell_count, table.drawn_score.cell_count) == (4, len(table.operators), 4)
    assert "On 2 shapes drawn after sealing" in describe_drawn(table, "gpu0")


def test_a_run_of_drawn_cells_alone_has_its_pages():
    table = drawn_run()
    page = build_pages(build_report(table))["verification.md"]
    assert not [row for row in table.operators if row.operator == "scan"]
    assert all(table.full_name(row) in page for row in table.drawn)


def test_there_are_fewer_shapes_where_the_limits_leave_few(operator, monkeypatch):
    few = {name: (low, low + multiple, multiple) for name, (low, _, multiple) in operator.drawn_sizes.items()}
    monkeypatch.setattr(type(operator), "drawn_sizes", few)
    cases = draw_shapes(operator, SEALS, 50)[0].cases
    assert 2 <= len(cases) < 50 and all(cases.count(case) == 1 for case in cases)
