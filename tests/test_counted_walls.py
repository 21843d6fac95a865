"""The walls as ncu counts them, by stand-ins for ncu and its reports."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import wall_counts
from roofline.devices.gpu.wall_counts import (
    BY_CONSTRUCTION,
    KERNELS,
    REQUESTS,
    THREADS_ON,
    TRANSACTIONS,
    WARP_INSTRUCTIONS,
    NotCounted,
)

# As Nsight Compute says it.
REFUSED = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


def stand_in(folder: Path, says: str, status: int, leaves: bool = False) -> str:
    path = folder / "ncu"
    export = 'out=$(echo "$@" | sed "s/.*--export \\([^ ]*\\).*/\\1/"); echo made up > "$out"\n' if leaves else ""
    path.write_text(f'#!/bin/sh\n{export}echo "==PROF== Connected to process 1"\necho "{says}"\nexit {status}\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("status", [0, 1])
def test_a_refusal_is_told_in_ncus_own_line(tmp_path, status):
    ncu = stand_in(tmp_path, REFUSED, status)
    with pytest.raises(NotCounted, match=r"^==ERROR== ERR_NVGPUCTRPERM"):
        wall_counts.profile(ncu, "gpu0", tmp_path / "walls.ncu-rep")


def test_a_program_that_is_none_is_told(tmp_path):
    (tmp_path / "ncu").write_text("no program")
    with pytest.raises(NotCounted, match="ncu"):
        wall_counts.profile(str(tmp_path / "ncu"), "gpu0", tmp_path / "walls.ncu-rep")


def test_no_report_is_told_by_the_last_line(tmp_path):
    with pytest.raises(NotCounted, match="nothing was profiled"):
        wall_counts.profile(stand_in(tmp_path, "nothing was profiled", 0), "gpu0", tmp_path / "walls.ncu-rep")


def test_a_report_that_cannot_be_read_is_told_in_a_line(tmp_path):
    report = tmp_path / "walls.ncu-rep"
    wall_counts.profile(stand_in(tmp_path, "done", 0, leaves=True), "gpu0", report)
    with pytest.raises(NotCounted) as told:
        wall_counts.launches(report)
    assert "walls.ncu-rep" in str(told.value) and "\n" not in str(told.value)


def values(pattern: str, of: int, off: float = 1.0) -> dict[str, float]:
    if pattern == "predication":
        return {WARP_INSTRUCTIONS: 1000, THREADS_ON: 1000 * of * off}
    return {REQUESTS[pattern]: 64, TRANSACTIONS[pattern]: 64 * BY_CONSTRUCTION[pattern](of) * off}


def every_wall(off: float = 1.0) -> list:
    return [(KERNELS[pattern], values(pattern, of, off)) for pattern, of in wall_counts.walls()]


def test_counts_are_held_against_the_construction():
    for wall in wall_counts.counted(every_wall(1.04)):
        assert wall.apart == pytest.approx(0.04)
        assert wall.counted == pytest.approx(1.04 * wall.by_construction)


def test_what_was_not_counted_is_null():
    found = every_wall()
    found[1] = (found[1][0], {})
    assert wall_counts.counted(found)[1].counted is None


@pytest.mark.parametrize("wrong", [lambda all: all[1:], lambda all: all[::-1], lambda all: []])
def test_other_launches_than_the_walls_are_no_walls(wrong):
    with pytest.raises(NotCounted):
        wall_counts.counted(wrong(every_wall()))


def test_a_report_is_read_launch_by_launch(monkeypatch, tmp_path):
    def action(name, found):
        metrics = {key: SimpleNamespace(as_double=lambda value=value: value) for key, value in found.items()}
        return SimpleNamespace(name=lambda: name, metric_by_name=metrics.get)

    actions = [action(*one) for one in every_wall()]
    of_process = SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=actions.__getitem__)
    report = SimpleNamespace(range_by_idx=lambda place: of_process)
    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=lambda path: report))
    assert wall_counts.launches(tmp_path) == every_wall()
