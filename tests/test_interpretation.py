"""The three paragraphs of interpretation.md: their length, and that doubtful figures carry no conclusion."""

import re
from collections.abc import Callable

import pytest
from records_factory import (
    bandwidth_record,
    cell,
    device_record,
    operator_record,
    pages_of,
    peak_record,
    skipped_peak,
    told,
    verified,
)

from roofline.records.base import Record
from roofline.table.checks.acceptance import DTYPES_MEASURED

HBM, DRAM = bandwidth_record("gpu0", hbm_read=4000, h2d=50), bandwidth_record("cpu", dram_read=80)
GPU_PEAK, CPU_PEAK = peak_record("gpu0", "fp32", 55), peak_record("cpu", "fp32", 1.0)
BARE = operator_record("gpu0", cell("gpu0", 1e-3, 0.5e-3))
LESS = {
    "nothing but a device": [device_record("cpu")],
    "no operators": [GPU_PEAK, HBM],
    "no ceilings": [BARE],
    "no memory ceiling": [GPU_PEAK, BARE],
    "no compute ceiling": [HBM, BARE],
    "a CPU alone": [CPU_PEAK, DRAM, operator_record("cpu", cell("cpu", 1e-1))],
    "too few samples": [peak_record("gpu0", "fp32", 55, interval=False), HBM],
    "a card that lacks what was asked for": [skipped_peak("gpu0", "bf16", "it needs 8.0"), HBM],
}


def paragraphs(*records: Record) -> list[str]:
    return re.findall(r"^\*\*.*", pages_of(*records)["interpretation.md"], re.MULTILINE)


def run() -> list[Record]:
    """A GPU ten times as fast as its host, all of it from enough samples."""
    return [
        *(peak_record("gpu0", dtype, 55, sustained=50, vendor=60) for dtype in ("fp64", "fp32", "fp16")),
        bandwidth_record("gpu0", hbm_read=4000),
        operator_record("gpu0", *(cell("gpu0", 1e-3, 0.9e-3, n=n) for n in (1, 2))),
        peak_record("cpu", "fp32", 5),
        bandwidth_record("cpu", dram_read=400),
        operator_record("cpu", *(cell("cpu", 1e-2, n=n) for n in (1, 2))),
    ]


def single(of: Callable[[Record], bool] = lambda record: True) -> list[Record]:
    """The same run, with these records of one sample each."""
    records = run()
    for record in filter(of, records):
        timed = list(getattr(record, "bandwidths", []))
        timed += record.measurements + ([record.peak.burst] if getattr(record, "peak", None) else [])
        for one in timed:
            one.latency = one.latency.model_copy(update={"samples_s": [one.latency.median_s], "ci95_s": None})
            if "ci95" in type(one).model_fields:
                one.ci95 = None
        if getattr(record, "peak", None):
            record.peak.ci95 = None
    return records


@pytest.mark.parametrize("records", LESS.values(), ids=LESS)
def test_a_run_of_anything_less_has_three_paragraphs_too(records):
    found = paragraphs(*records)
    assert len(found) == 3 and not re.search(r"\b(None|nan|inf)\b|[{}]", " ".join(found))


def test_paragraphs_of_a_whole_run_have_their_length():
    assert all(45 <= len(one.split()) <= 110 for one in paragraphs(*run()))


def concluded(records: list[Record]) -> tuple[list[str], list[int], list[float]]:
    """GEMM ceilings to plan with, sound cells by device, and how many times as fast the GPU is."""
    found = told(*records)
    gpu, cpu = found.devices
    sound = [sum(len(one.fast) for one in device.operators) for device in (gpu, cpu)]
    planned = [c.name for c in gpu.gemms if not c.doubt]
    return planned, sound, [round(value, 1) for one in found.ratios for value in one.times]


def test_nothing_is_concluded_from_single_samples():
    dtypes, sound, times = concluded(run())
    assert dtypes == ["fp64", "fp32", "fp16"] and min(sound) > 0 and times.count(10.0) == 2
    assert concluded(single()) == ([], [0, 0], [])
    of_gpu, sound, times = concluded(single(lambda record: record.device == "cpu"))
    assert of_gpu == dtypes and sound[1] == 0 and times == []


def test_pages_mark_single_samples():
    few, many = pages_of(*single()), pages_of(*run())
    assert '<td class="n">55*</td>' in few["report.html"] and "| 55* |" in few["ROOFLINE.md"]
    assert ">55*<" not in many["report.html"] and "| 55* |" not in many["ROOFLINE.md"]


def test_no_check_passes_on_single_samples():
    for records, passes in ((run(), True), (single(), False)):
        (check,) = (c for c in verified(*records).checks if (c.device, c.check) == ("gpu0", DTYPES_MEASURED))
        assert (check.result == "pass") == passes
