"""A ceiling against the other known cards of its model; adding a run to them."""

from types import SimpleNamespace

import add_card
import against_known
import pytest
from records_factory import device_record

from roofline import api
from roofline.records import cards as known_cards
from roofline.table.quantities import Quantity

CARD = device_record("gpu0", hardware={"power_limit_w": 700.0})

JOULES = {"joules_per_flop": 1e-12, "joules_per_byte": None}
ENERGIES = {"fp16": {"power_w": 690.0, "reason": None}, "bf16": {"power_w": 600.0, "reason": "they differ"}}
LOADS = [
    SimpleNamespace(device="gpu0", name=name, energy=SimpleNamespace(**of, **JOULES)) for name, of in ENERGIES.items()
]
FIT = SimpleNamespace(device="gpu0", dtype="fp32", joules_per_flop=5e-12, joules_per_byte=1.2e-10)
CELL_ERRORS = {"sealed_gpu_time_error": 0.05104, "sealed_cpu_time_error": -0.1, "doubt": None, "roof_doubt": None}
DRAWN_CELL = SimpleNamespace(device="gpu0", operator="scan", implementation="fused", **CELL_ERRORS)
POWERED = SimpleNamespace(
    devices={"gpu0": SimpleNamespace(idle_power_w=120.0, constants_sha256={"scan": "c0", "gemm": "c1"})},
    ceilings=LOADS,
    energy_fits=[FIT],
    drawn=[DRAWN_CELL, SimpleNamespace(**vars(DRAWN_CELL) | {"doubt": "disturbed"})],
)
JOULES_OF_CARD = {"fp16/joules_per_flop": 1e-12, "energy_fit/fp32/joules_per_flop": 5e-12}
JOULES_OF_CARD |= {"energy_fit/fp32/joules_per_byte": 1.2e-10}
WATTS = {"idle/power_w": 120.0, "fp16/power_w": 690.0}


def run(card, value, **changes):
    known = {"queried_at": "2026-11-22T12:00:00+00:00", "commit": None, "method": CARD.method, "effort": "default"}
    known |= {"driver": None, "cublas_loaded": None, "power_limit_w": 700.0}
    return api.CardRun(**known | {"card_id": card, "values": {"hbm_read": value}} | changes)


def figure(value, kind="memory"):
    return Quantity("hbm_read", "hbm_read", kind, value, "GB/s", "gpu0", None, None, 100)


def against(value, runs):
    (ceiling,) = against_known.rank_ceilings(
        [figure(value)], api.select_comparable_runs(CARD, runs, "default").of_others
    )
    return ceiling


FIVE = [run(card, value) for card, value in zip("abcde", (4600, 4650, 4700, 4750, 4800), strict=True)]


def test_a_card_counts_once_with_the_median_of_its_runs():
    ceiling = against(4710, [*FIVE, run("e", 4900), run("e", 4950)])
    assert ceiling[3:] == (5, 2, 6, 4700, 4600, 4900)


@pytest.mark.parametrize(("value", "result"), [(4600, "pass"), (4550, "note"), (4330, "note"), (4320, "fail")])
def test_a_note_begins_at_three_and_a_failure_at_eight_percent_below_the_median(value, result):
    row = against_known.check_near([against(value, FIVE)], {"hbm_read": "heat"})
    assert row.result == result and bool(row.action) == (result != "pass") == ("heat" in row.reason)
    assert "heat" not in against_known.check_near([against(value, FIVE)], {}).reason


def test_the_power_cap_at_which_others_are_too_explains_nothing():
    reasons = {"fp16": ["sw_power_cap"], "fp32": ["sw_power_cap", "hw_thermal_slowdown"]}
    rows = [SimpleNamespace(device="gpu0", name=name, throttle_reasons=why) for name, why in reasons.items()]
    assert against_known.describe_limits(SimpleNamespace(ceilings=rows), "gpu0") == {"fp16": "", "fp32": "heat"}


def test_watts_have_a_rank_if_known_cards_have_them():
    watts = zip("abcde", range(600, 800, 40), strict=True)
    runs = [run(card, None, values={"fp16/power_w": power_w}) for card, power_w in watts]
    idle, fp16 = against_known.rank_figures(against_known.power_figures(POWERED, "gpu0"), runs)
    assert (idle.value, idle.median, idle.rank) == (120, None, None)
    assert (fp16.value, fp16.median, fp16.rank, fp16.unit) == (690, 680, 3, "W")


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """A run of one card, as if it were opened, and no known cards."""
    monkeypatch.setattr(known_cards, "CARDS", tmp_path)
    run_of_card = SimpleNamespace(devices={"gpu0": CARD}, quantities=[figure(4711.123)], effort="default", commit=None)
    run_of_card.roofline = POWERED
    monkeypatch.setattr(api, "open_run", lambda source: run_of_card)
    return run_of_card


def test_a_run_is_added_once(opened):
    for _ in range(2):
        assert len(add_card.add_run("archive")) == 1
        (added,) = api.cards(CARD.name).runs
        errors = {"gpu_time": {"scan/fused": [0.051]}, "cpu_time": {"scan/fused": [-0.1]}}
        assert added.drawn == api.DrawnErrors(constants_sha256={"scan": "c0"}, **errors)
        assert (added.card_id, added.values) == (
            api.card_id(CARD.uuid),
            {"hbm_read": 4711.12, **WATTS, **JOULES_OF_CARD},
        )


@pytest.mark.parametrize("device", [device_record("cpu"), CARD.model_copy(update={"hardware": {"mig_slice": "1g"}})])
def test_a_run_without_a_whole_gpu_is_refused(opened, device):
    opened.devices = {"device": device}
    with pytest.raises(api.UserError):
        add_card.add_run("archive")
