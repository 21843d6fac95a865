"""Xid errors now, by NVML, and earlier ones, by the kernel log."""

import time

import pytest
import xids
from fake_gpu import nvml_card, use_nvml


@pytest.fixture
def codes(monkeypatch, tmp_path):
    def watched(log: str, **nvml):
        use_nvml(monkeypatch, nvml_card("GPU-1", "00000000:17:00.0"), **nvml)
        monkeypatch.setattr(xids, "KERNEL_LOG", tmp_path / "kmsg")
        if log:
            (tmp_path / "kmsg").write_text(log)
        errors = xids.Watch({"gpu0": "GPU-1"}).read_errors()["gpu0"]
        return None if errors is None else [(xid.code, xid.minutes is None) for xid in errors]

    return watched


def line(bus: str, code: int, age_s: float) -> str:
    us = int((time.monotonic() - age_s) * 1e6)
    return f"4,1234,{us},-;NVRM: Xid (PCI:{bus}): {code}, pid='<unknown>', GPU has fallen off the bus.\n SUBSYSTEM=a\n"


BEFORE, LONG_BEFORE = line("0000:17:00", 79, 60), line("0000:17:00", 79, xids.LOOKED_BACK_S + 60)
OF_ANOTHER_CARD = line("0000:65:00", 79, 60)


@pytest.mark.parametrize(
    ("log", "expected"), [(BEFORE, [(79, False)]), (LONG_BEFORE, []), (OF_ANOTHER_CARD, []), ("", [])]
)
def test_recent_errors_of_the_card_itself(codes, log, expected):
    assert codes(log) == expected


def test_if_neither_can_be_read_nothing_is_known(codes):
    """The log is missing or empty, as /dev/null is."""
    assert codes("", refused=["EventSetCreate"]) is None
    xids.KERNEL_LOG.touch()
    assert codes("", refused=["EventSetCreate"]) is None
