"""The tables of ceilings, levels and operators: on the screen and in Markdown."""

import re
import shlex
from pathlib import Path

import pytest
from records_factory import bandwidth_record, cell, device_record, operator_record, peak_record, stream, verified

from roofline.records.base import read
from roofline.records.memory import FoundLevel, Sweep
from roofline.report import markdown, screen
from roofline.report.screen import make_again
from roofline.report.tables import compute_rows, level_rows, limited_by, measure_again, memory_rows, remarks
from roofline.table.rows import Roofline

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"
POWER = ["sw_power_cap"]
NUMPY_LACKS = {name: f"NumPy has no {name} arithmetic of its own" for name in ("fp16", "bf16")}


def levels(**knees):
    points = [{"size_bytes": size, "gb_per_s": rate} for size, rate in ((1, 9300), (2, 4600))]
    found = [
        FoundLevel(name=name, gb_per_s=9300, first_bytes=1, last_bytes=2, knee_bytes=knee, reported_bytes=reported)
        for name, (knee, reported) in knees.items()
    ] + [FoundLevel(name=None, gb_per_s=4600, first_bytes=1, last_bytes=2, knee_bytes=None, reported_bytes=None)]
    return Sweep(series="past L1", reader="the device", counted="made up", points=points, levels=found, states=[])


@pytest.fixture(scope="module")
def roofline():
    cells = [
        cell("gpu0", 1e-3 * (1 + n), 1e-3, dtype=dtype, n=n, implementation=name)
        for dtype in ("fp32", "fp16")
        for n in (1, 2)
        for name in ("plain", "fused", "graph", "another", "one_more")
        if (n, name) != (2, "fused")
    ]
    return verified(
        peak_record("gpu0", "fp16", 778, sustained=665, reasons=POWER, vendor=989.4, clock=(1755, 1066)),
        peak_record("gpu0", "int8", 1700, interval=False),
        bandwidth_record(
            "gpu0", hbm_read=stream("hbm_read", 4641, vendor_gb_per_s=4800, fraction_of_vendor=4641 / 4800)
        ),
        bandwidth_record("gpu0", l2=9300),
        bandwidth_record("gpu0", sweeps=[levels(l2=(51 << 20, 60 << 20))]),
        operator_record("gpu0", *cells),
        device_record("cpu", unsupported=NUMPY_LACKS),
        operator_record("cpu", cell("cpu", 1e-9, cache="warm", memory_ceilings=["dram_read"])),
        bandwidth_record("cpu", dram_read=80),
        dtypes=["fp16", "bf16"],
    )


@pytest.mark.parametrize(("copies", "one_core", "doubts"), [(47, 1, 1), (31, 1, 0), (1, 28, 1), (1, 15, 0)])
def test_reads_that_copies_or_one_core_put_in_doubt_are_told(copies, one_core, doubts):
    alone = stream("dram_read_one_core", one_core, cores=1)
    record = bandwidth_record("cpu", dram_read=30, dram_copy=copies, dram_read_one_core=alone)
    assert len(list(remarks(verified(device_record("cpu"), record).ceilings))) == doubts


def test_a_ceiling_in_words(roofline):
    fp16, int8 = compute_rows(roofline, "gpu0")
    assert (fp16.measured, fp16.unit, fp16.interval, fp16.limited_by) == ("778", "TFLOPS", "± 1.0 %", "power cap")
    assert (fp16.sustained, fp16.vendor, fp16.of_vendor, fp16.of_clock) == ("665", "989", "79, 67 %", "73 %")
    assert (int8.unit, int8.interval, int8.sustained, int8.of_vendor) == ("TOPS", "none", "", "")
    assert (fp16.samples, int8.measured, int8.samples) == ("9", "1700*", "3")
    hbm, l2 = memory_rows(roofline, "gpu0")
    assert (hbm.measured, hbm.unit, hbm.of_vendor) == ("4641", "GB/s", "97 %")
    assert (l2.name, l2.vendor, l2.of_clock) == ("L2", "", "")


def test_a_knee_stands_against_the_capacity_that_is_reported(roofline):
    rows = [(row.name, row.knee, row.reported, row.series) for row in level_rows(roofline, "gpu0")]
    assert rows == [("L2", "51 MiB", "60 MiB", "the device, past L1"), ("memory", "", "", "the device, past L1")]


@pytest.mark.parametrize(
    ("reasons", "throttled", "words"),
    [
        (["sw_power_cap", "hw_thermal_slowdown"], False, "power cap, heat"),
        (["sw_thermal_slowdown", "hw_thermal_slowdown"], True, "heat, throughout"),
        (["gpu_idle"], None, "none reported"),
        ([], None, "not reported"),
    ],
)
def test_what_limits_a_ceiling(reasons, throttled, words):
    assert limited_by(reasons, throttled) == words


# ---------------------------------------------------------------- the screen


@pytest.fixture(scope="module")
def shown(roofline):
    return screen.summary(roofline)


def test_the_tables_fit_the_screen(shown):
    assert max(len(line) for line in shown.splitlines()) <= screen.WIDTH
    assert re.search(r"^  fp16 +778 +9 +± 1.0 % +665 +989 +79, 67 % +73 %  power cap$", shown, re.MULTILINE)
    assert re.search(r"^  hbm_read +4641 +9 +± 1.0 % +4800 +97 %  no", shown, re.MULTILINE)
    assert re.search(r"^  L2 +9300 +51 MiB +60 MiB  the device, past L1$", shown, re.MULTILINE)


def test_what_limits_the_load_of_a_real_card_fits_its_line():
    roofline = read(Roofline, REFERENCE / "roofline.json")
    lines = screen.summary(roofline).splitlines()
    assert [line for line in lines if line.startswith("  fp8_e4m3") and line.endswith("  load: power cap")]
    assert max(len(line) for line in lines if not line.startswith("  rm ")) <= screen.WIDTH  # that one is to be copied


def test_a_row_per_case_and_a_column_per_implementation(shown):
    lines = shown.splitlines()
    start = next(place for place, line in enumerate(lines) if line.split() == ["plain", "fused", "graph", "another"])
    rows = [line.split()[:3] for line in lines[start + 1 : start + 5]]
    assert rows == [["fp32", "n", "1"], ["fp32", "n", "2"], ["fp16", "n", "1"], ["fp16", "n", "2"]]
    assert re.search(r"^  fp32 n 2 +3 ms +\d+ % o +- +3 ms", shown, re.MULTILINE), "what is missing leaves its place"


def test_what_limits_is_told_apart_where_the_record_does():
    told = peak_record("gpu0", "fp16", 778, sustained=665, reasons=POWER)
    told.peak.burst_limited_by, told.peak.sustained_limited_by = [], POWER
    (row,) = compute_rows(verified(told), "gpu0")
    assert row.limited_by == "sustained: power cap"
    told.peak.burst_limited_by = POWER
    (row,) = compute_rows(verified(told), "gpu0")
    assert row.limited_by == "power cap"


# ---------------------------------------------------------------- Markdown


def test_a_column_that_is_empty_throughout_is_left_out():
    text = markdown.table(("name", "one", "two"), [["a|b", "1", "-"], ["c", "2", ""]])
    assert "two" not in text and "a\\|b" in text
    assert re.fullmatch(r"\|:-+\|-+:\|", text.splitlines()[1])


def test_text_of_a_users_begins_no_tag_and_no_column():
    assert markdown.without_html("<script>x</script> < 1") == "&lt;script>x&lt;/script> < 1"


def test_the_commands_that_measure_again_are_as_make_and_the_shell_take_them():
    given = "--configfile 'my config$.yaml'"
    assert shlex.split(make_again(given)) == ["make", "AGAIN=1", f"ARGS={given.replace('$', '$$')}"]
    assert make_again("") == "make AGAIN=1"
    command, arguments = shlex.split(measure_again(["cpu/scan/a b.json"]))
    assert (command, shlex.split(arguments.removeprefix("ARGS="))[-1]) == ("make", "results/cpu/scan/a b.json")
