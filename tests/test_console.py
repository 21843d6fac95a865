"""What the terminal shows of jobs that a signal ended, and of folders that cannot be written."""

import logging
import os
import sys
import time
from unittest.mock import Mock

import pytest
from pictures import reference

from roofline.core.terms import UserError
from roofline.devices import host
from roofline.run import console, jobs, pictures, previous_results


def said(text: str, **more) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, **more})


@pytest.mark.parametrize(("signal", "kills", "for_memory"), [("SIGKILL: 9", 1, True), ("SIGSEGV: 11", 0, False)])
def test_a_job_that_a_signal_ended_is_one_line_with_its_log(monkeypatch, capsys, signal, kills, for_memory):
    monkeypatch.setattr(host, "count_oom_kills", lambda: console._kills_before + kills)
    assert not console.should_show(said(f"Command 'x' died with <Signals.{signal}>."))
    failed = said("Error in rule peak_flops, jobid: 3", output=["results/cpu/x.json"], log=["logs/cpu/x.log"])
    assert console.should_show(failed) and console.should_show(failed)  # the second has written its own line
    (line,) = capsys.readouterr().err.splitlines()
    assert {"results/cpu/x.json", "logs/cpu/x.log)"} <= {*line.split()}
    assert (console.OUT_OF_MEMORY in line, signal.split(":")[0] in line) == (for_memory, not for_memory)


@pytest.mark.parametrize(("status", "shown"), [(1, False), (130, False), (139, True)])
def test_what_a_job_has_said_in_its_own_line_is_not_said_again(status, shown):
    assert console.should_show(said(f"Command 'x' returned non-zero exit status {status}.")) == shown


def test_nothing_is_said_where_the_output_is_closed(monkeypatch):
    """As by >&-, of which Python makes no stream."""
    monkeypatch.setenv("PYTHONIOENCODING", "")
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "__stdout__", None)
    jobs.print_what_can_be_printed()
    jobs.say("a line")
    sys.stdout.close()


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
