"""Which cells are counted, and what is made of their counts."""

import json
from pathlib import Path

import pytest

from roofline.devices.gpu import counter_names
from roofline.devices.gpu.wall_counts import METRICS, NUMBER
from roofline.measure import counted_steps
from roofline.measure.nsight_compute import Counted, Refused
from roofline.operators import registry
from roofline.operators.row_norm.cuda import WelfordGraph
from roofline.records.counters import CountedCell, CountersRecord
from roofline.run import counters
from roofline.table.counted import counted_rows
from roofline.table.run_records import Results


@pytest.mark.parametrize("rule", ["decode_attn", "row_norm", "rmsnorm_matmul"])
def test_the_kernels_of_a_graph_are_counted_whatever_is_timed(rule):
    """The cells come from the operator and not from the settings, which may have graphs alone."""
    operator = registry.registered()[rule]
    found = counted_steps.counted(operator, "gpu")
    assert found and all(one.fused and not one.graph for one in found)


def test_where_there_are_graphs_alone_nothing_is_counted_and_ncu_is_not_called(monkeypatch, tmp_path):
    operator = type(registry.registered()["row_norm"])()
    monkeypatch.setattr(operator, "implementations", (WelfordGraph,), raising=False)
    monkeypatch.setattr(registry, "registered", lambda paths=(): {"row_norm": operator})
    monkeypatch.setattr(counters.nsight_compute, "profile", lambda *_: pytest.fail("ncu was called"))
    assert counters.count(tmp_path / "ncu", "gpu0", [TASK], (9, 0), tmp_path) == ([([], [], None)], [])


TASK = {"operator": "row_norm", "operators": [], "case": "fp32"}
CELL = {
    "operator": "row_norm",
    "implementation": "naive",
    "preset": None,
    "scope": None,
    "dtype": "fp32",
    "cache": "cold",
    "shape": {"rows": 1},
    "declared_read_bytes": 4,
    "declared_write_bytes": 4,
    "declared_flops": 4,
    "steps": 1,
}
OCCUPANCY = counter_names.SHARES["achieved_occupancy_fraction"]


def profiled_as(monkeypatch, *, lacking=(), with_range=True, kernels=2, refused=None) -> None:
    """Kernels of a step, of 1 s and 3 s, with 20 % and 40 % of the warps; ranges lack these metrics. `refused`: how the
    profiler replays nothing."""

    def profile(program, module, arguments, metrics, report, replay):
        if replay == refused:
            raise Refused("ncu did not end within 60 s")
        task = json.loads(arguments[0])
        cell = CELL | {"steps": int(with_range or replay == "kernel")}
        Path(task["told"]).write_text(json.dumps([[cell] for _ in task["tasks"]]))
        report.write_text(json.dumps([*metrics, task["walls"], replay]))
        return ""

    def read_report(report, metrics):
        *asked, walls, replay = json.loads(report.read_text())
        values = {name: 10.0 for name in asked if replay == "kernel" or name not in lacking}
        before = [Counted("a_wall", values) for _ in range(NUMBER if walls else 0)]
        if replay == "range":
            return [before, [Counted("range", values)] if with_range else []]
        found = [Counted("first", values | {OCCUPANCY: 20.0}), Counted("second", values | {OCCUPANCY: 40.0})]
        for kernel, seconds in zip(found, (1.0, 3.0), strict=True):
            if counter_names.DURATION in asked:
                kernel.values[counter_names.DURATION] = seconds
        return [[*before, Counted(counted_steps.MARKER, values), *found[:kernels]]]

    monkeypatch.setattr(counters.nsight_compute, "profile", profile)
    monkeypatch.setattr(counters.nsight_compute, "read_report", read_report)


def test_a_share_of_several_kernels_is_weighed_by_their_times(monkeypatch, tmp_path):
    profiled_as(monkeypatch, lacking=[OCCUPANCY])
    (((cell,), reports, _),), _ = counters.count(tmp_path / "ncu", "gpu0", [TASK], (9, 0), tmp_path)
    assert cell.achieved_occupancy_fraction == pytest.approx(0.35) and len(reports) == 2


@pytest.mark.parametrize(("kernels", "read"), [(1, 10.0), (2, None)])
def test_reads_of_a_step_without_a_range_are_known_of_one_kernel_alone(monkeypatch, tmp_path, kernels, read):
    """What the first leaves in the cache, the second would read from memory behind emptied caches."""
    profiled_as(monkeypatch, with_range=False, kernels=kernels)
    (((cell,), _, _),), walls = counters.count(tmp_path / "ncu", "gpu0", [TASK], (9, 0), tmp_path)
    assert (cell.replay, cell.dram_read_bytes, cell.dram_write_bytes) == ("kernel", read, None)
    assert "dram_write_bytes" in cell.not_counted and len(walls) == NUMBER


def test_what_ranges_counted_stays_where_single_kernels_are_refused(monkeypatch, tmp_path):
    profiled_as(monkeypatch, refused="kernel")
    (((cell,), reports, _),), walls = counters.count(tmp_path / "ncu", "gpu0", [TASK], (9, 0), tmp_path)
    assert cell.dram_read_bytes == 10.0 and cell.flops.fp32 is None and len(reports) == 1
    assert all(one.counted for one in walls)


def test_walls_are_counted_as_kernels_where_a_range_lacks_what_they_are_held_against(monkeypatch, tmp_path):
    profiled_as(monkeypatch, lacking=METRICS[:1])
    _, walls = counters.count(tmp_path / "ncu", "gpu0", [TASK], (9, 0), tmp_path)
    assert len(walls) == NUMBER and all(one.counted for one in walls)


def test_an_operator_that_fails_under_the_profiler_leaves_the_others_counted(monkeypatch, tmp_path):
    """Each is then counted by itself."""
    profiled_as(monkeypatch)
    whole = counters.nsight_compute.profile

    def profile(program, module, arguments, *rest):
        if any(task["case"] == "bad" for task in json.loads(arguments[0])["tasks"]):
            raise Refused("ncu wrote no report (exit status 1): boom")
        return whole(program, module, arguments, *rest)

    monkeypatch.setattr(counters.nsight_compute, "profile", profile)
    (good, bad), _ = counters.count(tmp_path / "ncu", "gpu0", [TASK, TASK | {"case": "bad"}], (9, 0), tmp_path)
    assert len(good.cells) == 1 and good.refused is None and good.reports[0].is_file()
    assert bad.cells == [] and "boom" in bad.refused


def counted_cell(**fields) -> CountedCell:
    return CountedCell(**CELL | {"declared_read_bytes": 1e9, "declared_write_bytes": 1e8} | fields)


@pytest.mark.parametrize(("read", "agrees"), [(1e9, True), (9.3e8, True), (9e8, True), (8.7e8, False), (1.03e9, False)])
def test_reads_that_the_cache_may_serve_may_be_missing_and_no_others(read, agrees):
    cell = counted_cell(dram_read_bytes=read, kept_read_bytes=1e8, kept_read_why="x stays")
    record = CountersRecord(device="gpu0", started_at="", elapsed_s=1, ncu="1", refused=None, cells=[cell])
    (row,) = counted_rows(Results(counters=[("gpu0/counters/row_norm/fp32.json", record)]), [])
    assert row.reads_agree is agrees
