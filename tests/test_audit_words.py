"""What a reader is told rests on enough: single samples are marked wherever they show, and carry no verdict."""

from __future__ import annotations

import re
from collections.abc import Callable

from pictures import words_of
from records_factory import (
    bandwidth_record,
    cell,
    operator_record,
    peak_record,
    told,
    verified,
)

from roofline.records.base import Record
from roofline.report import interpretation, load_figure, operator_figure, roofline_figure, screen
from roofline.report.figure_style import CROSSED
from roofline.report.pages import pages
from roofline.table.checks.acceptance import DTYPES_MEASURED


def run() -> list[Record]:
    """A GPU ten times as fast as its host, all of it from enough samples."""
    gpu = [cell("gpu0", 1e-3, 0.9e-3, n=n) for n in (1, 2)]
    cpu = [cell("cpu", 1e-2, n=n) for n in (1, 2)]
    return [
        *(peak_record("gpu0", dtype, 55, sustained=50, vendor=60) for dtype in ("fp64", "fp32", "fp16")),
        bandwidth_record("gpu0", hbm_read=4000),
        operator_record("gpu0", *gpu),
        peak_record("cpu", "fp32", 5),
        bandwidth_record("cpu", dram_read=400),
        operator_record("cpu", *cpu),
    ]


def single(of: Callable[[Record], bool] = lambda record: True) -> list[Record]:
    """The same run, where these records are of one sample each."""
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


def of_cpu(record: Record) -> bool:
    return record.device == "cpu"


def test_the_terminal_and_the_page_mark_single_samples():
    said = screen.summary(told(*single()))
    assert re.search(r"^    fp16 +55\* ", said, re.MULTILINE) and "read 400*" in said
    assert "*" not in screen.summary(told(*run()))
    shown = pages(told(*single()))["report.html"]
    assert ">55*" in shown and "1 ms*" in shown


def test_the_pictures_cross_single_samples_and_say_so(tmp_path):
    few, many = verified(*single()), verified(*run())
    for draw in (roofline_figure.draw, lambda roofline: operator_figure.draw(roofline, "scan")):
        figure, other = draw(few), draw(many)
        crosses = [line for axes in figure.axes for line in axes.lines if line.get_marker() == CROSSED["marker"]]
        dots = [cell for cell in few.operators if draw is roofline_figure.draw or cell.operator == "scan"]
        assert sum(len(line.get_xydata()) for line in crosses) >= len(dots)
        assert not [line for axes in other.axes for line in axes.lines if line.get_marker() == CROSSED["marker"]]
    shown = words_of(load_figure.draw(few), tmp_path / "load.svg")
    assert any(text.startswith("55* TFLOPS") for text in shown)


def test_nothing_is_concluded_from_single_samples():
    ratios = [[[round(times) for times in one.times] for one in told(*records).ratios] for records in (run(), single())]
    assert ratios == [[[11], [10, 10]], []]
    one = single(lambda record: record.device == "cpu" and record.kind == "operator")
    one[-1].measurements[1].latency = run()[-1].measurements[1].latency
    assert [round(times) for times in told(*one).ratios[-1].times] == [10]
    words = " ".join(interpretation.paragraphs(told(*single())))
    assert not re.search(r"\d (%|times|GB/s|TB/s|us|ms)", words) and "TFLOPS" not in words


def test_no_check_passes_on_single_samples():
    for records, passes in ((run(), True), (single(), False)):
        (check,) = (c for c in verified(*records).checks if (c.device, c.check) == ("gpu0", DTYPES_MEASURED))
        assert (check.result == "pass") == passes
