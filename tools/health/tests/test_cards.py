"""A ceiling against the other known cards of its model; adding a run to them."""

import dataclasses

import add_card
import against_known
import pytest
from records_factory import device_record

from roofline import api
from roofline.analysis.quantities import Quantity
from roofline.records import cards as known_cards

CARD = device_record("gpu0", hardware={"power_limit_w": 700.0})


def run(card, value, **changes):
    known = {"date": "2026-11-22T12:00:00+00:00", "commit": None, "method": api.METHOD, "effort": "default"}
    known |= {"driver": None, "cublas": None, "power_limit_w": 700.0}
    return api.CardRun(**known | {"card_id": card, "values": {"hbm_read": value}} | changes)


def figure(value, key="hbm_read", kind="memory"):
    return Quantity("gpu0", key, key, kind, value, "GB/s", True, 100, None, None, None)


def against(value, runs, **changes):
    known = api.Cards(card=CARD.name, runs=runs)
    (found,) = against_known.ceilings(CARD, [figure(value, **changes)], "default", known)
    return found


FIVE = [run(card, value) for card, value in zip("abcde", (4600, 4650, 4700, 4750, 4800), strict=True)]


def test_a_card_counts_once_with_the_median_of_its_runs():
    found = against(4710, [*FIVE, run("e", 4900), run("e", 4950)])
    assert (found.cards, found.rank, found.median, found.lowest, found.highest) == (5, 3, 4700, 4600, 4900)
    assert found.words == "hbm_read 4710 GB/s, rank 3 of 6 known cards (median 4700, 4600 to 4900)"


@pytest.mark.parametrize(
    ("value", "result"), [(5000, "pass"), (4600, "pass"), (4550, "note"), (4330, "note"), (4320, "fail")]
)
def test_a_note_begins_at_three_and_a_failure_at_eight_percent_below_the_median(value, result):
    row = against_known.near([against(value, FIVE)])
    assert row.result == result and bool(row.action) == (result != "pass")


@pytest.mark.parametrize(
    "other",
    [
        {"power_limit_w": 600.0},
        {"effort": "quick"},
        {"method": api.METHOD + 1},
        {"card_id": api.card_id(CARD.uuid)},
        {"values": {}},
    ],
)
def test_with_fewer_than_five_comparable_cards_no_rank_is_known(other):
    found = against(
        100, [*FIVE[:4], run("e", 4800, **other) if "values" in other else run("e", 4800).model_copy(update=other)]
    )
    row = against_known.near([found])
    assert (found.cards, found.rank, row.result) == (4, None, "not known") and found.words == "hbm_read 100 GB/s"


def test_a_run_without_an_effort_counts():
    assert against(4700, [*FIVE[:4], run("e", 4800, effort=None)]).rank is not None


def test_copies_of_pageable_memory_and_unknown_models_are_not_compared():
    assert against_known.ceilings(CARD, [figure(9, kind="pageable")], "default", None) == []
    assert against_known.near(against_known.ceilings(CARD, [figure(9)], "default", None)).result == "not known"


def test_of_a_low_link_another_host_is_the_advice():
    assert against_known.near([against(40, FIVE, kind="link")]).action.endswith("for h2d and d2h another host")


def test_an_archive_is_added_once(monkeypatch, tmp_path):
    monkeypatch.setattr(known_cards, "CARDS", tmp_path)
    source = "reference/nvidia-h200"
    first = add_card.add(source)
    (path,) = tmp_path.iterdir()
    assert first[-1] == f"NVIDIA H200: 1 run of 1 card in {path}"
    (run,) = api.cards("NVIDIA H200").runs
    assert 4000 < run.values["hbm_read"] < 5000
    before = path.read_text()
    with pytest.raises(api.Refused, match="already in"):
        add_card.add(source)
    assert path.read_text() == before


def test_a_run_without_a_gpu_is_refused(monkeypatch):
    whole = api.open_run("reference/nvidia-h200")
    monkeypatch.setattr(api, "open_run", lambda path: dataclasses.replace(whole, devices={"cpu": whole.devices["cpu"]}))
    with pytest.raises(api.Refused, match="no GPU was measured"):
        add_card.add("of a CPU")
