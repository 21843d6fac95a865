"""What a change makes stale, exactly: which jobs run, which do not, and what is kept byte for byte."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy
import psutil
import pytest
from records_factory import beside
from safetensors.numpy import save_file
from workflow_run import CHECKOUT, Run, measured, surroundings, tensors

from roofline.devices.cpu import identity as cpu
from roofline.table.rows import CheckResult

QUERY, SEAL, CALIBRATION, PEAKS_SEAL, ATTENTION_SEAL, ROWS_SEAL = (
    f"cpu/{name}.json"
    for name in (
        "device_query",
        "prediction",
        "calibration",
        *(f"{rule}/prediction" for rule in ("peak_flops", "decode_attn", "row_norm")),
    )
)
PEAK, MEMORY, ROWS = "cpu/peak_flops/fp32.json", "cpu/bandwidth/dram.json", "cpu/row_norm/fp32.json"
ATTENTION = ("cpu/decode_attn/minigpt/S16_fp32.json", "cpu/decode_attn/minigpt/S32_fp32.json")
NORM, NORM_SEAL = (f"cpu/rmsnorm_matmul/{name}.json" for name in ("hidden64_fp16", "prediction"))
OF_PEAKS_SEAL, OF_ATTENTION_SEAL = (PEAKS_SEAL, PEAK), (ATTENTION_SEAL, *ATTENTION)
OF_ROWS_SEAL, OF_NORM_SEAL = (ROWS_SEAL, ROWS), (NORM_SEAL, NORM)
OF_OPERATORS_SEALS = (*OF_ATTENTION_SEAL, *OF_ROWS_SEAL, *OF_NORM_SEAL)
MEASURED = (QUERY, SEAL, CALIBRATION, MEMORY, *OF_PEAKS_SEAL, *OF_OPERATORS_SEALS)
PICTURES = "roofline.png"  # with all other pictures, of one job
FOLLOWS = ("roofline.json", PICTURES, "manifest.json")  # roofline.json with every page, of one job
WEIGHTS = "checkpoints/minigpt.safetensors"
EVERYTHING = (*MEASURED, *FOLLOWS)
PATIENCE_S = 60


def jobs(*outputs: str) -> Counter[str]:
    return Counter(outputs)


def kept(before: dict, run: Run, outputs) -> None:
    """Assert that files of results/ were not written again."""
    after = run.files()
    assert {path: after.get(path) for path in outputs} == {path: before[path] for path in outputs}


# ---------------------------------------------------------------- plans


def test_a_finished_run_has_nothing_to_do_wherever_it_is_copied(run):
    assert run.planned() == jobs()


def test_settings_make_their_own_jobs_stale_two_in_one_edit(run):
    """Which setting makes which record stale: test_staleness.py."""
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]}, row_norm={"iterations": 11})
    assert run.planned() == jobs("cpu/decode_attn/minigpt/S48_fp32.json", ROWS, *FOLLOWS)


def test_the_dots_per_inch_draw_again_and_make_plan_says_so(run):
    run.edit_config(plot={"dpi": 80})
    assert run.planned() == jobs(PICTURES, "manifest.json")
    told = run.command("run", "--dry-run").stdout.splitlines()
    assert [line.partition(":")[0] for line in told[:-1]] == [PICTURES, "manifest.json"]


LIBRARY = "workflow/scripts/roofline"
MEASURE_NOTHING = (
    "report/model.py",
    "report/templates/report.js.j2",
    "core/formatting.py",
    "operators/about.py",
    "operators/decode_attention/about.py",
    "table/seals.py",
    "table/load.py",
    "table/checks/ceilings.py",
    "run/jobs.py",
    "run/run_lock.py",
)


def test_edited_words_formats_and_thresholds_measure_nothing_again(run):
    for source in MEASURE_NOTHING:
        run.append(f"{LIBRARY}/{source}", "{# A comment. #}" if source.endswith(".j2") else "# A comment.")
    assert run.planned() == jobs(*FOLLOWS)


def test_an_edited_source_measures_again_what_follows_it(run):
    run.append(f"{LIBRARY}/operators/row_norm/rows_loop.py")
    run.append(f"{LIBRARY}/measure/memory_ceiling.py")
    run.append("workflow/scripts/plot.py")
    assert run.planned() == jobs(*OF_ROWS_SEAL, MEMORY, *FOLLOWS)


UNUSED = (
    "config/config.yaml",
    "config/datasheets.yaml",
    "envs/cpu.txt",
    "Snakefile",
    "workflow/rules/common.smk",
    f"{LIBRARY}/run/settings.py",
    f"{LIBRARY}/devices/gpu/device.py",
    f"{LIBRARY}/operators/row_norm/cuda.py",
)


def test_sources_that_no_job_uses_new_ones_and_newer_times_make_nothing_stale(run):
    for path in (run.root / LIBRARY).rglob("*.py"):
        path.touch()
    for source in UNUSED:
        run.append(source)
    (run.root / LIBRARY / "operators/gemm/another.cu").write_text("// A kernel that nobody names.\n")
    assert run.planned() == jobs()


def test_another_operator_of_the_library_adds_its_jobs_and_measures_nothing_else(run):
    """As a package of its own: no other file is touched."""
    package = run.root / LIBRARY / "operators/addition"
    package.mkdir()
    (package / "kernel.cu").write_text("// Not used on a CPU.\n")
    (package / "__init__.py").write_text("from roofline.operators.addition.operator import Addition\n")
    (package / "operator.py").write_text(ADDITION)
    (package / "about.py").write_text(ABOUT_ADDITION)
    mine = ["cpu/addition/prediction.json", "cpu/addition/n_1024.json"]
    assert run.planned() == jobs(*mine, *FOLLOWS)


ADDITION = """
from roofline.operators.base import Case, Implementation, Job, Operator


class ByNumpy(Implementation):
    name, kind = "numpy", "cpu"

    def compute(self, inputs):
        return inputs["x"] + inputs["x"]


class Addition(Operator):
    name, implementations = "addition", (ByNumpy,)

    def jobs(self, config):
        return [Job("n_1024", (Case({"n": 1024}, "fp32"),))]

    def flops(self, case, scope=None):
        return case.shape["n"]

    def bytes(self, case, scope=None):
        return 8 * case.shape["n"]

    def inputs(self, device, case, seed):
        return {"x": device.normal((case.shape["n"],), case.dtype, seed)}

    def reference(self, case, inputs):
        return 2.0 * inputs["x"].astype(float)
"""
ABOUT_ADDITION = """
from roofline.operators.about import About


class AboutAddition(About):
    name, title = "addition", "sum of a vector and itself"
"""


def test_deleted_results_are_made_again_with_what_follows(run):
    (run.results / ATTENTION_SEAL).unlink()
    (run.results / "gemm.png").unlink()
    assert run.planned() == jobs(*OF_ATTENTION_SEAL, *FOLLOWS)


def test_another_version_of_a_library_makes_all_of_its_device_stale(run, tmp_path):
    installed = tmp_path / "installed"
    (installed / "numpy-99.0.dist-info").mkdir(parents=True)
    (installed / "numpy-99.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n")
    assert run.planned(env={"PYTHONPATH": str(installed)}) == jobs(*EVERYTHING)


# ---------------------------------------------------------------- runs


def test_nothing_to_do_takes_under_three_seconds(run):
    before, taken_s = run.files(), []
    while len(taken_s) < 5 and min(taken_s, default=9) >= 3:  # a busy machine gets another try
        start = time.monotonic()
        run.finish()
        taken_s.append(time.monotonic() - start)
    assert min(taken_s) < 3, taken_s
    assert run.files() == before


def test_an_added_s_is_announced_and_measured_and_every_other_record_kept(run):
    before = run.files()
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]}, cost={"usd_per_hour": 3600})
    told = run.finish()
    kept(before, run, (*MEASURED, WEIGHTS))
    assert measured(told) == ["decode_attn cpu minigpt/S48_fp32"]
    assert seq_lens_in(run) == {16, 32, 48}
    cost = r"about \d+ s, about \$\d+\.\d\d at \$3600 per hour"
    assert re.search(rf"^1 measurement on cpu, {cost}; 5 jobs in all\.$", told, re.MULTILINE)
    assert re.search(r"^\[2/5\] decode_attn cpu minigpt/S48_fp32: [\d.]+ s; .*batch 1 [\d.]+ us", told, re.MULTILINE)
    assert re.search(r"^\[5/5\] manifest: ", told, re.MULTILINE)


def test_a_removed_s_leaves_the_roofline_and_the_plot_and_nothing_is_measured(run):
    before = run.files()
    run.edit_config(decode_attn={"seq_lens": [16]})
    assert measured(run.finish()) == []
    kept(before, run, MEASURED)
    assert seq_lens_in(run) == {16}
    assert run.files()["roofline.png"] != before["roofline.png"]
    assert ATTENTION[1] not in json.dumps(run.read("manifest.json"))


def test_a_deleted_record_is_measured_again_alone(run):
    before = run.files()
    (run.results / ATTENTION[1]).unlink()
    assert measured(run.finish()) == ["decode_attn cpu minigpt/S32_fp32"]
    kept(before, run, set(MEASURED) - {ATTENTION[1]} | {WEIGHTS})
    assert run.read(ATTENTION[1])["case"] == "minigpt/S32_fp32"
    assert run.planned() == jobs()


def test_disturbed_records_alone_are_measured_again_and_the_less_disturbed_kept(run):
    """Of two that the table calls disturbed only the first one is: the second one's new record is no better."""
    record, table = run.read(ATTENTION[0]), run.read("roofline.json")
    for cell in record["measurements"]:
        cell["latency"]["contention"] = beside(other_cores=8).model_dump()
    named = ["cpu/calibration.json", *ATTENTION, "cpu/peak_flops/fp64.json"]
    check = CheckResult(device="cpu", check="", result="fail", reason="", doubts_figures=True, records=named)
    table["checks"].append(check.model_dump())
    for path, content in ((ATTENTION[0], record), ("roofline.json", table)):
        made = (run.results / path).stat()
        (run.results / path).write_text(json.dumps(content))
        os.utime(run.results / path, ns=(made.st_atime_ns, made.st_mtime_ns))
    before = run.files()
    planned = run.command("run", "--again", "--dry-run").stdout.splitlines()[:-1]
    assert Counter(line.partition(":")[0] for line in planned) == jobs(*ATTENTION, *FOLLOWS)
    assert run.make().returncode == 0 and run.files() == before, "plain make measures nothing again"

    done = run.command("run", "--again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert measured(done.stdout) == ["decode_attn cpu minigpt/S16_fp32", "decode_attn cpu minigpt/S32_fp32"]
    kept(before, run, (*set(MEASURED) - {ATTENTION[0]}, WEIGHTS))
    assert run.read(ATTENTION[0])["started_at"] > record["started_at"]
    assert run.planned() == jobs() and not any(one["records"] for one in run.read("roofline.json")["checks"])

    after = run.files()
    done = run.command("run", "--again")
    assert (done.returncode, done.stdout.count("\n"), run.files()) == (0, 1, after), "nothing is disturbed"
    aside = run.results / "previous/again" / ATTENTION[1]  # as a run leaves it that was killed
    aside.parent.mkdir(parents=True)
    (run.results / ATTENTION[1]).rename(aside)
    assert run.make().returncode == 0
    assert run.files() == after and run.planned() == jobs()


def test_the_users_operations_are_placed_and_nothing_is_measured(run):
    """Their figures: test_collect.py."""
    before = run.files()
    mine = {"name": "memory <bound>", "flops": 1.0e6, "memory_bytes": 4.0e10, "dtype": "fp32", "measured_s": 100.0}
    run.edit_config(operations=[mine, mine | {"name": "no ceiling", "dtype": "bf16"}])
    assert measured(run.finish()) == []
    kept(before, run, MEASURED)
    roofline = run.read("roofline.json")
    (bandwidth,) = (c["gb_per_s"] * 1e9 for c in roofline["ceilings"] if c["name"] == "dram_read")
    (found,) = (o for o in roofline["operators"] if o["operator"] == "operation")
    assert (found["name"], found["cpu_time_s"], found["regime"]) == ("memory <bound>", 100, "memory")
    assert found["roofline_time_s"] == pytest.approx(4e10 / bandwidth, rel=1e-9)
    (skipped,) = (skip for skip in roofline["skipped"] if skip["what"] == "operation")
    assert (skipped["name"], skipped["dtype"]) == ("no ceiling", "bf16") and "bf16" in skipped["reason"]
    assert "memory &lt;bound&gt;" in (run.results / "report.html").read_text(encoding="utf-8")


def is_of_another_card(run: Run) -> dict:
    """Have the results be another card's. Returns the files."""
    record = run.results / "cpu/device_query.json"
    record.write_text(json.dumps(run.read("cpu/device_query.json") | {"name": "Another CPU", "uuid": "another"}))
    return run.files()


def assert_set_aside_whole(run: Run, before: dict, told: str) -> None:
    (aside,) = (run.results / "previous").iterdir()
    old = {path.relative_to(aside).as_posix(): path for path in aside.rglob("*") if path.is_file()}
    assert set(old) == set(before) - {WEIGHTS}
    assert {path: run.files()[f"previous/{aside.name}/{path}"] for path in old} == {p: before[p] for p in old}
    now = cpu.discover()[0]
    assert f"cpu was Another CPU (another) and is {now.name} ({now.uuid}) now" in told
    assert str(aside.relative_to(run.root)) in told


@pytest.mark.parametrize("remembers", ["this card", "the other card", "nothing"])
def test_another_cards_results_are_set_aside_whole_whatever_snakemake_remembers(run, remembers):
    before = is_of_another_card(run)
    if remembers == "the other card":
        for path in (run.root / ".snakemake/metadata").rglob("*"):
            path.write_text(re.sub(r"'[^']* driver None'", "'Another CPU another driver None'", path.read_text()))
    if remembers == "nothing":
        shutil.rmtree(run.root / ".snakemake")
    run.planned()
    assert run.files() == before, "a dry run leaves everything where it is"
    told = run.snakemake("results/cpu/device_query.json")
    assert_set_aside_whole(run, before, told.stdout + told.stderr)
    assert run.planned() == jobs(*EVERYTHING) - jobs(QUERY)


def test_a_failed_job_loses_no_other_result_and_leaves_no_half_of_one(run):
    before = run.files()
    spoiled = tensors(run)
    spoiled["transformer.wte.weight"][:] = numpy.nan  # names and shapes are right: only the measuring job finds it
    save_file(spoiled, run.root / "spoiled.safetensors")
    run.edit_config(model={"checkpoint": "spoiled.safetensors"}, peak_flops={"dtypes": ["fp32", "fp64"]})
    done = run.snakemake()
    told = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in told
    for seq_len in (16, 32):
        log = f"logs/cpu/decode_attn/minigpt/S{seq_len}_fp32.log"
        name = f"decode_attn cpu minigpt/S{seq_len}_fp32"
        (line,) = (line for line in told.splitlines() if line.startswith(f"{name} failed: "))
        assert "NaN" in line and line.endswith(f"(log: {log})")
        assert "Traceback" in (run.root / log).read_text()
    kept(before, run, (QUERY, SEAL, *OF_PEAKS_SEAL, MEMORY, WEIGHTS))
    assert set(run.files()) - set(before) == {"cpu/peak_flops/fp64.json"}
    assert not list(run.results.rglob("*.tmp")) and not set(ATTENTION) & set(run.files())
    run.edit_config(model={"checkpoint": None})
    assert run.planned() == jobs(*ATTENTION, *FOLLOWS)


def test_a_failed_checkpoint_is_told_and_the_ceilings_are_measured_all_the_same(run, tmp_path):
    before = run.files()
    broken = tmp_path / "broken/safetensors"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no safetensors here')\n")
    run.edit_config(model={"seed": 1}, bandwidth={"iterations": 6})
    done = run.snakemake(env={"PYTHONPATH": str(broken.parent)})
    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert "checkpoint minigpt failed: no safetensors here (log: logs/checkpoint/minigpt.log)" in told.splitlines()
    assert measured(told) == ["bandwidth cpu dram"]
    kept(before, run, (QUERY, SEAL, *OF_PEAKS_SEAL, *ATTENTION))
    assert WEIGHTS not in run.files() and not list(run.results.rglob("*.tmp"))
    assert run.planned() == jobs(WEIGHTS, *ATTENTION, *FOLLOWS)


# ---------------------------------------------------------------- what the terminal shows


def test_make_says_that_there_is_nothing_to_do_and_shows_the_summary(run):
    done = run.make()
    assert done.returncode == 0
    assert done.stdout.startswith("nothing to be done") and "results/report.html" in done.stdout


@pytest.mark.parametrize("target", ["run", "plan"])
def test_make_goes_on_where_the_home_is_not_to_be_written(run, target):
    shutil.rmtree(run.root / ".snakemake/caches", ignore_errors=True)
    installed = ["--old-file", "setup", f"python={sys.executable}"]
    home = {"HOME": "/dev/null", "XDG_CACHE_HOME": ""}  # below the first not even root can write
    command = ["make", "--makefile", CHECKOUT / "Makefile", *installed, target]
    done = subprocess.run(command, cwd=run.root, env=surroundings() | home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert any((run.root / ".snakemake/caches").iterdir())


def test_a_cell_is_measured_with_what_it_needs_and_its_line_is_printed(run):
    shutil.rmtree(run.results)
    needed = (QUERY, SEAL, CALIBRATION, ATTENTION_SEAL, WEIGHTS)
    name = ATTENTION[0].removesuffix(".json")
    told = run.command("run", "--cell", name, "--dry-run").stdout.splitlines()[:-1]
    assert Counter(line.partition(":")[0] for line in told) == jobs(*needed, ATTENTION[0])
    done = run.command("run", "--cell", f"results/{ATTENTION[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(run.files()) == {*needed, ATTENTION[0]}
    (line,) = (line for line in done.stdout.splitlines() if "decode_attn cpu" in line)
    assert ", predicted " in line and "Report:" not in done.stdout
    again = run.command("run", "--cell", name)
    assert (again.returncode, again.stdout) == (0, f"{line.partition('] ')[2]}\n")


@pytest.mark.parametrize("name", ["", "cpu/calibration", "cpu/decode_attn/minigpt/S61_fp32"])
def test_a_cell_that_is_none_is_a_line(run, name):
    done = run.command("run", "--cell", name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"CELL: {name!r} ")
    assert not name.endswith("S61_fp32") or "cpu/decode_attn/minigpt/S16_fp32" in done.stderr


@pytest.mark.parametrize("lines", [0, 2])
def test_a_run_whose_reader_is_gone_ends(run, lines):
    """As of `make | head -2`: Snakemake itself would wait for ever."""
    (run.results / ATTENTION[0]).unlink()
    command = [sys.executable, "workflow/commands/run.py"]
    make = subprocess.Popen(
        command, cwd=run.root, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for _ in range(lines):
        make.stdout.readline()
    make.stdout.close()
    assert make.wait(timeout=PATIENCE_S) != 0
    run.finish(f"results/{ATTENTION[0]}")


# ---------------------------------------------------------------- runs that are killed, and two at once


class LivingRun:
    """`make` at work in its own session, on attention that takes a few seconds a job."""

    def __init__(self, run: Run):
        self.run = run
        run.edit_config(decode_attn={"iterations": 1_000_000, "time_budget_s": 0.4})
        self.before = run.files()
        self.logs = [run.root / "logs" / path.replace(".json", ".log") for path in ATTENTION]
        for log in self.logs:
            log.unlink()
        self.said = run.root / "said.txt"
        with open(self.said, "wb") as said:
            self.maker = subprocess.Popen(
                [sys.executable, "workflow/commands/run.py"],
                cwd=run.root,
                env=surroundings(),
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living processes of the session with these words in the command line."""
        mine = [process for process in psutil.process_iter() if _session(process) == self.maker.pid]
        return [one for one in mine if all(word in " ".join(_command(one)) for word in words)]

    def snakemake(self) -> psutil.Process:
        (process,) = self.processes("-m snakemake")
        return process

    def jobs(self) -> list[psutil.Process]:
        return [
            one for one in self.processes("/.snakemake/scripts/", ".measure_operator.py") if "-c" not in _command(one)
        ]

    def is_within_the_second_job(self) -> bool:
        return all(log.exists() for log in self.logs) and len(self.finished()) == 1 and bool(self.jobs())

    def finished(self) -> list[str]:
        after = self.run.files("cpu/decode_attn")
        return [path for path in ATTENTION if path in after and after[path] != self.before[path]]

    def wait_for(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.maker.poll() is None and time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.maker.wait()


def _session(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error, OSError):
        return os.getsid(process.pid)


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.fixture
def living(run):
    living = LivingRun(run)
    yield living
    living.end()


def is_gone(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def test_a_killed_run_goes_on_by_itself_and_loses_the_job_in_flight_alone(living):
    run = living.run
    living.wait_for(living.is_within_the_second_job)
    (done,), orphans = living.finished(), living.jobs()
    (lost,) = set(ATTENTION) - {done}
    living.snakemake().kill()
    living.maker.wait(PATIENCE_S)
    psutil.wait_procs(orphans, 5)
    assert orphans and all(map(is_gone, orphans)), "the job outlives its run"
    at_kill = run.files()

    told = run.finish(f"results/{lost}")
    assert measured(told) == [f"decode_attn cpu minigpt/{Path(lost).stem}"]
    done_by_make = run.make()
    assert done_by_make.returncode == 0, done_by_make.stdout + done_by_make.stderr
    untouched = (QUERY, SEAL, *OF_PEAKS_SEAL, MEMORY, WEIGHTS)
    kept(at_kill, run, (*untouched, done))
    kept(living.before, run, untouched)
    assert run.files()[lost] != living.before[lost]
    assert run.planned() == jobs()


def test_a_second_run_is_refused_in_a_line_while_one_is_living(living):
    run = living.run
    living.wait_for(living.jobs)
    refusal = f"another run is going on in this folder (process {living.snakemake().pid}): wait for it to end"
    second = run.make()
    assert second.returncode != 0
    assert (second.stdout + second.stderr).splitlines() == [refusal]
    third = run.snakemake()
    assert third.returncode != 0 and refusal in third.stderr.splitlines() and "Traceback" not in third.stderr
    assert living.maker.poll() is None
    assert living.maker.wait(PATIENCE_S) == 0, living.said.read_text()
    assert run.planned() == jobs()


def test_an_interrupted_run_keeps_what_it_finished(living):
    """By Ctrl-C, pressed twice: it reaches every process of the terminal's group."""
    run = living.run
    living.wait_for(living.is_within_the_second_job)
    (done,) = living.finished()
    for _ in range(2):
        os.killpg(living.maker.pid, signal.SIGINT)
        time.sleep(0.1)
    assert living.maker.wait(PATIENCE_S) != 0
    told = living.said.read_text()
    assert "stopped: what was finished is kept" in told and "Traceback" not in told
    assert "Error" not in told and "failed" not in told, "no job has failed"
    assert run.planned() == jobs(*(set(ATTENTION) - {done}), *FOLLOWS)


def seq_lens_in(run: Run) -> set[int]:
    operators = run.read("roofline.json")["operators"]
    return {o["shape"]["seq_len"] for o in operators if o["operator"] == "decode_attention"}
