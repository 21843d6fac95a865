"""Why jobs are done, from what Snakemake does not promise: a version that has it otherwise fails here."""

import os
from types import SimpleNamespace

import yaml
from workflow_run import Run, changed

from roofline.run import console, planned_jobs

PEAK, MEMORY, ROWS = "cpu/peak_flops/fp32.json", "cpu/bandwidth/dram.json", "cpu/row_norm/fp32.json"
ATTENTION_SEAL = "cpu/decode_attn/prediction.json"


def plan(run: Run, *options: str) -> tuple[dict[str, str], str]:
    """The reason of each job by its first output, and the last line."""
    done = run.command("run", "--dry-run", *options)
    assert done.returncode == 0, done.stderr
    *lines, total = done.stdout.splitlines()
    return dict(line.split(": ", 1) for line in lines), total


def test_each_job_has_its_reason_with_changed_values_and_few_files(run: Run):
    (run.results / PEAK).unlink()
    run.append("workflow/scripts/bandwidth.py")
    run.edit_config(row_norm={"shapes": ["64x128"]})
    another = run.root / "workflow/scripts/roofline/operators/decode_attention/more.py"
    another.touch()
    os.utime(another, (0, 0))
    reasons, total = plan(run)
    assert reasons[PEAK].startswith(f"missing output files: {PEAK}")
    assert "updated input files: workflow/scripts/bandwidth.py" in reasons[MEMORY]
    assert "settings, device or software have changed" in reasons[ROWS]
    assert "other input files" in reasons[ATTENTION_SEAL]
    assert "input files updated by another job: " in reasons["manifest.json"]
    assert " more" in reasons["manifest.json"]
    assert total.startswith(f"{len(reasons)} jobs: ") and "1 peak_flops" in total
    assert plan(run, "--forcerun", "results/cpu/device_query.json")[0]["cpu/device_query.json"] == "asked for"


def test_a_corrupt_result_and_what_follows_are_planned(run: Run):
    path, times = run.results / PEAK, (run.results / PEAK).stat()
    path.write_bytes(path.read_bytes()[:200])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    reasons, _ = plan(run)
    assert list(reasons) == [PEAK, "roofline.json", "manifest.json"] and reasons[PEAK].startswith("corrupt")
    assert PEAK in reasons["roofline.json"] and path.stat().st_size == 200


def test_a_reason_with_other_fields_is_told_in_snakemakes_words():
    class OtherReason(SimpleNamespace):
        def __str__(self):
            return "because"

    assert planned_jobs.describe_reason(OtherReason(forced=False, missing_output={"a"})) == "because"


def test_a_plan_that_fails_says_why_and_not_that_all_is_there(run: Run):
    done = run.command("run", "--dry-run", "nonexistent")
    assert done.returncode == 1 and "nonexistent" in done.stdout + done.stderr
    assert console.UP_TO_DATE not in done.stdout


def test_the_lines_of_jobs_are_shown_to_those_who_want_snakemake_quiet(run: Run):
    (run.results / PEAK).unlink()
    printed = run.finish("--quiet", "progress", "--", f"results/{PEAK}")
    assert "[1/1] peak_flops cpu fp32: " in printed


def test_the_settings_of_a_run_are_read_from_its_options_and_one_of_a_section_is_refused(run: Run):
    _, line = run.command("run", "--config", "peak_flops.size=100").stderr.splitlines()  # after Snakemake's profile
    assert line.startswith("--config peak_flops.size=100: ") and "--configfile" in line
    own, mine = run.root / "config/config.yaml", run.root / "mine.yaml"
    settings = changed(yaml.safe_load(own.read_text()), {"devices": ["gpu7"], "peak_flops": {"dtypes": ["fp64"]}})
    mine.write_text(yaml.safe_dump(settings))
    options = ["--configfile", "mine.yaml", "--config", "devices=cpu", "--cell", "cpu/peak_flops/fp64"]
    assert "cpu/peak_flops/fp64.json: missing" in run.command("run", "--dry-run", *options).stdout
    own.unlink()
    assert "cpu/peak_flops/fp64.json: missing" in run.command("run", "--dry-run", *options).stdout
