"""The rank of a card among the known cards of its model."""

import pytest
from factories import device_record
from records_factory import bandwidth_record, cell, operator_record, peak_record, results

from roofline.records import cards
from roofline.records.base import read
from roofline.records.cards import METHOD, CardRun, Cards, KnownCards, card_id, write_cards
from roofline.report.words import describe_standing
from roofline.table.known_cards import find_known_cards
from roofline.table.load import build_table
from roofline.table.run_records import Request

H200 = "NVIDIA H200"


def run(card, method=METHOD, **values):
    facts = {"commit": None, "driver": None, "cublas_loaded": None, "queried_at": "2026-11-22T12:00:00+00:00"}
    facts |= {"method": method, "effort": "default", "power_limit_w": 700.0}
    return CardRun(card_id=card_id(card), values=values, **facts)


def table_of(*runs):
    device = device_record("gpu0", name=H200, uuid="GPU-mine", hardware={"power_limit_w": 700.0})
    records = results(device, peak_record("gpu0", "fp16", 800), bandwidth_record("gpu0", hbm_read=4600))
    records.known_cards = KnownCards(devices={"gpu0": Cards(name=H200, runs=runs)})
    return build_table(records, Request(effort="default"))


def standings(*runs):
    return [row.standing for row in table_of(*runs).ceilings]


FOUR = [run(card, fp16=value, hbm_read=4600) for card, value in zip("abcd", (700, 790, 804, 900), strict=True)]


def test_a_card_counts_once_by_the_median_of_its_runs_and_ranks_among_five_others():
    unranked, reads = standings(*FOUR)
    assert (unranked.others, unranked.median, unranked.lowest, unranked.highest) == (4, 790, 700, 900), (
        "a card has the median"
    )
    assert unranked.rank is None and reads.rank is None
    twice = [run("e", fp16=820), run("e", fp16=824), run("e", fp16=851)]  # its runs differ by 3.8 %
    fp16, reads = standings(*FOUR, *twice)
    assert (fp16.rank, fp16.rank_at_worst, fp16.median) == (2, 5, 804), "790 to 830 are alike"
    assert standings(*FOUR, run("e", fp16=830))[0].rank == 3
    again = [run(card, fp16=value + 1) for card, value in (("b", 790), ("c", 804), ("d", 900))]  # 0.1 % apart
    twice = standings(*FOUR, run("e", fp16=830), *again)[0]
    assert (twice.rank, twice.rank_at_worst) == (4, 4)
    assert standings(*FOUR, run("e", method=METHOD - 1)) == [unranked, reads]


def test_the_standing_is_said_of_gemms_and_memory():
    words = describe_standing(table_of(*FOUR, run("e", fp16=830)), "gpu0")
    assert "(5)" in words and "fp16 3rd–4th of 6" in words and "hbm_read median 4600" in words
    assert describe_standing(table_of(), "gpu0") == ""


def spreads(*runs):
    return table_of(*runs).ceilings[0].spreads


def test_runs_of_this_card_come_before_those_of_others_and_cards_are_told_apart():
    """The run itself, which may be known already, is not another one."""
    itself = run("GPU-mine", fp16=800).model_copy(update={"queried_at": device_record("gpu0").queried_at})
    alone = spreads(itself)
    assert (alone.between_runs, alone.runs_of, alone.between_cards, alone.card_count) == (None, None, None, 1)
    twice = [run("e", fp16=820), run("e", fp16=861)]
    of_others = spreads(*FOUR, *twice)
    assert (of_others.runs_of, of_others.run_count, of_others.card_count) == ("other cards", 2, 6)
    assert of_others.between_runs == pytest.approx(0.05) and of_others.between_cards == pytest.approx(900 / 700 - 1)
    of_this_card = spreads(*FOUR, *twice, itself, run("GPU-mine", fp16=808), run("GPU-mine", fp16=804))
    assert (of_this_card.runs_of, of_this_card.run_count) == ("this card", 3)
    assert of_this_card.between_runs == pytest.approx(0.01)
    assert spreads(run("GPU-mine", method=METHOD - 1, fp16=700)).runs_of is None, "another method"


def test_a_sustained_rate_is_ranked_and_spread_by_itself():
    device = device_record("gpu0", name=H200, uuid="GPU-mine", hardware={"power_limit_w": 700.0})
    records = results(device, peak_record("gpu0", "fp16", 800, sustained=680))
    runs = [run("a", fp16=900, **{"fp16/sustained": 690}), run("GPU-mine", **{"fp16/sustained": 686.8})]
    records.known_cards = KnownCards(devices={"gpu0": Cards(name=H200, runs=runs)})
    (fp16,) = build_table(records, Request(effort="default")).ceilings
    assert (fp16.standing.median, fp16.sustained_standing.median) == (900, 690)
    assert fp16.sustained_spreads.between_runs == pytest.approx(0.01) and fp16.spreads.runs_of is None


def test_known_cards_are_one_line_each_and_a_run_keeps_their_ceilings_and_the_times_of_its_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "CARDS", tmp_path)
    time = "scan/plain/fp32/cold/n1024/gpu_time"
    runs = [run("GPU-1", fp16=900.0, **{time: 3.0, "scan/plain/fp32/cold/n8/gpu_time": 2.0}), run("GPU-2", fp16=800.0)]
    runs.append(run("GPU-3", METHOD - 2, fp16=700.0, **{time: 4.0}))
    write_cards(Cards(name=H200, runs=runs), cards.cards_path(H200))
    assert len(cards.cards_path(H200).read_text().splitlines()) == 2 + len(runs)
    assert cards.read_cards(H200).runs == runs
    for name, count in {"NVIDIA H200 NVL": 1, "NVIDIA H100 80GB HBM3": 2, "of no datasheet": 3}.items():
        keys = [f"scan/plain/fp32/cold/n{n}/{of}" for n in (1024, 2048) for of in ("cpu_time", "gpu_time")]
        write_cards(Cards(name=name, runs=[run("GPU-4", **dict.fromkeys(keys[:count], 5.0))]), cards.cards_path(name))
    made = [operator_record("gpu0", cell("gpu0", 4e-6, 3e-6, n=n), case=str(n)) for n in (1024, 2048)]
    known = find_known_cards(
        results(device_record("gpu0", name=H200), *made, operator_record("cpu", cell("cpu", 1e-3)))
    )
    kept = [run.values for run in known.devices["gpu0"].runs]
    assert kept == [{"fp16": 900.0, time: 3.0}, {"fp16": 800.0}, {"fp16": 700.0}] and len(known.devices) == 1
    other = known.other_models["gpu0"]
    assert (other.name, other.promised_gb_per_s, other.promised_tflops["fp32_fma"]) == (
        "NVIDIA H100 80GB HBM3",
        3350,
        66.9,
    )


def test_the_committed_runs_are_of_the_model_of_their_file_each_once_and_in_order():
    files = sorted(cards.CARDS.glob("*.json"))
    assert files
    for path in files:
        model = read(Cards, path)
        assert cards.cards_path(model.name) == path
        runs = [(run.queried_at, run.card_id) for run in model.runs]
        assert runs == sorted(set(runs)) and all("hbm_read" in run.values for run in model.runs)


@pytest.mark.parametrize(
    ("key", "methods", "comparable"),
    [
        ("fp16", {4}, True),
        ("fp16", {3, 4}, False),  # by method 4 other products are ceilings
        ("fp16/sustained", {3, 4}, False),
        ("gemm/cupy.matmul/fp16/m4096/gpu_time", {3, 4}, False),
        ("l2", {3, 4}, False),
        ("l2_shared_by_all", {3, 4}, False),
        ("fp32_fma", {3, 4}, True),
        ("hbm_read", {3, 4}, True),
        ("hbm_read", {2, 4}, False),
        ("fp16", set(), True),  # of a CPU
    ],
)
def test_only_what_two_methods_measure_alike_is_compared(key, methods, comparable):
    assert cards.is_comparable(key, methods) == comparable
