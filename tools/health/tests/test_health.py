"""A sound card is healthy; each fault is named, with what to do. On a stand-in of known rates."""

import json

import against_known
import health
import pytest
import repeat
import verdict
import xids
from factories import seals_for
from fake_gpu import nvml_card, open_gpu, use_nvml

from roofline import api
from roofline.core.units import MIB
from roofline.devices.base import Identity
from roofline.devices.discovery import describe_device
from roofline.devices.gpu import gpu_fma
from roofline.measure import compute_ceiling, memory_ceiling
from roofline.measure.protocol import TimingBudget
from roofline.operators.gemm.operator import Gemm
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import write
from roofline.records.compute import PeakFlopsRecord
from roofline.table.checks.card import LINK, MEMORY, REPAIRS
from roofline.table.checks.ceilings import NEAR_MAXIMUM
from roofline.table.checks.surroundings import COOL, NO_OTHER_PROCESS

# GB/s and TFLOPS of an H200; register-only kernels run on two of its multiprocessors, which NumPy can follow.
FEW, ALL = 2, 132
RATES = {"read": 4600, "write": 4600, "copy": 4300, "triad": 4300, "link": 55, "fma": 65.5 * FEW / ALL, "bfloat16": 800}
IDENTITY = Identity("gpu0", "gpu", "of an unknown model", "GPU-1", None, 1 << 37, 1 << 37)
BUDGET = TimingBudget(warmup=1, iterations=10, time_budget_s=0.02)
JOB = {"device": "gpu0", "seals": {}, "started_at": "2026-11-22T12:00:00+00:00", "elapsed_s": 1}


class StandIn:
    """What `make health` measures, part by part, on a card of these rates and this environment."""

    def __init__(self, patch, multiprocessors=ALL, rates=None, **environment):
        known = {"FAKE_LINK": "5,16", "FAKE_RATES": json.dumps(RATES | (rates or {}))}
        for name, value in (known | environment).items():
            patch.setenv(name, str(value))
        patch.setattr(xids, "PERIOD_S", 0)
        patch.setattr(compute_ceiling, "_rest", lambda *arguments: None)
        patch.setattr(gpu_fma, "time", gpu_fma.time)  # which a stand-in of known rates replaces
        use_nvml(patch, nvml_card("GPU-1", "0000:17:00.0"))
        options = {"nvml": True, "MultiProcessorCount": multiprocessors, "free_bytes": 50 * MIB}
        self.device = open_gpu(patch, name="NVIDIA H200", **options)
        self.record = describe_device(self.device)

    def looked_at(self):
        watch = xids.Watch({"gpu0": "GPU-1"})
        return {"users": watch.read_users()["gpu0"], "errors": watch.read_errors()["gpu0"]}

    def repeated(self):
        return {"repeated": repeat.repeat_product(self.device, "bf16", 64, seconds=0.02)}

    def measured(self, name):
        kind, what = name.split("/")
        if kind == "bandwidth":
            streams = self.device.bandwidth_benchmarks(what, None if what == "hbm" else MIB)[:1]
            rates = [memory_ceiling.measure_bandwidth(self.device, self.record, stream, BUDGET) for stream in streams]
            return BandwidthRecord(**JOB, name=what, bandwidths=rates)
        seals = seals_for(self.record, Gemm())
        target = compute_ceiling.CeilingTarget(self.device, self.record, what, 256, 256, BUDGET, sustained_s=0)
        peak, _ = compute_ceiling.measure_compute_ceiling(target, seals)
        return PeakFlopsRecord(**JOB, name=what, skipped_reason=None, peak=peak)


READS, COPIED, PRODUCT, REGISTERS = "bandwidth/hbm", "bandwidth/h2d", "peak_flops/bf16", "peak_flops/fp32_fma"


def judged(folder, records, users, errors, repeated, failures) -> dict:
    for name, record in records.items():
        (folder / "gpu0" / name).parent.mkdir(parents=True, exist_ok=True)
        write(record, folder / "gpu0" / f"{name}.json")
    facts = api.card_facts(folder, {"gpu0": (repeated or {}).get("memory_errors", {})}).get("gpu0")
    rows = [verdict.check_unused(*users), verdict.check_xids(errors, reads_log=True)]
    rows += [verdict.check_measured(failures), verdict.check_repeatable(repeated)]
    return health.judge_card(IDENTITY, "bf16", facts, rows)


@pytest.fixture(scope="module")
def sound() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        card = StandIn(patch)
        records = {name: card.measured(name) for name in (READS, COPIED, PRODUCT)} | {"device_query": card.record}
        seen = card.repeated() | card.looked_at()
    with pytest.MonkeyPatch.context() as patch:
        records[REGISTERS] = StandIn(patch, FEW).measured(REGISTERS)
    return {"records": records, "failures": {}, **seen}


def failed(folder, **findings) -> set[str]:
    card = judged(folder, **findings)
    assert all(check["action"] for check in card["checks"] if check["result"] in ("fail", "note"))
    names = {check["name"] for check in card["checks"] if check["result"] == "fail"}
    assert (card["status"] == "not healthy") == bool(names)
    return names


def test_a_sound_card_is_healthy(sound, tmp_path):
    card = judged(tmp_path, **sound)
    assert card["status"] == "healthy"
    unknown = {check["name"] for check in card["checks"] if check["result"] == "not_applicable"}
    assert unknown - {api.QUIET} == {against_known.NEAR}
    measured = {ceiling["key"] for ceiling in card["ceilings"]}  # without those that a busy host disturbed
    assert {"fp32_fma"} <= measured <= {"hbm_read", "h2d", "bf16", "fp32_fma"}


@pytest.mark.parametrize(
    ("record", "card", "named"),
    [
        (READS, {"rates": {"read": 2300}}, {verdict.READS}),
        (READS, {"rates": {"read": 2300}, "FAKE_OTHERS": "4242"}, {NO_OTHER_PROCESS}),
        (PRODUCT, {"rates": {"bfloat16": 600}}, {verdict.MATMULS}),
        (COPIED, {"FAKE_LINK": "5,8", "rates": {"link": 27}}, {LINK}),
        (COPIED, {"rates": {"link": 30}}, {LINK}),
        (COPIED, {"FAKE_REASONS": "0x40"}, {COOL}),
        (REGISTERS, {"FAKE_MHZ": "990", "rates": {"fma": RATES["fma"] / 2}, "multiprocessors": FEW}, {NEAR_MAXIMUM}),
    ],
)
def test_what_a_measurement_shows_is_named(sound, tmp_path, monkeypatch, record, card, named):
    measured = StandIn(monkeypatch, **card).measured(record)
    assert failed(tmp_path, **sound | {"records": sound["records"] | {record: measured}}) == named


@pytest.mark.parametrize(
    ("seen", "environment", "named"),
    [
        (StandIn.looked_at, {"FAKE_OTHERS": "4242"}, verdict.UNUSED),
        (StandIn.looked_at, {"FAKE_XIDS": "79"}, verdict.XIDS),
        (StandIn.repeated, {"FAKE_FLIPS": 20}, verdict.REPEATABLE),
        (StandIn.repeated, {"FAKE_REMAPPED": "1,2,1,0"}, MEMORY),
        (StandIn.repeated, {"FAKE_REMAPPED": "500,13,0,0"}, REPAIRS),
    ],
)
def test_what_is_seen_before_or_after_the_measurements_is_named(sound, tmp_path, monkeypatch, seen, environment, named):
    assert failed(tmp_path, **sound | seen(StandIn(monkeypatch, **environment))) == {named}


@pytest.mark.parametrize(
    ("code", "minutes", "result"), [(45, None, "note"), (31, None, "fail"), (94, 60, "fail"), (31, 60, "note")]
)
def test_which_xids_are_grave(code, minutes, result):
    assert verdict.check_xids([xids.Xid(code, minutes)], reads_log=True).result == result


@pytest.mark.parametrize(("error", "result"), [("CUDARuntimeError", "fail"), ("OSError", "not_applicable")])
def test_a_measurement_that_failed_is_an_error_of_the_card_if_cuda_or_the_result_says_so(error, result):
    assert verdict.check_measured({"bandwidth/hbm": ("it failed", error)}).result == result


def test_what_cannot_be_read_is_not_an_error(sound, tmp_path):
    assert judged(tmp_path, **sound | {"users": (None, None, None), "errors": None})["status"] == "healthy"
