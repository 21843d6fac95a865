"""What a change makes stale in a real run: which jobs run, which do not, and what is kept byte for byte."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import save_file
from workflow_run import BUDGET, CHECKOUT, Run, heed_ctrl_c, measured, surroundings, tensors

from roofline.records.base import read
from roofline.records.manifest_record import Manifest
from roofline.table.own_scores import LATE
from roofline.table.run_records import read_results
from roofline.table.seals import find_violations

ATTENTION = [f"cpu/decode_attn/minigpt/S{seq_len}_fp32.json" for seq_len in (16, 32)]
ADDED = {f"cpu/decode_attn/minigpt/S{seq_len}_fp32.json" for seq_len in (3072, 4096)}  # a second each
PEAK, MEMORY, ROWS = "cpu/peak_flops/fp32.json", "cpu/bandwidth/dram.json", "cpu/row_norm/fp32.json"
OWN = "cpu/own_predictions.json"
ROWS_SEAL, PREDICTIONS = "cpu/row_norm/prediction.json", "cpu/predictions.json"
FIRST_PREDICTIONS = "cpu/first_predictions.md"
FOLLOWS = {"roofline.json", "manifest.json"}  # with every page and picture
LIBRARY = "workflow/scripts/roofline"
PATIENCE_S = 60


def kept(before: dict, run: Run) -> set[str]:
    """The files of results/ that were not written again."""
    after = run.files()
    return {path for path in before if after.get(path) == before[path]}


def records(files) -> set[str]:
    """Of a run on the CPU: what is measured or sealed, and the weights."""
    written_anew = (PREDICTIONS[:-5], FIRST_PREDICTIONS)
    return {path for path in files if path.startswith(("cpu/", "checkpoints/")) and not path.startswith(written_anew)}


# ---------------------------------------------------------------- plans

UNUSED = ("config/datasheets.yaml", "envs/cpu.txt", "Snakefile", "workflow/rules/common.smk", "config/config.yaml")
REPORTED = (
    f"{LIBRARY}/plan/settings.py",
    f"{LIBRARY}/devices/gpu/gpu_device.py",
    f"{LIBRARY}/operators/row_norm/about.py",
)


def test_a_copy_newer_times_and_sources_that_no_job_uses_make_nothing_stale(run):
    for path in (run.root / LIBRARY).parent.rglob("*.py"):
        path.touch()
    for source in UNUSED:
        run.append(source)
    assert run.planned() == set()
    for source in REPORTED:
        run.append(source)
    assert run.planned() == FOLLOWS


def test_changes_of_settings_files_and_sources_plan_their_own_jobs(run):
    """Which setting and which source makes which record stale: test_staleness.py."""
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]}, plot={"dpi": 80})
    run.append(f"{LIBRARY}/operators/row_norm/row_norm_loop.py")
    run.append("workflow/scripts/bandwidth.py")
    (run.results / PEAK).unlink()
    own = {"cpu/decode_attn/minigpt/S48_fp32.json", ROWS_SEAL, ROWS, MEMORY, PEAK}
    assert run.planned() == {PREDICTIONS, *own, *FOLLOWS}


def test_two_settings_that_exchange_their_values_make_their_jobs_stale(run):
    """Snakemake compares params as a set of values, without their names."""
    run.edit_config(peak_flops={"warmup": BUDGET["iterations"], "iterations": 3})  # 3 is the default of the warm-up
    assert PEAK in run.planned()


# ---------------------------------------------------------------- the user's own predictions


def test_an_own_prediction_measures_nothing_and_is_sealed_before_its_cell_or_never_scored(run):
    known, new = (f"cpu decode attention core numpy fp32 batch 1, S {seq_len} minigpt" for seq_len in (16, 48))
    mine = run.root / "mine.yaml"
    mine.write_text(f"{known}: {{time_us: 20}}\n")
    run.edit_config(predictions="mine.yaml")
    assert run.planned() == {OWN, *FOLLOWS}
    mine.write_text(f"{known}: {{time_us: 20}}\n{new}: {{time_us: 30}}\n")
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]})
    before = run.files()
    printed = run.make().stdout
    assert re.search(r"own_predictions cpu: 2 cells.* 1 of them", printed) and records(before) <= kept(before, run)
    late, timely = run.read("roofline.json")["own_predictions"]
    assert late["not_scored_reason"] == LATE and timely["not_scored_reason"] != LATE
    assert known in (run.results / "verification.md").read_text(encoding="utf-8")

    mine.write_text(f"{known}: {{time_us: 19}}\n{new}: {{time_us: 30}}\n")
    run.make()
    assert [row["sealed_at"] == timely["sealed_at"] for row in run.read(OWN)["cells"]] == [False, True]
    assert run.planned() == set() and run.command("verify", "results").returncode == 0


# ---------------------------------------------------------------- a rerun that is interrupted


def test_a_partial_rerun_measures_what_changed_through_an_interruption(run):
    (run.results / PEAK).write_text(json.dumps(run.read(PEAK) | {"unheard_of": 1}))
    (run.results / MEMORY).unlink()
    mine = {"name": "memory <bound>", "flops": 1.0e6, "memory_bytes": 4.0e10, "dtype": "fp32", "measured_s": 100.0}
    run.edit_config(
        decode_attn={"seq_lens": [16, 32, 3072, 4096]},
        cost={"usd_per_hour": 3600},
        operations=[mine, mine | {"name": "no ceiling", "dtype": "bf16"}],
    )
    before = run.files()
    command = [sys.executable, "-P", "workflow/commands/run.py"]
    maker = subprocess.Popen(
        command,
        cwd=run.root,
        env=surroundings(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )

    def wait_for(*paths: Path) -> None:
        while not all(path.exists() for path in paths):
            assert maker.poll() is None
            time.sleep(0.02)

    wait_for(run.results / "previous")
    refused = run.make()
    assert refused.returncode == 1 and f"process {maker.pid}" in refused.stderr and refused.stdout == ""
    wait_for(*(run.root / "logs" / record.replace(".json", ".log") for record in ADDED))  # the first has ended
    for _ in range(2):  # Ctrl-C, pressed twice: it reaches every process of the terminal's group
        os.killpg(maker.pid, signal.SIGINT)
        time.sleep(0.1)
    printed = maker.communicate(timeout=PATIENCE_S)[0].decode()
    assert maker.returncode != 0 and "Traceback" not in printed
    (done,) = (record for record in ADDED if (run.results / record).exists())
    (lost,) = ADDED - {done}
    assert measured(printed) == ["bandwidth cpu dram", f"decode_attn cpu {done[16:-5]}", "peak_flops cpu fp32"]
    assert re.search(r"^4 measurements on cpu, about \d+ s, about \$\d+\.\d\d at ", printed, re.MULTILINE)
    (aside,) = (run.results / "previous").iterdir()
    assert run.files()[f"previous/{aside.name}/{PEAK}"] == before[PEAK]
    at_stop = run.files()

    finished = run.make()
    assert finished.returncode == 0, finished.stdout
    printed = finished.stdout
    assert measured(printed) == [f"decode_attn cpu {lost[16:-5]}"]
    line = rf"^\[\d/\d\] decode_attn cpu {lost[16:-5]}: [\d.]+ s; .*batch 1 [\d.]+ [um]s"
    assert re.search(line, printed, re.MULTILINE)
    assert records(at_stop) <= kept(at_stop, run)
    assert records(before) - {PEAK} <= kept(before, run)
    now = run.files()
    assert now[FIRST_PREDICTIONS][1] == before[FIRST_PREDICTIONS][1] == before["cpu/predictions.md"][1]
    assert now["cpu/predictions.md"][1] != before["cpu/predictions.md"][1]

    table, manifest = run.read("roofline.json"), read(Manifest, run.results / "manifest.json")
    (placed,) = (one for one in table["operators"] if one["operator"] == "operation")
    assert (placed["name"], placed["cpu_time_s"], placed["regime"]) == ("memory <bound>", 100, "memory")
    (skipped,) = (one for one in table["skipped"] if one["kind"] == "operation")
    assert skipped["name"] == "no ceiling" and "bf16" in skipped["reason"]
    assert "memory &lt;bound&gt;" in (run.results / "report.html").read_text(encoding="utf-8")
    of_earlier_runs = {one.path.removeprefix("results/") for one in manifest.outputs if not one.of_this_run}
    assert records(before) - {PEAK} <= of_earlier_runs and not FOLLOWS & of_earlier_runs
    assert {one.of_this_run for one in manifest.outputs} == {True, False}
    assert manifest.times.cost_usd == pytest.approx(manifest.times.span_s)
    assert manifest.sources.changed_files == ["config/config.yaml"]
    found = read_results(run.results, sorted(run.results.glob("cpu/**/*.json")))
    new = {one.shape.get("seq_len") for one in found.predictions["cpu"].cells if one.started_at is None}
    assert new == {3072, 4096, None}
    sha256 = {path: seal for _, record in found.measured for path, seal in record.seals.items()}
    assert find_violations(found, "cpu", sha256) == []


# ---------------------------------------------------------------- jobs that fail, and one cell


def test_a_failed_job_loses_no_other_result_and_one_cell_is_measured_by_name(run):
    before = run.files()
    own = tensors(run)
    save_file(own, run.root / "own.safetensors")
    own["transformer.wte.weight"][:] = numpy.nan  # names and shapes are right: only the measuring job finds it
    save_file(own, run.root / "spoiled.safetensors")
    run.edit_config(model={"checkpoint": "spoiled.safetensors"}, peak_flops={"dtypes": ["fp32", "fp64"]})
    done = run.snakemake()
    printed = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in printed
    for seq_len in (16, 32):
        log = f"logs/cpu/decode_attn/minigpt/S{seq_len}_fp32.log"
        name = f"decode_attn cpu minigpt/S{seq_len}_fp32"
        (line,) = (line for line in printed.splitlines() if line.startswith(f"{name} failed: "))
        assert "NaN" in line and log in line and "Traceback" in (run.root / log).read_text()
    assert records(before) - set(ATTENTION) <= kept(before, run)
    assert set(run.files()) - set(before) == {"cpu/peak_flops/fp64.json"}
    assert not list(run.results.rglob("*.tmp")) and not set(ATTENTION) & set(run.files())

    run.edit_config(model={"checkpoint": "own.safetensors"})
    installed = ["--old-file", "setup", f"python={sys.executable} -P"]
    command = ["make", "--makefile", CHECKOUT / "Makefile", *installed, "cell", f"CELL=results/{ATTENTION[0]}"]
    done = subprocess.run(command, cwd=run.root, env=surroundings(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, line = (line for line in done.stdout.splitlines() if "decode_attn cpu" in line)
    assert ", predicted " in line and measured(done.stdout) == ["decode_attn cpu minigpt/S16_fp32"]
    assert ATTENTION[0] in run.files() and ATTENTION[1] not in run.files()
    (weights,) = run.read(ATTENTION[0])["data"]
    assert (weights["path"], weights["generated"]) == ("own.safetensors", False)
    checks = [measured["check"] for measured in run.read(ATTENTION[0])["measurements"]]
    assert all(check["relative_error"] <= check["tolerance"] for check in checks)


def test_an_empty_cell_lists_the_records(run):
    refused = run.command("run", "--cell", "")
    assert refused.returncode == 1 and "  cpu/decode_attn/minigpt/S16_fp32" in refused.stderr.splitlines()


@pytest.mark.parametrize("name", ["cpu/calibration", "cpu/decode_attn/minigpt/S61_fp32", "gpu7/row_norm/fp32"])
def test_a_cell_that_is_none_is_a_line(run, name):
    refused = run.command("run", "--cell", name)
    assert (refused.returncode, refused.stdout) == (1, "")
    _, line = refused.stderr.splitlines()  # Snakemake names its profile first
    assert line.startswith(f"CELL: {name!r} ")
    assert not name.endswith("S61_fp32") or "cpu/decode_attn/minigpt/S16_fp32" in line
    assert not name.startswith("gpu") or ("cpu" in line and "S16" not in line)
