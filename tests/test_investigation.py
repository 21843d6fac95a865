"""Why a product stays below half of the peak, on devices that have the cause that is to be found, or none."""

from types import SimpleNamespace

import numpy
import peak_flops
import pytest
from small_run import device_record

from roofline.core.prediction import seal
from roofline.devices import Workload
from roofline.devices.cpu import device as cpu
from roofline.measure import investigation
from roofline.measure import timing as measuring
from roofline.measure.investigation import investigate
from roofline.operators.gemm import operator as gemm
from roofline.records.compute import Kernel, Product
from roofline.records.device import VendorFigures, VendorPeak

SMALL, LARGE = 16, 32
MFLOPS = 1e-6  # of a TFLOPS: so small are the products that stand in for those of 4096 and 8192
ON_TENSOR_CORES = Kernel(name="s16816gemm", tensor_cores=True, how_known="made up")
ON_CUDA_CORES = Kernel(name="ffma_gemm", tensor_cores=False, how_known="made up")
UNKNOWN = Kernel(name=None, tensor_cores=None, how_known="CUPTI does not load here")


class FakeDevice:
    """Multiplies on the host, on a clock of its own: `rate(size, seconds of load so far)` says how many MFLOPS.

    Only while it is looked at under load does it tell what holds its clock; else it is idle.
    """

    kind = "gpu"

    def __init__(self, rate, clock=lambda load_s: 1980, throttle=(), free_bytes=1 << 34):
        self.now = 0.0
        self.identity = SimpleNamespace(memory_free_bytes=free_bytes)
        self._rate, self._clock, self._throttle, self._busy = rate, clock, throttle, False

    def tflops(self, size):
        return self._rate(size, self.now) * MFLOPS

    def lab_product(self, dtype, size, seed):
        a, b = numpy.random.default_rng(seed).standard_normal((2, size, size))

        def step(index):
            self._size = size
            return a @ b

        shape = dict.fromkeys("mnk", size)
        return Workload(
            product=Product(
                library="made up", shape=shape, layout=None, algorithm=None, accumulation=dtype, output=dtype
            ),
            flops=gemm.flops(**shape),
            step=step,
            check=lambda: gemm.compare(f"{dtype} matmul {size}", dtype, a, b, self.result(step(0))),
        )

    def result(self, product):
        return product

    def step_times(self, step, count, first=0):
        step(first)
        times = []
        for _ in range(count):
            times.append(gemm.flops(*[self._size] * 3) / self.tflops(self._size) / 1e12)
            self.now += times[-1]
        return times

    def while_busy(self, step, step_s, seconds, look):
        self.now += seconds
        self._busy = True
        look()
        self._busy = False

    def state(self):
        clock = self._clock(self.now) if self._busy else 345
        reasons = self._throttle if self._busy else ("gpu_idle",)
        return {"sm_clock_mhz": clock, "throttle_reasons": None if reasons is None else list(reasons)}


def vendor(tflops=1000 * MFLOPS, unit="tensor_core", match="exact", derived=False) -> VendorFigures:
    peak = VendorPeak(
        tflops=tflops,
        unit=unit,
        operations_per_clock_per_multiprocessor=None,
        source="made up",
        verified=True,
        derived=derived,
    )
    return device_record().vendor.model_copy(update={"match": match, "rate_class": "full", "peaks": {"fp32": peak}})


def found_on(device, kernel=ON_TENSOR_CORES, figures=None, time_budget_s=2.0):
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: device.now)
        patch.setattr(investigation, "LARGER_SIZE", LARGE)
        patch.setattr(investigation, "time", clock)
        patch.setattr(measuring, "time", clock)
        small = device.lab_product("fp32", SMALL, seed=1)
        return investigate(device, "fp32", small, device.tflops(SMALL), figures or vendor(), kernel, time_budget_s)


def mflops_of(found):
    return {trial.what: pytest.approx(trial.tflops / MFLOPS) for trial in found.trials if trial.tflops}


# ---------------------------------------------------------------------------------------------- the three causes


def test_a_size_effect():
    found = found_on(FakeDevice(lambda size, load_s: 600 if size == LARGE else 100))
    assert found.verdict == "size"
    assert mflops_of(found)["size"] == 600
    assert found.trials[0].finding == "32 x 32 gives more, 0.0006 TFLOPS, 60 % of the peak"
    assert found.reason == "0.0001 TFLOPS is below 50 % of the vendor's 0.001"
    assert not any("32 x 32" in what for what in found.ruled_out + found.not_ruled_out)


def ramp(load_s):
    return min(1980.0, 345 + 800 * load_s)


def test_a_clock_that_has_not_risen_yet():
    device = FakeDevice(lambda size, load_s: 0.4 * ramp(load_s), ramp)
    found = found_on(device)
    assert found.verdict == "sustained"
    trial = found.trials[1]
    assert trial.tflops == pytest.approx(0.4 * 1980 * MFLOPS)
    assert trial.clocks_mhz == sorted(trial.clocks_mhz) and trial.clocks_mhz[-1] == 1980
    assert trial.clocks_mhz.count(1980) >= 3  # the load went on until the clock stopped rising
    assert trial.finding.endswith(f"(the clock from {trial.clocks_mhz[0]:.0f} to 1980 MHz)")


def test_missing_tensor_cores():
    found = found_on(FakeDevice(lambda size, load_s: 100), ON_CUDA_CORES)
    assert found.verdict == "tensor_cores"
    assert found.trials[2].finding == "the kernel ffma_gemm did not use tensor cores"
    assert [what.split()[0] for what in found.ruled_out] == ["32", "sustained", "power", "rate"]


# ---------------------------------------------------------------------------------------------- none of them


@pytest.mark.parametrize(("larger", "words"), [(100, "no more"), (109, "hardly more")])
def test_what_is_not_enough_for_a_cause_is_told_as_it_is(larger, words):
    found = found_on(FakeDevice(lambda size, load_s: larger if size == LARGE else 100))
    assert (found.verdict, found.trials[0].explains) == ("none", False)
    assert found.trials[0].finding.startswith(f"32 x 32 gives {words}, ")


def test_none_of_them_and_all_is_ruled_out():
    found = found_on(FakeDevice(lambda size, load_s: 100))
    assert found.verdict == "none"
    assert found.ruled_out == [
        "32 x 32 gives no more, 0.0001 TFLOPS, 10 % of the peak",
        "sustained load gives no more, 0.0001 TFLOPS, 10 % of the peak (the clock from 1980 to 1980 MHz)",
        "the kernel s16816gemm used tensor cores",
        "power limit: under load no throttle reason is set",
        "rate class of the card: the peak is the vendor's for this very card",
    ]
    assert found.not_ruled_out == []


def test_a_power_limit_is_seen_under_load_and_not_ruled_out():
    found = found_on(FakeDevice(lambda size, load_s: 100, throttle=("sw_power_cap",)))
    assert found.not_ruled_out == ["under load the clock is held back by sw_power_cap"]


def test_a_power_limit_that_nvml_does_not_tell_is_not_ruled_out():
    found = found_on(FakeDevice(lambda size, load_s: 100, throttle=None))
    assert found.not_ruled_out == ["power limit: NVML does not tell the throttle reasons here"]
    assert any(what.startswith("rate class") for what in found.ruled_out)


def test_an_assumed_rate_class_is_not_ruled_out():
    found = found_on(FakeDevice(lambda size, load_s: 100), figures=vendor(match="formula", derived=True))
    assert found.reason == "0.0001 TFLOPS is below 50 % of the formula's 0.001"
    assert found.not_ruled_out == [
        "rate class of the card: 'full' is assumed from its name, and at half the rate half of the peak would be all"
    ]


def test_on_cuda_cores_neither_tensor_cores_nor_their_rate_class_matter():
    found = found_on(FakeDevice(lambda size, load_s: 100), ON_CUDA_CORES, vendor(unit="cuda_core", match="formula"))
    assert found.verdict == "none"
    assert "tensor cores have no part in this peak" in found.ruled_out
    assert "rate class of the card: it concerns tensor cores alone" in found.ruled_out


def test_an_unknown_kernel_is_not_ruled_out():
    found = found_on(FakeDevice(lambda size, load_s: 100), UNKNOWN)
    assert found.verdict == "none"
    assert found.not_ruled_out == ["whether tensor cores ran is not known (CUPTI does not load here)"]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (FakeDevice(lambda size, load_s: 100, free_bytes=1000), "more than half of what is free"),
        (FakeDevice(lambda size, load_s: 0.01), "it would take 20 s, over the time budget"),
    ],
)
def test_a_larger_product_that_cannot_be_had_is_not_ruled_out(device, why):
    found = found_on(device)
    assert (found.trials[0].tflops, found.trials[0].explains) == (None, None)
    (told,) = found.not_ruled_out
    assert told.startswith("32 x 32 was not tried: ") and told.endswith(why)


@pytest.mark.parametrize(("spare", "tried"), [(0, True), (-2, False)])
def test_a_larger_product_may_take_half_of_what_is_free(spare, tried):
    """Four matrices of 32 x 32 numbers of 4 bytes: 16 384 bytes."""
    found = found_on(FakeDevice(lambda size, load_s: 100, free_bytes=2 * 16_384 + spare))
    assert bool(found.trials[0].tflops) == tried


@pytest.mark.parametrize(("seconds", "budget_s", "tried"), [(0.6, 0.1, True), (0.7, 0.1, False), (0.7, 2.2, True)])
def test_three_larger_products_must_fit_the_budget_or_two_seconds(seconds, budget_s, tried):
    device = FakeDevice(lambda size, load_s: 2 * LARGE**3 / seconds / 1e6)
    assert bool(found_on(device, time_budget_s=budget_s).trials[0].tflops) == tried


# ---------------------------------------------------------------------------------------------- which it was


@pytest.mark.parametrize(("gain", "causes"), [(1.05, []), (1.15, ["size", "sustained"])])
def test_five_per_cent_more_is_noise_and_fifteen_are_a_cause(gain, causes):
    found = found_on(FakeDevice(lambda size, load_s: 100 * (gain if size == LARGE or load_s > 0.1 else 1)))
    assert [trial.what for trial in found.trials if trial.explains] == causes
    assert (found.verdict == "none") == (causes == [])
    assert mflops_of(found)["sustained"] == 100 * gain


def test_the_unit_goes_before_a_little_more_by_size():
    assert found_on(FakeDevice(lambda size, load_s: 50 + size), ON_CUDA_CORES).verdict == "tensor_cores"


@pytest.mark.parametrize(("large", "warm", "verdict"), [(300, 200, "size"), (200, 300, "sustained")])
def test_of_two_causes_what_gave_most(large, warm, verdict):
    found = found_on(FakeDevice(lambda size, load_s: large if size == LARGE else warm if load_s > 0.1 else 100))
    assert found.verdict == verdict


def test_a_clock_that_rises_for_ever_ends_with_the_limit():
    device = FakeDevice(lambda size, load_s: 100, lambda load_s: 300 * 2**load_s)
    found_on(device)
    assert device.now < investigation.LOAD_LIMIT_S + 3


def test_a_wrong_larger_product_fails_the_job():
    device = FakeDevice(lambda size, load_s: 100)
    device.result = lambda product: product + (len(product) == LARGE)
    with pytest.raises(ArithmeticError, match="fp32 matmul 32"):
        found_on(device)


# ---------------------------------------------------------------------------------------------- as part of the job


@pytest.mark.parametrize(("peak_tflops", "investigated"), [(1e6, True), (1e-9, False)])
def test_the_job_investigates_below_half_and_the_ceiling_stays_what_the_burst_gave(
    tmp_path, monkeypatch, peak_tflops, investigated
):
    """What is tried to explain a low ceiling is seen to be larger or not, and was checked and timed for no ceiling."""
    monkeypatch.setattr(investigation, "LARGER_SIZE", 192)
    monkeypatch.setattr(investigation, "LOAD_CHUNK_S", 0.01)
    monkeypatch.setattr(investigation, "LOAD_LIMIT_S", 0.1)
    device = cpu.Device(cpu.discover()[0])
    record = device_record("cpu", vendor=vendor(peak_tflops, "cpu", "formula", derived=True))
    (tmp_path / "device.json").write_text("{}")
    sealed = seal(record, tmp_path / "device.json", "2026-11-05T12:00:00+00:00")
    options = {"size": 64, "warmup": 1, "iterations": 20, "time_budget_s": 0.2, "sustained_s": 0}
    peak = peak_flops.measure(device, record, sealed, "fp32", **options)
    if investigated:
        tried = [trial.tflops for trial in peak.investigation.trials if trial.tflops]
        assert len(tried) == 2
        (told,) = [what for what in peak.investigation.not_ruled_out if "BLAS" in what]
        assert device.software()["blas_architecture"] in told
        assert "the clock is not known" in peak.investigation.trials[1].finding
        assert not any("power" in what for what in peak.investigation.ruled_out)
    else:
        assert peak.investigation is None
    assert peak.tflops == peak.burst_tflops
    assert peak.fraction_of_vendor == peak.tflops / peak_tflops
