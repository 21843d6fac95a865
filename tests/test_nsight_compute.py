"""Nsight Compute's command line: where it is, and what it may do."""

import os

import pytest

from roofline.measure import nsight_compute


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "ncu"
    path.touch(mode=0o755)
    return path


def test_opened_counters_and_root_are_another_fingerprint(monkeypatch, tmp_path, program):
    """What was refused is tried again then."""
    found, driver = set(), tmp_path / "params"
    monkeypatch.setattr(nsight_compute, "DRIVER", driver)
    found.add(nsight_compute.fingerprint(program))
    for admin_only in (1, 0):
        driver.write_text(f"RmLogonRC: 1\nRmProfilingAdminOnly: {admin_only}\nDmaRemapPeerMmio: 1\n")
        for user in (0, 1000):
            monkeypatch.setattr(os, "geteuid", lambda user=user: user)
            found.add(nsight_compute.fingerprint(program))
            assert nsight_compute.fingerprint(program) in found
    assert len(found) == 5


def test_the_newest_release_is_taken(monkeypatch, tmp_path):
    for release in ("2024.10.0", "2025.3.1", "2025.3", "2025.10.0", "2025.9.2"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "ncu").touch(mode=0o755)
    monkeypatch.setattr(nsight_compute, "ELSEWHERE", (f"{tmp_path}/*/ncu",))
    monkeypatch.delenv("NCU", raising=False)
    monkeypatch.setenv("PATH", "")
    assert nsight_compute.find() == tmp_path / "2025.10.0" / "ncu"
