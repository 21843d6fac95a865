"""What the terminal shows of Snakemake's own words."""

import logging

import pytest

from roofline.devices import host
from roofline.run import console

DIED = "Command 'python peak_flops.py' died with <Signals.{}>."


def said(text: str, **more) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, **more})


@pytest.mark.parametrize(
    ("signal", "kills", "for_memory"), [("SIGKILL: 9", 1, True), ("SIGKILL: 9", 0, False), ("SIGSEGV: 11", 1, False)]
)
def test_a_job_that_a_signal_ended_is_one_line_with_its_log(monkeypatch, capsys, signal, kills, for_memory):
    monkeypatch.setattr(host, "kills_for_memory", lambda: console._kills_before + kills)
    assert not console.is_passed_on(said(DIED.format(signal)))
    failed = said("Error in rule peak_flops, jobid: 3", output=["results/cpu/x.json"], log=["logs/cpu/x.log"])
    for _ in range(2):  # the second ended by itself, and has written its own line
        console.is_passed_on(failed)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("results/cpu/x.json ") and "logs/cpu/x.log" in line
    assert (console.OUT_OF_MEMORY in line, signal.split(":")[0] in line) == (for_memory, not for_memory)
