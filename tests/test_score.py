"""How many predictions are right, by regime and time; and how near predictors without the model come."""

from types import SimpleNamespace

import pytest
from records_factory import US, bandwidth_record, device_record, operator_record, peak_record, results
from records_factory import cell as measured_cell

from roofline.core.cell_prediction import is_within_factor
from roofline.records.cards import METHOD, CardRun, Cards, KnownCards, OtherModel
from roofline.records.seal_records import CostTerms
from roofline.table.load import build_table
from roofline.table.rows import CellPrediction
from roofline.table.run_records import Request
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


CELLS = {1024: 10**9, 2048: 2 * 10**9, 4096: 4 * 10**9}  # bytes by N
ROOF_S = {n: traffic / 4800e9 for n, traffic in CELLS.items()}
CPU_S = {n: 50 * US + 1.2 * roof_s for n, roof_s in ROOF_S.items()}


def known_run(card: str, day: int, seconds: dict[int, float], effort: str = "default") -> CardRun:
    facts = {"commit": None, "driver": None, "cublas_loaded": None, "power_limit_w": 700.0, "method": METHOD}
    values = {f"scan/plain/fp32/cold/n{n}/cpu_time": time_s / US for n, time_s in seconds.items()}
    at = f"2026-11-{day:02}T12:00:00+00:00"
    return CardRun(card_id=card, queried_at=at, effort=effort, values=values, **facts)


def slower(factor: float) -> dict[int, float]:
    return {n: factor * time_s for n, time_s in CPU_S.items()}


def baselines(runs: list[CardRun], other: list[CardRun] = ()) -> dict[tuple[str, str], object]:
    """The rows of a run of day 5 with three cells of one implementation and one of another, by time and predictor."""
    cells = [measured_cell("gpu0", CPU_S[n], 1.1 * ROOF_S[n], n=n, bytes=traffic) for n, traffic in CELLS.items()]
    cells.append(measured_cell("gpu0", 1e-3, 9e-4, implementation="naive"))
    device = device_record("gpu0", hardware={"power_limit_w": 700.0})
    ceilings = peak_record("gpu0", "fp32", 60.0), bandwidth_record("gpu0", hbm_read=4700.0)
    records = results(device, *ceilings, *(operator_record("gpu0", one, case=str(i)) for i, one in enumerate(cells)))
    half_as_fast = OtherModel(name="Half", runs=other, promised_tflops={"fp32": 67.0}, promised_gb_per_s=2400.0)
    known = KnownCards(devices={"gpu0": Cards(name="NVIDIA H200", runs=runs)}, other_models={"gpu0": half_as_fast})
    records.known_cards = known
    rows = build_table(records, Request(effort="default")).score.baselines
    return {(row.time, row.predictor): row for row in rows if row.device == "gpu0"}


def test_each_predictor_is_judged_by_the_cells_that_it_has_next_to_the_model_on_these():
    of_another_effort = known_run("a", 2, {1024: 2 * CPU_S[1024]}, effort="thorough")
    runs = [known_run("a", 1, slower(1.1)), of_another_effort, known_run("a", 9, slower(2.0))]
    rows = baselines(runs, [known_run("c", 1, {n: CPU_S[n] + roof_s for n, roof_s in ROOF_S.items()})])
    assert rows.pop(("cpu_time", "roof")).cell_count == 5, "with the reference GEMM"
    assert rows.pop(("gpu_time", "fit")).cell_count == 3, "without the implementation of one cell"
    assert {time for time, _ in rows} == {"cpu_time"}, "known runs have no other"
    assert {(row.cell_count, row.model_times_close) for row in rows.values()} == {(3, 2)}
    errors = {predictor: (row.median_error, row.times_close) for (_, predictor), row in rows.items()}
    exact = pytest.approx(0, abs=1e-9), 3
    assert errors == {
        "fit": exact,
        "earlier_runs": (pytest.approx(0.1), 3),  # neither the run of another effort, nor the later one
        "other_model": exact,  # its roof takes twice as long
        "repeat": (pytest.approx(0.9 / 2), 0),
    }


def test_without_two_runs_of_one_card_two_cards_show_the_noise():
    assert "2 cards" in baselines([known_run("a", 1, CPU_S), known_run("b", 2, CPU_S)])["cpu_time", "repeat"].runs
    assert ("cpu_time", "repeat") not in baselines([known_run("a", 1, CPU_S)])


def test_of_several_pairs_the_middle_one_shows_the_noise():
    factors = {"a": 2, "b": 1, "c": 1.1}
    runs = [known_run(card, day, slower(factors[card] ** day)) for card in factors for day in (1, 2)]
    row = baselines(runs)["cpu_time", "repeat"]
    assert (row.runs, row.times_close) == ("2 runs of 1 card, b", 3)
