"""The CPU's peak in registers, and the physical cores that it rests on."""

import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline import devices
from roofline.core.dtypes import ITEM_BYTES
from roofline.devices.cpu import fma, loops
from roofline.devices.cpu.fma import MultiplyAdds, count_cores

CEILINGS = ("fp64_fma", "fp32_fma")
WIDTHS = [width for width in (16, 32, 64) if width <= loops.host_vectors().bytes]


@pytest.fixture(scope="module")
def device():
    return devices.open_device("cpu")


@pytest.mark.parametrize("ceiling", CEILINGS)
def test_every_loop_gives_what_the_closed_form_says_and_counts_its_clock(device, ceiling):
    for workload in device.fma_candidates(ceiling, seed=3):
        workload.step(0)
        assert workload.check().error < fma.TOLERANCE[ceiling[:4]] / 10
        shape = workload.product.shape
        assert shape["threads"] == device.cores
        lanes = shape["vector_bits"] // 8 // ITEM_BYTES[ceiling[:4]]
        steps = shape["rounds"] * fma.STEPS
        assert workload.flops == 2 * steps * shape["chains"] * lanes * device.cores
        assert workload.clock_mhz() > 0
        again = device.fma_workload(ceiling, workload.product, seed=9)
        assert (again.product, again.flops) == (workload.product, workload.flops)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("chains", [1, 5, 12])
@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
def test_a_loop_of_few_steps_is_as_numpy_computes_it(device, dtype, chains, width):
    loop = MultiplyAdds(device, dtype, chains, width, seed=1)
    row = chains * width // ITEM_BYTES[dtype]
    x = loop.numbers[:, -row:].astype(numpy.float64)
    for _ in range(7):
        x = fma.FACTOR * x + x
    arguments = [(loop.numbers[one].ctypes.data, loop.sums[one].ctypes.data, 3, 7) for one in range(device.cores)]
    loops.together(device.workers, loop.loop, arguments)
    numpy.testing.assert_allclose(loop.sums, 3 * x, rtol=0, atol=1e-13 if dtype == "fp64" else 3e-5)


@pytest.mark.parametrize("fault", ["nothing", "a round less", "steps less", "a thread less"])
def test_a_loop_that_leaves_steps_out_is_found(device, monkeypatch, fault):
    loop = MultiplyAdds(device, "fp64", 12, 16, seed=1)
    loop(0)
    loop.compare()

    def lazy(workers, compiled, arguments, threads, chain, run=loops.together):
        less = {"nothing": (0, -fma.STEPS + 1), "a round less": (-1, 0), "steps less": (0, -2), "a thread less": (0, 0)}
        rounds, steps = less[fault]
        arguments = [(numbers, sums, r + rounds, n + steps) for numbers, sums, r, n in arguments]
        if fault == "a thread less":
            arguments[-1] = (*arguments[-1][:2], 1, 1)
        return run(workers, compiled, arguments, threads, chain)

    monkeypatch.setattr(loops, "together", lazy)
    with pytest.raises(ArithmeticError, match="fp64_fma loop differs"):
        loop(0)
        loop.compare()


# ---------------------------------------------------------------------------------------------- physical cores


def machine(cores_of, ports=2, slowed=lambda thread: 1.0):
    """per_clock of threads on these cores, which share 16 FLOPs a port."""

    def per_clock(threads):
        on = [cores_of[thread] for thread in threads]
        return [16 * ports / on.count(core) * slowed(thread) for thread, core in zip(threads, on, strict=True)]

    return per_clock


@pytest.mark.parametrize(
    ("cores_of", "physical"),
    [
        ([0], 1),
        ([0, 1], 2),
        ([0, 0], 1),
        (list(range(16)), 16),
        ([0, 0, 1, 1, 2, 2, 3, 3], 4),  # neighbours, as virtual machines number them
        ([*range(8), *range(8)], 8),  # as the kernel numbers them
        ([0, 1, 2, 0, 3], 4),  # only two share
    ],
)
@pytest.mark.parametrize("ports", [1, 2, 4])
def test_threads_that_share_a_core_are_counted_once(cores_of, physical, ports):
    found = count_cores(len(cores_of), 99, 16, machine(cores_of, ports))
    assert (found.physical, found.ports, found.reason) == (physical, ports, None)
    assert found.flops_per_clock == 16 * ports and found.listed == 99


@given(st.lists(st.integers(0, 40), min_size=1, max_size=24).filter(lambda on: max(map(on.count, on)) <= 2))
def test_any_numbering_of_cores_is_seen_through(cores_of):
    assert count_cores(len(cores_of), 1, 16, machine(cores_of)).physical == len(set(cores_of))


@pytest.mark.parametrize("threads", [16, 128])
def test_pairs_that_lie_equally_far_apart_are_found_in_few_runs(threads):
    per_clock, runs = machine([*range(threads // 2), *range(threads // 2)]), itertools.count()
    count_cores(threads, 1, 16, lambda some: (next(runs), per_clock(some))[1])
    assert next(runs) <= 2.5 * threads


def test_what_does_not_come_out_is_inconclusive_and_says_why():
    busy = count_cores(4, 4, 16, lambda some: [16.0 if thread == 2 and len(some) > 2 else 32.0 for thread in some])
    assert busy.physical is None and busy.flops_per_clock is None and busy.ports == 2
    assert busy.reason.startswith("thread 2 is slower beside all others, and beside no single one")
    odd = count_cores(2, 2, 16, machine([0, 1], slowed=lambda thread: 0.7))
    assert (odd.physical, odd.ports) == (None, None)
    assert odd.reason == "alone, a thread keeps 1.40 to 1.40 ports busy: no whole number, the same for each"
    different = count_cores(2, 2, 16, machine([0, 1], slowed=lambda thread: 1 - thread / 2))
    assert different.physical is None and "1.00 to 2.00 ports" in different.reason


def test_threads_that_are_not_pinned_cannot_be_paired(device, monkeypatch):
    monkeypatch.setattr(device.workers, "pinned", False)
    found = next(iter(device.fma_candidates("fp32_fma", seed=1))).cores()
    assert found.physical is None and found.reason.startswith("the threads are not pinned")
