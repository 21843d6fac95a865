"""The instruction roofline: its arithmetic, and its kernels on a GPU without one."""

import numpy
import pytest
from fake_gpu import Idle, Recorder, open_gpu, real_gpu, replace_kernels
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import roofline_model as core
from roofline.devices.gpu import instruction_kernels
from roofline.measure.instruction_limits import measure_access_limits, measure_issue_rate
from roofline.measure.protocol import TimingBudget

BUDGET = TimingBudget(warmup=1, iterations=8, time_budget_s=0.05)


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(instruction_kernels, "STEP_CYCLES", 1 << 12)
    return open_gpu(monkeypatch, MultiProcessorCount=2)


@given(stride=st.integers(0, 4096))
def test_wavefronts_are_the_lanes_that_want_other_words_of_one_bank(stride):
    banks: dict[int, set] = {}
    for lane in range(32):
        banks.setdefault(lane * stride % 32, set()).add(lane * stride)
    assert core.wavefronts_per_request(stride) == max(map(len, banks.values()))


def indices_of_rounds(word_indices) -> list:
    """The words of every round, in place of those of different rounds and how often they are repeated."""
    return [indices for indices, times in word_indices for _ in range(times)]


def test_every_request_takes_the_sectors_or_wavefronts_that_are_declared():
    beyond_strided = instruction_kernels.SET_WORDS + 32 * max(instruction_kernels.STRIDES)
    beyond_strided += 8 * instruction_kernels.LOADS_PER_ROUND
    for stride in instruction_kernels.STRIDES:
        for indices in indices_of_rounds(instruction_kernels.strided_word_indices(stride, 256, 40)):
            assert indices.max() < beyond_strided
            for request in indices.T:
                assert len({int(word) * 4 // 32 for word in request}) == core.sectors_per_request(stride)
    for conflict_ways in instruction_kernels.CONFLICT_WAYS:
        for indices in indices_of_rounds(instruction_kernels.shared_word_indices(conflict_ways, 64, 6)):
            assert indices.max() < instruction_kernels.SHARED_WORDS
            for request in indices.T:
                assert max(numpy.bincount(request % 32)) == conflict_ways


def test_the_issue_rate_and_access_limits_are_measured(device):
    assert core.peak_issue_rate(132, 1980) == pytest.approx(132 * 4 * 1.98e9)
    rate = measure_issue_rate(device, BUDGET)
    assert rate.warp_instructions_per_s == pytest.approx(rate.warp_instructions / rate.timing.median_s)
    assert (rate.multiprocessors, rate.sm_clock_mhz) == (2, pytest.approx(1980))
    limits = list(measure_access_limits(device, BUDGET))
    assert [(limit.pattern, limit.degree) for limit in limits] == [
        *(("stride", stride) for stride in instruction_kernels.STRIDES),
        *(("conflict", conflict_ways) for conflict_ways in instruction_kernels.CONFLICT_WAYS),
    ]
    for limit in limits:
        assert limit.cycles_per_request == pytest.approx(2 * 1980e6 / limit.requests_per_s)


class Half(Recorder):
    """A kernel of half the rounds."""

    def __call__(self, grid, block, arguments, **options):
        rounds_index = max(index for index, value in enumerate(arguments) if numpy.ndim(value) == 0)
        halved = list(arguments)
        halved[rounds_index] = numpy.uint32(halved[rounds_index] // 2)
        self._kernel(grid, block, tuple(halved), **options)


@pytest.mark.parametrize("wrong", [Idle, Half])
@pytest.mark.parametrize("name", ["issue", "load_strided", "load_conflicting"])
def test_a_kernel_that_does_less_is_found(monkeypatch, device, name, wrong):
    replace_kernels(monkeypatch, device, [name], wrong)
    with pytest.raises(ArithmeticError):
        measure_issue_rate(device, BUDGET) if name == "issue" else list(measure_access_limits(device, BUDGET))


@pytest.mark.gpu
def test_every_scheduler_of_a_card_issues_in_nearly_every_cycle():
    rate = measure_issue_rate(real_gpu(), TimingBudget(3, 200, 0.5))
    assert 0.97 <= rate.warp_instructions_per_s / core.peak_issue_rate(rate.multiprocessors, rate.sm_clock_mhz) <= 1.01
