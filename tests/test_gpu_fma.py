"""The register-only kernels of a GPU without one: what is counted, and the float64 arithmetic of their check."""

import numpy
import pytest
from fake_gpu import open_gpu, record_launches
from hypothesis import given
from hypothesis import strategies as st

from roofline.devices.datasheets import COMPUTE_CEILINGS
from roofline.devices.gpu import gpu_fma
from roofline.devices.gpu.gpu_fma import FOLD_FACTORS, expected_fold

FMA = tuple(ceiling for ceiling in COMPUTE_CEILINGS if ceiling.endswith("_fma"))
KINDS = {"fp64": numpy.float64, "fp32": numpy.float32, "fp16": numpy.float16}


@pytest.fixture
def device(monkeypatch):
    """Of few multiprocessors, so that its numbers are few; a round takes long enough at once."""
    monkeypatch.setattr(gpu_fma, "_choose_rounds", lambda device, run: 64)
    return open_gpu(monkeypatch, MultiProcessorCount=2)


NUMBERS = st.lists(st.floats(-4, 4), min_size=1, max_size=16)


@given(NUMBERS, st.integers(0, 32), st.floats(-0.5, 0.5), st.floats(-1, 1))
def test_the_closed_form_against_scalar_arithmetic(numbers, steps, k, offset):
    after = list(numbers)
    for _ in range(steps):
        after = [k * number + offset for number in after]
    start = numpy.array(numbers).reshape(-1, 1)
    assert expected_fold(start, steps, k, offset).ravel() == pytest.approx(after, rel=1e-12, abs=1e-12)
    assert start.ravel().tolist() == numbers


@pytest.mark.parametrize("dtype", KINDS)
def test_a_kernel_that_does_nothing_or_twice_as_much_is_beyond_the_tolerance(dtype):
    factors, random = FOLD_FACTORS[dtype], numpy.random.default_rng(0)
    after = expected_fold(random.standard_normal((16, 100)), 10_000, *factors)
    assert 0.1 < numpy.abs(after).mean() < 10 and numpy.abs(after).max() < 100
    assert [float(KINDS[dtype](factor)) for factor in factors] == list(factors)
    for numbers, steps in gpu_fma.NUMBERS_AND_STEPS:
        assert gpu_fma.COMPARED_STEPS % steps == 0
        start = random.standard_normal((numbers, 1000))
        none, right, twice = (expected_fold(start, times * gpu_fma.COMPARED_STEPS, *factors) for times in (0, 1, 2))
        for wrong in (none, twice):
            assert numpy.linalg.norm(wrong - right) / numpy.linalg.norm(right) > 2 * gpu_fma.FEW_STEPS_TOLERANCE[dtype]


@pytest.mark.parametrize("ceiling", FMA)
def test_every_kernel_on_every_grid_is_right_and_repeatable(monkeypatch, device, ceiling):
    # 3 rounds of 32 steps over 16 numbers in each of 5 x 64 threads, two FLOPs each.
    by_hand = 2 * (2 if ceiling == "fp16_fma" else 1) * 32 * 16 * 3 * 5 * 64
    assert gpu_fma.fma_flops(ceiling, gpu_fma.FmaShape(blocks=5, threads=64, rounds=3, numbers=16, steps=32)) == by_hand
    launches, dtype = record_launches(monkeypatch, device), gpu_fma.operand_dtype(ceiling)
    workloads = list(device.candidate_fma_workloads(ceiling, seed=1))
    variants = [(workload.product.shape["numbers"], workload.product.shape["steps"]) for workload in workloads]
    assert variants == [*gpu_fma.NUMBERS_AND_STEPS] * len(gpu_fma.GRIDS), "every kernel once before another grid"
    assert {workload.flops for workload in workloads} == {workloads[0].flops}
    for workload in workloads:
        check, shape = workload.run_and_check(), workload.product.shape
        assert check.relative_error <= check.tolerance == gpu_fma.WHOLE_RUN_TOLERANCE[dtype]
        assert workload.flops == gpu_fma.fma_flops(ceiling, gpu_fma.FmaShape(**shape))
        workload.step(0)
        *launch, arguments = launches[-1]
        assert launch == [f"fold_{dtype}", shape["blocks"], shape["threads"]]
        assert int(arguments[3]) == shape["rounds"]
        rebuilt = device.rebuild_fma_workload(ceiling, workload.product, seed=2)
        rebuilt.step(0)
        assert (rebuilt.product, rebuilt.flops, [*launches[-1][:3]]) == (workload.product, workload.flops, launch)
        assert not numpy.array_equal(arguments[0], launches[-1][3][0]), "other numbers"
