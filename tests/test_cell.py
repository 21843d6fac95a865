"""One record in a folder of its own: which names it answers to, what is measured for it, and what is shown."""

import json
import shutil
from functools import partial

import pytest
import yaml
from commands import load
from hypothesis import given
from hypothesis import strategies as st
from records_factory import SCAN, US, bandwidth_record, beside, cell, collected, operator_record, peak_record
from test_gpu_workflow import CONFIG, TWO_CARDS, GpuRun
from workflow_run import CHECKOUT, TINY, Run, changed, new_checkout

from roofline.analysis.results import read_table
from roofline.core.formatting import duration
from roofline.devices import Identity
from roofline.records.base import read, write
from roofline.records.calibration import CalibrationRecord
from roofline.records.memory import BandwidthRecord
from roofline.report.cell_page import figures, page
from roofline.run import cells, settings

REFERENCE = CHECKOUT / "reference" / "nvidia-h200" / "roofline.json"
OPERATOR = "cpu/decode_attn/minigpt/S128_fp32"
KNOWN = ["cpu/peak_flops/fp32", "cpu/bandwidth/dram", "cpu/bandwidth/sweep", OPERATOR, "cpu/row_norm/fp32"]
find = partial(cells.find, known=KNOWN, missing=lambda named: None)

# ---------------------------------------------------------------- names


@given(st.sampled_from(KNOWN), st.sampled_from(["", "results/", "./results/", "/a folder/results/", "reference/x/"]))
def test_a_cell_is_found_by_its_name_and_by_its_file(name, folder):
    for text in (f"{folder}{name}", f"{folder}{name}.json", f" {folder}{name}.json\n", f"{folder}{name}/"):
        assert find(text) == (name, None)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_in_one_line(text):
    try:
        name, ceiling = find(text)
    except cells.Unknown as unknown:
        assert len(str(unknown).splitlines()) == 1
    else:
        assert name in KNOWN and (name in text or ceiling)


def test_a_ceiling_is_found_by_the_level_that_it_is_of():
    assert find("cpu/bandwidth/dram_read_one_core") == ("cpu/bandwidth/dram", "dram_read_one_core")
    assert find("results/cpu/bandwidth/dram_copy.json") == ("cpu/bandwidth/dram", "dram_copy")


@pytest.mark.parametrize(
    "text, begins",
    [
        ("", "CELL names the record to measure: CELL=cpu/peak_flops/fp32, CELL=cpu/bandwidth/sweep, "),
        ("  ", "CELL names the record to measure: "),
        ("cpu/decode_attn/minigpt/S182_fp32", f"… is unknown; did you mean {OPERATOR}? allowed: cpu/peak_flops/fp32 "),
        ("cpu/decode attn", "… is unknown; allowed: cpu/peak_flops/fp32 cpu/bandwidth/{dram,sweep} cpu/decode_attn"),
        (
            "gpu0/row_norm/fp32",
            "… is on gpu0, which is not on this machine (here: cpu); did you mean cpu/row_norm/fp32",
        ),
        ("results/gpu0/row_norm/fp32.json", "… is on gpu0, which is not on this machine (here: cpu); did you mean"),
        ("cpu/peak_flops/fp16", "… cannot be measured (NumPy has no fp16 arithmetic of its own on the CPU, it "),
    ],
)
def test_what_is_no_cell(text, begins):
    here = {"cpu": Identity("cpu", "cpu", "A CPU", "1", None, 1, 1)}
    with pytest.raises(cells.Unknown) as refused:
        cells.find(text, KNOWN, partial(cells.missing, settings.complete({}), here))
    assert str(refused.value).startswith(begins.replace("…", f"CELL: {text!r}"))


# ---------------------------------------------------------------- what is shown


def rows(shown: str) -> list[list[str]]:
    lines = [line for line in shown.splitlines() if line.startswith("|") and not line.startswith("|:")]
    return [[part.strip() for part in line.split("|")[1:-1]] for line in lines]


def test_predicted_measured_and_the_reference_side_by_side():
    def run(latency_s):
        one = cell("gpu0", latency_s, latency_s / 2, overhead_s=US)
        records = peak_record("gpu0", "fp32", 50.0), bandwidth_record("gpu0", hbm_read=4000.0)
        return collected(*records, operator_record("gpu0", one, operator=SCAN)).roofline

    ours, theirs = run(50e-6), run(40e-6)
    record = next(one.record for one in ours.operators if one.operator == "scan")
    head, row = rows(page(figures(ours, record), figures(theirs, record)))
    shown = dict(zip(head[:4], row[:4], strict=True))
    assert (shown["measured"], row[head.index("reference")], row[head.index("ratio")]) == ("50 us", "40 us", "1.25")
    assert shown["predicted"].endswith("us") and row[4].endswith("%") and row[4] != row[7]
    alone = rows(page(figures(ours, record), []))
    assert "reference" not in alone[0] and "ratio" not in alone[0]


@pytest.mark.parametrize(
    "record, shown",
    [
        ("gpu0/peak_flops/fp16.json", {"fp16 burst": "TFLOPS", "fp16 sustained": "TFLOPS", "reference GEMM": "TFLOPS"}),
        ("gpu0/peak_flops/int8.json", {"int8 burst": "TOPS", "int8 sustained": "TOPS", "reference GEMM": "TOPS"}),
        ("gpu0/bandwidth/hbm.json", dict.fromkeys(("hbm_read", "hbm_write", "hbm_copy", "hbm_triad"), "GB/s")),
        ("gpu0/bandwidth/sweep.json", dict.fromkeys(("one multiprocessor", "the device, past L1"), "GB/s")),
        ("gpu0/decode_attn/minigpt/S1024_fp16.json", dict.fromkeys(("fp16 batch 1, ", "fp16 batch 256, "), "s")),
    ],
)
def test_every_kind_of_record_beside_the_reference(record, shown):
    """Of the committed run beside itself, each figure is found again."""
    found = figures(read_table(REFERENCE), record)
    head, *lines = rows(page(found, found))
    assert len(lines) == len(found) >= len(shown)
    for line in lines:
        unit = next(unit for name, unit in shown.items() if line[0].startswith(name))
        assert line[head.index("measured")].rstrip("*").endswith(unit)
        assert line[head.index("reference")] == line[head.index("measured")]
        assert line[head.index("ratio")] == "1.00"
    assert len({one.key for one in found}) == len(found)


def test_the_reference_is_of_the_card_of_that_name():
    command = load("cell")
    found, told = command.reference("gpu1/bandwidth/hbm", "NVIDIA H200")
    assert {one.name for one in found} >= {"hbm_read"} and "reference/nvidia-h200" in told
    assert command.reference("gpu0/bandwidth/no_such", "NVIDIA H200") == (
        [],
        "reference/nvidia-h200 has no such record",
    )
    packed, told = command.reference("gpu0/bandwidth/hbm", "NVIDIA H100 80GB HBM3")
    assert told.startswith("reference: reference/nvidia-h100-80gb-hbm3") and len(packed) == len(found)
    assert command.reference("gpu0/bandwidth/hbm", "A GPU of no run") == ([], "reference/ has no run on this device")


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    own = {"operators": ["examples/gelu.py"], "gelu": {"sizes": [1024]}}
    config = changed(TINY, {**own, "decode_attn": {"seq_lens": [128]}})
    return Run(new_checkout(tmp_path_factory.mktemp("cell") / "checkout", yaml.safe_dump(config)))


def started(checkout, name):
    return json.loads((checkout.root / f"cell/results/{name}.json").read_text())["started_at"]


def measured(checkout) -> set[str]:
    folder = checkout.root / "cell/results"
    return {
        path.relative_to(folder).as_posix().removesuffix(".json")
        for path in folder.rglob("*.json")
        if path.name not in ("device_query.json", "prediction.json")
    }


@pytest.mark.parametrize("text", ["", "nothing", "gpu0/decode_attn/minigpt/S128_fp32", "cpu/peak_flops/fp8_e4m3"])
def test_what_is_refused_is_one_line_and_touches_nothing(checkout, text):
    before = set(checkout.root.rglob("*"))
    done = checkout.command("cell", text)
    assert done.returncode == 1 and done.stdout.count("\n") == 1 and not done.stderr
    assert {path for path in checkout.root.rglob("*") if "__pycache__" not in path.parts} <= before


def test_what_lies_in_the_way_is_named(tmp_path):
    run = Run(new_checkout(tmp_path / "checkout", yaml.safe_dump(TINY)))
    (run.root / "cell").write_text("a file")
    done = run.command("cell", OPERATOR.replace("128", "16"))
    assert (done.returncode, done.stdout) == (1, "cell is no folder, and one is needed there: move it away\n")


def test_one_cell_on_the_cpu(checkout):
    """It and the ceilings of its roof, and nothing else; once more it alone is measured, and what was disturbed."""
    shown = []
    for settings_of_run in ((), ("--config", "effort=default")):
        done = checkout.command("cell", f"results/{OPERATOR}.json", *settings_of_run)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "predicted" in done.stdout and "of roof" in done.stdout
        assert "reference/ has no run on this device" in done.stdout and "dram_read" in done.stdout
        assert measured(checkout) == {OPERATOR, "cpu/calibration", "cpu/peak_flops/fp32", "cpu/bandwidth/dram"}
        shown.append([started(checkout, name) for name in (OPERATOR, "cpu/peak_flops/fp32", "cpu/bandwidth/dram")])
    assert shown[0][0] < shown[1][0] and shown[0][1:] == shown[1][1:]
    assert not checkout.results.exists() and not (checkout.root / "logs").exists()

    path = checkout.root / "cell/results/cpu/bandwidth/dram.json"
    record = read(BandwidthRecord, path)
    for one in record.bandwidths:
        one.latency.contention = beside(other_cores=4)
    write(record, path)
    done = checkout.command("cell", OPERATOR)
    assert done.returncode == 0, done.stdout + done.stderr
    after = [started(checkout, name) for name in ("cpu/peak_flops/fp32", "cpu/bandwidth/dram")]
    assert after[0] == shown[1][1] and after[1] > shown[1][2]

    path = checkout.root / "cell/results/cpu/calibration.json"
    write(read(CalibrationRecord, path).model_copy(update={"contention": beside(other_cores=4)}), path)
    assert "cpu/calibration.json: forced" in checkout.command("cell", OPERATOR, "--dry-run").stdout


def test_an_operator_of_ones_own_and_a_single_ceiling(checkout, tmp_path):
    """The operator's path is relative to the checkout; a config from elsewhere counts as it does in `make`."""
    (tmp_path / "mine.yaml").write_text("gelu: {sizes: [2048]}\n")
    done = checkout.command("cell", "cpu/gelu/n2048", "--configfile", str(tmp_path / "mine.yaml"))
    assert done.returncode == 0 and "n 2048" in done.stdout, done.stdout + done.stderr
    done = checkout.command("cell", "cpu/bandwidth/dram_read")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| dram_read " in done.stdout and "| dram_copy " not in done.stdout
    done = checkout.command("cell", "cpu/bandwidth/dram_raed")
    assert done.returncode == 1
    assert "CELL: 'dram_raed' is unknown; allowed: dram_read, dram_write, dram_copy" in done.stdout


def test_a_dry_run_measures_nothing(checkout):
    done = checkout.command("cell", "cpu/row_norm/fp32", "--dry-run")
    assert done.returncode == 0 and "\ncpu/row_norm/fp32.json: forced" in done.stdout, done.stdout + done.stderr
    assert not (checkout.root / "cell/results/cpu/row_norm").exists()


def test_a_measurement_that_fails_shows_no_table(checkout):
    done = checkout.command("cell", OPERATOR, "--no-such-option")
    assert done.returncode and "unrecognized arguments: --no-such-option" in done.stderr
    assert "predicted" not in done.stdout and "Traceback" not in done.stdout + done.stderr


def test_on_a_card_that_the_reference_has(tmp_path):
    """Its second card stands beside the reference's first: a name tells which, not a number."""
    config = yaml.safe_load(CONFIG) | {"devices": "all"}
    config["decode_attn"] |= {"seq_lens": [1024], "dtypes": ["fp16"]}
    run = GpuRun(new_checkout(tmp_path / "checkout", yaml.safe_dump(config)))
    committed = run.root / "reference/nvidia-h200"
    committed.mkdir(parents=True)
    shutil.copy(REFERENCE, committed)
    done = run.python("workflow/commands/cell.py", "gpu1/decode_attn/minigpt/S1024_fp16", env={"FAKE_GPUS": TWO_CARDS})
    assert done.returncode == 0, done.stdout + done.stderr
    head, *lines = rows(done.stdout)
    by_name = {line[0]: dict(zip(head, line, strict=False)) for line in lines}
    known = next(
        one
        for one in read_table(REFERENCE).operators
        if (one.device, one.label, one.implementation, one.scope) == ("gpu0", "batch 1, S 1024", "fused_graph", "core")
        and one.dtype == "fp16"
    )
    assert by_name["fp16 batch 1, S 1024, fused_graph core"]["reference"] == duration(known.latency_s)
    assert all("ratio" in line and line["ratio"] != "-" for line in by_name.values())
    assert "roof: fp16 " in done.stdout and "hbm_read " in done.stdout
