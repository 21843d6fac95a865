"""Where Nsight Compute is, which cells it counts, and what is made of their counts."""

import json
import weakref
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import counter_names
from roofline.measure import hardware_counters, ncu
from roofline.operators import registry
from roofline.plan.config import config_model, fill_by_effort
from roofline.records.counters_record import CountedCell, CountersRecord
from roofline.table.load import counted_rows
from roofline.table.run_records import Results


def profiled_paths(effort, **more):
    operators = registry.collect_operators()
    config = fill_by_effort(config_model(operators)(effort=effort), effort)
    config.decode_attn.seq_lens += more.get("seq_lens", [])
    return {rule: [job.path for job in operator.profiled(config)] for rule, operator in operators.items()}


def test_a_cell_of_each_operator_is_counted_and_three_shapes_of_the_fused_product_in_thorough():
    by_default, in_thorough = profiled_paths("default"), profiled_paths("thorough")
    assert {len(paths) for paths in by_default.values()} == {1}
    assert {rule: len(paths) for rule, paths in in_thorough.items() if len(paths) > 1} == {"rmsnorm_matmul": 3}
    assert len({*in_thorough["rmsnorm_matmul"]}) == 3
    assert profiled_paths("default", seq_lens=[2048])["decode_attn"] == by_default["decode_attn"], "stays as it is"


def test_the_inputs_of_one_implementation_are_gone_before_those_of_the_next_are_made(monkeypatch):
    made: list[weakref.ref] = []

    class Inputs(dict):
        pass

    def make_inputs(*_):
        assert all(one() is None for one in made)
        inputs = Inputs(), [Inputs()]
        made.extend(weakref.ref(one) for one in (inputs[0], *inputs[1]))
        return inputs

    def make_prepared(operator, device, case, shared, copies):
        return SimpleNamespace(shared=shared, copies=copies)

    variant = SimpleNamespace(graph=False, fused=True, unsupported=lambda *_: None, make_prepared=make_prepared)
    operator = SimpleNamespace(ready_cells=lambda *_: None, implementations_on=lambda kind: [variant] * 3)
    job, device = SimpleNamespace(cases=["a case"]), SimpleNamespace(kind="gpu")
    plan = SimpleNamespace(operator=operator, device=device, job=job, choose_copy_count=lambda *_: 1)
    monkeypatch.setattr(hardware_counters, "make_inputs", make_inputs)
    monkeypatch.setattr(hardware_counters, "_launch_cell", lambda device, cell: {"count": len(cell.copies)})
    assert hardware_counters.launch_profiled(plan, every=True) == [{"count": 1}] * 3


# ---------------------------------------------------------------- what a report holds

CELL = {"operator": "row_norm", "implementation": "naive", "preset": None, "scope": None, "dtype": "fp32"}
CELL |= {"cache": "cold", "shape": {"rows": 1}, "declared_read_bytes": 4, "declared_write_bytes": 4}
CELL |= {"declared_flops": 4}
OCCUPANCY = counter_names.SHARE_METRICS["achieved_occupancy_fraction"]


def counted(monkeypatch, tmp_path, *kernels: dict, declared=((CELL,),)) -> list[list[CountedCell]]:
    """Of a report in which a marker and these kernels stand for each declared cell."""
    known = dict.fromkeys(counter_names.all_metrics((9, 0)), 10.0)
    mine = [SimpleNamespace(name="a_kernel", counts=known | one) for one in kernels]
    marker = SimpleNamespace(name=f"{hardware_counters.MARKER_KERNEL}_", counts=known)
    report = SimpleNamespace(kernels=[one for cells in declared for _ in cells for one in (marker, *mine)])
    identity = SimpleNamespace(require_capability=lambda: "9.0")
    monkeypatch.setattr(hardware_counters, "discover", lambda: {"gpu0": identity})
    monkeypatch.setattr(ncu, "profile", lambda *_: json.dumps(declared))
    monkeypatch.setattr(ncu, "read_report", lambda *_: report)
    return hardware_counters.count_cells(tmp_path / "ncu", "gpu0", [{}] * len(declared), tmp_path / "kernels.ncu-rep")


def test_a_share_of_several_kernels_is_weighed_by_their_times_whole_numbers_too(monkeypatch, tmp_path):
    short, long = ({OCCUPANCY: share, counter_names.DURATION_METRIC: s} for share, s in ((1, 1), (0.4, 3)))
    ((cell,),) = counted(monkeypatch, tmp_path, short, long)
    assert cell.achieved_occupancy_fraction == pytest.approx(0.55) and cell.warp_instructions == 20


@pytest.mark.parametrize(("kernels", "read"), [(1, 10.0), (2, None)])
def test_reads_are_known_of_a_step_of_one_kernel_alone(monkeypatch, tmp_path, kernels, read):
    """What the first leaves in the cache, the second would read from memory behind emptied caches."""
    ((cell,),) = counted(monkeypatch, tmp_path, *[{}] * kernels)
    assert (cell.dram_read_bytes, cell.sm_write_sectors) == (read, 10 * kernels)
    assert ("dram_read_bytes" in cell.not_counted) == (read is None)


def counted_cell(**fields) -> CountedCell:
    return CountedCell(**CELL | {"declared_read_bytes": 1e9, "declared_write_bytes": 1e8} | fields)


FORMULA = {"formula_flops_by_pipe": {"fp32": 8}, "formula_flops_reason": "padded"}
AS_DECLARED = {"dram_read_bytes": 1.005e9, "sm_write_sectors": 1e8 / 32, "counted_flops_by_pipe": {"fp32": 4}}


@pytest.mark.parametrize(
    ("fields", "agree"),
    [
        (AS_DECLARED, (True, True, None)),
        ({"dram_read_bytes": 1.5e9}, (False, None, None)),
        ({"sm_write_sectors": 2e8 / 32}, (None, False, None)),
        ({"sm_write_sectors": 2e8 / 32, "kernels": ["normalise", "multiply"]}, (None, None, None)),
        (FORMULA | {"counted_flops_by_pipe": {"fp32": 9}}, (None, None, False)),
        (FORMULA | {"counted_flops_by_pipe": {"fp32": 8}}, (None, None, True)),
    ],
)
def test_counts_within_their_tolerance_agree(fields, agree):
    cell = counted_cell(**fields)
    record = CountersRecord(device="gpu0", started_at="2026-11-22T12:00:00+00:00", elapsed_s=1, cells=[cell])
    timed = SimpleNamespace(**CELL, device="gpu0", regime="memory")
    (row,) = counted_rows(Results(counters=[("gpu0/counters/row_norm/fp32.json", record)]), [timed])
    assert (row.regime, row.reads_agree, row.writes_agree, row.flops_agree) == ("memory", *agree)
