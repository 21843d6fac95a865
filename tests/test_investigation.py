"""Why a product stays below half of the peak, on devices that have the cause that is to be found, or none."""

from types import SimpleNamespace

import numpy
import pytest
from factories import FakeDevice, clock_of, device_record, product, seals_for, vendor_figures, vendor_peak

from roofline.devices import open_device
from roofline.devices.base import Workload
from roofline.measure import compute_ceiling, investigation
from roofline.operators.gemm import Gemm, products
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


def test_a_size_effect():
    found = found_on(Card(rate(100, large=600)))
    assert found.verdict == "size"
    assert found.trials[0].tflops == pytest.approx(600 * MFLOPS)
    assert found.trials[0].finding == "32 x 32 gives 0.0006 TFLOPS, 60 % of the peak"
    assert found.reason == "0.0001 TFLOPS is below 50 % of the vendor's 0.001"


def test_a_clock_that_has_not_risen_yet():
    def ramp(load_s):
        return min(1980.0, 345 + 800 * load_s)

    found = found_on(Card(lambda size, load_s: 0.4 * ramp(load_s), ramp))
    assert found.verdict == "sustained"
    trial = found.trials[1]
    assert trial.tflops == pytest.approx(0.4 * 1980 * MFLOPS)
    assert trial.clocks_mhz == sorted(trial.clocks_mhz) and trial.clocks_mhz[-1] == 1980
    assert trial.clocks_mhz.count(1980) >= 3  # the load went on until the clock stopped rising
    assert trial.finding.endswith(f"(the clock from {trial.clocks_mhz[0]:.0f} to 1980 MHz)")


def test_missing_tensor_cores():
    found = found_on(Card(rate(100)), ON_CUDA_CORES)
    assert found.verdict == "tensor_cores"
    assert found.trials[2].finding == "the kernel ffma_gemm did not use tensor cores"
    assert found.ruled_out == RULED_OUT


# ---------------------------------------------------------------------------------------------- none of them


def test_a_gain_that_is_too_small_for_a_cause():
    found = found_on(Card(rate(100, large=109)))
    assert (found.verdict, found.trials[0].explains) == ("none", False)


def test_no_cause_and_everything_ruled_out():
    found = found_on(Card(rate(100)))
    assert (found.verdict, [trial.explains for trial in found.trials]) == ("none", [False] * 3)
    assert found.ruled_out == RULED_OUT


@pytest.mark.parametrize("throttle", [("sw_power_cap",), None])
def test_a_power_limit_that_acts_or_is_not_reported_is_not_ruled_out(throttle):
    assert found_on(Card(rate(100), throttle=throttle)).ruled_out == ["rate class of the card"]


@pytest.mark.parametrize(("unit", "ruled_out"), [("tensor_core", ["power limit"]), ("cuda_core", RULED_OUT)])
def test_a_rate_class_that_is_assumed_matters_to_tensor_cores_alone(unit, ruled_out):
    assert found_on(Card(rate(100)), figures=vendor(unit=unit, match="formula")).ruled_out == ruled_out


@pytest.mark.parametrize(
    ("free_bytes", "seconds", "budget_s", "why"),
    [
        (
            2 * 16_384,
            1e-3,
            2.0,
            None,
        ),  # four matrices of 32 x 32 numbers of 4 bytes: 16 384 bytes, half of what is free
        (2 * 16_384 - 2, 1e-3, 2.0, "it needs more than half of the free memory"),
        (1 << 34, 0.6, 0.1, None),  # three products within two seconds, or within the budget
        (1 << 34, 0.7, 0.1, "it takes longer than the time budget"),
        (1 << 34, 0.7, 2.2, None),
    ],
)
def test_a_larger_product_that_cannot_be_had_is_not_ruled_out(free_bytes, seconds, budget_s, why):
    mflops = 2 * LARGE**3 / seconds / 1e6
    found = found_on(Card(rate(mflops), free_bytes=free_bytes), figures=vendor(10 * mflops), time_budget_s=budget_s)
    assert (found.trials[0].tflops is None) == (found.trials[0].explains is None) == (why is not None)
    if why:
        assert found.trials[0].finding == f"32 x 32 was not tried: {why}"


# ---------------------------------------------------------------------------------------------- which it was


@pytest.mark.parametrize(("large", "warm", "verdict"), [(300, 200, "size"), (200, 300, "sustained")])
def test_of_two_causes_the_one_that_gave_most(large, warm, verdict):
    assert found_on(Card(rate(100, large, warm))).verdict == verdict


def test_a_wrong_larger_product_fails_the_job():
    device = Card(rate(100))
    device.corrupted = (LARGE,)
    with pytest.raises(ArithmeticError, match="fp32 matmul 32"):
        found_on(device)


# ---------------------------------------------------------------------------------------------- as part of the job


@pytest.mark.parametrize(("peak_tflops", "investigated"), [(1e6, True), (1e-9, False)])
def test_the_job_investigates_below_half_and_the_ceiling_stays_what_the_burst_gave(
    monkeypatch, peak_tflops, investigated
):
    monkeypatch.setattr(investigation, "LARGER_SIZE", 192)
    monkeypatch.setattr(investigation, "LOAD_CHUNK_S", 0.01)
    monkeypatch.setattr(investigation, "LOAD_LIMIT_S", 0.1)
    device = open_device("cpu")
    record = device_record("cpu", vendor=vendor(peak_tflops, "cpu", "formula", derived=True))
    options = {"size": 64, "warmup": 1, "iterations": 20, "time_budget_s": 0.2, "sustained_s": 0}
    peak, _ = compute_ceiling.measure(device, record, seals_for(record, Gemm()), "fp32", **options)
    if investigated:
        larger, sustained, tensor_cores = peak.investigation.trials
        assert larger.tflops and sustained.tflops and tensor_cores.explains is False
        assert "the clock is not known" in sustained.finding and peak.investigation.ruled_out == []
    else:
        assert peak.investigation is None
    assert peak.tflops == peak.burst_tflops
    assert peak.fraction_of_vendor == peak.tflops / peak_tflops
