"""The reasons of a dry run in words; what the wrapper adds to Snakemake's options, and which it repeats."""

import pytest
import yaml

from roofline.core.terms import UserError
from roofline.plan import settings
from roofline.run import dry_run, folder

PARAMS = "Params have changed since last execution: Union of exclusive params before and now across all output: "


def job(reason: str) -> str:
    return f"rule derive:\n    output: results/roofline.png\n    reason: {reason}\n"


def planned(monkeypatch, text: str):
    done = dry_run.subprocess.CompletedProcess([], 0, stdout=text, stderr="Config file a is extended\na note\n")
    monkeypatch.setattr(dry_run.subprocess, "run", lambda *arguments, **options: done)
    return dry_run.plan_jobs([])


def test_each_job_has_its_reasons_with_the_changed_values_and_few_files(monkeypatch):
    reason = f"Input files updated by another job: results/a.json, results/b.json, results/c.json; {PARAMS}"
    ((one,), notes) = planned(monkeypatch, job(f"{reason}before: 10 now: 12 "))
    assert (one.rule, one.outputs, notes) == ("derive", ["results/roofline.png"], ["a note"])
    assert "a.json, b.json and 1 more" in one.reason and "before: 10 now: 12" in one.reason
    assert dry_run.format_plan([one])[-1] == "1 job: 1 derive"


def test_the_options_that_choose_the_settings_are_repeated_and_one_of_a_section_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("plot: {dpi: 80}\n")
    given = ["--forceall", "--configfile", "mine.yaml", "--config", "devices=cpu", "--", "results/roofline.json"]
    config, options = folder.read_run_config(given)
    assert (config, options) == ({"plot": {"dpi": 80}, "devices": "cpu"}, given[1:5])
    with pytest.raises(UserError) as refused:
        folder.read_run_config(["--configfile", "mine.yaml", "--config", "peak_flops.size=100"])
    line, advised = refused.value.lines[0], yaml.safe_load(refused.value.lines[0].split(".yaml: ")[1])
    assert line.startswith("--config peak_flops.size=100: ") and "--configfile" in line
    assert settings.complete(advised).config.peak_flops.size == 100
    assert folder.choosing(given) == options
