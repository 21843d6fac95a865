"""The register-only kernels of a GPU without one: what is counted, and the float64 arithmetic they are held against."""

import re

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_card import Recorder, open_card, record_launches

from roofline.devices.datasheets import CEILINGS
from roofline.devices.gpu import device as gpu
from roofline.devices.gpu import fma as gpu_fma
from roofline.devices.gpu.fma import Form

FMA = tuple(ceiling for ceiling in CEILINGS if ceiling.endswith("_fma"))
SOURCE = (gpu.KERNELS / "fma.cu").read_text(encoding="utf-8")


@pytest.fixture
def device(monkeypatch):
    """Of few multiprocessors, so that its numbers are few."""
    return open_card(monkeypatch, multiProcessorCount=2)


# ---------------------------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize(("ceiling", "lanes"), [("fp64_fma", 1), ("fp32_fma", 1), ("fp16_fma", 2)])
@pytest.mark.parametrize("way", gpu_fma.FACTORS)
def test_flops_by_hand(ceiling, lanes, way):
    """3 rounds of 32 steps over 16 numbers in each of 5 x 64 threads, two FLOPs each."""
    form = Form(way, 16, 32)
    assert gpu_fma.flops(ceiling, form, blocks=5, threads=64, rounds=3) == 2 * lanes * 32 * 16 * 3 * 5 * 64


def test_numbers_turn_in_pairs():
    assert all(numbers % 2 == 0 for numbers, _ in gpu_fma.VARIANTS)


def test_every_ceiling_of_multiply_adds_has_its_lanes_tolerance_and_kernels():
    dtypes = {gpu_fma.dtype_of(ceiling) for ceiling in FMA}
    assert dtypes == set(gpu_fma.LANES) == set(gpu_fma.TOLERANCE)
    for dtype in dtypes:
        for way in gpu_fma.FACTORS:
            assert re.search(rf"\b{way}_{dtype}\(", SOURCE)
        number = re.search(rf"turn_{dtype}\(const (\w+)\*", SOURCE).group(1)
        assert number.endswith("2") == (gpu_fma.LANES[dtype] == 2)
    assert set(gpu_fma.FACTORS) == set(gpu_fma.REFERENCES)


def test_the_dtype_of_a_ceiling():
    assert [gpu_fma.dtype_of(name) for name in ("fp32_fma", "fp16_fma", "fp32")] == ["fp32", "fp16", "fp32"]


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
    found = gpu_fma._turned(start, steps, k, 0.0)
    assert found.ravel() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert start.ravel().tolist() == numbers, "the start is left as it is"


@given(numbers=NUMBERS, steps=st.integers(0, 32), k=st.floats(-1, 1), offset=st.floats(-1, 1))
def test_folds_against_scalar_arithmetic(numbers, steps, k, offset):
    expected = list(numbers)
    for _ in range(steps):
        expected = [k * number + offset for number in expected]
    found = gpu_fma._folded(numpy.array(numbers).reshape(-1, 1), steps, k, offset)
    assert found.ravel() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16"])
@pytest.mark.parametrize("way", gpu_fma.FACTORS)
def test_over_many_steps_numbers_neither_vanish_nor_overflow(way, dtype):
    """A fold draws together around its fixed point, slowly; a turn goes on for ever."""
    numbers = numpy.random.default_rng(0).standard_normal((16, 100))
    k, offset = gpu_fma.FACTORS[way][dtype]
    after = gpu_fma.REFERENCES[way](numbers, 10_000, k, offset)
    assert 0.1 < numpy.abs(after).mean() < 10 and numpy.abs(after).max() < 100


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16"])
@pytest.mark.parametrize("variant", gpu_fma.VARIANTS, ids=str)
@pytest.mark.parametrize("way", gpu_fma.FACTORS)
def test_no_step_and_twice_the_steps_are_beyond_the_tolerance(way, variant, dtype):
    """A fold twice is nearly none: over too few steps a kernel that did nothing would pass."""
    assert gpu_fma.COMPARED_STEPS % variant[1] == 0
    start = numpy.random.default_rng(0).standard_normal((variant[0], 1000))
    factors, steps = gpu_fma.FACTORS[way][dtype], gpu_fma.COMPARED_STEPS
    none, right, twice = (gpu_fma.REFERENCES[way](start, times * steps, *factors) for times in (0, 1, 2))
    for wrong in (none, twice):
        assert numpy.linalg.norm(wrong - right) / numpy.linalg.norm(right) > 2 * gpu_fma.TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16"])
def test_the_factors_are_numbers_of_the_dtype_or_read_back_from_it(dtype):
    """The fold's must be: rounded to -1 it would stand still."""
    kind = {"fp64": numpy.float64, "fp32": numpy.float32, "fp16": numpy.float16}[dtype]
    assert [float(kind(factor)) for factor in gpu_fma.FACTORS["fold"][dtype]] == list(gpu_fma.FACTORS["fold"][dtype])


# ---------------------------------------------------------------------------------------------- on a card of NumPy


@pytest.mark.parametrize("ceiling", FMA)
def test_both_ways_on_every_grid_are_right(monkeypatch, device, ceiling):
    monkeypatch.setattr(gpu_fma, "_rounds", lambda device, run: 64)
    launches = record_launches(monkeypatch, device)
    found = gpu_fma.candidates(device, ceiling, seed=1)
    forms = {(way, *variant) for way in gpu_fma.FACTORS for variant in gpu_fma.VARIANTS}
    assert len(found) == len(forms) * len(gpu_fma.GRIDS)
    told = [(w.product.algorithm, w.product.shape["numbers"], w.product.shape["steps"]) for w in found]
    assert set(told) == set(told[: len(forms)]) == forms, "every kernel once before another grid"
    assert found[0].product.shape["rounds"] == 64
    assert {workload.flops for workload in found} == {found[0].flops}, "as much work each"
    for workload in found:
        check, shape = workload.check(), workload.product.shape
        assert check.error <= check.tolerance == gpu_fma.TOLERANCE[gpu_fma.dtype_of(ceiling)]
        grid = {key: shape[key] for key in ("blocks", "threads", "rounds")}
        form = Form(workload.product.algorithm, shape["numbers"], shape["steps"])
        assert workload.flops == gpu_fma.flops(ceiling, form, **grid)
        workload.step(0)
        name, blocks, threads, arguments = launches[-1]
        assert name == f"{workload.product.algorithm}_{gpu_fma.dtype_of(ceiling)}"
        assert (blocks, threads, int(arguments[3])) == (shape["blocks"], shape["threads"], shape["rounds"])
        assert arguments[0].size == shape["numbers"] * blocks * threads * gpu_fma.LANES[gpu_fma.dtype_of(ceiling)]
        assert workload.clock_mhz() == pytest.approx(1980)


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

    monkeypatch.setattr(gpu_fma, "_rounds", lambda device, run: 64)
    kernel = device.kernel
    monkeypatch.setattr(device, "kernel", lambda *names: Wrong(kernel(*names)))
    for workload in gpu_fma.candidates(device, ceiling, seed=1)[: 2 * len(gpu_fma.VARIANTS)]:
        with pytest.raises(ArithmeticError, match=f"{ceiling} kernel"):
            workload.check()


def test_again_runs_the_same_kernel_on_numbers_of_its_own(monkeypatch, device):
    monkeypatch.setattr(gpu_fma, "_rounds", lambda device, run: 64)
    launches = record_launches(monkeypatch, device)
    for workload in device.peak_candidates("fp32_fma", 4096, 0, seed=1):
        workload.step(0)
        again = device.peak_workload("fp32_fma", 4096, workload.product, seed=2)
        again.step(0)
        first, second = launches[-2:]
        assert again.product == workload.product and again.flops == workload.flops
        assert first[:3] == second[:3] and not numpy.array_equal(first[3][0], second[3][0])


def test_there_is_no_product_of_the_lab_and_nothing_beside(device):
    workload = gpu_fma.candidates(device, "fp32_fma", seed=1)[0]
    assert device.lab_product("fp32_fma", 4096, seed=1) is None
    assert list(device.beside("fp32_fma", workload.product, seed=1)) == []
    assert workload.inputs == "standard normal numbers, rounded to the dtype"


def test_rounds_are_a_power_of_two_that_takes_about_a_step(monkeypatch, device):
    """By a clock that a run moves on: 1 us a launch and 3 us a round."""
    now = [0.0]
    monkeypatch.setattr(gpu_fma, "time", type("clock", (), {"perf_counter": staticmethod(lambda: now[0])}))

    def run(count):
        now[0] += 1e-6 + 3e-6 * count

    rounds = gpu_fma._rounds(device, run)
    assert rounds == 256
    monkeypatch.setattr(gpu_fma, "time", type("clock", (), {"perf_counter": staticmethod(lambda: 0.0)}))
    assert gpu_fma._rounds(device, lambda count: None) == 1 << 20, "a clock that stands still ends too"
