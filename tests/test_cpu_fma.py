"""The CPU's peak in registers."""

import numpy
import pytest

from roofline.core.dtypes import ITEM_BYTES
from roofline.devices import discovery
from roofline.devices.cpu import fma, loops
from roofline.devices.cpu.fma import MultiplyAdds

CEILINGS = ("fp64_fma", "fp32_fma")
WIDTHS = [width for width in (16, 32, 64) if width <= loops.host_vectors()[0]]


@pytest.fixture(scope="module")
def device():
    return discovery.open_device("cpu")


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
@pytest.mark.parametrize("chains", [1, 12])
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
