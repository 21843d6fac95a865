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
    datasheet_figures,
    datasheet_peak,
    device_record,
    product,
    seals_for,
    write_seals,
)

from roofline.core.repeatability import relative_spread
from roofline.core.terms import UnsupportedError
from roofline.devices.base import Workload
from roofline.measure import compute_ceiling
from roofline.measure.compute_ceiling import CeilingTarget, choose_finalists
from roofline.measure.protocol import TimingBudget
from roofline.measure.search import CandidateTrial
from roofline.operators.gemm import cuda_products, gemm_arithmetic
from roofline.operators.gemm.operator import Gemm
from roofline.records.compute import PeakFlopsRecord
from roofline.records.timing_record import Check, Search


def flops(size):
    return gemm_arithmetic.gemm_flops(size, size, size)


def test_finalists_are_of_the_leading_shapes_each_with_its_shortest_trial():
    def trial(size, per_cycle, clock_mhz):
        way = SimpleNamespace(product=product(size), flops=flops(size))
        return CandidateTrial(way, flops(size) / per_cycle / clock_mhz / 1e6, clock_mhz)

    tried = [trial(8192, 500, 1400), trial(4096, 505, 1200), trial(4096, 490, 1900), trial(2048, 470, 1900)]
    assert choose_finalists(tried) == [1, 2, 0]
    # The shapes of the longest k are among them, and those far behind are not.
    assert choose_finalists([*tried, *(trial(size, 504, 1500) for size in (256, 512, 1024))]) == [1, 2, 4, 0]


# ---------------------------------------------------------------------------------------------- the whole measurement

# About a millisecond a step: samples are rounded to a tenth of a nanosecond.
REFERENCE, BEST, LARGE, SUSTAINED_S = 2048, 4096, 8192, 3.0
SIZES = {"size": REFERENCE, "reference_size": REFERENCE}


class Card(FakeDevice):
    """Products by size, whose steps take what their rate says; of the `unsteady` ones every second block is slower.

    `load` is the share of the best product's rate under sustained load, `wrong` a seed and which comparison of its
    result fails. In the chunks `late` of load the device waited for its host as long as it worked. Queues begin late.
    """

    def __init__(
        self, kind="gpu", load=0.8, rates=None, wrong=None, variants=(3, 2), late=(), unsteady=(), loads=None, **options
    ):
        super().__init__(kind, **options)
        self.loads = loads or {}  # other shares, by size
        self.load, self.wrong, self.slower, self.late, self.unsteady = load, wrong, variants, late, unsteady
        self.rates = {REFERENCE: 100.0, BEST: 150.0, LARGE: 120.0} | (rates or {})
        self.checked, self.most_flops = [], None

    def product(self, size, seed, slower=1, algorithm=None):
        def step(index):
            slow = 1.1 if size in self.unsteady and self.checked.count((size, seed)) % 4 == 1 else 1
            return slow * slower * flops(size) / self.rates[size] / 1e12

        def compare():
            self.checked.append((size, seed))
            if (seed, self.checked.count((size, seed))) == self.wrong:
                raise ArithmeticError("fp16 differs from float64 arithmetic")
            return Check(compared="made up", relative_error=0, tolerance=1e-12)

        library = {"gpu": "cupy.matmul", "cpu": "numpy.matmul"}[self.kind]
        return Workload(product(size, library=library, algorithm=algorithm), flops(size), step, lambda: None, compare)

    def reference_workload(self, device, dtype, size, seed):
        return self.product(size, seed)

    def own_reference_workloads(self, device, dtype, size, seed):
        return []

    def candidate_workloads(self, device, dtype, size, most_flops, seed):
        self.most_flops = most_flops
        return [self.product(one, seed) for one in self.rates]

    def rebuild_workload(self, device, dtype, size, product, seed):
        return self.product(product.shape["m"], seed)

    def variant_workloads(self, device, dtype, size, most_flops, seed):
        slow, fast = self.slower
        return [[self.product(BEST, seed, slow, "slow"), self.product(LARGE, seed, fast, "fast")]]

    def candidate_fma_workloads(self, ceiling, seed):
        return [self.product(BEST, seed)]

    def rebuild_fma_workload(self, ceiling, product, seed):
        return self.product(BEST, seed)

    def time_steps(self, step, count, first=0, read_during=None):
        start, *others = super().time_steps(step, count, first, read_during)
        return [start * (1.1 if others else 1), *others]

    def time_load_chunks(self, step, count, limit, singly):
        for chunk in range(60):
            late = 2 if chunk in self.late else 1
            sizes = [size for size in self.loads if step(0) == flops(size) / self.rates[size] / 1e12]
            share = self.loads[sizes[0]] if sizes else self.load
            load = 1 if chunk < singly else share
            each_s = [late * step(0) / load] * (count if chunk < singly else 1)
            each_s[0] *= 1.1 if chunk == 0 else 1
            yield (chunk + 1) * limit.seconds / 60, each_s, 1400.0

    def read_state(self):
        return super().read_state() | {"sm_clock_mhz": 1500, "power_w": 700}

    def identify_kernel(self, step):
        return {"name": "made_up", "tensor_cores": True, "how_known": "made up"}


def measured(device, ceiling="fp16", datasheet_tflops=160.0, sustained_s=SUSTAINED_S, loads=1):
    """The ceiling, whose figures follow from its samples."""
    figures = datasheet_figures(peaks={"fp16": datasheet_peak(datasheet_tflops)})
    record = device_record("cpu" if device.kind == "cpu" else "gpu0", datasheet=figures)
    options = {"budget": TimingBudget(3, 20, 1.0), "sustained_s": sustained_s, "loads": loads}
    target = CeilingTarget(device, record, ceiling, **SIZES, **options)
    with pytest.MonkeyPatch.context() as patch, clock_of(device):
        patch.setattr(compute_ceiling, "workloads_module", lambda device: device)
        found, measurements = compute_ceiling.measure_compute_ceiling(target, seals_for(record, Gemm()))
    return PeakFlopsRecord(name="fp16", skipped_reason=None, peak=found, measurements=measurements, **JOB)


def peak_of(device, *arguments, **options):
    return measured(device, *arguments, **options).peak


def near(tflops):
    return pytest.approx(tflops, rel=1e-3)


def test_the_ceiling_is_the_median_of_three_blocks_of_the_best_product():
    device = Card()
    peak = peak_of(device)
    assert (peak.workload, peak.compute_unit) == ("gemm", "tensor_core")
    assert peak.tflops == near(150) and peak.burst_tflops == peak.tflops
    assert peak.burst.product == product(BEST) and (BEST, 5) in device.checked
    assert [len(block.timing.samples_s) for block in peak.repeats] == [11, 11, 11], "0.92 ms each, 10 ms in all"
    assert [one.product.shape["m"] for one in peak.candidates] == [BEST, LARGE, REFERENCE]
    assert peak.candidates[0].flops_per_cycle == near(150e12 / 1500e6)
    assert peak.datasheet_tflops == 160
    reachable = 132 * 1024 * 1500e6 / 1e12  # multiprocessors x rate x the clock under the block
    assert (peak.sm_clock_mhz, peak.fraction_of_clock) == (1500, near(150 / reachable))
    assert (peak.remarks, peak.investigation, peak.all_throttled, peak.not_repeated) == ([], None, False, [])
    assert peak.search == Search(offered=3, tried=3, refused=[])
    (variant,) = peak.variants
    assert (variant.product, variant.tflops) == (product(LARGE, algorithm="fast"), near(120 / 2))


@pytest.mark.parametrize("load", [0, SUSTAINED_S])
def test_a_product_whose_blocks_disagree_falls_out(load):
    peak = peak_of(Card(unsteady=[BEST]), sustained_s=load)
    assert (peak.burst.product, peak.burst_tflops, len(peak.repeats)) == (product(LARGE), near(120), 3)
    out = [(one.product, one.repeats_tflops) for one in peak.not_repeated]
    assert out == [(product(BEST), [near(150 / 1.1), near(150)])] * 2
    unsteady = peak_of(Card(unsteady=[BEST, LARGE, REFERENCE]), sustained_s=load)
    assert unsteady.burst.product == product(BEST) and len(unsteady.not_repeated) == 2
    assert relative_spread([block.tflops for block in unsteady.repeats]) == near(0.1)


def test_the_reference_product_is_measured_as_an_operator_under_its_roof():
    record = measured(Card())
    (reference,) = record.measurements
    assert (reference.operator, reference.implementation, reference.shape["m"]) == ("gemm", "cupy.matmul", 2048)
    assert (reference.flops, reference.bytes) == (flops(REFERENCE), 3 * REFERENCE**2 * 2)
    assert (reference.compute_ceiling, reference.memory_ceilings) == ("fp16", ["hbm_read"])
    assert reference.cpu_time.median_s == near(flops(REFERENCE) / 100e12)
    assert reference.gpu_time.median_s == near(reference.cpu_time.median_s / 2)
    assert reference.sealed.cpu_time_s > flops(REFERENCE) / 160e12
    assert record.peak.reference_tflops == near(100)


@pytest.mark.parametrize(("kind", "longest_s"), [("gpu", 0.002), ("cpu", 0.2)])
def test_products_of_which_a_block_would_take_too_long_are_not_tried(kind, longest_s):
    """On a GPU those of the reference GEMM's size always are."""
    device, slow = Card(kind), Card(kind, rates=dict.fromkeys((REFERENCE, BEST, LARGE), 1e-1))
    measured(device)
    assert device.most_flops == near(100e12 * longest_s)
    measured(slow, datasheet_tflops=1e-1)
    assert slow.most_flops == (flops(REFERENCE) if kind == "gpu" else near(1e11 * longest_s))


@pytest.mark.parametrize("load", [0.8, 1.05])
def test_the_ceiling_is_the_higher_of_burst_and_sustained(load):
    peak = peak_of(Card(load=load))
    assert peak.sustained_tflops == peak.sustained.tflops == near(150 * load)
    assert peak.tflops == max(peak.burst_tflops, peak.sustained_tflops)
    assert peak.sustained.sm_clock_mhz == 1400
    assert (peak.sustained.product, len(peak.sustained.curve)) == (product(BEST), 60)


def test_the_runner_up_counts_where_it_holds_more_under_load():
    """Of another shape; the burst stays that of the fastest."""
    peak = peak_of(Card(load=0.8, rates={LARGE: 140.0}, loads={LARGE: 0.9}), loads=2)
    assert (peak.burst.product, peak.sustained.product) == (product(BEST), product(LARGE))
    assert (peak.burst_tflops, peak.sustained_tflops) == (near(150), near(140 * 0.9))
    assert peak_of(Card(load=0.8, rates={LARGE: 140.0}), loads=2).sustained.product == product(BEST)


def test_neither_a_cpu_nor_register_only_kernels_get_sustained_load():
    for device, ceiling, method in ((Card("cpu"), "fp16", "gemm"), (Card(), "fp32_fma", "fma")):
        record = measured(device, ceiling)
        assert (record.peak.workload, record.peak.sustained, record.peak.tflops) == (method, None, near(150))
        assert len(record.measurements) == (method == "gemm")
    assert peak_of(Card(), sustained_s=0).sustained is None


@pytest.mark.parametrize("wrong", [(1, 1), (1, 3), (5, 1), (7, 1), (5, 2)])
def test_a_wrong_result_fails_the_job(wrong):
    """Of the reference product, of the best one, of its variants, and of timed steps."""
    with pytest.raises(ArithmeticError, match="differs from float64"):
        measured(Card(wrong=wrong))


def test_a_host_that_left_the_device_without_work_is_told_and_costs_nothing():
    kept, late = peak_of(Card()), peak_of(Card(late=(30, 31, 50)))
    assert late.sustained_tflops == pytest.approx(kept.sustained_tflops, rel=1e-6)
    assert (len(kept.remarks), len(late.remarks), late.sustained.starved_points) == (0, 1, 3)


# ---------------------------------------------------------------------------------------------- what limited it


def test_throttling_throughout_is_flagged_and_the_power_cap_is_not():
    throttled = peak_of(Card(reasons=lambda now: [*HEAT, *POWER_CAP]))
    assert (throttled.all_throttled, throttled.throttle_reasons) == (True, sorted([*HEAT, *POWER_CAP]))
    assert throttled.burst.timing.all_throttled and throttled.sustained.all_throttled
    capped = peak_of(Card(reasons=lambda now: POWER_CAP))
    assert (capped.all_throttled, capped.throttle_reasons) == (False, POWER_CAP)
    unknown = peak_of(Card(reasons=lambda now: None))
    assert (unknown.all_throttled, unknown.throttle_reasons) == (None, [])


def test_what_limits_burst_and_sustained_load_is_known_apart():
    """A short burst says nothing of its limits; a register-only kernel goes on until NVML can report."""
    device = Card(load=1.2, reasons=lambda now: POWER_CAP)
    peak = peak_of(device)
    assert (peak.burst_throttle_reasons, peak.sustained_throttle_reasons, peak.throttle_reasons) == (
        None,
        POWER_CAP,
        POWER_CAP,
    )
    assert peak_of(device, "fp32_fma").burst_throttle_reasons == POWER_CAP


def test_a_ceiling_that_the_device_turns_out_to_lack_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, seals = write_seals(device_record("gpu0"), Gemm())

    def reference_workload(device, ceiling, size, seed):
        raise UnsupportedError("cuBLASLt offers no fp8_e4m3 product")

    lacking = SimpleNamespace(reference_workload=reference_workload)
    monkeypatch.setattr(compute_ceiling, "workloads_module", lambda device: lacking)
    options = {**SIZES, "budget": TimingBudget(3, 20, 1.0), "sustained_s": 0, "loads": 1}
    found = peak_flops.measure_ceiling(Card(), "fp8_e4m3", path, seals, **options)
    assert (found.skipped_reason, found.peak, found.measurements) == ("cuBLASLt offers no fp8_e4m3 product", None, [])
    assert set(found.seals) == {"gpu0/prediction.json", "gpu0/peak_flops/prediction.json"}


@pytest.mark.parametrize(
    ("tiles", "tile", "most_flops", "shape"),
    [
        (132, (128, 256), 1e12, (1536, 2816, 65536)),
        (264, (128, 256), 1e12, (2816, 3072, 57344)),
        (132, (128, 128), 60e12 * 3e-3, (1408, 1536, 40960)),
        (142, (128, 256), 1e12, (1792, 2560, 65536)),  # 2 x 71 is too narrow: 140 tiles
        (132, (128, 256), 1e9, None),
    ],
)
def test_a_product_of_exact_waves_has_the_longest_k_that_its_time_allows(tiles, tile, most_flops, shape):
    assert cuda_products.exact_waves_shape(tiles, tile, most_flops) == shape
