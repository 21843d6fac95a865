"""Which product becomes a compute ceiling, and what it says of itself, on a device whose clock the test turns."""

from types import SimpleNamespace

import peak_flops
import pytest
from factories import (
    HEAT,
    JOB,
    POWER_CAP,
    FakeDevice,
    clock_of,
    device_record,
    product,
    seals_for,
    vendor_figures,
    vendor_peak,
    write_seals,
)

from roofline.core.terms import Unsupported
from roofline.devices import discovery
from roofline.devices.base import Workload
from roofline.measure import compute_ceiling
from roofline.measure.compute_ceiling import chosen, finalists
from roofline.operators.gemm import products
from roofline.operators.gemm.operator import Gemm
from roofline.records.compute import Candidate, PeakFlopsRecord
from roofline.records.timing import Check, Search


def flops(size):
    return products.flops(size, size, size)


def candidate(size, trial, block=None, algorithm=None):
    found = product(size, algorithm=algorithm)
    return Candidate(product=found, flops=flops(size), trial_tflops=trial, block_tflops=block)


# ---------------------------------------------------------------------------------------------- finalists


def test_the_smallest_products_near_the_fastest_are_finalists_with_it():
    """A short block is over before the power limit acts. 512 is below 92 %; of the others the three with least work."""
    found = [candidate(8192, 800), candidate(4096, 790), candidate(512, 735), candidate(2048, 737)]
    found += [candidate(1024, 760), candidate(3072, 755)]
    assert finalists(found) == [0, 4, 3, 5]
    assert finalists(found[:2]) == [0, 1]
    assert finalists([candidate(1024, 700), candidate(8192, 800), candidate(4096, 500)]) == [1]


@pytest.mark.parametrize(
    ("found", "places"),
    [
        ([(8192, 800, 650), (4096, 770, 760)], [1, 0]),  # by the block, not by the trial
        ([(8192, 800, 760), (2048, 770, 753), (1024, 770, 752)], [1, 0]),  # 753 is 99 % of 760, with less work
        ([(1024, 900, None), (8192, 800, 700)], [1]),  # never timed as a block
    ],
)
def test_the_chosen_one_and_the_best_of_the_others(found, places):
    found = [candidate(*one) for one in found]
    assert chosen(found) == [found[place] for place in places]


# ---------------------------------------------------------------------------------------------- the whole measurement

REFERENCE, BEST, LARGE = 2048, 4096, 8192  # about a millisecond a step: samples are rounded to a tenth of a nanosecond
SUSTAINED_S = 3.0


class Card(FakeDevice):
    """Products by size, whose steps take what their rate says, or that on operands of a seed.

    `load` is the share of the best product's rate under sustained load, `wrong` a seed and which comparison of its
    result fails. In the chunks `late` of load the device waited for its host as long as it worked.
    """

    def __init__(self, kind="gpu", load=0.8, rates=None, wrong=None, variants=(3, 2), late=(), **options):
        super().__init__(kind, **options)
        self.load, self.wrong, self.slower, self.late = load, wrong, variants, late
        self.rates = {REFERENCE: 100.0, BEST: 150.0, LARGE: 120.0} | (rates or {})
        self.sizes = [size for size in self.rates if isinstance(size, int)]
        self.checked, self.most_flops = [], None

    def product(self, size, seed, slower=1, algorithm=None):
        def step(index):
            return slower * flops(size) / self.rates.get((size, seed), self.rates[size]) / 1e12

        def compare():
            self.checked.append((size, seed))
            if (seed, self.checked.count((size, seed))) == self.wrong:
                raise ArithmeticError("fp16 differs from float64 arithmetic")
            return Check(compared="made up", error=0, tolerance=1e-12)

        return Workload(product(size, algorithm=algorithm), flops(size), step, lambda: None, compare)

    def reference_product(self, device, dtype, size, seed):
        return self.product(size, seed)

    def beside_reference(self, device, dtype, size, seed):
        return []

    def candidates(self, device, dtype, size, most_flops, seed):
        """On a CPU the reference product has had its block."""
        self.most_flops = most_flops
        return [self.product(one, seed) for one in self.sizes if self.kind == "gpu" or one != size]

    def workload(self, device, dtype, size, product, seed):
        return self.product(product.shape["m"], seed)

    def variants(self, device, dtype, product, seed):
        slow, fast = self.slower
        size = product.shape["m"]
        return [[self.product(size, seed, slow, "slow"), self.product(size, seed, fast, "fast")]]

    def fma_candidates(self, ceiling, seed):
        return [self.product(BEST, seed)]

    def fma_workload(self, ceiling, product, seed):
        return self.product(BEST, seed)

    def load_times(self, step, count, seconds, singly):
        for chunk in range(60):
            late = 2 if chunk in self.late else 1
            each_s = [late * step(0) / self.load] * (count if chunk < singly else 1)
            yield (chunk + 1) * seconds / 60, each_s, 1400.0

    def state(self):
        return super().state() | {"sm_clock_mhz": 1500, "power_w": 700}

    def kernel_of(self, step):
        return {"name": "made_up", "tensor_cores": True, "how_known": "made up"}


def measured(device, ceiling="fp16", vendor_tflops=160.0, **changed):
    """The ceiling, whose figures follow from its samples."""
    vendor = vendor_figures(peaks={"fp16": vendor_peak(vendor_tflops)})
    record = device_record("cpu" if device.kind == "cpu" else "gpu0", vendor=vendor)
    options = {"size": REFERENCE, "warmup": 3, "iterations": 20, "time_budget_s": 1.0, "sustained_s": SUSTAINED_S}
    with pytest.MonkeyPatch.context() as patch, clock_of(device):
        patch.setattr(compute_ceiling, "products_on", lambda device: device)
        found, measurements = compute_ceiling.measure(
            device, record, seals_for(record, Gemm()), ceiling, **options | changed
        )
    return PeakFlopsRecord(dtype="fp16", skipped=None, peak=found, measurements=measurements, **JOB)


def peak_of(device, *arguments, **options):
    return measured(device, *arguments, **options).peak


def near(tflops):
    return pytest.approx(tflops, rel=1e-3)


def test_the_ceiling_is_the_best_product_remeasured_on_other_operands():
    device = Card()
    peak = peak_of(device)
    assert (peak.method, peak.unit, peak.tflops, peak.burst_tflops) == ("gemm", "tensor_core", near(150), peak.tflops)
    assert peak.burst.product == product(BEST) and (BEST, 5) in device.checked
    assert [one.product.shape["m"] for one in peak.candidates] == [BEST, LARGE, REFERENCE]
    assert peak.fraction_of_vendor == near(150 / 160)
    reachable = 132 * 1024 * 1500e6 / 1e12  # multiprocessors x rate x the clock under the block
    assert (peak.clock_mhz, peak.clock_tflops, peak.fraction_of_clock) == (1500, near(reachable), near(150 / reachable))
    assert (peak.doubts, peak.investigation, peak.throttled) == ([], None, False)
    assert peak.search == Search(offered=3, tried=3, refused=[])
    (variant,) = peak.variants
    assert (variant.product, variant.tflops) == (product(BEST, algorithm="fast"), near(150 / 2))


def test_the_reference_product_is_measured_as_an_operator_under_its_roof():
    record = measured(Card())
    (reference,) = record.measurements
    assert (reference.operator, reference.implementation, reference.shape["m"]) == ("gemm", "made up", 2048)
    assert (reference.flops, reference.bytes) == (flops(REFERENCE), 3 * REFERENCE**2 * 2)
    assert (reference.compute_ceiling, reference.memory_ceilings) == ("fp16", ["hbm_read"])
    assert reference.latency.median_s == near(flops(REFERENCE) / 100e12)
    assert reference.device_latency.median_s == near(reference.latency.median_s / 2)
    assert reference.predicted.latency_s > flops(REFERENCE) / 160e12
    assert record.peak.reference_tflops == near(100)


@pytest.mark.parametrize(
    ("chosen_again", "fastest_again", "remeasured", "burst"),
    [
        (149, 151, True, LARGE),  # by 1.3 % less than the fastest gave in the search
        (149, 140, True, BEST),  # which it does not keep: the power limit acted this time
        (150.3, 151, False, BEST),  # by less than half a per cent
    ],
)
def test_where_the_chosen_block_is_clearly_slower_than_the_next_that_one_is_remeasured_too(
    chosen_again, fastest_again, remeasured, burst
):
    """151 and 150 are as fast, so that the one with less work is chosen; else the next run might choose the other."""
    rates = {BEST: 150.0, LARGE: 151.0, (BEST, 5): chosen_again, (LARGE, 13): fastest_again}
    device = Card(rates=rates)
    peak = peak_of(device)
    assert ((LARGE, 13) in device.checked) == remeasured
    assert peak.burst.product == product(burst)
    figures = sorted([chosen_again, fastest_again][: 1 + remeasured], reverse=True)
    assert [peak.tflops, *(block.tflops for block in peak.slower_remeasurements)] == [near(one) for one in figures]


def test_a_reference_product_that_no_later_block_comes_up_to_is_a_cpus_ceiling():
    """No product may stand above its own ceiling."""
    again = {(size, seed): 90 for size in (REFERENCE, BEST, LARGE) for seed in (5, 13)}
    record = measured(Card("cpu", rates=dict.fromkeys((BEST, LARGE), 90) | again))
    peak = record.peak
    assert peak.tflops == peak.burst.tflops == peak.reference_tflops == near(100)
    assert peak.burst.product == product(REFERENCE)
    assert [block.tflops for block in peak.slower_remeasurements] == [near(90)]


@pytest.mark.parametrize(("kind", "samples"), [("gpu", 20), ("cpu", 10)])
def test_the_burst_of_a_gpu_has_a_second_whatever_the_search_had(kind, samples):
    """A product takes 0.9 ms: of 10 ms the warm-up takes three, and a slow card would have too few left. A CPU's
    samples have the 10 ms to themselves."""
    peak = peak_of(Card(kind), time_budget_s=0.01)
    assert peak.burst.product == product(BEST)
    assert len(peak.burst.latency.samples_s) == pytest.approx(samples, abs=1 if kind == "cpu" else 0)


def test_products_of_which_a_block_would_take_too_long_are_not_tried():
    """23 of them at the reference product's rate within BLOCK_S; those of the same size always."""
    device = Card()
    measured(device)
    assert device.most_flops == near(100e12 * compute_ceiling.BLOCK_S / 23)
    slow = Card(rates=dict.fromkeys((REFERENCE, BEST, LARGE), 1e-1))
    measured(slow, vendor_tflops=1e-1)
    assert slow.most_flops == flops(REFERENCE)


@pytest.mark.parametrize("load", [0.8, 1.05])
def test_the_ceiling_is_the_higher_of_burst_and_sustained(load):
    peak = peak_of(Card(load=load))
    assert peak.sustained_tflops == peak.sustained.tflops == near(150 * load)
    assert peak.tflops == max(peak.burst_tflops, peak.sustained_tflops)
    assert peak.ci95 == (peak.sustained.ci95 if load > 1 else peak.burst.ci95)
    assert peak.sustained_fraction_of_clock == near(150 * load / (132 * 1024 * 1400e6 / 1e12)), (
        "by the load's own clock"
    )
    assert (peak.sustained.product, len(peak.sustained.curve)) == (product(BEST), 60)


def test_neither_a_cpu_nor_register_only_kernels_get_sustained_load():
    for device, ceiling, method in ((Card("cpu"), "fp16", "gemm"), (Card(), "fp32_fma", "fma")):
        record = measured(device, ceiling)
        assert (record.peak.method, record.peak.sustained, record.peak.tflops) == (method, None, near(150))
        assert len(record.measurements) == (method == "gemm")
    assert peak_of(Card(), sustained_s=0).sustained is None


def test_on_a_cpu_the_reference_product_is_a_candidate_that_has_had_its_block():
    peak = peak_of(Card("cpu", rates={REFERENCE: 100.0, BEST: 80.0, LARGE: 80.0}))
    reference, *others = peak.candidates
    assert reference.product == peak.burst.product == product(REFERENCE)
    assert reference.trial_tflops == reference.block_tflops == peak.reference_tflops
    assert [one.block_tflops for one in others] == [None, None]


@pytest.mark.parametrize("wrong", [(1, 1), (1, 3), (5, 1), (7, 1), (13, 1), (5, 2)])
def test_a_wrong_result_fails_the_job(wrong):
    """Of the reference product, of the best one, of its variants, of the next one remeasured, and of timed steps."""
    with pytest.raises(ArithmeticError, match="differs from float64"):
        measured(Card(wrong=wrong, rates={LARGE: 148.0, (BEST, 5): 120.0}))


def test_a_host_that_left_the_device_without_work_is_told_and_costs_nothing():
    kept, late = peak_of(Card()), peak_of(Card(late=(30, 31, 50)))
    assert late.sustained_tflops == pytest.approx(kept.sustained_tflops, rel=1e-6)
    assert (len(kept.doubts), len(late.doubts), late.sustained.starved_points) == (0, 1, 3)


# ---------------------------------------------------------------------------------------------- what limited it


def test_throttling_throughout_is_flagged_and_the_power_cap_is_not():
    throttled = peak_of(Card(reasons=lambda now: [*HEAT, *POWER_CAP]))
    assert (throttled.throttled, throttled.limited_by) == (True, sorted([*HEAT, *POWER_CAP]))
    assert throttled.burst.latency.all_throttled and throttled.sustained.all_throttled
    capped = peak_of(Card(reasons=lambda now: POWER_CAP))
    assert (capped.throttled, capped.limited_by) == (False, POWER_CAP)
    unknown = peak_of(Card(reasons=lambda now: None))
    assert (unknown.throttled, unknown.limited_by) == (None, [])


def test_what_limits_burst_and_sustained_load_is_known_apart():
    """A short burst says nothing of its limits."""
    device, short = Card(rates={REFERENCE: 1.0, BEST: 1.5, LARGE: 1.2}), Card(load=1.2)  # of which one is slow
    device.reasons = short.reasons = lambda now: POWER_CAP
    peak = peak_of(device, vendor_tflops=1.6)
    assert peak.burst_limited_by == peak.sustained_limited_by == peak.limited_by == POWER_CAP
    peak = peak_of(short)
    assert (peak.burst_limited_by, peak.sustained_limited_by, peak.limited_by) == (None, POWER_CAP, POWER_CAP)
    peak = peak_of(short, "fp32_fma")  # a register-only kernel goes on until NVML can report
    assert "during" in [state.when for state in peak.burst.states] and peak.burst_limited_by == POWER_CAP


# ---------------------------------------------------------------------------------------------- the job


def test_a_ceiling_that_the_device_turns_out_to_lack_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, seals = write_seals(device_record("gpu0"), Gemm())

    def reference_product(device, ceiling, size, seed):
        raise Unsupported("cuBLASLt offers no fp8_e4m3 product")

    lacking = SimpleNamespace(reference_product=reference_product)
    monkeypatch.setattr(compute_ceiling, "products_on", lambda device: lacking)
    monkeypatch.setattr(discovery, "open_device", lambda name: Card())
    options = {"size": REFERENCE, "warmup": 3, "iterations": 20, "time_budget_s": 1.0, "sustained_s": 0}
    found = peak_flops.run("gpu0", "fp8_e4m3", path, seals, **options)
    assert (found.skipped, found.peak, found.measurements) == ("cuBLASLt offers no fp8_e4m3 product", None, [])
    assert set(found.seals) == {"gpu0/prediction.json", "gpu0/peak_flops/prediction.json"}
