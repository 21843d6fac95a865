"""Nsight Compute: where it is, what it may do, and its reports."""

import os
from pathlib import Path

import pytest

from roofline.devices.gpu import counter_names
from roofline.measure import nsight_compute
from roofline.records.base import read
from roofline.records.counters import CountersRecord


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


H200 = Path(__file__).parents[1] / "reference/nvidia-h200/gpu0/counters"


def test_records_hold_the_counts_of_the_report_that_they_name():
    """By NVIDIA's own reader, of a report that ncu wrote on an H200."""
    records = [read(CountersRecord, path) for path in sorted(H200.rglob("*.json"))]
    report = H200 / "ranges.ncu-rep"
    assert all(report.name in [Path(one.path).name for one in record.reports] for record in records)
    metrics = counter_names.metrics((9, 0), of_range=True)
    spans = [one for spans in nsight_compute.read_report(report, metrics) for one in spans]
    cells = [cell for record in records for cell in record.cells]
    assert len(spans) == len(cells) >= 8
    for span in spans:
        read_bytes = span.values["dram__bytes_read.sum"]
        cell = next(one for one in cells if one.dram_read_bytes * one.steps == pytest.approx(read_bytes, abs=1))
        fields, _ = counter_names.fields(span.values, (9, 0), cell.steps)
        assert {name: getattr(cell, name) for name in fields if name != "flops"} == pytest.approx(
            {name: value for name, value in fields.items() if name != "flops"}
        )
