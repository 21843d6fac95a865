"""Why a product stays below half of the peak, on devices that have the cause that is to be found, or none."""

from types import SimpleNamespace

import numpy
import pytest
from factories import FakeDevice, clock_of, device_record, product, seals_for, vendor_figures, vendor_peak

from roofline.devices.base import Workload
from roofline.devices.discovery import open_device
from roofline.measure import compute_ceiling, investigation
from roofline.operators.gemm import products
from roofline.operators.gemm.operator import Gemm
from roofline.records.compute import Kernel

SMALL, LARGE = 16, 32
MFLOPS = 1e-6  # of a TFLOPS: so small are the products that stand in for those of 4096 and 8192
ON_TENSOR_CORES = Kernel(name="s16816gemm", tensor_cores=True, how_known="made up")
RULED_OUT = ["power limit", "rate class of the card"]
ON_CUDA_CORES = Kernel(name="ffma_gemm", tensor_cores=False, how_known="made up")


class Card(FakeDevice):
    """Multiplies on the host: `rate(size, seconds of load so far)` says how many MFLOPS.

    It reports its clock and what limits it only while it is looked at under load; else it is idle.
    """

    def __init__(self, rate, clock=lambda load_s: 1980, throttle=(), free_bytes=1 << 34):
        super().__init__()
        self.identity = SimpleNamespace(memory_free_bytes=free_bytes)
        self._rate, self._clock, self._throttle, self._busy = rate, clock, throttle, False
        self.corrupted = ()

    def tflops(self, size):
        return self._rate(size, self.now) * MFLOPS

    def reference_product(self, dtype, size, seed):
        a, b = numpy.random.default_rng(seed).standard_normal((2, size, size))

        def compare():
            return products.compare(f"{dtype} matmul {size}", dtype, a, b, a @ b + (size in self.corrupted))

        work = products.flops(size, size, size)
        return Workload(product(size), work, lambda index: work / self.tflops(size) / 1e12, lambda: None, compare)

    def while_busy(self, step, step_s, seconds, look):
        self.now += seconds
        self._busy = True
        look()
        self._busy = False

    def state(self):
        clock = self._clock(self.now) if self._busy else 345
        reasons = self._throttle if self._busy else ("gpu_idle",)
        return {"sm_clock_mhz": clock, "throttle_reasons": None if reasons is None else list(reasons)}


def vendor(tflops=1000 * MFLOPS, unit="tensor_core", match="exact", derived=False):
    return vendor_figures(match=match, peaks={"fp32": vendor_peak(tflops, unit=unit, derived=derived)})


def found_on(device, kernel=ON_TENSOR_CORES, figures=None, time_budget_s=2.0):
    offered = SimpleNamespace(reference_product=lambda device, *given, seed: device.reference_product(*given, seed))
    with pytest.MonkeyPatch.context() as patch, clock_of(device):
        patch.setattr(investigation, "LARGER_SIZE", LARGE)
        patch.setattr(investigation, "products_on", lambda device: offered)
        small = device.reference_product("fp32", SMALL, seed=1)
        measured_tflops, figures = device.tflops(SMALL), figures or vendor()
        return investigation.investigate(device, "fp32", small, measured_tflops, figures, kernel, time_budget_s)


def rate(small, large=None, warm=None):
    """MFLOPS of the small product, of the large one, and of any under load for a while."""
    return lambda size, load_s: (large if size == LARGE else warm if load_s > 0.1 else None) or small


# ---------------------------------------------------------------------------------------------- the three causes


def ramp(load_s):
    return min(1980.0, 345 + 800 * load_s)


@pytest.mark.parametrize(
    ("card", "kernel", "verdict", "place", "tflops"),
    [
        (lambda: Card(rate(100, large=600)), ON_TENSOR_CORES, "size", 0, 600 * MFLOPS),
        (lambda: Card(lambda size, s: 0.4 * ramp(s), ramp), ON_TENSOR_CORES, "sustained", 1, 0.4 * 1980 * MFLOPS),
        (lambda: Card(rate(100)), ON_CUDA_CORES, "tensor_cores", 2, None),
        (lambda: Card(rate(100, large=109)), ON_TENSOR_CORES, "none", 0, 109 * MFLOPS),  # too small a gain
        (lambda: Card(rate(100)), ON_TENSOR_CORES, "none", 0, 100 * MFLOPS),
        # Of two causes the one that gave most.
        (lambda: Card(rate(100, 300, 200)), ON_TENSOR_CORES, "size", 0, 300 * MFLOPS),
        (lambda: Card(rate(100, 200, 300)), ON_TENSOR_CORES, "sustained", 1, 300 * MFLOPS),
    ],
)
def test_the_cause_that_is_found(card, kernel, verdict, place, tflops):
    found = found_on(card(), kernel)
    assert found.verdict == verdict
    assert found.trials[place].tflops == (tflops and pytest.approx(tflops))
    assert found.trials[place].explains == (verdict != "none")


# ---------------------------------------------------------------------------------------------- none of them


@pytest.mark.parametrize(
    ("throttle", "figures", "ruled_out"),
    [
        ((), {}, RULED_OUT),
        (("sw_power_cap",), {}, ["rate class of the card"]),  # a power limit that acts
        (None, {}, ["rate class of the card"]),  # or is not reported
        ((), {"match": "formula"}, ["power limit"]),  # a rate class that is assumed matters to tensor cores alone
        ((), {"match": "formula", "unit": "cuda_core"}, RULED_OUT),
    ],
)
def test_what_is_ruled_out(throttle, figures, ruled_out):
    assert found_on(Card(rate(100), throttle=throttle), figures=vendor(**figures)).ruled_out == ruled_out


@pytest.mark.parametrize(
    ("free_bytes", "seconds", "budget_s", "tried"),
    [
        (2 * 16_384, 1e-3, 2.0, True),  # four matrices of 32 x 32 numbers of 4 bytes: half of what is free
        (2 * 16_384 - 2, 1e-3, 2.0, False),
        (1 << 34, 0.6, 0.1, True),  # three products within two seconds, or within the budget
        (1 << 34, 0.7, 0.1, False),
        (1 << 34, 0.7, 2.2, True),
    ],
)
def test_a_larger_product_that_cannot_be_had_is_not_ruled_out(free_bytes, seconds, budget_s, tried):
    mflops = 2 * LARGE**3 / seconds / 1e6
    found = found_on(Card(rate(mflops), free_bytes=free_bytes), figures=vendor(10 * mflops), time_budget_s=budget_s)
    assert (found.trials[0].tflops is not None) == (found.trials[0].explains is not None) == tried


def test_a_wrong_larger_product_fails_the_job():
    device = Card(rate(100))
    device.corrupted = (LARGE,)
    with pytest.raises(ArithmeticError, match="fp32 matmul 32"):
        found_on(device)


# ---------------------------------------------------------------------------------------------- as part of the job


@pytest.mark.parametrize(("peak_tflops", "investigated"), [(1e6, True), (1e-9, False)])
def test_the_job_investigates_below_half_and_the_burst_stays_the_ceiling(monkeypatch, peak_tflops, investigated):
    monkeypatch.setattr(investigation, "LARGER_SIZE", 192)
    monkeypatch.setattr(investigation, "LOAD_CHUNK_S", 0.01)
    monkeypatch.setattr(investigation, "LOAD_LIMIT_S", 0.1)
    device = open_device("cpu")
    record = device_record("cpu", vendor=vendor(peak_tflops, "cpu", "formula", derived=True))
    options = {"size": 64, "warmup": 1, "iterations": 20, "time_budget_s": 0.2, "sustained_s": 0}
    peak, _ = compute_ceiling.measure(device, record, seals_for(record, Gemm()), "fp32", **options)
    assert bool(peak.investigation) == investigated
    if investigated:
        assert [bool(trial.tflops) for trial in peak.investigation.trials] == [True, True, False]
    assert peak.tflops == peak.burst_tflops
    assert peak.fraction_of_vendor == peak.tflops / peak_tflops
