"""A sound card is healthy; each fault is named, with what to do. On a stand-in of known rates."""

import json
from dataclasses import dataclass, field, replace

import against_known
import health
import pytest
import repeat
import verdict
import xids
from factories import seals_for
from fake_gpu import nvml_card, open_gpu, use_nvml

from roofline import api
from roofline.analysis.checks.card import COPIES, LINK, MEMORY, POWER_LIMIT, REPAIRS
from roofline.analysis.checks.ceilings import NEAR_MAXIMUM
from roofline.analysis.checks.conditions import ALONE, COOL
from roofline.devices.base import Identity
from roofline.devices.description import describe
from roofline.devices.gpu import fma
from roofline.measure import compute_ceiling, memory_ceiling
from roofline.operators.gemm import Gemm
from roofline.records.base import Record, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord

# GB/s and TFLOPS of an H200; register-only kernels run on two of its multiprocessors, which NumPy can follow.
FEW, ALL = 2, 132
RATES = {"read": 4600, "write": 4600, "copy": 4300, "triad": 4300, "link": 55, "fma": 65.5 * FEW / ALL, "bfloat16": 800}
CARD = nvml_card("GPU-1", "0000:17:00.0")
IDENTITY = Identity("gpu0", "gpu", "NVIDIA H200", "GPU-1", None, 1 << 37, 1 << 37)
BLOCK = {"warmup": 1, "iterations": 10, "time_budget_s": 0.02}
MIB = 1 << 20
UNTOLD = dict.fromkeys(("processes", "busy_share", "memory_share"))
JOB = {"device": "gpu0", "seals": {}, "started_at": "2026-11-22T12:00:00+00:00", "elapsed_s": 1}


class StandIn:
    """What `make health` measures, part by part, on a card of these rates and this environment."""

    def __init__(self, patch, multiprocessors=ALL, rates=None, **environment):
        known = {"FAKE_LINK": "5,16", "FAKE_RATES": json.dumps(RATES | (rates or {}))}
        for name, value in (known | environment).items():
            patch.setenv(name, str(value))
        patch.setattr(xids, "PERIOD_S", 0)
        patch.setattr(fma, "time", fma.time)  # which a stand-in of known rates replaces
        use_nvml(patch, CARD)
        options = {"name": "NVIDIA H200", "nvml": True, "multiProcessorCount": multiprocessors}
        self.device = open_gpu(patch, free_bytes=50 * MIB, **options)
        self.record = describe(self.device)

    def looked_at(self):
        watch = xids.Watch({"gpu0": "GPU-1"})
        return {"used": watch.unused()["gpu0"], "xids": watch.errors()["gpu0"]}

    def reads(self):
        return self._bandwidth("hbm", None)

    def copies(self):
        return self._bandwidth("h2d", MIB)

    def product(self):
        return self._peak("bf16")

    def registers(self):
        return self._peak("fp32_fma")

    def repeated(self):
        return repeat.repeat(self.device, "bf16", 64, seconds=0.02)

    def _bandwidth(self, level, size):
        streams = self.device.streams(level, size)[:1]
        found = memory_ceiling.measure_all(self.device, self.record, streams, **BLOCK)
        return BandwidthRecord(**JOB, level=level, bandwidths=found)

    def _peak(self, dtype):
        seals = seals_for(self.record, Gemm())
        found, _ = compute_ceiling.measure(self.device, self.record, seals, dtype, 256, **BLOCK, sustained_s=0)
        return PeakFlopsRecord(**JOB, dtype=dtype, skipped=None, peak=found)


PARTS = {"reads": "bandwidth/hbm", "copies": "bandwidth/h2d", "product": "peak_flops/bf16"}
PARTS |= {"registers": "peak_flops/fp32_fma"}


@dataclass
class Found:
    """Of one card: records by their names, and what else was seen."""

    records: dict[str, Record]
    seen: dict
    failures: dict = field(default_factory=dict)

    def but(self, **seen):
        return replace(self, seen=self.seen | seen)

    def judged(self, folder) -> dict:
        for name, record in self.records.items():
            (folder / "gpu0" / name).parent.mkdir(parents=True, exist_ok=True)
            write(record, folder / "gpu0" / f"{name}.json")
        repeated = self.seen["repeated"] or {}
        facts = api.card_facts(folder, {"gpu0": repeated.get("memory_errors", {})}).get("gpu0")
        return health.judged(IDENTITY, "bf16", facts, failures=self.failures, **self.seen)


@pytest.fixture(scope="module")
def sound() -> Found:
    with pytest.MonkeyPatch.context() as patch:
        card = StandIn(patch)
        records = {name: getattr(card, part)() for part, name in PARTS.items() if part != "registers"}
        records["device_query"] = card.record
        seen = {"reads_log": True, "repeated": card.repeated(), **card.looked_at()}
    with pytest.MonkeyPatch.context() as patch:
        records[PARTS["registers"]] = StandIn(patch, FEW).registers()
    return Found(records, seen)


@pytest.fixture(autouse=True)
def no_known_cards(monkeypatch):
    monkeypatch.setattr(api, "cards", lambda name: None)


def failed(found: Found, folder) -> dict[str, str]:
    card = found.judged(folder)
    assert all(one["action"] for one in card["checks"] if one["result"] in ("fail", "note"))
    assert (card["status"] == "not healthy") == any(one["result"] == "fail" for one in card["checks"])
    return {one["name"]: one["reason"] for one in card["checks"] if one["result"] == "fail"}


def test_a_sound_card_is_healthy(sound, tmp_path):
    card = sound.judged(tmp_path)
    results = {one["name"]: one["result"] for one in card["checks"]}
    assert card["status"] == "healthy"
    passed = {MEMORY, ALONE, LINK, REPAIRS, COOL, COPIES, POWER_LIMIT, NEAR_MAXIMUM, verdict.MATMULS, verdict.READS}
    passed |= {verdict.REGISTERS, verdict.MEASURED, verdict.UNUSED, verdict.XIDS, verdict.REPEATABLE, verdict.CORRECTED}
    assert {name for name, result in results.items() if result == "pass"} >= passed
    assert results[against_known.NEAR] == "not known" and verdict.QUIET in results
    measured = {one["key"] for one in card["ceilings"]}  # without those that a busy host disturbed
    assert {"fp32_fma"} <= measured <= {"hbm_read", "h2d", "bf16", "fp32_fma"}


@pytest.mark.parametrize(
    ("part", "card", "named"),
    [
        ("reads", {"rates": {"read": 2300}}, {verdict.READS: "48 % of the vendor's 4800 GB/s"}),
        ("product", {"rates": {"bfloat16": 600}}, {verdict.MATMULS: "of 989 TFLOPS (61 %)"}),
        ("copies", {"FAKE_LINK": "5,8", "rates": {"link": 27}}, {LINK: "x8 of x16, generation 5 of 5"}),
        ("copies", {"rates": {"link": 30}}, {COPIES: "h2d 30 GB/s of 63 GB/s, 48 %"}),
        ("copies", {"FAKE_REASONS": "0x40"}, {COOL: "h2d: heat"}),
        (
            "registers",
            {"FAKE_MHZ": "990", "rates": {"fma": RATES["fma"] / 2}, "multiprocessors": FEW},
            {NEAR_MAXIMUM: "990 of 1980 MHz: no reason is reported; it may be locked"},
        ),
    ],
)
def test_what_a_measurement_shows_is_named(sound, tmp_path, monkeypatch, part, card, named):
    record = getattr(StandIn(monkeypatch, **card), part)()
    found = failed(replace(sound, records={**sound.records, PARTS[part]: record}), tmp_path)
    assert set(found) == set(named)
    assert all(words in found[name] for name, words in named.items())


def test_another_process_during_a_measurement_is_named_with_what_it_slowed(sound, tmp_path, monkeypatch):
    reads = StandIn(monkeypatch, FAKE_OTHERS="4242", rates={"read": 2300}).reads()
    found = failed(replace(sound, records={**sound.records, PARTS["reads"]: reads}), tmp_path)
    assert found[verdict.READS].endswith("1 other process used the GPU") and "hbm_read" in found[ALONE]


@pytest.mark.parametrize(
    ("environment", "named", "words"),
    [
        ({"FAKE_OTHERS": "4242"}, verdict.UNUSED, "1 other process, busy for 90 % of the time"),
        ({"FAKE_USED_BYTES": "80000000000"}, verdict.UNUSED, "53 % of its memory in use"),
        ({"FAKE_XIDS": "79"}, verdict.XIDS, "Xid 79 during the measurements"),
    ],
)
def test_what_the_driver_reports_is_named(sound, tmp_path, monkeypatch, environment, named, words):
    found = failed(sound.but(**StandIn(monkeypatch, **environment).looked_at()), tmp_path)
    assert words in found.pop(named) and not found


@pytest.mark.parametrize(
    ("environment", "named", "words"),
    [
        ({"FAKE_FLIPS": 20}, verdict.REPEATABLE, "silent corruption in"),
        ({"FAKE_REMAPPED": "1,2,1,0"}, MEMORY, "a row remap is pending: reset the GPU"),
        ({"FAKE_REMAPPED": "1,2,0,1"}, MEMORY, "a row remap failed"),
        ({"FAKE_REMAPPED": "500,13,0,0"}, REPAIRS, "513 rows remapped (more than 512)"),
    ],
)
def test_memory_and_arithmetic_are_judged_after_the_load(sound, tmp_path, monkeypatch, environment, named, words):
    found = failed(sound.but(repeated=StandIn(monkeypatch, **environment).repeated()), tmp_path)
    assert words in found.pop(named) and not found


@pytest.mark.parametrize(("errors", "result"), [(0, "pass"), (3, "note"), (6, "fail"), (None, "not known")])
def test_corrected_errors_are_judged_by_their_rate(errors, result):
    assert verdict.corrected({"corrected_errors": errors, "seconds": 5.0}).result == result


@pytest.mark.parametrize(
    ("code", "when", "result"),
    [(45, "during", "note"), (31, "during", "fail"), (94, "before", "fail"), (31, "before", "note")],
)
def test_which_xids_are_grave(code, when, result):
    """45 is what a killed program leaves, as ours are if time runs out."""
    found = verdict.xids([xids.Xid(code, when, 3600, "MMU fault")], earlier=True)
    assert found.result == result
    assert when == "during" or found.reason == f"Xid {code} 60 minutes ago (MMU fault)"


@pytest.mark.parametrize(
    ("error", "result"),
    [("CUDARuntimeError", "fail"), ("ArithmeticError", "fail"), ("OSError", "not known"), ("", "not known")],
)
def test_a_measurement_that_failed_is_an_error_of_the_card_if_cuda_or_the_result_says_so(error, result):
    found = verdict.measured({"bandwidth/hbm": ("it failed", error)}, 5)
    assert (found.result, found.reason) == (result, "bandwidth/hbm: it failed")


def test_what_cannot_be_read_is_not_known_and_not_an_error(sound, tmp_path):
    told = sound.but(used=UNTOLD, xids=None).judged(tmp_path)
    unknown = {one["name"]: one["reason"] for one in told["checks"] if one["result"] == "not known"}
    assert told["status"] == "healthy"
    assert "not readable" in unknown[verdict.UNUSED] and "not readable" in unknown[verdict.XIDS]
    assert verdict.xids([], earlier=False).reason.startswith("earlier ones are not readable; none")


def test_a_card_of_which_nothing_is_known_cannot_be_judged(sound, tmp_path):
    seen = {"used": UNTOLD, "xids": None, "repeated": None}
    nothing = replace(sound.but(**seen), records={}, failures={"device_query": ("no time", "")})
    assert nothing.judged(tmp_path)["status"] == "cannot tell"


def test_the_screen_of_several_cards_shows_errors_alone(sound, tmp_path):
    lost = replace(sound, failures={"bandwidth/hbm": ("it fell off the bus", "CUDARuntimeError")})
    cards = [sound.judged(tmp_path), lost.judged(tmp_path)]
    words = health.screen(cards)
    assert "it fell off the bus" in words and "no bit differed" not in words
    assert "no bit differed" in health.screen(cards[:1])


def test_the_same_product_gives_the_same_bits(gpu):
    found = repeat.repeat(gpu, "fp16", 128, seconds=0.1)
    assert found["products"] >= 64 and found["memory_bytes"] >= 64 * 128 * 128 * 2
    assert (found["wrong_words"], found["wrong_places"], found["fault"]) == (0, 0, None)


def test_one_flipped_bit_is_counted(gpu, monkeypatch):
    """A word in the copy of one product, changed unseen."""
    copied, copy = [], gpu.copy

    def flip(source, destination):
        copy(source, destination)
        if len(copied) == 7:
            destination[:1] ^= 1
        copied.append(destination)

    monkeypatch.setattr(gpu, "copy", flip)
    found = repeat.repeat(gpu, "fp16", 128, seconds=0.05)
    assert (found["wrong_words"], found["wrong_places"]) == (1, 1)
