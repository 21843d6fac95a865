"""What the terminal shows of the events of a run, and of folders that cannot be written."""

import json
import logging
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pictures import reference
from snakemake_interface_logger_plugins.common import LogEvent
from workflow_run import CHECKOUT

from roofline.core.terms import UserError
from roofline.devices import host
from roofline.report import pictures
from roofline.run import console, jobs, planned_jobs, previous_results
from roofline.run.console import Console

OUTPUT, LOG = "results/cpu/x.json", "logs/cpu/x.log"
PLANNED = [planned_jobs.PlannedJob("peak_flops", [OUTPUT], "cpu", "missing")] * 12


@pytest.fixture
def started(tmp_path, monkeypatch, capsys):
    """The console of a run of twelve jobs, of which the fourth has started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(planned_jobs, "list_planned_jobs", lambda workflow, corrupt: PLANNED)
    settings = SimpleNamespace(configfiles=[], config_args=[])
    workflow = SimpleNamespace(
        output_settings=SimpleNamespace(dryrun=False), config_settings=settings, main_snakefile=tmp_path / "Snakefile"
    )
    shown = Console(workflow, Mock())
    shown._snakemake = Mock()
    tell(shown, LogEvent.WORKFLOW_STARTED)
    tell(shown, LogEvent.RUN_INFO)
    tell(shown, LogEvent.JOB_INFO, jobid=4, output=[OUTPUT], log=[LOG])
    return shown


def tell(shown: Console, event: LogEvent | None, level: int = logging.INFO, **more) -> None:
    shown.handle(logging.makeLogRecord({"msg": "words", "event": event, "levelno": level, **more}))


def leave(**entry) -> None:
    with open(jobs.JOBS, "a", encoding="utf-8") as file:
        file.write(
            json.dumps(dict.fromkeys(jobs.JOB_KEYS) | {"outputs": [OUTPUT], "name": "peak_flops cpu x", **entry})
        )
        file.write("\n")


def test_the_lines_of_a_job_are_shown_with_its_number_when_it_ends(started, capsys):
    tell(started, None)  # Snakemake's own words
    leave(lines=["one", "two"])
    tell(started, LogEvent.JOB_FINISHED, job_id=4)
    started.close()
    shown = capsys.readouterr()
    assert (shown.out.splitlines(), shown.err) == (["[ 1/12] one", "[ 1/12] two"], "")
    started._snakemake.handle.assert_not_called()


def test_a_job_that_failed_is_one_line_with_its_log(started, capsys):
    leave(failed="it is too small")
    tell(started, LogEvent.ERROR, logging.ERROR, exception="RuleException")
    tell(started, LogEvent.JOB_ERROR, logging.ERROR, jobid=4)
    tell(started, LogEvent.ERROR, logging.ERROR, exception="WorkflowError")
    started.explain_failure()
    started.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("peak_flops cpu x failed: it is too small") and LOG in line
    started._snakemake.handle.assert_not_called()


@pytest.mark.parametrize(("kills", "why"), [(1, console.OUT_OF_MEMORY), (0, console.ENDED)])
def test_a_job_that_was_ended_is_named_by_its_output(started, monkeypatch, capsys, kills, why):
    before = started._oom_kills
    monkeypatch.setattr(host, "count_oom_kills", lambda: before + kills)
    tell(started, LogEvent.JOB_ERROR, logging.ERROR, jobid=4)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{OUTPUT} failed: {why}") and LOG in line


def test_another_error_next_to_a_failed_job_is_told_too(started):
    tell(started, LogEvent.JOB_ERROR, logging.ERROR, jobid=4)
    tell(started, LogEvent.ERROR, logging.ERROR, exception="MissingOutputException")
    started.explain_failure()
    started.close()
    started._snakemake.handle.assert_called_once()


def test_an_error_that_no_job_explains_is_told_as_snakemake_tells_it(started):
    tell(started, LogEvent.ERROR, logging.ERROR, exception="WorkflowError")
    started.close()
    started._snakemake.handle.assert_called_once()


@pytest.mark.parametrize(
    ("way", "archive", "go_on"),
    [(["make", "cell", "CELL=a b"], "make archive", "make cell 'CELL=a b'"), ([], "archive.py", "snakemake --cores 1")],
)
def test_the_commands_fit_the_way_in_which_the_run_was_started(started, monkeypatch, way, archive, go_on):
    monkeypatch.setattr(console, "started_by", way)
    assert archive in started.format_command("archive") and started.format_command() == go_on


def test_a_job_that_waits_for_another_run_is_shown_once(started, monkeypatch, capsys):
    jobs.say_waiting("waiting for host")
    capsys.readouterr()
    monkeypatch.setattr(time, "sleep", Mock(side_effect=[None, None, StopIteration]))
    with pytest.raises(StopIteration):
        started._watch()
    assert capsys.readouterr().out.splitlines() == ["waiting for host"]


def test_nothing_is_said_where_the_output_is_closed(monkeypatch):
    """As by >&-, of which Python makes no stream."""
    monkeypatch.setenv("PYTHONIOENCODING", "")
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "__stdout__", None)
    jobs.print_what_can_be_printed()
    assert os.readlink(f"/proc/self/fd/{sys.stdout.fileno()}") == os.devnull
    sys.stdout.close()


def ended(main: str, redirection: str = "") -> subprocess.CompletedProcess:
    """A program that ends with this function of its arguments, with its outputs led elsewhere by the shell."""
    program = f"import os, subprocess, sys; from roofline.run.ending import exit_with; exit_with(lambda _: {main}, 3)"
    words = [sys.executable, "-P", "-c", program]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "workflow/scripts")}
    words = ["bash", "-c", f'"$@" {redirection}', "bash", *words]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", ["'a word'", "100_000 * 'a'"])
@pytest.mark.parametrize("redirection", ["> /dev/full", "> /dev/full 2> /dev/full", "> /dev/full 2>&-", "| head -c1"])
def test_an_output_that_takes_no_more_is_one_line_at_most(text, redirection):
    done = ended(f"print({text}) or 0", redirection)
    assert len(done.stderr.splitlines()) <= 1 and "Traceback" not in done.stderr
    assert done.returncode == (0 if "|" in redirection else 3)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_status(redirection):
    assert ended("print(1, file=sys.stderr) or print(1) or 4", redirection).returncode == 4


def test_an_error_of_the_system_is_one_line_of_a_readable_length():
    done = ended("open(9000 * 'x')")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1 and len(done.stderr) < 1000


def test_no_name_rules_the_terminal():
    assert ended(r"print('\x1b[2Ja\x9b2J\tb\n')").stdout == " [2Ja 2J\tb\n\n"


def test_a_program_that_is_ended_ends_what_it_started():
    done = ended("os.kill(os.getpid(), (subprocess.Popen(['sleep', '60'], stdout=2), 15)[1])", "2>&1 | cat")
    assert (done.stdout, done.stderr) == ("", ""), "cat waits for all that write to it"


# ---------------------------------------------------------------- folders that cannot be written


@pytest.mark.parametrize(
    ("closed", "named"),
    [(["results/cpu", "results/cpu/row_norm"], "results/cpu/"), ([".", "results", "results/cpu", ".snakemake"], "")],
)
def test_what_cannot_be_written_is_one_line(tmp_path, monkeypatch, closed, named):
    monkeypatch.chdir(tmp_path)
    for folder in ("results/cpu/row_norm", "results/cpu/peak_flops", ".snakemake", "logs"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(previous_results.os, "access", lambda path, mode: str(path) not in closed)
    with pytest.raises(UserError) as refused:
        previous_results.require_writable(["results/cpu/row_norm/a.json", "results/cpu/peak_flops/b.json"])
    (line,) = refused.value.lines
    assert line.split()[0] == f"{tmp_path}/{named}"


def test_pictures_are_drawn_without_semaphores(tmp_path, monkeypatch):
    """One after another, where /dev/shm cannot be written."""
    drawn = []
    monkeypatch.setattr(pictures, "ProcessPoolExecutor", Mock(side_effect=OSError))
    monkeypatch.setattr(pictures, "_draw", lambda how, path, failed, dpi: drawn.append(path.name))
    pictures.draw(tmp_path, reference(), 50, ["roofline.png", "gemm.png"])
    assert drawn == ["roofline.png", "gemm.png"]


def test_results_from_when_the_clock_was_ahead_are_kept_in_their_order(tmp_path, capsys):
    now = time.time()
    for place, name in enumerate(("old", "seal", "record")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now + (place - 0.5) * 3600,) * 2)
    previous_results.accept_future(tmp_path)
    old, seal, record = ((tmp_path / name).stat().st_mtime for name in ("old", "seal", "record"))
    assert old < now - 1000 < seal < record <= time.time() and "2 files" in capsys.readouterr().err
