"""What cards of one model reach, and where one stands among the others."""

from pathlib import Path

import pytest
from factories import device_record
from records_factory import bandwidth_record, page, peak_record

from roofline.analysis.checks.other_cards import OTHERS
from roofline.analysis.checks.registry import Evidence, judge
from roofline.analysis.distribution import card_id
from roofline.analysis.quantities import Quantity
from roofline.analysis.standing import sentence, standing
from roofline.records.distribution import Distribution, MeasuredRun

REFERENCE = Path(__file__).parents[1] / "reference" / "nvidia-h200"
H200 = "NVIDIA H200"


def quantity(key="bf16", value=800.0, kind="burst", higher=True, samples=100):
    return Quantity("gpu0", key, key, kind, value, "TFLOPS", higher, samples, None, None, None)


def run(card, limit=700.0, effort="default", library="120902", **values):
    return MeasuredRun(
        card_id=card_id(card),
        fingerprint=repr(values),
        queried_at="2026-11-22T12:00:00+00:00",
        commit=None,
        effort=effort,
        driver=None,
        software={"cublas_loaded": library},
        power_limit_w=limit,
        values=values,
    )


def made(*runs):
    return Distribution(card=H200, runs=list(runs), quantities=[])


def fleet(*values):
    return made(*(run(f"GPU-{place}", bf16=value) for place, value in enumerate(values)))


def card(uuid="GPU-mine", limit=700.0, **hardware):
    software = {"cublas_loaded": "120902"}
    return device_record("gpu0", name=H200, uuid=uuid, software=software, hardware={"power_limit_w": limit} | hardware)


def stand(found, value, device=None, effort="default", **fields):
    return standing(found, device or card(), [quantity(value=value, **fields)], effort)


def check(standing):
    """Of a card that stands so among others."""
    (found,) = [one for one in judge(Evidence("gpu0", card(), standing=standing)) if one.check == OTHERS]
    return found


@pytest.mark.parametrize(
    ("value", "result", "told"),
    [
        (800, "pass", "This H200 is within 1 % of 3 others"),
        (824, "pass", "This H200 is within 3 % of 3 others"),  # faster is no fault
        (797, "pass", "This H200 is within 1 % of 3 others"),
        (795, "note", "This H200 is below 3 others: bf16 by 0.62 % (note)"),
        (786, "note", "bf16 by 1.7 % (note)"),
        (783, "fail", "bf16 by 2.1 % (ask for another card)"),
        (400, "fail", "bf16 by 50 % (ask for another card)"),
    ],
)
def test_how_far_below_the_others_a_card_is(value, result, told):
    found = stand(fleet(800, 800.1, 799.9), value)
    assert found.result == result == check(found).result and told in sentence(H200, found)


def test_latency_is_better_where_it_is_lower():
    found = made(*(run(f"GPU-{place}", p2p=2.0) for place in range(3)))
    assert stand(found, 2.4, key="p2p", kind="link", higher=False).result == "fail"
    assert stand(found, 1.5, key="p2p", kind="link", higher=False).result == "pass"


def test_a_slow_link_asks_for_another_host():
    found = made(*(run(f"GPU-{place}", h2d=55.0) for place in range(3)))
    assert "h2d by 55 % (ask for another host)" in sentence(H200, stand(found, 25.0, key="h2d", kind="link"))


def test_a_figure_that_differs_between_cards_by_much_has_wider_bounds():
    found = fleet(800, 780, 820)  # a standard deviation of 2.5 %: a note from 10 %, a failure from 20 %
    low = stand(found, 730)
    assert low.result == "pass" and "bf16 varies by more from card to card" in sentence(H200, low)
    assert stand(found, 700).result == "note" and stand(found, 630).result == "fail"


@pytest.mark.parametrize("others", [(800,), (800, 800.1)])
def test_nothing_fails_beside_fewer_than_three_others(others):
    assert stand(fleet(*others), 780).result == "pass"
    assert stand(fleet(*others), 400).result == "note"


def test_a_card_is_never_compared_with_itself():
    found = made(run("GPU-mine", bf16=400), *(run(f"GPU-{place}", bf16=800) for place in range(3)))
    assert stand(found, 400).result == "fail" and stand(found, 400).cards == 3
    alone = stand(made(run("GPU-mine", bf16=400)), 400)
    assert sentence(H200, alone) == "no other H200 at a power limit of 700 W was measured yet"
    assert check(alone).result == "not_applicable"


def test_cards_of_another_power_limit_or_effort_and_slices_are_not_compared():
    assert stand(fleet(800), 500, card(limit=500.0)).cards == 0
    assert stand(fleet(800), 800, effort="quick").cards == 0
    assert "slice" in stand(fleet(800), 100, card(mig_slice=True)).why


def test_products_of_another_library_version_are_not_compared():
    others = [run(f"GPU-{place}", library="130000", bf16=800, hbm_read=4600) for place in range(3)]
    figures = [quantity("bf16", 700), quantity("hbm_read", 4600, kind="memory")]
    found = standing(made(*others), card(), figures, "default")
    assert [one.name for one in found.graded] == ["hbm_read"]


def test_a_figure_of_fewer_others_says_how_few_it_stands_beside():
    others = [run(f"GPU-{place}", bf16=800, **({"int8": 1448} if place == 0 else {})) for place in range(9)]

    def told(bf16, int8):
        figures = [quantity("bf16", bf16), quantity("int8", int8, kind="sustained")]
        return sentence(H200, standing(made(*others), card(), figures, "default"))

    few = "below the one other with this figure: int8 by 3.2 % (note)"
    assert told(800, 1401) == f"This H200 is {few}"
    assert told(780, 1401) == f"This H200 is below 9 others: bf16 by 2.5 % (ask for another card); {few}"
    assert told(800, 1448) == "This H200 is within 1 % of 9 others; 1 figure beside fewer of them"


def test_what_the_host_has_a_part_in_is_not_graded():
    for kind in ("pageable", "caller_time"):
        found = stand(fleet(800), 10, kind=kind)
        assert check(found).result == "not_applicable" and "none of this run" in found.why


def test_it_stands_in_the_interpretation_and_in_the_report():
    run = [peak_record("gpu0", "bf16", 400, vendor=989), bandwidth_record("gpu0", hbm_read=4000)]
    told, found = "This H200 is below 3 others: bf16 by 50 % (ask for another card).", stand(fleet(800, 801, 799), 400)
    assert told in page("interpretation", *run, standings={"gpu0": found})
    assert told not in page("interpretation", *run)
