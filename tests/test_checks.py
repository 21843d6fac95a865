"""Whether a device was whole, alone and undisturbed: each check met, missed with its cause, and without grounds."""

import pytest
from records_factory import (
    VENDOR,
    bandwidth_record,
    beside,
    cell,
    device_record,
    instructions_record,
    operator_record,
    peak_record,
    stream,
    timing,
)

from roofline.measure.sustained import summarise
from roofline.records.compute import LoadPoint
from roofline.records.timing import DeviceState
from roofline.table import checks
from roofline.table.checks.card import LINK, MEMORY
from roofline.table.checks.ceilings import NEAR_MAXIMUM, READS, REGISTERS

FACTS = {
    "memory_bus_width_bits": 6016,
    "memory_clock_max_mhz": 3201,
    "sm_clock_max_mhz": 1980,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "ecc_uncorrected_errors": 0,
    "ecc_uncorrected_errors_ever": 0,
    "row_remap_pending": False,
    "row_remap_failed": False,
    "page_retirement_pending": None,
}
GDDR = {"memory_bus_width_bits": 384}
CPU = device_record("cpu")


def card(boost_mhz=1980, **facts):
    return device_record(
        "gpu0", hardware=FACTS | facts, vendor=VENDOR.model_copy(update={"boost_clock_mhz": boost_mhz})
    )


def judge(check, device, *records):
    (found,) = [one for one in checks.judge(checks.Evidence("gpu0", device, records)) if one.check == check]
    return found.result, found.reason


def states(**fields):
    return [DeviceState(at_s=0, when=when, **fields) for when in ("before", "during", "after")]


def reads(share=0.96, vendor=4800.0, contention=None, **fields):
    gb_per_s = share * 4800
    known = {"vendor_gb_per_s": vendor, "fraction_of_vendor": vendor and share}
    taken = timing((1 << 30) / gb_per_s / 1e9, contention=contention)
    return bandwidth_record("gpu0", hbm_read=stream("hbm_read", gb_per_s, latency=taken, **known | fields))


def registers(share=0.98, mhz=1980.0, states=(), contention=None, limited_by=(), dtype="fp32_fma"):
    burst = 66.9 * share
    record = peak_record("gpu0", dtype, burst, vendor=66.9, clock=mhz and (mhz, 66.9), limited_by=list(limited_by))
    record.peak.burst.states = list(states)
    record.peak.burst.latency.contention = contention
    return record


def copies(width=16, generation=5, gb_per_s=55.0):
    reading = states(pcie_width=width, pcie_generation=generation)
    return bandwidth_record("gpu0", h2d=stream("h2d", gb_per_s, states=reading))


def issued(contention=None, throttled=False, told=True):
    """The issue rate and a wall; what disturbed, disturbed the wall."""
    record = instructions_record("gpu0", 1e9)
    record.issue.states = states(throttle_reasons=[] if told else None)
    record.walls[0].latency = timing(1e-3, contention=contention, all_throttled=throttled)
    return record


NONE_TOLD = dict.fromkeys(("ecc_uncorrected_errors", "row_remap_pending", "row_remap_failed"))


def heated(ends_at=600.0, degrees=70.0, seconds=60):
    """Under a load whose rate goes in a straight line from 600 to another one."""
    record = peak_record("gpu0", "bf16", 700, sustained=600)
    rates = [600 + (ends_at - 600) * place / 100 for place in range(100)]
    points = [
        LoadPoint(at_s=0.6 * place, tflops=rate, temperature_c=degrees) for place, rate in enumerate(rates, start=1)
    ]
    record.peak.sustained = summarise(points, record.peak.burst.product, seconds)
    return record


CASES = {
    READS: [
        (card(), reads(0.96), "pass", "96 % of the vendor's 4800 GB/s"),
        (card(), reads(0.85), "pass", "85 %"),
        (card(), reads(0.84), "fail", "84 % of the vendor's 4800 GB/s"),
        (card(), reads(0.4, states=states(memory_clock_mhz=1600)), "fail", "the memory clock is 1600 of 3201 MHz"),
        (card(), reads(0.4, states=states(other_processes=1)), "fail", "1 other process used the GPU"),
        (card(), reads(0.4, states=states(throttle_reasons=["hw_slowdown"])), "fail", "limited by hardware slowdown"),
        (card(**GDDR), reads(0.4), "not_applicable", "no threshold is known for GDDR"),
        (card(memory_bus_width_bits=None), reads(0.4), "not_applicable", "a memory of unknown type"),
        (card(), reads(0.96, vendor=None), "not_applicable", "the vendor's bandwidth is not known"),
    ],
    REGISTERS: [
        (card(), registers(0.98), "pass", "fp32_fma 98 %"),
        (card(), registers(0.89), "fail", "fp32_fma reaches 89 %"),
        (card(), registers(mhz=None), "not_applicable", "no register-only kernel"),
        (card(), peak_record("gpu0", "fp16", 300, clock=(1980, 990)), "not_applicable", "no register-only kernel"),
    ],
    NEAR_MAXIMUM: [
        (card(), [registers()], "pass", "fp32_fma ran at 1980 of 1980 MHz"),
        (card(), [registers(mhz=1000), registers(dtype="fp16_fma")], "pass", "fp16_fma"),
        (card(), [registers(mhz=990)], "fail", "990 of 1980 MHz"),
        (card(), [registers(mhz=990, limited_by=["hw_slowdown"])], "fail", "limited by hardware slowdown"),
        (card(), [registers(mhz=990, limited_by=["sw_power_cap"])], "not_applicable", "limited by the power cap"),
        (card(boost_mhz=1000), [registers(mhz=990)], "pass", "990 of 1000 MHz"),
        (card(boost_mhz=None, **GDDR), [registers(mhz=990)], "not_applicable", "no boost clock is known"),
        (card(), reads(), "not_applicable", "no clock was counted under light load"),
        (card(sm_clock_max_mhz=None), [registers()], "not_applicable", "NVML reports no maximum clock"),
    ],
    ALONE: [
        (card(), reads(states=states(other_processes=0)), "pass", "1 block"),
        (card(), reads(states=states(other_processes=1)), "fail", "1 other process used the GPU during hbm_read"),
        (card(), reads(contention=beside(other_processes=2)), "fail", "2 other processes used the GPU during hbm_read"),
        (card(), reads(states=states()), "not_applicable", "no process numbers"),
        (card(), issued(beside(other_processes=1)), "fail", "1 other process used the GPU during stride 8"),
    ],
    QUIET: [
        (card(), issued(beside(other_cores=7.9)), "fail", "stride 8: other processes used 7.9 of 8 cores"),
    ],
    UNTHROTTLED: [
        (card(), issued(), "pass", "2 ceilings"),
        (card(), issued(throttled=True), "fail", "stride 8"),
        (card(), issued(told=False), "not_applicable", "does not report throttling"),
    ],
    LINK: [
        (card(), copies(), "pass", "x16 of x16, generation 5 of 5"),
        (card(), copies(width=8, gb_per_s=27.0), "fail", "x8 of x16"),
        (card(), copies(generation=3, gb_per_s=12.0), "fail", "generation 3 of 5"),
        (card(), copies(width=None), "not_applicable", "not read while host copies ran"),
        (card(), copies(generation=1), "not_applicable", "55 GB/s"),
        (card(pcie_width_max=None), copies(), "not_applicable", "NVML does not report the link"),
        (card(), reads(), "not_applicable", "not read while host copies ran"),
    ],
    MEMORY: [
        (card(), [], "pass", "none since the driver was loaded"),
        (card(ecc_uncorrected_errors_ever=3), [], "pass", "none since the driver was loaded"),
        (card(ecc_uncorrected_errors=1), [], "fail", "1 uncorrected memory error"),
        (card(row_remap_pending=True), [], "fail", "a row remap is pending: reset the GPU"),
        (card(row_remap_failed=True), [], "fail", "a row remap failed"),
        (card(page_retirement_pending=True), [], "fail", "a page retirement is pending"),
        (card(**NONE_TOLD), [], "not_applicable", "NVML reports neither"),
    ],
    HOLDS: [
        (card(slowdown_temperature_c=89), heated(), "pass", "70 degrees Celsius"),
        (card(slowdown_temperature_c=89), heated(ends_at=540), "fail", "bf16 ended"),
        (card(slowdown_temperature_c=89), heated(degrees=86), "note", "86 degrees Celsius at most of 89"),
        (card(slowdown_temperature_c=None), heated(degrees=86), "pass", "86 degrees Celsius"),
    ],
}


@pytest.mark.parametrize(
    ("check", "device", "records", "result", "told"),
    [(check, *case) for check, cases in CASES.items() for case in cases],
)
def test_each_check_is_met_missed_or_without_grounds(check, device, records, result, told):
    found, reason = judge(check, device, *(records if isinstance(records, list) else [records]))
    assert found == result and told in reason


@pytest.mark.parametrize(
    ("throttled", "result", "told"),
    [
        ((None, None), "not_applicable", "does not report"),
        ((False, None), "pass", "1 ceilings; not reported for hbm_read"),
        ((True, False), "fail", "of 2 ceilings, throttled in every sample: fp16"),
    ],
)
def test_ceilings_under_thermal_throttling(throttled, result, told):
    fp16 = peak_record("gpu0", "fp16", 800, throttled=throttled[0])
    hbm = bandwidth_record("gpu0", hbm_read=stream("hbm_read", 4000, throttled=throttled[1]))
    found, reason = judge(UNTHROTTLED, card(), fp16, hbm)
    assert found == result and told in reason


def on_cpu(contention):
    taken = timing((1 << 30) / 100e9, contention=contention)
    return bandwidth_record("cpu", dram_read=stream("dram_read", 100, latency=taken))


@pytest.mark.parametrize(
    ("contention", "result", "told"),
    [
        (beside(), "pass", "1 block"),
        (beside(attempts=3), "pass", "1 block, 1 of them measured again"),
        (beside(other_cores=2), "fail", "1 of 1 timed block disturbed (dram_read: other processes used 2 of 8 cores)"),
        (beside(stolen_share=0.1), "fail", "the hypervisor took 10 % of the cores' time"),
        (beside(waiting_share=0.5), "fail", "our threads waited 50 % of their time for a core"),
        (beside(throttled_share=0.2), "fail", "the CPU quota held it back for 20 % of its time"),
        (beside(other_cores=None, waiting_share=None), "not_applicable", "is not known"),
    ],
)
def test_no_other_load_on_the_host(contention, result, told):
    found, reason = judge(QUIET, CPU, on_cpu(contention))
    assert found == result and told in reason


def test_a_busy_host_disturbs_a_gpus_caller_where_no_core_is_left_and_its_device_time_never():
    busy, full = beside(other_cores=4), beside(other_cores=7.5)
    one = cell("gpu0", 1e-3, 1e-3)
    one.latency.contention, one.device_latency.contention = busy, full
    assert judge(QUIET, card(), operator_record("gpu0", one))[0] == "pass"
    one.latency.contention = full
    assert judge(QUIET, card(), operator_record("gpu0", one))[0] == "fail"


def test_of_seconds_of_load_no_heat_is_judged():
    known = checks.Evidence("gpu0", card(), [heated(seconds=3)])
    assert HOLDS not in {one.check for one in checks.judge(known)}


def test_a_job_tells_what_its_own_record_shows_and_the_device_query_what_the_card_reports():
    sick = card(row_remap_failed=True)
    assert checks.failed(sick, [reads(0.9)]) == []
    assert [one.check for one in checks.failed(sick, [reads(0.4)])] == [READS]
    assert [one.reason for one in checks.failed(sick, [])] == ["a row remap failed: the memory is defective"]


def test_a_cpu_is_asked_for_no_more_than_it_can_tell():
    found = checks.judge(checks.Evidence("cpu", CPU, [on_cpu(beside())]))
    assert [one.check for one in found] == [QUIET, UNTHROTTLED, AGREE]
