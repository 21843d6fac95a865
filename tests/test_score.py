"""How many predictions are right: the regime, the time within a factor of two."""

from types import SimpleNamespace

import pytest

from roofline.core.cell_prediction import is_within_factor
from roofline.records.seal_records import CostTerms
from roofline.table.rows import CellPrediction
from roofline.table.scores import START_S, implementation_kind, score_predictions


def cell(sealed="memory", regime="memory", sealed_s=1.0, latency_s=1.0, **doubts):
    fields = {"regime_level": None, "cpu_time_s": sealed_s, "gpu_time_s": None, "fraction_of_compute_peak": None}
    predicted = sealed and CellPrediction(regime=sealed, **fields)
    return SimpleNamespace(
        sealed=predicted,
        baseline_prediction=predicted,
        regime=regime,
        cpu_time_s=latency_s,
        sealed_regime_right=sealed == regime,
        sealed_time_right=is_within_factor(sealed_s, latency_s) if sealed and sealed_s and latency_s else None,
        **{"doubt": None, "roof_doubt": None} | doubts,
    )


def counts(*cells):
    score = score_predictions(cells)
    return score.cell_count, score.regimes_right, score.times_right, score.both_right


@pytest.mark.parametrize(("sealed_s", "right"), [(0.49, False), (0.5, True), (2.0, True), (2.01, False)])
def test_a_time_is_right_within_a_factor_of_two(sealed_s, right):
    assert counts(cell(sealed_s=sealed_s)) == (1, 1, int(right), int(right))


def test_a_prediction_is_right_where_regime_and_time_are():
    cells = [cell(), cell(regime="overhead"), cell(sealed_s=9.0), cell(regime="overhead", sealed_s=9.0)]
    assert counts(*cells) == (4, 2, 2, 1)


def test_what_has_no_seal_or_no_regime_or_no_time_is_not_judged():
    assert counts(cell(sealed=None), cell(regime=None), cell(latency_s=None), cell(sealed_s=None)) == (0, 0, 0, 0)


@pytest.mark.parametrize("doubted", ["doubt", "roof_doubt"])
def test_a_doubted_cell_is_not_judged(doubted):
    assert counts(cell(), cell(**{doubted: "disturbed"})) == (1, 1, 1, 1)


def test_the_errors_of_the_times():
    score = score_predictions([cell(sealed_s=1.1), cell(sealed_s=1.3), cell(sealed_s=0.9)])
    assert (score.cell_count, score.times_close) == (3, 2) and score.median_cpu_time_error == pytest.approx(0.1)


def test_a_predictor_without_a_model_is_judged_by_the_same_cells():
    seen = cell()
    seen.baseline_prediction = cell(sealed="compute", sealed_s=0.4).sealed
    score = score_predictions([seen]).baseline_tally
    assert (score.cell_count, score.regimes_right, score.times_right) == (1, 0, 0)


@pytest.mark.parametrize(
    ("terms", "seconds"),
    [
        (CostTerms(calls={"graph_launch_s": 0.1}, start={"graph_node_s": 1}), START_S["graph"]),
        (CostTerms(calls={"array_operation_s": 9}, start={"array_kernel_s": 9}), START_S["arrays"]),
        (CostTerms(calls={"loop_s": 1}), START_S["loops of a CPU"]),
    ],
)
def test_the_start_up_time_of_a_kind_of_implementation(terms, seconds):
    assert START_S[implementation_kind(terms)] == seconds
