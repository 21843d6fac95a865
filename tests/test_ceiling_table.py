"""The table of ceilings and levels, on the screen and in the summary."""

import re

import pytest
import samples

from roofline.records.acceptance import Acceptance
from roofline.records.roofline import Roofline
from roofline.report import screen, summary
from roofline.report.tables import compute_rows, held_back, level_rows, memory_rows, size

ABOVE = {"device": "gpu0", "record": None, "fraction_of_roof": 1.12, "evidence": "evidence of some length " * 6}
ABOVE_BY_CACHE = ABOVE | {"operator": "decode core fp16 S 128", "wrong_roof": None, "cache": "l2"}
ABOVE_BY_ROOF = ABOVE | {"operator": "gemm fp32", "wrong_roof": "fp32", "cache": None}


@pytest.fixture(scope="module")
def roofline():
    return Roofline.model_validate(samples.whole_run() | {"above_roof": [ABOVE_BY_CACHE, ABOVE_BY_ROOF]})


def test_a_compute_ceiling_in_words(roofline):
    rows = {row.name: row for row in compute_rows(roofline, "gpu0")}
    fp16 = rows["fp16"]
    assert (fp16.measured, fp16.unit, fp16.interval) == ("778", "TFLOPS", "776 to 779")
    assert (fp16.sustained, fp16.vendor, fp16.of_vendor, fp16.of_clock) == ("665", "989", "79 %", "73 %")
    assert fp16.held_back_by == "power cap"
    assert rows["int8"].unit == "TOPS"
    assert list(rows) == list(samples.GPU_COMPUTE)


def test_what_is_not_known_is_empty(roofline):
    rows = {row.name: row for row in memory_rows(roofline, "gpu0")}
    assert (rows["L2"].vendor, rows["L2"].of_vendor, rows["L2"].sustained, rows["L2"].of_clock) == ("", "", "", "")


def test_a_knee_stands_against_the_capacity_that_is_reported(roofline):
    assert [(row.name, row.knee, row.reported) for row in level_rows(roofline, "gpu0")] == [
        ("L1", "214 KiB", "256 KiB"),
        ("L2", "", "15 MiB"),
        ("L2", "51 MiB", "60 MiB"),
        ("memory", "", ""),
    ]


@pytest.mark.parametrize(
    ("reasons", "throttled", "words"),
    [
        (["sw_power_cap"], False, "power cap"),
        (["sw_power_cap"], None, "power cap"),
        (["sw_thermal_slowdown", "hw_thermal_slowdown"], True, "heat, throughout"),
        (["sw_power_cap", "hw_thermal_slowdown"], False, "power cap, heat"),
        (["gpu_idle"], None, "nothing named"),
        (["unnamed_0x400"], False, "unnamed_0x400"),
        ([], False, "nothing named"),
        ([], None, "untold"),
    ],
)
def test_what_held_it_back(reasons, throttled, words):
    assert held_back(reasons, throttled) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(100, "100 bytes"), (49152, "48 KiB"), (60 << 20, "60 MiB"), (1.7 * 2**20, "1.7 MiB"), (3 << 30, "3 GiB")],
)
def test_sizes_are_in_binary_units(count, words):
    assert size(count) == words


def on_screen(roofline, tmp_path, capsys):
    (tmp_path / "roofline.json").write_text(roofline.model_dump_json())
    (tmp_path / "acceptance.json").write_text(Acceptance(criteria=[]).model_dump_json())
    screen.summarise(tmp_path)
    return capsys.readouterr().out


def test_the_tables_fit_the_screen(roofline, tmp_path, capsys):
    said = on_screen(roofline, tmp_path, capsys)
    tables = said.partition("Acceptance")[0]
    assert max(len(line) for line in tables.splitlines()) <= 100
    assert re.search(r"^  fp16 +778 +776 to 779 +665 +989 +79 % +73 %  power cap$", tables, re.MULTILINE)
    assert re.search(r"^  hbm_read +4641 +4632 to 4646 +4800 +97 %", tables, re.MULTILINE)
    assert re.search(r"^  L2 +9300 +51 MiB +60 MiB  the device, past L1$", tables, re.MULTILINE)
    assert "fp16        skipped: NumPy has no fp16 product of its own" in tables


def test_many_reasons_are_wrapped_below_each_other(roofline, tmp_path, capsys):
    many = roofline.model_copy(deep=True)
    many.ceilings[0].held_back_by = ["sw_power_cap", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"]
    said = on_screen(many, tmp_path, capsys)
    first, second = re.search(r"^(  fp64 .*)\n( +power.*)$", said, re.MULTILINE).groups()
    assert first.index("power cap") == second.index("power brake") and len(first) <= 100 >= len(second)


def test_operators_above_their_roof_are_told_with_the_evidence(roofline, tmp_path, capsys):
    said = " ".join(on_screen(roofline, tmp_path, capsys).split())
    assert "Above its roof: decode core fp16 S 128 at 112 % of it: its data came from l2 (evidence of" in said
    assert "Above its roof: gemm fp32 at 112 % of it: the fp32 ceiling is too low (evidence of some length" in said


def test_decode_attention_has_a_row_a_cell_and_a_column_a_way(tmp_path, capsys):
    many = samples.every_implementation(("fp32", "fp16", "bf16"))
    others = [row | {"preset": "llama-3-8b"} for row in many["operators"] if row["operator"] == "decode_attention"]
    many["operators"] += others
    said = on_screen(Roofline.model_validate(many), tmp_path, capsys).partition("Acceptance")[0]
    lines = said.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("  decode attention, ") for line in lines) == 4  # a preset and device
    (head,) = {line for line in lines if "eager block" in line}
    assert head.split()[-5:] == ["eager", "eager", "block", "fused", "fused_graph"]
    last = "  fp32  256   1024  845 us     27 % m  861 us     27 % m  234 us     99 % m  232 us    100 % m"
    first = "  fp32    1    128  285 us 0.0396 % o  456 us  0.223 % o    8 us   1.41 % o  2.6 us   4.34 % o"
    assert lines.count(first) == lines.count(last) == 2
    rows = [line.split()[:3] for line in lines[lines.index(head) + 1 :][:24]]
    assert [dtype for dtype, *_ in rows] == ["fp32"] * 8 + ["fp16"] * 8 + ["bf16"] * 8
    assert rows[:8] == [["fp32", batch, str(s)] for batch in ("1", "256") for s in samples.SEQ_LENS]
    assert sum(line.startswith("  gemm ") for line in lines) == 9


def test_a_step_that_is_missing_leaves_its_place_empty(tmp_path, capsys):
    few = samples.every_implementation(("fp32",))
    gone = {"seq_len": 128, "batch": 1}
    few["operators"] = [
        row
        for row in few["operators"]
        if row["implementation"] not in ("fused", "eager") or gone.items() - row["shape"].items()
    ]
    said = on_screen(Roofline.model_validate(few), tmp_path, capsys)
    assert re.search(r"^  fp32    1    128 +- +- +- +2.6 us   4.34 % o$", said, re.MULTILINE)


def test_a_block_of_each_implementation_takes_its_time():
    def expected_s(device, implementations):
        attention = {"implementations": implementations, "batch_sizes": [1, 256], "time_budget_s": 1.0}
        settings = {"peak_flops": {"time_budget_s": 1, "sustained_s": 1}, "bandwidth": {"time_budget_s": 1}}
        return screen.expected_s("decode_attn", device, settings | {"decode_attn": attention})

    start_s = {device: expected_s(device, []) for device in ("gpu0", "cpu")}
    assert expected_s("gpu0", ["fused"]) - start_s["gpu0"] == pytest.approx(2 * screen.BUDGET_SPENT["gpu"])
    assert expected_s("gpu0", None) - start_s["gpu0"] == pytest.approx(8 * screen.BUDGET_SPENT["gpu"])
    assert expected_s("cpu", None) - start_s["cpu"] == pytest.approx(4 * screen.BUDGET_SPENT["cpu"])


def test_the_summary_has_the_same_rows(roofline):
    page = summary.page(roofline, Acceptance(criteria=[]), "# Title\n\nWords.")
    for device in roofline.devices:
        for row in compute_rows(roofline, device) + memory_rows(roofline, device):
            assert f'<td>{row.name}</td><td class="n">{row.measured}</td><td>{row.unit}</td>' in page
    assert "its data came from l2" in page and "51 MiB" in page
    assert "decode core eager fp16 batch 256 S 1024 minigpt" in page and 'href="attention.png"' in page
    assert 'href="sweep.png"' in page and 'href="load.png"' in page
