"""Why a GEMM stays below half of its peak, on devices that have the cause that is to be found, or none."""

from types import SimpleNamespace

import numpy
import pytest
from factories import FakeDevice, clock_of, datasheet_figures, datasheet_peak, product

from roofline.core.dtypes import DTYPES
from roofline.devices.base import Workload
from roofline.measure import investigation
from roofline.operators.gemm import gemm_arithmetic
from roofline.records.compute import KernelIdentity

SMALL, LARGE = 16, 32
MFLOPS = 1e-6  # of a TFLOPS: so small are the GEMMs that stand in for those of 4096 and 8192
RULED_OUT = ["power limit", "rate class of the card"]


def kernel(tensor_cores):
    return KernelIdentity(name="gemm", tensor_cores=tensor_cores, how_known="made up")


class Card(FakeDevice):
    """Multiplies on the host; `large` are the MFLOPS of the larger GEMM."""

    def __init__(self, large, free_bytes=1 << 34):
        super().__init__()
        self.identity, self.large, self.corrupted = SimpleNamespace(memory_free_bytes=free_bytes), large, False

    def reference_workload(self, device, dtype, size, seed):
        a, b = numpy.random.default_rng(seed).standard_normal((2, size, size))
        work = gemm_arithmetic.gemm_flops(size, size, size)

        def compare():
            return gemm_arithmetic.compare_product(
                f"{dtype} matmul {size}", dtype, DTYPES[dtype].outputs[0], a, b, a @ b + self.corrupted
            )

        return Workload(product(size), work, lambda index: work / self.large / 1e6, lambda: None, compare)


def found_on(device, small=100.0, load=None, of_kernel=True, budget_s=2.0, **figures):
    known = {"peaks": {"fp32": datasheet_peak(figures.pop("peak", 1000) * MFLOPS, **figures.pop("of_peak", {}))}}
    with pytest.MonkeyPatch.context() as patch, clock_of(device):
        patch.setattr(investigation, "LARGER_SIZE", LARGE)
        patch.setattr(investigation, "workloads_module", lambda _: device)
        vendor = datasheet_figures(**{"peaks_by": "datasheet"} | figures | known)
        measured = SimpleNamespace(burst_tflops=small * MFLOPS, sustained=load, kernel=kernel(of_kernel))
        return investigation.investigate(device, "fp32", measured, vendor, time_budget_s=budget_s)


def load_of(mflops, limited_by=(), reported=True):
    reasons = list(limited_by) if reported else None
    curve = [SimpleNamespace(sm_clock_mhz=mhz, at_s=mhz / 1000, throttle_reasons=reasons) for mhz in (100, 1980)]
    return SimpleNamespace(tflops=mflops * MFLOPS, curve=curve, throttle_reasons=list(limited_by))


@pytest.mark.parametrize(
    ("large", "load", "tensor_cores", "verdict"),
    [
        (300, None, True, "size"),
        (100, 300, True, "sustained"),
        (100, 100, False, "tensor_cores"),
        (300, 400, True, "sustained"),  # what gave most
        (300, 400, False, "tensor_cores"),  # neither size nor clock makes up for the unit
        (109, 109, True, "none"),
        (109, 109, None, "none"),
    ],
)
def test_the_cause_that_is_found(large, load, tensor_cores, verdict):
    found = found_on(Card(large), load=load and load_of(load), of_kernel=tensor_cores)
    assert found.verdict == verdict
    assert [one.tflops and round(one.tflops / MFLOPS) for one in found.trials] == [large, load, None]


@pytest.mark.parametrize(
    ("load", "figures", "ruled_out"),
    [
        (load_of(100), {}, RULED_OUT),
        (load_of(100, ["sw_power_cap"]), {}, RULED_OUT[1:]),
        (None, {}, RULED_OUT[1:]),
        (load_of(100, reported=False), {}, RULED_OUT[1:]),
        (load_of(100), {"peaks_by": "formula"}, RULED_OUT[:1]),  # an assumed rate class matters to tensor cores alone
        (load_of(100), {"peaks_by": "formula", "of_peak": {"compute_unit": "cuda_core"}}, RULED_OUT),
    ],
)
def test_what_is_ruled_out(load, figures, ruled_out):
    assert found_on(Card(100), load=load, **figures).ruled_out == ruled_out


@pytest.mark.parametrize(
    ("free_bytes", "seconds", "budget_s", "tried"),
    [
        (2 * 16_384, 1e-3, 2.0, True),  # four matrices of 32 x 32 numbers of 4 bytes: half of what is free
        (2 * 16_384 - 2, 1e-3, 2.0, False),
        (1 << 34, 0.6, 0.1, True),  # three GEMMs within two seconds, or within the budget
        (1 << 34, 0.7, 0.1, False),
        (1 << 34, 0.7, 2.2, True),
    ],
)
def test_a_larger_gemm_that_cannot_be_had_is_not_ruled_out(free_bytes, seconds, budget_s, tried):
    mflops = 2 * LARGE**3 / seconds / 1e6
    found = found_on(Card(mflops, free_bytes), small=mflops, peak=10 * mflops, budget_s=budget_s)
    assert (found.trials[0].tflops is not None) == (found.trials[0].explains is not None) == tried
