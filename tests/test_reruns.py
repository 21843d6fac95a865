"""What a change makes stale, by real Snakemake on the CPU: no more is measured than the change asks for, and no less."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from workflow_run import CHECKOUT, contents, new_checkout, planned, record, snakemake

CONFIG = {
    "devices": ["cpu"],
    "peak_flops": {"dtypes": ["fp32", "fp64"], "size": 256, "iterations": 10, "time_budget_s": 0.4},
    "bandwidth": {"levels": ["dram_copy"], "size_mib": 16, "iterations": 10, "time_budget_s": 0.4},
    "decode_attn": {
        "seq_lens": [16, 32],
        "dtypes": ["fp32"],
        "batch_sizes": [1],
        "iterations": 10,
        "time_budget_s": 0.2,
    },
}
PEAKS = {"cpu/peak_flops/fp32.json", "cpu/peak_flops/fp64.json"}
CELLS = {"cpu/decode_attn/minigpt/S16_fp32.json", "cpu/decode_attn/minigpt/S32_fp32.json"}
MEASURED = {"cpu/device_query.json", "cpu/bandwidth/dram_copy.json", *PEAKS, *CELLS}
# What follows from any record: one picture of all, judged and summed up anew.
FOLLOWS = {
    "roofline.json",
    "roofline.png",
    "roofline.svg",
    "interpretation.md",
    "acceptance.json",
    "summary.html",
    "manifest.json",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = new_checkout(tmp_path_factory.mktemp("reruns") / "run", yaml.safe_dump(CONFIG))
    run = snakemake(folder)
    assert run.returncode == 0, run.stdout
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of a finished run, for a test to change."""
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def change(folder: Path, **sections) -> None:
    config = {
        key: CONFIG.get(key, {}) | value if isinstance(value, dict) else value for key, value in sections.items()
    }
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump(CONFIG | config))


def test_all_of_the_results_are_there_and_the_plan_is_empty(finished):
    there = {str(path.relative_to(finished / "results")) for path in (finished / "results").rglob("*.*")}
    assert MEASURED | FOLLOWS | {"cpu/prediction.json", "cpu/peak_flops.json", "cpu/bandwidth.json"} <= there
    assert planned(finished) == set()


def test_nothing_changed_does_nothing_in_under_three_seconds(run):
    before = contents(run / "results")
    start = time.monotonic()
    assert snakemake(run).returncode == 0
    assert time.monotonic() - start < 3
    assert contents(run / "results") == before


def test_an_added_s_measures_its_jobs_alone(run):
    before = contents(run / "results")
    change(run, decode_attn={"seq_lens": [16, 32, 48]})
    assert planned(run) == {"cpu/decode_attn/minigpt/S48_fp32.json", *FOLLOWS}
    assert snakemake(run).returncode == 0
    after = contents(run / "results")
    assert all(after[path] == before[path] for path in MEASURED)
    lengths = {o["shape"].get("seq_len") for o in record(run, "roofline.json")["operators"]}
    assert {16, 32, 48} <= lengths


def test_a_removed_s_measures_nothing_and_is_gone_from_the_picture(run):
    change(run, decode_attn={"seq_lens": [16]})
    assert planned(run) == FOLLOWS
    assert snakemake(run).returncode == 0
    lengths = {o["shape"].get("seq_len") for o in record(run, "roofline.json")["operators"]}
    assert 16 in lengths and 32 not in lengths
    assert not re.search(r"\b32:|S=32\b", (run / "results" / "roofline.svg").read_text())


def test_reordered_lists_are_no_change(run):
    change(run, decode_attn={"seq_lens": [32, 16]}, peak_flops={"dtypes": ["fp64", "fp32"]})
    assert not planned(run) & MEASURED


@pytest.mark.parametrize(
    ("sections", "measured"),
    [
        ({"peak_flops": {"dtypes": ["fp32", "fp64", "fp16"]}}, {"cpu/peak_flops/fp16.json", "cpu/peak_flops.json"}),
        (
            {"decode_attn": {"dtypes": ["fp32", "fp16"]}},
            {"cpu/decode_attn/minigpt/S16_fp16.json", "cpu/decode_attn/minigpt/S32_fp16.json"},
        ),
        ({"peak_flops": {"iterations": 11}}, {*PEAKS, "cpu/peak_flops.json"}),
        ({"decode_attn": {"iterations": 11}}, CELLS),
        ({"decode_attn": {"batch_sizes": [1, 2]}}, CELLS),
        ({"bandwidth": {"size_mib": 8}}, {"cpu/bandwidth/dram_copy.json", "cpu/bandwidth.json"}),
        ({"operations": [{"name": "mine", "flops": 1.0, "memory_bytes": 1.0, "dtype": "fp32"}]}, set()),
    ],
)
def test_a_setting_makes_stale_the_rule_that_uses_it_and_what_follows(finished, tmp_path, sections, measured):
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    change(tmp_path / "run", **sections)
    assert planned(tmp_path / "run") == measured | FOLLOWS


def test_the_plots_dpi_redraws_the_picture_and_nothing_else(run):
    change(run, plot={"dpi": 99})
    assert planned(run) == {"roofline.png", "manifest.json"}


def test_the_price_touches_the_manifest_alone(run):
    change(run, cost={"usd_per_hour": 2.5})
    assert planned(run) == {"manifest.json"}


@pytest.mark.parametrize(
    ("module", "stale", "kept"),
    [
        ("figures.py", {"roofline.png", "roofline.svg", "manifest.json"}, MEASURED | {"roofline.json"}),
        ("interpretation.py", {"interpretation.md", "manifest.json"}, MEASURED | {"roofline.json"}),
        ("operators/gemm.py", PEAKS, CELLS | {"cpu/bandwidth/dram_copy.json", "cpu/device_query.json"}),
        ("operators/decode_attention.py", CELLS, PEAKS | {"cpu/bandwidth/dram_copy.json"}),
        ("devices/gpu.py", set(), MEASURED),
        ("kernels/blocking.cu", set(), MEASURED),
        ("templates/summary.html.j2", {"summary.html", "manifest.json"}, MEASURED | {"roofline.json"}),
    ],
)
def test_an_edited_module_makes_its_users_stale_alone(run, module, stale, kept):
    path = run / "workflow" / "scripts" / "roofline" / module
    path.write_text(path.read_text() + "\n")
    plan = planned(run)
    assert stale <= plan
    assert not kept & plan
    if not stale:
        assert plan == set()


@pytest.mark.parametrize("path", ["cpu/bandwidth/dram_copy.json", "cpu/decode_attn/minigpt/S16_fp32.json"])
def test_a_deleted_record_is_measured_again_and_no_other(run, path):
    (run / "results" / path).unlink()
    plan = planned(run)
    assert path in plan and FOLLOWS <= plan
    assert plan & MEASURED == {path}


@pytest.mark.parametrize("damage", ['{"schema_version": 1, "kind": "bandw', "{}", "not json", ""])
def test_a_corrupt_record_is_named_set_aside_and_measured_again(run, damage):
    before = contents(run / "results")
    path = run / "results" / "cpu" / "bandwidth" / "dram_copy.json"
    path.write_text(damage)
    again = snakemake(run)
    assert again.returncode == 0, again.stdout
    assert "results/cpu/bandwidth/dram_copy.json was corrupt" in again.stdout
    assert record(run, "cpu/bandwidth/dram_copy.json")["bandwidth"]["gb_per_s"] > 0
    after = contents(run / "results")
    assert all(after[kept] == before[kept] for kept in PEAKS | CELLS)
    assert damage.encode() in contents(run / "results" / "previous").values()


def test_another_library_makes_everything_of_the_device_stale(run, tmp_path):
    newer = tmp_path / "newer" / "numpy-99.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n")
    assert planned(run, path=newer.parent) >= MEASURED


@pytest.mark.parametrize("forgotten", [False, True])
def test_another_cards_results_are_set_aside_whole(run, forgotten):
    device = run / "results" / "cpu" / "device_query.json"
    device.write_text(json.dumps(json.loads(device.read_text()) | {"name": "Another CPU", "uuid": "another"}))
    if forgotten:
        shutil.rmtree(run / ".snakemake")
    else:
        metadata = next((run / ".snakemake" / "metadata").iterdir())  # as a run on that CPU would have left it
        for path in metadata.parent.rglob("*"):
            text = path.read_text()
            path.write_text(re.sub(r"'[^']*-cores-[^']*'", "'Another CPU another driver None'", text))
    before = contents(run / "results")
    again = snakemake(run)
    assert again.returncode == 0, again.stdout
    (aside,) = (run / "results" / "previous").iterdir()
    assert "Another-CPU" in aside.name
    kept = contents(aside)
    assert all(kept[path] == before[path] for path in before if path.startswith("cpu/"))
    assert kept["roofline.json"] == before["roofline.json"]
    assert record(run, "cpu/device_query.json")["name"] != "Another CPU"


def test_a_failed_job_keeps_every_other_result_and_leaves_no_half_of_one(run, tmp_path):
    change(run, decode_attn={"seq_lens": [16, 32, 48]}, peak_flops={"iterations": 11})
    shutil.rmtree(run / "results" / "checkpoints")
    broken = tmp_path / "broken" / "safetensors"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no safetensors here')")
    failed = snakemake(run, path=broken.parent)
    assert failed.returncode != 0
    assert re.search(r"checkpoint minigpt failed: no safetensors here \(log: logs/", failed.stdout)
    assert record(run, "cpu/peak_flops/fp32.json")["peak"]["lab"]["latency"]["requested"] == 11
    assert not list((run / "results").rglob("*S48*")) and not list((run / "results").rglob("*.tmp"))
    assert snakemake(run).returncode == 0


# ---------------------------------------------------------------- make, and runs that are killed

MAKE = [sys.executable, "workflow/commands/run.py"]


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        MAKE, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def workflow_processes(folder: Path, what: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if (entry / "cwd").resolve() == folder and what in command:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def wait_for(condition, seconds: float = 60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail("it did not come to pass in time")


def test_a_run_killed_in_the_middle_goes_on_by_itself_and_loses_the_job_in_flight_alone(tmp_path):
    slow = {"seq_lens": [16, 32], "iterations": 10_000_000, "time_budget_s": 8}
    folder = new_checkout(tmp_path / "run", "{}")
    change(folder, decode_attn=slow)
    make = start(folder)
    wait_for(lambda: workflow_processes(folder, "decode_attn.py"))
    (workflow,) = workflow_processes(folder, "snakemake --cores")
    os.kill(workflow, signal.SIGKILL)
    make.wait()
    assert workflow_processes(folder, "decode_attn.py"), "the job was to be left running"
    before = {path: (folder / "results" / path).stat().st_mtime_ns for path in PEAKS | {"cpu/device_query.json"}}

    change(folder)
    again = subprocess.run(MAKE, cwd=folder, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "a run that was killed" in again.stdout
    assert not workflow_processes(folder, ".snakemake/scripts")
    assert {path: (folder / "results" / path).stat().st_mtime_ns for path in before} == before
    assert CELLS <= set(contents(folder / "results"))


def test_a_living_run_is_never_touched(tmp_path):
    folder = new_checkout(tmp_path / "run", "{}")
    change(folder, decode_attn={"seq_lens": [16], "iterations": 10_000_000, "time_budget_s": 4})
    first = start(folder)
    wait_for(lambda: workflow_processes(folder, "decode_attn.py"))
    second = subprocess.run(MAKE, cwd=folder, capture_output=True, text=True)
    assert second.returncode != 0
    assert "another run is going on" in second.stdout
    assert len(second.stdout.splitlines()) == 1
    output, _ = first.communicate()
    assert first.returncode == 0, output


def test_make_says_so_when_there_is_nothing_to_do(run):
    again = subprocess.run(MAKE, cwd=run, capture_output=True, text=True)
    assert again.returncode == 0
    assert "nothing to be done" in again.stdout
    assert "Acceptance" in again.stdout


def test_the_announcement_counts_the_measurements_and_the_cost(run):
    change(run, decode_attn={"seq_lens": [16, 32, 48]}, cost={"usd_per_hour": 3600})
    said = snakemake(run).stdout
    assert re.search(r"^1 measurement on cpu, about \d+ s, about \$\d+\.\d\d at \$3600 an hour; \d+ jobs in all", said, re.M)
    assert re.search(r"^\[ ?\d+/\d+\] decode_attn cpu minigpt S=48 fp32: batch 1 [\d.]+ us", said, re.M)


def test_the_readme_lists_every_setting():
    readme = (CHECKOUT / "README.md").read_text()
    schema = yaml.safe_load((CHECKOUT / "workflow" / "schemas" / "config.schema.yaml").read_text())
    for name, part in schema["properties"].items():
        assert f"`{name}" in readme
        for key in part.get("properties", {}):
            assert f"`{name}.{key}`" in readme or f"`.{key}`" in readme, f"{name}.{key}"
