"""Each check met, missed and not applicable; a disturbed measurement is reported once."""

import pytest
import records_factory as factory

from roofline.measure.sustained import summarise_load
from roofline.records.bandwidth_record import Peer
from roofline.records.compute import LoadPoint
from roofline.records.device_record import DatasheetPeak
from roofline.records.timing_record import DeviceState
from roofline.table.checks.acceptance import DTYPES_MEASURED, PLACED, QUESTIONS
from roofline.table.checks.card import HOLDS, LINK, MEMORY, PEER_COPIES, POWER_LIMIT, REPAIRS
from roofline.table.checks.ceilings import ISSUE_RATE, MATMULS, NEAR_MAXIMUM, READS, REGISTERS, TIMER
from roofline.table.checks.consistency import AGREE, BELOW_ROOF, COUNTED, VERIFIED
from roofline.table.checks.surroundings import COOL, NO_OTHER_PROCESS, QUIET

FACTS = {"memory_bus_width_bits": 6016, "sm_clock_max_mhz": 1980, "pcie_generation_max": 5, "pcie_width_max": 16}
FACTS |= {"ecc_uncorrected_errors": 0, "row_remap_pending": False, "row_remap_failed": False, "remapped_rows": 0}
FACTS |= {"power_limit_w": 700, "slowdown_temperature_c": 89}
GDDR = {"memory_bus_width_bits": 384}
RATE = {"operations_per_clock_per_multiprocessor": None, "source": "made up", "verified": True, "derived": False}
PROMISED = DatasheetPeak(tflops=1000, compute_unit="tensor_core", **RATE)
CPU = factory.device_record("cpu")


def card(boost_mhz=1980, datasheet_w=700, dtypes=("fp64", "fp32", "fp16", "bf16"), **facts):
    figures = {"boost_clock_mhz": boost_mhz, "power_limit_w": datasheet_w, "peaks": dict.fromkeys(dtypes, PROMISED)}
    return factory.device_record("gpu0", hardware=FACTS | facts, datasheet=factory.DATASHEET.model_copy(update=figures))


def states(**fields):
    return [DeviceState(at_s=0, when=when, **fields) for when in ("before", "during", "after")]


def reads(share=0.96, datasheet=4800.0, contention=None, **fields):
    gb_per_s = share * 4800
    figures = {"datasheet_gb_per_s": datasheet}
    block = factory.timing((1 << 30) / gb_per_s / 1e9, contention=contention)
    return factory.bandwidth_record(
        "gpu0", hbm_read=factory.stream("hbm_read", gb_per_s, timing=block, **figures | fields)
    )


def registers(share=0.98, mhz=1980.0, throttle_reasons=()):
    return factory.peak_record(
        "gpu0", "fp32_fma", 66.9 * share, datasheet=66.9, clock=mhz and (mhz, 66.9), throttle_reasons=throttle_reasons
    )


def products(**shares):
    return [factory.peak_record("gpu0", name, 1000 * share, datasheet=1000) for name, share in shares.items()]


def copies(width=16, generation=5, gb_per_s=55.0, host_memory=None):
    reading = states(pcie_width=width, pcie_generation=generation)
    return factory.bandwidth_record(
        "gpu0", h2d=factory.stream("h2d", gb_per_s, states=reading, host_memory=host_memory)
    )


def peers(gb_per_s, link="nvlink", datasheet=450.0):
    share = {"level": "p2p", "mix": "copy", "datasheet_gb_per_s": datasheet}
    record = factory.bandwidth_record("gpu0", "p2p_gpu1", p2p_gpu1=factory.stream("p2p_gpu1", gb_per_s, **share))
    links = {"active_nvlinks": 18, "nvlink_version": "4.0", "inactive_nvlinks": []}
    return record.model_copy(update={"peer": Peer(peer="gpu1", uuid="", link=link, pcie_ancestor="node", **links)})


def heated(ends_at=600.0, degrees=70.0, seconds=60):
    """Load whose rate changes in a straight line from 600."""
    record = factory.peak_record("gpu0", "bf16", 700, sustained=600)
    points = [
        LoadPoint(at_s=0.6 * place, tflops=600 + (ends_at - 600) * (place - 1) / 100, temperature_c=degrees)
        for place in range(1, 101)
    ]
    record.peak.sustained = summarise_load(points, factory.loaded_work(record.peak.burst.product), seconds)
    return record


def issued(share=0.98, **fields):
    record = factory.instructions_record("gpu0", 4e11 * share)
    record.walls[0].timing = factory.timing(1e-3, **fields)
    record.issue.states = states(throttle_reasons=[])
    return record


def on_cpu(**load):
    block = factory.timing((1 << 30) / 100e9, contention=factory.load_next_to(**load))
    return factory.bandwidth_record("cpu", dram_read=factory.stream("dram_read", 100, timing=block))


def fewer(gb_per_s):
    eight = factory.stream("dram_read_8_cores", gb_per_s, level="dram", mix="read", cores=8)
    return factory.bandwidth_record("cpu", dram_read=factory.stream("dram_read", 100), fewer=eight)


def swept(device, *lengths, **fields):
    cells = [
        factory.cell(device, {"gpu0": 1e-3, "cpu": 40e-3}[device], n=n, overhead_s=1e-5, **fields) for n in lengths
    ]
    return factory.operator_record(device, *cells)


def above():
    fast = swept("gpu0", 1, 2, 3, 4)
    fast.measurements[0].bytes = 10**13
    return fast


def profiled(refused=None, **flops):
    counted = (
        []
        if refused
        else [
            factory.counted_cell(
                factory.cell("gpu0", 1e-3), formula_flops_by_pipe={"fp32": 1e9}, counted_flops_by_pipe=flops
            )
        ]
    )
    return [*WHOLE, factory.profiler_record("gpu0", refused), factory.counters_record("gpu0", *counted)]


HBM = factory.bandwidth_record("gpu0", hbm_read=4650.0)
WHOLE = [card(), *products(fp32=0.8, fp16=0.8, bf16=0.9), HBM, swept("gpu0", 1, 2, 3, 4)]
HOST = [CPU, factory.peak_record("cpu", "fp32", 1.5), fewer(95), swept("cpu", 1, 2, 3, 4)]
PASS, FAIL, NOTE, NONE = "pass", "fail", "note", "not_applicable"

CASES = {
    NO_OTHER_PROCESS: [
        ([card(), reads(states=states(other_processes=0))], PASS),
        ([card(), reads(states=states(other_processes=1))], FAIL),
        ([card(), issued(contention=factory.load_next_to(other_processes=1))], FAIL),
        ([card(), reads(states=states())], NONE),
    ],
    QUIET: [
        ([card(), issued(contention=factory.load_next_to(other_cores=7.9))], FAIL),
        ([CPU, on_cpu()], PASS),
        ([CPU, on_cpu(other_cores=2)], FAIL),
        ([CPU, on_cpu(other_cores=None, waiting_share=None)], NONE),
    ],
    COOL: [
        ([card(), reads(all_throttled=False)], PASS),
        ([card(), reads(all_throttled=False, throttle_reasons=["hw_thermal_slowdown"])], FAIL),
        ([card(), reads(all_throttled=True)], FAIL),
        ([card(), reads(all_throttled=None)], NONE),
    ],
    MEMORY: [
        ([card()], PASS),
        ([card(ecc_uncorrected_errors=1)], FAIL),
        ([card(row_remap_pending=True)], FAIL),
        ([factory.device_record("gpu0")], NONE),
    ],
    REPAIRS: [
        ([card()], PASS),
        ([card(remapped_rows=513)], FAIL),
        ([card(retired_pages=11)], FAIL),
        ([factory.device_record("gpu0")], NONE),
    ],
    POWER_LIMIT: [([card()], PASS), ([card(power_limit_w=400)], NOTE), ([card(datasheet_w=None)], NONE)],
    LINK: [
        ([card(), copies()], PASS),
        ([card(), copies(width=8, gb_per_s=27.0)], FAIL),
        ([card(), copies(host_memory="pinned")], PASS),
        ([card(), copies(gb_per_s=40.0, host_memory="pinned")], FAIL),
        ([card(), copies(generation=1)], NONE),  # faster than what NVML reports
    ],
    PEER_COPIES: [
        ([card(), peers(397)], PASS),
        ([card(), peers(200)], FAIL),
        ([card(), peers(25, link="pcie", datasheet=None)], NONE),
    ],
    HOLDS: [
        ([card(), heated()], PASS),
        ([card(), heated(ends_at=540)], FAIL),
        ([card(), heated(degrees=86)], NOTE),
        ([card(), heated(seconds=3)], None),
    ],
    TIMER: [
        ([card().model_copy(update={"timer_ratio": ratio}), registers(mhz=1995)], result)
        for ratio, result in ((1.0029, PASS), (1.0031, FAIL), (0.9969, FAIL), (None, None))
    ],
    NEAR_MAXIMUM: [
        ([card(), registers()], PASS),
        ([card(boost_mhz=1000), registers(mhz=990)], PASS),
        ([card(), registers(mhz=990)], FAIL),
        ([card(), registers(mhz=990, throttle_reasons=["sw_power_cap"])], NONE),
        ([card(boost_mhz=None, **GDDR), registers(mhz=990)], NONE),
    ],
    READS: [
        ([card(), reads(0.85)], PASS),
        ([card(), reads(0.84)], FAIL),
        ([card(), reads(1.01)], FAIL),
        ([card(**GDDR), reads(0.4)], NONE),
        ([card(), reads(datasheet=None)], NONE),
    ],
    REGISTERS: [
        ([card(), registers(0.98)], PASS),
        ([card(), registers(0.89)], FAIL),
        ([card(), registers(mhz=None)], NONE),
    ],
    MATMULS: [
        ([card(), *products(fp32=0.7, fp16=0.8)], PASS),
        ([card(), *products(fp32=0.69, fp16=0.8)], FAIL),
        ([card(), *products(fp32=0.7, fp16=1.5)], FAIL),
        ([card(), registers(0.4)], NONE),
    ],
    ISSUE_RATE: [([card(), issued()], PASS), ([card(), issued(0.96)], FAIL), ([card(), reads()], None)],
    BELOW_ROOF: [(WHOLE, PASS), ([*WHOLE[:-1], above()], FAIL), ([card(), HBM], NONE)],
    VERIFIED: [(WHOLE, PASS), ([*products(fp32_fma=0.5), swept("gpu0", 1)], FAIL)],
    COUNTED: [
        (profiled(fp32=1e9), PASS),
        (profiled(fp32=2e9), FAIL),
        (profiled("ncu did not end"), NONE),
        (WHOLE, None),
    ],
    AGREE: [
        (HOST, PASS),
        ([CPU, fewer(130)], NOTE),
        ([CPU, factory.peak_record("cpu", "fp32_fma", 1.0), factory.peak_record("cpu", "fp32", 1.5)], NOTE),
        ([CPU], NONE),
    ],
    PLACED: [(WHOLE, PASS), ([card(), HBM, swept("gpu0", 1)], FAIL)],
    QUESTIONS: [([*WHOLE, *HOST], PASS), ([card()], FAIL), (HOST, NONE)],
}


def results(*records, device=None, **asked):
    table = factory.verified(*records, **asked)
    device = device or next(iter(table.devices))
    return {row.check: row.result for row in table.checks if row.device == device}


@pytest.mark.parametrize(
    ("check", "records", "result"), [(check, *case) for check, cases in CASES.items() for case in cases]
)
def test_each_check_is_met_missed_or_not_applicable(check, records, result):
    assert results(*records).get(check) == result


@pytest.mark.parametrize(
    ("near", "asked", "result"),
    [
        ({"fp32": 0.8, "fp16": 0.8, "bf16": 0.9}, [], PASS),
        ({"fp32": 0.6, "fp16": 0.8, "bf16": 0.9}, [], FAIL),
        ({"fp16": 0.8, "bf16": 0.9}, ["fp16", "bf16"], NONE),
    ],
)
def test_three_dtypes_are_accepted_unless_fewer_were_asked_for(near, asked, result):
    assert results(card(), *products(**near), dtypes=asked)[DTYPES_MEASURED] == result


@pytest.mark.parametrize(
    ("check", "record"),
    [
        (NO_OTHER_PROCESS, reads(0.4, states=states(other_processes=1))),
        (COOL, reads(0.4, all_throttled=True)),
        (QUIET, reads(0.4, contention=factory.load_next_to(other_cores=7.9))),
    ],
)
def test_a_disturbed_measurement_is_reported_once(check, record):
    rows = factory.verified(card(), *products(fp32=0.8, fp16=0.8, bf16=0.9), record, above()).checks
    (failure,) = [row for row in rows if row.result == FAIL]
    assert failure.check == check and failure.doubts_figures and failure.records == ["gpu0/bandwidth/hbm.json"]


def test_a_busy_host_does_not_disturb_gpu_times():
    measurement = factory.cell("gpu0", 1e-3, 1e-3)
    measurement.cpu_time.contention, measurement.gpu_time.contention = (
        factory.load_next_to(other_cores=4),
        factory.load_next_to(other_cores=7.5),
    )
    assert results(card(), factory.operator_record("gpu0", measurement))[QUIET] == PASS
    measurement.cpu_time.contention = factory.load_next_to(other_cores=7.5)
    assert results(card(), factory.operator_record("gpu0", measurement))[QUIET] == FAIL
