"""RMSNorm + matmul: its division of the work, its prediction, its settings; every implementation."""

from pathlib import Path

import fake_gpu
import numpy
import pytest
from factories import device_record, seals_for
from fake_gpu import open_gpu, real_gpu
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.terms import UserError
from roofline.devices.base import GpuLimits
from roofline.measure.operator_job import JobPlan, list_kernels, list_skipped, measure_job, predict_job
from roofline.measure.protocol import TimingBudget
from roofline.operators.base import Case, Job, count_rotation_copies
from roofline.operators.rmsnorm_matmul import hopper_gemm
from roofline.operators.rmsnorm_matmul.fused_rmsnorm_matmul import FusedRmsNormMatmul, FusedRmsNormMatmulGraph
from roofline.operators.rmsnorm_matmul.mma_plan import plan_mma
from roofline.operators.rmsnorm_matmul.operator import RmsNormMatmul
from roofline.operators.rmsnorm_matmul.unfused import UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph
from roofline.plan import machine_checks, settings

OPERATOR = RmsNormMatmul()
ON_GPU = (UnfusedRmsNormMatmul, UnfusedRmsNormMatmulGraph, FusedRmsNormMatmul, FusedRmsNormMatmulGraph)
gpu = fake_gpu.gpu  # the fixture


def cell_of(device, kind, batch, hidden, dtype, copies=1, seed=3):
    case = Case({"batch": batch, "hidden": hidden}, dtype)
    shared = OPERATOR.shared_inputs(device, case, seed)
    return kind.make_prepared(OPERATOR, device, case, shared, OPERATOR.rotated_inputs(device, case, seed, copies))


CARDS = {  # shared memory in KiB of a block and of a multiprocessor
    (7, 5): (64, 64),
    (8, 0): (163, 164),
    (8, 6): (99, 100),
    (9, 0): (227, 228),
    (10, 0): (227, 228),
    (12, 0): (99, 100),
}


def limits_of(capability: tuple[int, int], multiprocessors: int) -> GpuLimits:
    shared_per_block, shared_per_sm = (kib << 10 for kib in CARDS[capability])
    return GpuLimits(multiprocessors, shared_per_block, shared_per_sm, capability)


@given(
    batch=st.integers(1, 1000),
    slices=st.integers(1, 300),
    outputs=st.integers(1, 20000),
    capability=st.sampled_from(sorted({*CARDS} - {(9, 0)})),
    multiprocessors=st.integers(1, 200),
)
def test_a_plan_covers_all_of_the_result_and_fits_the_card(batch, slices, outputs, capability, multiprocessors):
    hidden, limits = 64 * slices, limits_of(capability, multiprocessors)
    plan = plan_mma(batch, hidden, outputs, limits)
    across, down = plan.grid
    assert plan.rows in (8, 16, 32, 64, 128) and (down - 1) * plan.rows < batch <= down * plan.rows
    assert across % plan.splits == 0
    assert (across // plan.splits - 1) * plan.columns < outputs <= across // plan.splits * plan.columns
    assert plan.splits <= slices, "no block without a part of k"
    assert plan.stages >= 2 and plan.threads % 128 == 0
    assert plan.shared_bytes + 2048 <= limits.shared_per_block
    assert plan.resident * (plan.shared_bytes + 3072) <= limits.shared_per_sm
    case = Case({"batch": batch, "hidden": hidden}, "fp16")
    square = plan_mma(batch, hidden, hidden, limits)
    inputs = OPERATOR.bytes(case) * count_rotation_copies(OPERATOR.bytes(case), 50 << 20)
    assert 4 * square.workspace_floats <= OPERATOR.memory_needed(case, 50 << 20) - inputs


@given(
    batch=st.integers(1, 1000),
    slices=st.integers(1, hopper_gemm.MOST_NORMED // 64),
    outputs=st.integers(1, 40000),
    multiprocessors=st.integers(1, 200),
    norm=st.booleans(),
    leaves_squares=st.booleans(),
    splits_rows=st.booleans(),
)
def test_a_plan_on_hopper_covers_all_of_the_result_and_fits_the_card(
    batch, slices, outputs, multiprocessors, norm, leaves_squares, splits_rows
):
    batch = batch if splits_rows else min(batch, hopper_gemm.MOST_ROWS)
    norm = norm and hopper_gemm.kernel_takes_norm(batch)
    task = hopper_gemm.GemmTask(batch, outputs, 64 * slices, norm, leaves_squares, splits_rows=splits_rows)
    plan = hopper_gemm.plan_gemm(task, limits_of((9, 0), multiprocessors))
    assert (plan.tiles - 1) * plan.columns < outputs <= plan.tiles * plan.columns
    across, down = plan.grid
    assert (down - 1) * plan.rows < batch <= down * plan.rows
    assert across == plan.tiles * plan.splits if plan.splits > 1 else across <= min(plan.tiles, multiprocessors)
    assert plan.splits <= slices and plan.columns % 16 == 0 and 0 < plan.w_rows_per_copy <= 256
    assert plan.stages >= 2 and plan.shared_bytes <= 227 << 10


@pytest.mark.parametrize(
    ("batch", "hidden", "dtype"), [(1, 256, "fp16"), (5, 128, "bf16"), (100, 192, "fp16"), (200, 64, "bf16")]
)
@pytest.mark.parametrize("kind", ON_GPU)
def test_every_implementation_passes_its_check(gpu, kind, batch, hidden, dtype):
    cell = cell_of(gpu, kind, batch, hidden, dtype, copies=3)
    for scope in cell.scopes_on(gpu):
        check, _ = OPERATOR.check(cell, scope)
        assert check.relative_error < check.tolerance == {"fp16": 1e-3, "bf16": 1e-2}[dtype]
        step = cell.step(scope)
        for index in range(4):
            OPERATOR.compare(cell, scope, index, step(index))


def test_a_card_that_overlaps_no_launches_has_no_reasons_of_a_scope_that_is_never_measured(monkeypatch):
    device = open_gpu(monkeypatch, capability="8.6")
    monkeypatch.setattr("roofline.operators.rmsnorm_matmul.fused_rmsnorm_matmul.plan_mma", None)
    job = Job("hidden256_fp16", (Case({"batch": 1, "hidden": 256}, "fp16"),))
    plan = JobPlan(OPERATOR, device, job, ["fused_graph"], cold=False)
    (cell,) = predict_job(plan, seals_for(device_record("gpu0"), OPERATOR))
    assert cell.scope == "waiting" and cell.reason


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch", "hidden"),
    [(1, 8192), (16, 4096), (33, 4096), (128, 4096), (32, 8192), (128, 8192), (200, 2048), (600, 1024)],
)
def test_the_divisions_of_large_cases_are_right_and_give_the_same_bits_again(monkeypatch, batch, hidden):
    monkeypatch.setattr("roofline.operators.rmsnorm_matmul.operator.MOST_COMPARED_WEIGHTS", 1 << 26)
    gpu = real_gpu()
    cell = cell_of(gpu, FusedRmsNormMatmulGraph, batch, hidden, "fp16", copies=2)
    for scope in cell.scopes_on(gpu):
        assert OPERATOR.check(cell, scope)[0].relative_error < OPERATOR.tolerance["fp16"]
        step = cell.step(scope)
        first = gpu.to_host(step(0))
        for index in range(20):
            step(index)
        assert (gpu.to_host(step(21)) == first).all()


@pytest.mark.parametrize(("capability", "dtype"), [("7.5", "bf16"), ("8.0", "fp16"), ("9.0", "bf16")])
def test_a_job_is_measured_with_what_the_card_can_do(monkeypatch, dtype, capability):
    device = open_gpu(monkeypatch, capability, MultiProcessorCount=2)
    record = device_record("gpu0")
    job = Job("hidden128", tuple(Case({"batch": batch, "hidden": 128}, dtype) for batch in (1, 9)))
    plan, used, load_kernel = JobPlan(OPERATOR, device, job, None, cold=True), set(), device.load_kernel
    monkeypatch.setattr(device, "load_kernel", lambda *spec: used.add(spec) or load_kernel(*spec))
    measurements = measure_job(plan, seals_for(record, OPERATOR), TimingBudget(1, 3, 0.05))
    lacking = dtype == "bf16" and capability == "7.5"
    assert len(list_skipped(plan)) == (len(ON_GPU) if lacking else 0)
    overlapped = [("fused_graph", "overlapped")] if capability == "9.0" else []
    of_case = [(kind.name, "waiting") for kind in ON_GPU] + overlapped
    assert [(cell.implementation, cell.scope) for cell in measurements] == ([] if lacking else 2 * of_case)
    assert {cell.cache for cell in measurements} <= {"cold"}
    assert {cell.shape["batch"] for cell in measurements} <= {1, 9}
    ours = {spec for spec in used if isinstance(spec[0], Path)}
    assert ours <= list_kernels(plan) and bool(ours) != lacking, "compiled ahead"


def test_a_wrong_result_is_found_where_some_outputs_are_compared(monkeypatch):
    monkeypatch.setattr("roofline.operators.rmsnorm_matmul.operator.MOST_COMPARED_WEIGHTS", 1 << 12)
    cell = cell_of(open_gpu(monkeypatch, "9.0", MultiProcessorCount=2), UnfusedRmsNormMatmul, 3, 128, "fp16")
    assert OPERATOR.check(cell, None)[0].compared.startswith("26 of 128 ")
    y = cell.step(None)(0)
    for wrong in (y * 1.05, numpy.where(numpy.arange(y.shape[1]) == 7, numpy.nan, y)):
        with pytest.raises(ArithmeticError, match="rmsnorm_matmul, unfused, fp16 batch 3, hidden 128"):
            OPERATOR.compare(cell, None, 0, wrong)


@pytest.mark.parametrize("wrong", [4100, 1 << 24])
def test_a_hidden_size_of_a_wrong_multiple_or_beyond_the_memory_is_one_line(wrong, monkeypatch):
    section = {"dtypes": ["fp16"], "batch_sizes": [1], "hidden_sizes": [64, wrong]}
    with pytest.raises(UserError) as raised:
        checked = settings.complete({"devices": ["gpu0"], "rmsnorm_matmul": section})
        machine_checks.choose_devices(checked, {"gpu0": open_gpu(monkeypatch, free_bytes=1 << 36).identity})
    (line,) = raised.value.lines
    assert line.startswith("rmsnorm_matmul") and str(wrong) in line


def test_bytes_of_a_block_by_hand():
    """At batch 1 a block of an H200 has 8 rows of x and 64 columns of W, of two bytes, in slices of 64."""
    plan = plan_mma(1, 4096, 4096, limits_of((9, 0), multiprocessors=132))
    slices = 4096 // 64 // plan.splits
    assert (plan.rows, plan.columns) == (8, 64)
    assert plan.fetched_bytes(4096) == slices * 64 * 2 * (64 + 8)
    assert plan.staged_bytes(4096) == slices * 64 * 2 * (2 * 64 + 2 * 8)
