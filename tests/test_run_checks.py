"""The checklist, on runs that meet every condition and on runs that miss one."""

import pytest
from records_factory import (
    GEMM,
    VENDOR,
    bandwidth_record,
    cell,
    counted_cell,
    counters_record,
    device_record,
    hashes_of,
    operator_record,
    peak_record,
    profiler_record,
    results,
    timing,
    verified,
)

from roofline.records.device import VendorPeak
from roofline.table import checks
from roofline.table.checks.ceilings import DTYPES_MEASURED, ENVELOPE, MATMULS
from roofline.table.load import load

SWEPT = "scan measured at 4 or more values of N"
OURS = (DTYPES_MEASURED, MATMULS, SWEPT, PLACED, BELOW, ENVELOPE, VERIFIED, QUESTIONS)  # the others: test_checks.py
MIXES = {"hbm_read": 4650.0, "hbm_write": 4690.0, "hbm_copy": 4315.0, "hbm_triad": 4400.0}
RATE = {"operations_per_clock_per_multiprocessor": None, "source": "made up", "verified": True, "derived": False}
PROMISED = VendorPeak(tflops=1000, unit="tensor_core", **RATE)


def card(name="gpu0", match="exact", dtypes=("fp64", "fp32", "fp16", "bf16")):
    figures = {"match": match, "peaks": dict.fromkeys(dtypes, PROMISED)}
    return device_record(name, vendor=VENDOR.model_copy(update=figures))


def peaks(**shares):
    """A GPU's ceilings by their shares of the vendor's 1000; of a share of None the vendor promises nothing."""
    return [peak_record("gpu0", name, 1000 * (share or 0.5), vendor=share and 1000) for name, share in shares.items()]


def swept(device, *lengths, **fields):
    slow_s = {"gpu0": 1e-3, "cpu": 40e-3}[device]
    cells = [cell(device, slow_s, n=n, overhead_s=1e-5, **fields) for n in lengths]
    return operator_record(device, *cells)


GPU = [card(), *peaks(fp32=0.8, fp16=0.8, bf16=0.9), bandwidth_record("gpu0", **MIXES)]
CPU = [peak_record("cpu", "fp32", 1.5), bandwidth_record("cpu", dram_read=100), swept("cpu", 1, 2, 3, 4)]
WHOLE = [*GPU, swept("gpu0", 1, 2, 3, 4), *CPU]


def judge(*records):
    """The checks by device and name: (result, reason)."""
    return {(one.device, one.check): (one.result, one.reason) for one in verified(*records).checks}


def test_a_whole_run_passes():
    """On a GPU and its host: what does not apply to the CPU is said to be so."""
    found = judge(*WHOLE)
    results = {key: result for key, (result, _) in found.items() if key[1] in OURS}
    gpu = dict.fromkeys((DTYPES_MEASURED, MATMULS, SWEPT, PLACED, BELOW, VERIFIED, ENVELOPE), "pass")
    cpu = dict.fromkeys((SWEPT, PLACED, BELOW, VERIFIED), "pass")
    expected = {("gpu0", name): result for name, result in gpu.items()}
    expected |= {("cpu", name): result for name, result in cpu.items()}
    assert results == expected | {(None, QUESTIONS): "pass"}
    assert "fail" not in {result for result, _ in found.values()}


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    ("shares", "enough", "near"),
    [
        ({"fp32": 0.7, "fp16": 0.8, "bf16": 0.9}, "pass", "pass"),
        ({"fp32": 0.69, "fp16": 0.8, "bf16": 0.9, "fp64": 0.9}, "pass", "fail"),
        ({"fp16": 0.8, "bf16": 0.9}, "fail", "pass"),
        # Kernels in registers are no GEMMs: a good one stands in for no dtype, and a poor one fails no card.
        ({"fp32": 0.8, "fp16": 0.8, "fp32_fma": 0.95}, "fail", "pass"),
        ({"fp32": 0.8, "fp16": 0.8, "bf16": 0.8, "fp16_fma": 0.4}, "pass", "pass"),
    ],
)
def test_three_dtypes_each_within_thirty_per_cent(shares, enough, near):
    found = judge(card(), *peaks(**shares))
    assert (found["gpu0", DTYPES_MEASURED][0], found["gpu0", MATMULS][0]) == (enough, near)


def test_a_card_with_two_dtypes_cannot_show_three():
    found = judge(card(dtypes=("fp32", "fp64")), *peaks(fp32=0.8, fp64=0.8))
    assert found["gpu0", DTYPES_MEASURED][0] == "not_applicable"


@pytest.mark.parametrize(("lengths", "result"), [((1, 2, 4, 8), "pass"), ((1, 2, 4), "fail"), ((), "not_applicable")])
def test_an_operator_is_swept_over_as_many_sizes_as_it_asks_for(lengths, result):
    records = [swept("cpu", 1, 2, 3, 4), *peaks(fp16=0.8), *([swept("gpu0", *lengths)] if lengths else [])]
    assert judge(*records)["gpu0", SWEPT][0] == result


def test_only_operators_with_an_axis_have_sizes_to_sweep():
    criteria = {name for _, name in judge(*WHOLE)}
    assert GEMM.axis is None and not any("GEMM" in name for name in criteria)


def test_operators_need_both_ceilings():
    both = [*peaks(fp32=0.8), bandwidth_record("gpu0", hbm_read=4000), swept("gpu0", 1)]
    assert [judge(*records)["gpu0", PLACED][0] for records in (both, both[::2])] == ["pass", "fail"]


def test_operators_above_their_roof_fail_the_device_that_they_are_on():
    fast = swept("gpu0", 1, 2, 3, 4)
    for one in fast.measurements:
        one.bytes = 10**13
    found = judge(*GPU, fast, *CPU)
    assert (found["gpu0", BELOW][0], found["cpu", BELOW][0]) == ("fail", "pass")


def test_a_cell_above_its_roof_whose_interval_reaches_below_it_is_named_and_fails_nothing():
    unsure = swept("cpu", 1, 2, 3, 4)
    one = unsure.measurements[0]
    one.latency = timing(0.9 * one.bytes / 100e9, interval=0.2)
    result, _ = judge(*GPU, *CPU[:2], unsure)["cpu", BELOW]
    assert result == "pass"


# ---------------------------------------------------------------- ceilings


@pytest.mark.parametrize(
    ("names", "result"), [((), "not_applicable"), (("hbm_read", "hbm_triad"), "fail"), (MIXES, "pass")]
)
def test_the_envelope_of_hbm(names, result):
    streams = {name: MIXES[name] for name in names}
    assert judge(bandwidth_record("gpu0", d2d=4200, **streams))["gpu0", ENVELOPE][0] == result


# ---------------------------------------------------------------- predictions, words and files


def test_a_cell_without_a_regime_or_a_prediction_fails():
    assert judge(*peaks(fp32_fma=None), swept("gpu0", 1))["gpu0", VERIFIED][0] == "fail"


def test_warm_cells_of_a_device_whose_caches_were_not_measured_have_no_roof_and_fail_nothing():
    """Not even the compute ceiling is theirs: the cache may allow less."""
    warm = swept("cpu", 1, 2, 3, 4, cache="warm", memory_ceilings=[])
    found = judge(*CPU[:2], warm)
    assert [found["cpu", check][0] for check in (PLACED, VERIFIED, BELOW)] == ["pass"] * 3
    cells = [one for one in verified(*CPU[:2], warm).operators if one.operator == "scan"]
    assert {(one.fraction_of_roof, one.roof_tflops, one.regime) for one in cells} == {(None, None, None)}
    assert all(one.no_roof for one in cells)


def test_a_broken_seal_fails():
    late = swept("gpu0", 1).model_copy(update={"started_at": "2026-11-05T11:00:00+00:00"})
    result, reason = judge(*GPU, late)["gpu0", VERIFIED]
    assert result == "fail" and "gpu0/prediction.json" in reason


def test_the_three_questions_need_ceilings_and_operators():
    assert judge(*CPU)[None, QUESTIONS][0] == "not_applicable"  # the third needs a GPU too
    assert judge(device_record("cpu"))[None, QUESTIONS][0] == "fail"


def counted(**flops):
    """A profiled cell whose FLOPs have a formula."""
    return counted_cell(cell("gpu0", 1e-3), kernel_flops={"fp32": 1e9}, flops={"fp32": 1e9} | flops)


def judge_counters(*found, refused=None, profiled=True):
    read = results(*WHOLE)
    read.counters += [(f"gpu0/counters/scan/{place}.json", one) for place, one in enumerate(found)]
    if profiled:
        read.profilers["gpu0"] = profiler_record("gpu0", refused)
    made = checks.of_run(load(read, sha256=hashes_of(read)), read)
    return {one.device: (one.result, one.reason) for one in made if one.check == COUNTED}


AGREES = counters_record("gpu0", counted())
DIFFERS = counters_record("gpu0", counted(fp32=2e9))


@pytest.mark.parametrize(
    ("found", "result", "told"),
    [
        ([AGREES], "pass", "1 of 1"),
        ([DIFFERS], "fail", "1 of 1"),
        ([], "not_applicable", ""),
    ],
)
def test_counters_fail_where_they_contradict_and_not_where_nothing_was_counted(found, result, told):
    verdict, reason = judge_counters(*found)["gpu0"]
    assert verdict == result and told in reason


def test_why_nothing_is_counted_is_told_of_every_device():
    assert judge_counters(refused="ERR_NVGPUCTRPERM")["gpu0"] == ("not_applicable", "ERR_NVGPUCTRPERM")
    assert judge_counters()["cpu"][0] == "not_applicable"
    assert judge_counters(profiled=False) == {}, "they were not wanted"
