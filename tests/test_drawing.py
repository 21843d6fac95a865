"""Shapes that are drawn from the seals: always the same from the same, within their limits, and nobody's choice."""

from math import log
from statistics import median

import pytest

from roofline.operators.drawing import LARGEST_BYTES, Draw, draw_shapes
from roofline.operators.registry import builtin_operators

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
