"""make health: a card without fault is healthy; each fault is named, with what to do. On a stand-in of known rates."""

import json
from dataclasses import replace

import pytest
from factories import seals_for
from fake_gpu import nvml_card, open_gpu, use_nvml

from roofline.analysis import health
from roofline.analysis.checks.card import (
    COPIES,
    CORRECTED,
    LINK,
    MEASURED,
    MEMORY,
    POWER_LIMIT,
    REPAIRS,
    REPEATABLE,
    XIDS,
)
from roofline.analysis.checks.ceilings import MATMULS, NEAR_MAXIMUM, READS, REGISTERS
from roofline.analysis.checks.conditions import ALONE, COOL, UNTHROTTLED, UNUSED
from roofline.analysis.checks.registry import Evidence, HealthEvidence
from roofline.devices.description import describe
from roofline.devices.gpu import fma, watch
from roofline.measure import compute_ceiling, memory_ceiling
from roofline.measure.repeatability import repeat
from roofline.operators.gemm import Gemm
from roofline.records.compute import PeakFlopsRecord
from roofline.records.health import HealthRecord, RepeatabilityRecord, Unused, Xid
from roofline.records.memory import BandwidthRecord
from roofline.report.health_page import screen

# GB/s and TFLOPS of an H200; register-only kernels run on two of its multiprocessors, which NumPy can follow.
FEW, ALL = 2, 132
RATES = {"read": 4600, "write": 4600, "copy": 4300, "triad": 4300, "link": 55, "fma": 65.5 * FEW / ALL, "bfloat16": 800}
CARD = nvml_card("GPU-1", "0000:17:00.0")
BLOCK = {"warmup": 1, "iterations": 10, "time_budget_s": 0.02}
MIB = 1 << 20
JOB = {"device": "gpu0", "seals": {}, "started_at": "2026-11-22T12:00:00+00:00", "elapsed_s": 1}


class StandIn:
    """What `make health` measures, part by part, on a card of these rates and this environment."""

    def __init__(self, patch, multiprocessors=ALL, rates=None, **environment):
        known = {"FAKE_LINK": "5,16", "FAKE_RATES": json.dumps(RATES | (rates or {}))}
        for name, value in (known | environment).items():
            patch.setenv(name, str(value))
        patch.setattr(watch, "PERIOD_S", 0)
        patch.setattr(fma, "time", fma.time)  # which a stand-in of known rates replaces
        use_nvml(patch, CARD)
        options = {"name": "NVIDIA H200", "nvml": True, "multiProcessorCount": multiprocessors}
        self.device = open_gpu(patch, free_bytes=50 * MIB, **options)
        self.record = describe(self.device)

    def looked_at(self):
        found = watch.Watch([self.device.identity])
        return {"unused": found.unused()["gpu0"], "xids": found.errors()["gpu0"]}

    def reads(self):
        return self._bandwidth("hbm", None)

    def copies(self):
        return self._bandwidth("h2d", MIB)

    def product(self):
        return self._peak("bf16")

    def registers(self):
        return self._peak("fp32_fma")

    def repeated(self):
        return RepeatabilityRecord(**JOB, dtype="bf16", **repeat(self.device, "bf16", 64, seconds=0.02))

    def _bandwidth(self, level, size):
        streams = self.device.streams(level, size)[:1]
        found = memory_ceiling.measure_all(self.device, self.record, streams, **BLOCK)
        return BandwidthRecord(**JOB, level=level, bandwidths=found)

    def _peak(self, dtype):
        seals = seals_for(self.record, Gemm())
        found, _ = compute_ceiling.measure(self.device, self.record, seals, dtype, 256, **BLOCK, sustained_s=0)
        return PeakFlopsRecord(**JOB, dtype=dtype, skipped=None, peak=found)


PARTS = ("reads", "copies", "product")


@pytest.fixture(scope="module")
def sound() -> Evidence:
    """Of a card without fault."""
    with pytest.MonkeyPatch.context() as patch:
        card = StandIn(patch)
        records, repeated = [getattr(card, part)() for part in PARTS], card.repeated()
        known, looked = card.record, card.looked_at()
    with pytest.MonkeyPatch.context() as patch:
        records.append(StandIn(patch, FEW).registers())
    return Evidence("gpu0", known, records, health=HealthEvidence(repeated=repeated, **looked))


def with_part(sound: Evidence, record) -> Evidence:
    """With this record in place of the one of its name."""
    name = record.dtype if isinstance(record, PeakFlopsRecord) else record.level
    others = [one for one in sound.records if name not in (getattr(one, "dtype", None), getattr(one, "level", None))]
    return replace(sound, records=[*others, record])


def check(device: str, known: Evidence):
    return health.card("NVIDIA H200", "GPU-1", replace(known, device=device), [])


def but(known: Evidence, **looked) -> Evidence:
    """With other findings of what `make health` alone looks at."""
    return replace(known, health=replace(known.health, **looked))


def failed(evidence: Evidence) -> dict[str, str]:
    found = check("gpu0", evidence)
    assert all(one.action for one in found.checks if one.result in ("fail", "note"))
    assert (found.status == "not healthy") == any(one.result == "fail" for one in found.checks)
    return {one.check: one.reason for one in found.checks if one.result == "fail"}


@pytest.mark.parametrize(("errors", "result"), [(0, "pass"), (3, "note"), (6, "fail"), (None, "not_applicable")])
def test_corrected_errors_are_judged_by_their_rate(sound, errors, result):
    repeated = sound.health.repeated.model_copy(update={"corrected_errors": errors, "seconds": 5.0})
    (found,) = [one for one in check("gpu0", but(sound, repeated=repeated)).checks if one.check == CORRECTED]
    assert found.result == result


def test_a_card_without_fault_is_healthy(sound):
    found = check("gpu0", sound)
    results = {one.check: one.result for one in found.checks}
    assert found.status == "healthy" and failed(sound) == {}
    passed = {MEMORY, ALONE, LINK, READS, REGISTERS, NEAR_MAXIMUM}
    passed |= {MEASURED, UNUSED, REPAIRS, XIDS, COOL, COPIES, MATMULS, REPEATABLE, POWER_LIMIT}
    assert {name for name, result in results.items() if result == "pass"} >= passed


@pytest.mark.parametrize(
    ("part", "card", "named"),
    [
        ("reads", {"rates": {"read": 2300}}, {READS: "48 % of the vendor's 4800 GB/s"}),
        ("product", {"rates": {"bfloat16": 600}}, {MATMULS: "of 989 TFLOPS (61 %)"}),
        ("copies", {"FAKE_LINK": "5,8", "rates": {"link": 27}}, {LINK: "x8 of x16, generation 5 of 5"}),
        ("copies", {"rates": {"link": 30}}, {COPIES: "h2d 30 GB/s of 63 GB/s, 48 %"}),
        ("copies", {"FAKE_REASONS": "0x40"}, {COOL: "h2d: heat", UNTHROTTLED: ""}),
        (
            "registers",
            {"FAKE_MHZ": "990", "rates": {"fma": RATES["fma"] / 2}, "multiprocessors": FEW},
            {NEAR_MAXIMUM: "990 of 1980 MHz: no reason is reported; it may be locked"},
        ),
    ],
)
def test_what_a_measurement_shows_is_named(sound, monkeypatch, part, card, named):
    found = failed(with_part(sound, getattr(StandIn(monkeypatch, **card), part)()))
    assert set(found) <= set(named)
    assert all(words in found[name] for name, words in named.items() if words)


def test_a_product_that_the_power_limit_alone_holds_back_is_a_note(sound, monkeypatch):
    """Cards of little power, such as T4 and L4, cannot keep the clock of the vendor's peak."""

    slow = StandIn(monkeypatch, rates={"bfloat16": 600}).product()

    def products(limited_by, of_clock):
        load = {"limited_by": limited_by, "sustained_fraction_of_clock": of_clock}
        record = slow.model_copy(update={"peak": slow.peak.model_copy(update=load)})
        return next(one for one in check("gpu0", with_part(sound, record)).checks if one.check == MATMULS)

    capped = products(["sw_power_cap"], 0.9)
    assert (capped.result, capped.reason.endswith("at its power limit")) == ("note", True) and capped.action
    assert products(["hw_thermal_slowdown", "sw_power_cap"], 0.9).result == "fail"
    assert products(["sw_power_cap"], 0.5).result == "fail"  # slower than its clock allows


def test_a_wrong_bit_in_one_product_of_twenty_is_silent_corruption(sound, monkeypatch):
    found = failed(but(sound, repeated=StandIn(monkeypatch, FAKE_FLIPS=20).repeated()))
    assert "silent corruption in" in found.pop(REPEATABLE) and not found


@pytest.mark.parametrize(
    ("environment", "named", "words"),
    [
        ({"FAKE_OTHERS": "4242"}, UNUSED, "1 other process, busy for 90 % of the time"),
        ({"FAKE_USED_BYTES": "80000000000"}, UNUSED, "53 % of its memory in use"),
        ({"FAKE_XIDS": "79"}, XIDS, "Xid 79 while it was measured"),
    ],
)
def test_what_the_driver_tells_is_named(sound, monkeypatch, environment, named, words):
    found = failed(but(sound, **StandIn(monkeypatch, **environment).looked_at()))
    assert words in found.pop(named) and not found


@pytest.mark.parametrize(
    ("rows", "named", "words"),
    [
        ("1,2,1,0", MEMORY, "a row remap is pending: reset the GPU"),
        ("1,2,0,1", MEMORY, "a row remap failed"),
        ("500,13,0,0", REPAIRS, "513 rows remapped (more than 512)"),
    ],
)
def test_memory_that_needs_repair_is_named_as_it_is_after_the_load(sound, monkeypatch, rows, named, words):
    found = failed(but(sound, repeated=StandIn(monkeypatch, FAKE_REMAPPED=rows).repeated()))
    assert words in found.pop(named) and not found


def test_another_process_beside_a_measurement_is_named_with_what_it_slowed(sound, monkeypatch):
    found = failed(with_part(sound, StandIn(monkeypatch, FAKE_OTHERS="4242", rates={"read": 2300}).reads()))
    assert found[READS].endswith("1 other process used the GPU") and "hbm_read" in found[ALONE]


def test_a_measurement_that_failed_is_a_finding_and_one_without_time_leaves_it_open(sound):
    fatal = {"peak_flops/bf16": "cudaErrorECCUncorrectable: uncorrectable ECC error encountered"}
    assert failed(but(sound, failures=fatal)) == {MEASURED: f"peak_flops/bf16: {fatal['peak_flops/bf16']}"}
    found = check("gpu0", but(sound, not_measured={"bandwidth/hbm": "No space left on device"}))
    assert (found.status, next(one.reason for one in found.checks if one.check == MEASURED)) == (
        "cannot tell",
        "bandwidth/hbm: No space left on device",
    )
    assert check("gpu0", Evidence("gpu0", health=HealthEvidence())).status == "cannot tell"


def test_what_is_not_readable_is_said_and_no_fault(sound):
    untold = Unused(processes=None, utilisation=None, memory_used_share=None)
    (told,) = [one for one in check("gpu0", but(sound, earlier_xids=False)).checks if one.check == XIDS]
    assert (told.result, told.reason) == ("pass", "earlier ones are not readable; none while it was measured")
    found = check("gpu0", but(sound, unused=untold, xids=None))
    words = {one.check: one.reason for one in found.checks if one.result == "not_applicable"}
    assert found.status == "healthy" and "not readable" in words[UNUSED] and "not readable" in words[XIDS]


def test_a_programs_own_xid_of_an_hour_ago_is_a_note(sound):
    told = [Xid(code=31, when="before", age_s=3600, text="MMU fault")]
    (note,) = [one for one in check("gpu0", but(sound, xids=told)).checks if one.result == "note"]
    assert (note.check, note.reason) == (XIDS, "Xid 31 60 minutes ago (MMU fault)")


@pytest.mark.parametrize(
    ("code", "when", "result"),
    [(45, "during", "note"), (31, "during", "fail"), (94, "before", "fail"), (95, "before", "fail")],
)
def test_which_xids_are_grave(sound, code, when, result):
    """45 is what a killed program leaves, as ours are where time runs out."""
    found = check("gpu0", but(sound, xids=[Xid(code=code, when=when)])).checks
    assert next(one.result for one in found if one.check == XIDS) == result


def test_one_card_that_is_not_healthy_decides_for_all():
    assert health.overall(["healthy", "cannot tell", "not healthy"]) == "not healthy"
    assert health.overall(["healthy", "cannot tell"]) == "cannot tell" == health.overall([])
    assert health.overall(["healthy", "healthy"]) == "healthy"


def test_the_screen_of_several_cards_has_their_faults_alone(sound):
    cards = [check("gpu0", sound), check("gpu1", but(sound, failures={"bandwidth/hbm": "it fell off the bus"}))]
    record = HealthRecord(started_at="", ended_at="", elapsed_s=60, status="not healthy", cards=cards)
    lines = screen(record).splitlines()
    assert len(lines) < 10 and "it fell off the bus" in "\n".join(lines)
    assert len(screen(record.model_copy(update={"cards": cards[:1]})).splitlines()) < 24


def test_the_screen_of_several_cards_says_why_it_cannot_be_told(sound):
    cards = [check("gpu0", sound), check("gpu1", but(sound, not_measured={"bandwidth/hbm": "no time"}))]
    record = HealthRecord(started_at="", ended_at="", elapsed_s=60, status="cannot tell", cards=cards)
    assert "bandwidth/hbm: no time" in screen(record)
