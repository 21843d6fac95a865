"""What a reader is told rests on enough: single samples are marked wherever they show, and carry no verdict."""

from __future__ import annotations

import re
from collections.abc import Callable

from pictures import words_of
from records_factory import (
    bandwidth_record,
    cell,
    collected,
    device_record,
    operator_record,
    page,
    peak_record,
    told,
    verification_page,
    verified,
)

from roofline.analysis.checks.ceilings import DTYPES_MEASURED
from roofline.core.statistics import FEWEST_SAMPLES
from roofline.records.base import Record
from roofline.records.compute import PeakFlopsRecord
from roofline.report import load_figure, operator_figure, roofline_figure, screen
from roofline.report.figure_style import FEW
from roofline.report.rendering import html_page

MARK = f"fewer than {FEWEST_SAMPLES} samples"


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


def devices_of(records: list[Record]):
    return {name: device_record(name) for name in dict.fromkeys(record.device for record in records)}


def words(records: list[Record]) -> str:
    return page("interpretation", *records)


def verdicts(records: list[Record]) -> list[str]:
    return re.findall(r"^\*\*(.+?)\*\*", words(records), re.MULTILINE)


# ---------------------------------------------------------------- single samples are marked


def test_the_terminal_marks_single_samples():
    said = screen.summary(collected(*single()).roofline)
    assert re.search(r"^  fp16 +55\* +1 +none ", said, re.MULTILINE)
    assert re.search(r"^  dram_read +400\* +1 +none ", said, re.MULTILINE)
    assert re.search(r"^  scan plain fp32 N 1 +1 ms\* .* 1 +none ", said, re.MULTILINE)
    assert said.count(MARK) == 2, "once per device"
    assert max(map(len, said.splitlines())) <= screen.WIDTH
    assert "*" not in screen.summary(collected(*run()).roofline)


def test_the_pages_mark_single_samples():
    shown = html_page(told(*single()))
    assert '<td class="n">55*</td>' in shown and '<td class="n">1 ms*</td>' in shown and MARK in shown
    said = words(single())
    assert re.search(r"\| fp16 +\| +55\* \|", said) and "55*" in said
    assert said.rstrip().endswith("nothing is concluded from it") and "*" not in re.sub(
        r"\*\*|\*Sealed\*", "", words(run())
    )


def test_the_pictures_cross_single_samples_and_say_so(tmp_path):
    few, many = collected(*single()).roofline, collected(*run()).roofline
    for draw in (roofline_figure.draw, lambda roofline: operator_figure.draw(roofline, "scan")):
        figure, other = draw(few), draw(many)
        crossed = [
            p
            for axes in figure.axes
            for line in axes.lines
            if line.get_marker() == FEW["marker"]
            for p in line.get_xydata()
        ]
        dots = [cell for cell in few.operators if draw is roofline_figure.draw or cell.operator == "scan"]
        assert len(crossed) >= len(dots)
        assert any(MARK in text for text in words_of(figure, tmp_path / "few.svg"))
        assert not any(MARK in text for text in words_of(other, tmp_path / "many.svg"))
    told = words_of(roofline_figure.draw(few), tmp_path / "few.svg")
    assert any(text.startswith("fp16 55* burst, 50 sustained") for text in told) and any(
        "400*" in text for text in told
    )
    peaks = [record for record in single() if isinstance(record, PeakFlopsRecord)]
    told = words_of(load_figure.draw(peaks), tmp_path / "load.svg")
    assert any(MARK in text for text in told) and any(text.startswith("55* TFLOPS burst") for text in told)


# ---------------------------------------------------------------- and nothing is concluded from them


def test_no_verdict_is_built_on_single_samples():
    assert verdicts(single()) == [
        *["gpu0: too few samples to say.", "cpu: too few samples to say."] * 2,
        "Too few samples to say.",
    ]
    assert "plan long-running work" in verdicts(run())[0] and "11 times as fast" in verdicts(run())[-1]


def test_a_verdict_leaves_out_the_single_samples_among_others():
    first, second, *landed, compared = verdicts(single(of_cpu))
    assert "plan long-running work with these sustained rates" in first and second == "cpu: too few samples to say."
    assert "gpu0: at best" in landed[0] and landed[1] == "cpu: too few samples to say."
    assert compared == "Too few samples to say."
    one = single(lambda record: record.device == "cpu" and record.kind == "operator")
    one[-1].measurements[1].latency = run()[-1].measurements[1].latency
    assert "times as fast as the CPU in" in verdicts(one)[-1] and "scan (N 2)" in verdicts(one)[-1]
    row = next(line for line in words(one).splitlines() if re.match(r"\| scan +\| N 1 ", line))
    assert row.split("|")[9].strip() == "-", "no ratio of a single sample"


def test_no_check_passes_on_single_samples():
    for records, passes in ((run(), True), (single(), False)):
        (check,) = (c for c in collected(*records).roofline.checks if (c.device, c.check) == ("gpu0", DTYPES_MEASURED))
        assert (check.result == "pass") == passes


# ---------------------------------------------------------------- the page


def test_an_operator_has_one_name_everywhere():
    records = run()
    found = verified(*records)
    texts = [screen.summary(collected(*records).roofline), verification_page(found), words(records)]
    assert all("GEMM" in text and not re.search(r"\bgemm\b", text) for text in texts)
