"""Why a product stays below half of the peak, on devices that have the cause that is to be found, or none."""

from types import SimpleNamespace

import numpy
import pytest
from factories import FakeDevice, clock_of, device_record, product, seals_for, vendor_figures, vendor_peak
from records_factory import beside

from roofline.devices import open_device
from roofline.devices.base import Workload
from roofline.measure import compute_ceiling, investigation
from roofline.operators.gemm import Gemm, products
from roofline.records.compute import Kernel

SMALL, LARGE = 16, 32
MFLOPS = 1e-6  # of a TFLOPS: so small are the products that stand in for those of 4096 and 8192
ON_TENSOR_CORES = Kernel(name="s16816gemm", tensor_cores=True, how_known="made up")
QUIET = beside()
ON_CUDA_CORES = Kernel(name="ffma_gemm", tensor_cores=False, how_known="made up")
UNKNOWN = Kernel(name=None, tensor_cores=None, how_known="CUPTI does not load here")


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


def found_on(device, kernel=ON_TENSOR_CORES, figures=None, time_budget_s=2.0, contention=QUIET):
    offered = SimpleNamespace(reference_product=lambda device, *given, seed: device.reference_product(*given, seed))
    with pytest.MonkeyPatch.context() as patch, clock_of(device):
        patch.setattr(investigation, "LARGER_SIZE", LARGE)
        patch.setattr(investigation, "products_on", lambda device: offered)
        small = device.reference_product("fp32", SMALL, seed=1)
        return investigation.investigate(
            device, "fp32", small, device.tflops(SMALL), figures or vendor(), kernel, time_budget_s, contention
        )


def rate(small, large=None, warm=None):
    """MFLOPS of the small product, of the large one, and of any under load for a while."""
    return lambda size, load_s: (large if size == LARGE else warm if load_s > 0.1 else None) or small


# ---------------------------------------------------------------------------------------------- the three causes


def test_a_size_effect():
    found = found_on(Card(rate(100, large=600)))
    assert found.verdict == "size"
    assert found.trials[0].tflops == pytest.approx(600 * MFLOPS)
    assert found.trials[0].finding == "32 x 32 gives more, 0.0006 TFLOPS, 60 % of the peak"
    assert found.reason == "0.0001 TFLOPS is below 50 % of the vendor's 0.001"
    assert not any("32 x 32" in what for what in found.ruled_out + found.not_ruled_out)


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
    assert [what.split()[0] for what in found.ruled_out] == ["32", "sustained", "contention:", "power", "rate"]


# ---------------------------------------------------------------------------------------------- none of them


@pytest.mark.parametrize(("large", "words"), [(100, "no more"), (109, "hardly more")])
def test_a_gain_that_is_too_small_for_a_cause(large, words):
    found = found_on(Card(rate(100, large=large)))
    assert (found.verdict, found.trials[0].explains) == ("none", False)
    assert found.trials[0].finding.startswith(f"32 x 32 gives {words}, ")


def test_no_cause_and_everything_ruled_out():
    found = found_on(Card(rate(100)))
    assert (found.verdict, len(found.ruled_out), found.not_ruled_out) == ("none", 6, [])


@pytest.mark.parametrize(
    ("throttle", "finding"),
    [
        (("sw_power_cap",), "under load the clock is limited by sw_power_cap"),
        (None, "power limit: NVML does not report throttle reasons here"),
    ],
)
def test_a_power_limit_that_acts_or_is_not_reported_is_not_ruled_out(throttle, finding):
    assert found_on(Card(rate(100), throttle=throttle)).not_ruled_out == [finding]


def test_on_cuda_cores_neither_tensor_cores_nor_their_rate_class_matter():
    found = found_on(Card(rate(100)), ON_CUDA_CORES, vendor(unit="cuda_core", match="formula"))
    assert found.verdict == "none"
    assert "tensor cores have no part in this peak" in found.ruled_out
    assert "rate class of the card: it concerns tensor cores alone" in found.ruled_out


@pytest.mark.parametrize(
    ("free_bytes", "seconds", "budget_s", "why"),
    [
        (
            2 * 16_384,
            1e-3,
            2.0,
            None,
        ),  # four matrices of 32 x 32 numbers of 4 bytes: 16 384 bytes, half of what is free
        (2 * 16_384 - 2, 1e-3, 2.0, "more than half of what is free"),
        (1 << 34, 0.6, 0.1, None),  # three products within two seconds, or within the budget
        (1 << 34, 0.7, 0.1, "it would take 2 s, over the time budget"),
        (1 << 34, 0.7, 2.2, None),
    ],
)
def test_a_larger_product_that_cannot_be_had_is_not_ruled_out(free_bytes, seconds, budget_s, why):
    mflops = 2 * LARGE**3 / seconds / 1e6
    found = found_on(Card(rate(mflops), free_bytes=free_bytes), figures=vendor(10 * mflops), time_budget_s=budget_s)
    assert (found.trials[0].tflops is None) == (why is not None)
    if why:
        (finding,) = found.not_ruled_out
        assert finding.startswith("32 x 32 was not tried: ") and finding.endswith(why)


# ---------------------------------------------------------------------------------------------- which it was


@pytest.mark.parametrize(("large", "warm", "verdict"), [(300, 200, "size"), (200, 300, "sustained")])
def test_of_two_causes_the_one_that_gave_most(large, warm, verdict):
    assert found_on(Card(rate(100, large, warm))).verdict == verdict


def test_what_ran_beside_the_block_goes_before_every_other_cause():
    found = found_on(Card(rate(100, large=600)), ON_CUDA_CORES, contention=beside(other_processes=1))
    assert found.verdict == "contention"
    (trial,) = [trial for trial in found.trials if trial.what == "contention"]
    assert (trial.explains, trial.finding) == (True, "the block was disturbed: other processes on the GPU: 1")


def test_contention_that_is_not_known_is_not_ruled_out():
    unknown = beside(other_cores=None, other_processes=None)
    for contention in (None, unknown):
        assert found_on(Card(rate(100)), contention=contention).not_ruled_out == [
            "contention: what else ran is not known"
        ]


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
        tried = [trial.tflops for trial in peak.investigation.trials if trial.tflops]
        assert len(tried) == 2
        (finding,) = [what for what in peak.investigation.not_ruled_out if "BLAS" in what]
        assert device.software()["blas_architecture"] in finding
        assert "the clock is not known" in peak.investigation.trials[1].finding
        assert not any("power" in what for what in peak.investigation.ruled_out)
    else:
        assert peak.investigation is None
    assert peak.tflops == peak.burst_tflops
    assert peak.fraction_of_vendor == peak.tflops / peak_tflops
