"""A CPU's ceilings held against each other: what a guest cannot see of its host shows in its own figures."""

import pytest
from records_factory import bandwidth_record, device_record, peak_record, stream

from roofline.analysis import checks
from roofline.analysis.checks.agreement import AGREE
from roofline.records.memory import FoundLevel, GridTrial, Sweep, SweepPoint

CPU = device_record("cpu")


def judge(*records):
    (found,) = [one for one in checks.judge(checks.Evidence("cpu", CPU, records)) if one.check == AGREE]
    return found.result, found.reason


def reads(gb_per_s, trial=None, **fields):
    trials = [GridTrial(grid="made up", gb_per_s=trial)] if trial else []
    return stream("dram_read", gb_per_s, trials=trials, **fields)


def few(gb_per_s, cores):
    return stream(f"dram_read_{cores}_cores", gb_per_s, level="dram", mix="read", cores=cores)


def peak(dtype, tflops, formula=2.0):
    return peak_record("cpu", dtype, tflops, vendor=formula)


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([bandwidth_record("cpu", dram_read=reads(56, trial=100))], ["dram_read is 56", "100"]),
        ([bandwidth_record("cpu", dram_read=reads(60), fewer=few(90, 8))], ["dram_read_8_cores", "60", "90"]),
        ([peak("fp32_fma", 1.8), peak("fp64_fma", 0.9 / 2, 1.0)], ["fp64_fma", "45 %", "90 %"]),
        ([peak("fp32_fma", 2.86)], ["143 %"]),
        ([peak("fp32_fma", 1.0), peak("fp32", 1.5)], ["fp32", "1.5", "1"]),
    ],
)
def test_figures_that_contradict_each_other_are_named(records, told):
    result, reason = judge(*records)
    assert result == "note" and all(part in reason for part in told), reason


@pytest.mark.parametrize(("plateau", "doubted"), [(213, True), (108, False)])
def test_a_sweep_that_shows_another_memory_than_its_stream_is_not_believed(plateau, doubted):
    last = FoundLevel(
        name="memory", gb_per_s=plateau, first_bytes=1 << 30, last_bytes=1 << 31, knee_bytes=None, reported_bytes=None
    )
    point = SweepPoint(size_bytes=1 << 30, gb_per_s=plateau)
    sweep = Sweep(series="all_cores", reader="each core", counted="made up", points=[point], levels=[last], states=[])
    result, reason = judge(
        bandwidth_record("cpu", dram_read=reads(106)),
        bandwidth_record("cpu").model_copy(update={"level": "sweep", "sweeps": [sweep]}),
    )
    assert (result == "note" and "believe dram_read" in reason) == doubted, reason


def test_a_formulas_clock_of_an_idle_moment_is_no_contradiction():
    idle = device_record("cpu", hardware={"clock_may_boost": True})
    (found,) = [
        one for one in checks.judge(checks.Evidence("cpu", idle, [peak("fp32_fma", 2.86)])) if one.check == AGREE
    ]
    assert found.result == "pass"


def test_figures_that_agree_pass():
    streams = bandwidth_record("cpu", dram_read=reads(100, trial=108), fewer=few(95, 8))
    peaks = [peak("fp32_fma", 1.8), peak("fp64_fma", 0.87, 1.0), peak("fp32", 1.7)]
    assert judge(streams, *peaks)[0] == "pass"
    assert judge()[0] == "not_applicable"
