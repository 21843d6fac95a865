"""What a GPU reports to a process that does not use it: Xid errors now, and earlier ones by the kernel's log."""

import time

import pytest
import xids
from fake_gpu import nvml_card, use_nvml

CARD = nvml_card("GPU-1", "00000000:17:00.0")
UUIDS = {"gpu0": "GPU-1"}


def codes(monkeypatch, tmp_path, log: str | None, **nvml):
    use_nvml(monkeypatch, CARD, **nvml)
    monkeypatch.setattr(xids, "KERNEL_LOG", tmp_path / "kmsg")
    if log is not None:
        (tmp_path / "kmsg").write_text(log)
    found = xids.Watch(UUIDS).errors()["gpu0"]
    return None if found is None else [(one.code, one.when) for one in found]


def line(bus: str, code: int, age_s: float) -> str:
    us = int((time.monotonic() - age_s) * 1e6)
    return (
        f"4,1234,{us},-;NVRM: Xid (PCI:{bus}): {code}, pid='<unknown>', GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
    )


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (line("0000:17:00", 79, 60), [(79, "before")]),
        (line("0000:17:00", 79, xids.LOOKED_BACK_S + 60), []),
        (line("0000:65:00", 79, 60), []),  # another card's
        ("6,1,1000,-;usb 1-1: new device\n", []),
        (None, []),  # NVML listens all the same
    ],
)
def test_recent_errors_of_the_card_itself(monkeypatch, tmp_path, log, expected):
    assert codes(monkeypatch, tmp_path, log) == expected


def test_an_event_that_the_log_has_too_is_told_once(monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_XIDS", "79")
    assert codes(monkeypatch, tmp_path, line("0000:17:00", 79, 0)) == [(79, "during")]


def test_an_error_of_the_log_since_the_watch_began_is_of_its_time_where_nvml_takes_no_listener(monkeypatch, tmp_path):
    log = line("0000:17:00", 31, 60) + line("0000:17:00", 13, -60)
    assert codes(monkeypatch, tmp_path, log, refused=["EventSetCreate"]) == [(31, "before"), (13, "during")]


def test_where_neither_can_be_read_nothing_is_known(monkeypatch, tmp_path):
    assert codes(monkeypatch, tmp_path, None, refused=["EventSetCreate"]) is None


def test_a_card_that_nvml_does_not_know_reports_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(xids, "PERIOD_S", 0)
    use_nvml(monkeypatch)
    found = xids.Watch(UUIDS)
    assert found.unused()["gpu0"]["processes"] is None and found.errors()["gpu0"] is None
