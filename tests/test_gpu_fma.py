"""The register-only kernels of a GPU without one: what is counted, and the float64 arithmetic of their check."""

import numpy
import pytest
from fake_gpu import Recorder, open_gpu, record_launches, replace_kernels
from hypothesis import given
from hypothesis import strategies as st

from roofline.devices.datasheets import CEILINGS
from roofline.devices.gpu import fma
from roofline.devices.gpu.fma import FACTORS, REFERENCES, Form

FMA = tuple(ceiling for ceiling in CEILINGS if ceiling.endswith("_fma"))
KINDS = {"fp64": numpy.float64, "fp32": numpy.float32, "fp16": numpy.float16}


@pytest.fixture
def device(monkeypatch):
    """Of few multiprocessors, so that its numbers are few; a round takes long enough at once."""
    monkeypatch.setattr(fma, "_rounds", lambda device, run: 64)
    return open_gpu(monkeypatch, multiProcessorCount=2)


@pytest.mark.parametrize(("ceiling", "lanes"), [("fp64_fma", 1), ("fp32_fma", 1), ("fp16_fma", 2)])
def test_flops_by_hand(ceiling, lanes):
    """3 rounds of 32 steps over 16 numbers in each of 5 x 64 threads, two FLOPs each."""
    form = Form("turn", 16, 32)
    assert fma.flops(ceiling, form, blocks=5, threads=64, rounds=3) == 2 * lanes * 32 * 16 * 3 * 5 * 64


# ---------------------------------------------------------------------------------------------- the references

NUMBERS = st.integers(1, 8).flatmap(lambda n: st.lists(st.floats(-4, 4), min_size=2 * n, max_size=2 * n))


@given(numbers=NUMBERS, steps=st.integers(0, 32), k=st.floats(-0.5, 0.5))
def test_turns_against_scalar_arithmetic(numbers, steps, k):
    expected, half = list(numbers), len(numbers) // 2
    for _ in range(steps):
        for i in range(half):
            expected[i] -= k * expected[half + i]
        for i in range(half):
            expected[half + i] += k * expected[i]
    start = numpy.array(numbers).reshape(-1, 1)
    found = REFERENCES["turn"](start, steps, k, 0.0)
    assert found.ravel() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert start.ravel().tolist() == numbers, "the start is left as it is"


@given(numbers=NUMBERS, steps=st.integers(0, 32), k=st.floats(-1, 0.5), offset=st.floats(-1, 1))
def test_folds_against_scalar_arithmetic(numbers, steps, k, offset):
    expected = list(numbers)
    for _ in range(steps):
        expected = [k * number + offset for number in expected]
    found = REFERENCES["fold"](numpy.array(numbers).reshape(-1, 1), steps, k, offset)
    assert found.ravel() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("way", FACTORS)
def test_over_many_steps_numbers_neither_vanish_nor_overflow(way, dtype):
    """A fold draws together around its fixed point, slowly; a turn goes on for ever. A fold's factors must be numbers
    of the dtype: rounded to -1 it would stand still."""
    numbers = numpy.random.default_rng(0).standard_normal((16, 100))
    after = REFERENCES[way](numbers, 10_000, *FACTORS[way][dtype])
    assert 0.1 < numpy.abs(after).mean() < 10 and numpy.abs(after).max() < 100
    assert [float(KINDS[dtype](factor)) for factor in FACTORS["fold"][dtype]] == list(FACTORS["fold"][dtype])


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("variant", fma.VARIANTS, ids=str)
@pytest.mark.parametrize("way", FACTORS)
def test_no_step_and_twice_the_steps_are_beyond_the_tolerance(way, variant, dtype):
    """A fold twice is nearly none: over too few steps a kernel that did nothing would pass."""
    assert fma.COMPARED_STEPS % variant[1] == 0
    start = numpy.random.default_rng(0).standard_normal((variant[0], 1000))
    none, right, twice = (
        REFERENCES[way](start, times * fma.COMPARED_STEPS, *FACTORS[way][dtype]) for times in (0, 1, 2)
    )
    for wrong in (none, twice):
        assert numpy.linalg.norm(wrong - right) / numpy.linalg.norm(right) > 2 * fma.TOLERANCE[dtype]


# ---------------------------------------------------------------------------------------------- on a fake GPU


@pytest.mark.parametrize("ceiling", FMA)
def test_both_ways_on_every_grid_are_right_and_found_again(monkeypatch, device, ceiling):
    launches, dtype = record_launches(monkeypatch, device), fma.dtype_of(ceiling)
    found = list(device.fma_candidates(ceiling, seed=1))
    forms = {(way, *variant) for way in FACTORS for variant in fma.VARIANTS}
    tried = [(w.product.algorithm, w.product.shape["numbers"], w.product.shape["steps"]) for w in found]
    assert len(found) == len(forms) * len(fma.GRIDS)
    assert set(tried) == set(tried[: len(forms)]) == forms, "every kernel once before another grid"
    assert found[0].product.shape["rounds"] == 64
    assert {workload.flops for workload in found} == {found[0].flops}, "as much work each"
    for workload in found:
        check, shape = workload.check(), workload.product.shape
        assert check.error <= check.tolerance == fma.TOLERANCE_OF_ALL[dtype]
        grid = {key: shape[key] for key in ("blocks", "threads", "rounds")}
        form = Form(workload.product.algorithm, shape["numbers"], shape["steps"])
        assert workload.flops == fma.flops(ceiling, form, **grid)
        workload.step(0)
        name, blocks, threads, arguments = launches[-1]
        assert name == f"{workload.product.algorithm}_{dtype}"
        assert (blocks, threads, int(arguments[3])) == (shape["blocks"], shape["threads"], shape["rounds"])
        assert arguments[0].size == shape["numbers"] * blocks * threads * fma.LANES[dtype]
        assert workload.clock_mhz() == pytest.approx(1980)
        again = device.fma_workload(ceiling, workload.product, seed=2)
        again.step(0)
        assert (again.product, again.flops, launches[-1][:3]) == (workload.product, workload.flops, launches[-1][:3])
        assert not numpy.array_equal(arguments[0], launches[-1][3][0]), "on numbers of its own"


@pytest.mark.parametrize("ceiling", FMA)
@pytest.mark.parametrize("wrong", ["nothing", "twice", "one number"])
def test_a_wrong_kernel_is_found(monkeypatch, device, ceiling, wrong):
    class Wrong(Recorder):
        def __call__(self, grid, block, arguments, **options):
            before, after, factors, rounds, clock = arguments
            if wrong == "nothing":
                after[...] = before
                return
            self._kernel(grid, block, arguments)
            if wrong == "twice":
                self._kernel(grid, block, (after.copy(), after, factors, rounds, clock))
            else:
                after[after.size // 2] = 1000

    replace_kernels(monkeypatch, device, {f"{way}_{fma.dtype_of(ceiling)}" for way in FACTORS}, Wrong)
    for workload in fma.candidates(device, ceiling, seed=1)[: 2 * len(fma.VARIANTS)]:
        with pytest.raises(ArithmeticError, match=f"{ceiling} kernel"):
            workload.check()
