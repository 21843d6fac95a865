"""On a real card (pytest -m gpu): what it reports of itself, and whether its times and results can be believed."""

import statistics
from pathlib import Path

import bandwidth
import peak_flops
import pytest
from factories import write_seals
from fake_gpu import random_numbers, real_gpu, skip_unless_supported

from roofline.core.dtypes import array_dtype, relative_error
from roofline.core.units import MIB
from roofline.devices.datasheets import COMPUTE_CEILINGS
from roofline.devices.discovery import describe_device, open_device
from roofline.measure.protocol import TimingBudget
from roofline.operators.gemm.operator import Gemm
from roofline.records.base import read, write

pytestmark = pytest.mark.gpu

DATASHEETS = Path(__file__).parents[1] / "config" / "datasheets.yaml"
FMA = tuple(ceiling for ceiling in COMPUTE_CEILINGS if ceiling.endswith("_fma"))


@pytest.fixture
def device():
    return real_gpu()


@pytest.fixture(scope="module")
def record():
    return describe_device(open_device("gpu0"), str(DATASHEETS))


def test_it_describes_itself(record, tmp_path):
    write(record, tmp_path / "device_query.json")
    assert read(type(record), tmp_path / "device_query.json") == record
    hardware = record.hardware
    assert record.name and record.uuid.startswith(("GPU-", "MIG-"))
    assert MIB <= record.last_level_cache_bytes == hardware["l2_bytes"] <= 1024 * MIB
    assert 0 < record.memory_free_bytes <= record.memory_total_bytes
    assert all(record.software[name] for name in ("cupy", "driver", "cuda_of_driver", "cuda_runtime", "nvrtc"))
    assert record.datasheet.peaks["fp32"].tflops > 1


def test_the_clock_of_a_block_is_the_one_that_its_kernel_counts_of_itself(device):
    workload = device.candidate_fma_workloads("fp32_fma", seed=1)[0]
    ratios = []
    for _ in range(5):  # the kernel counts its last step alone: while the card changes its clock, they may differ
        device.time_steps(workload.step, 30)
        ratios.append(device.block_clock_mhz() / workload.clock_mhz())
    assert statistics.median(ratios) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("fp64", 1e-14), ("fp32", 1e-6), ("fp16", 1e-3), ("bf16", 1e-3), ("int8", 1e-3), ("fp8_e4m3", 1e-3)],
)
def test_random_numbers_are_those_of_philox_and_box_muller(monkeypatch, device, dtype, tolerance):
    skip_unless_supported(device, dtype)
    expected, count = random_numbers(monkeypatch), 1_000_003
    seeds = (1, 1, 2**40 + 1)
    drawn = [device.to_host(device.normal((count,), dtype, seed)).view(array_dtype(dtype)) for seed in seeds]
    assert relative_error(drawn[0], expected.normal(count, 1, dtype)) < tolerance
    assert (drawn[0] == drawn[1]).all()
    assert relative_error(drawn[2], expected.normal(count, 2**40 + 1, dtype)) < tolerance
    if dtype == "int8":
        assert drawn[0].min() >= -127


@pytest.mark.parametrize("ceiling", FMA)
def test_every_multiply_add_kernel_is_right_and_within_what_the_clock_allows(device, record, ceiling):
    skip_unless_supported(device, ceiling)
    peak = record.datasheet.peaks.get(ceiling)
    for workload in device.candidate_fma_workloads(ceiling, seed=1):
        check = workload.run_and_check()
        assert 0 <= check.relative_error <= check.tolerance
        seconds = statistics.median(device.time_steps(workload.step, 5))
        assert 1e-4 < seconds < 1e-2
        if peak and peak.operations_per_clock_per_multiprocessor:
            per_clock = workload.flops / seconds / device.multiprocessors / (workload.clock_mhz() * 1e6)
            assert per_clock < 1.05 * peak.operations_per_clock_per_multiprocessor


@pytest.fixture
def sealed(monkeypatch, record, tmp_path):
    """Writes the device's record and seals for the job of an operator, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda operator: write_seals(record, operator)


@pytest.mark.parametrize(("ceiling", "references"), [("fp16", 2), ("tf32", 1), ("fp32_fma", 0)])
def test_a_peak_lies_below_what_the_clock_allows(device, sealed, ceiling, references):
    skip_unless_supported(device, ceiling)
    sustained_s = 1 if ceiling == "fp16" else 0
    sizes, budget = {"size": 2048, "reference_size": 2048}, TimingBudget(3, 50, 0.3)
    found = peak_flops.measure_ceiling(
        device, ceiling, *sealed(Gemm()), **sizes, budget=budget, sustained_s=sustained_s, loads=1
    )
    peak = found.peak
    assert peak.tflops == max(peak.burst_tflops, peak.sustained_tflops or 0)
    assert 3 < peak.search.tried == len(peak.candidates) <= peak.search.offered
    assert peak.sm_clock_mhz > 100 and 0.1 < peak.fraction_of_clock < 1.03
    assert peak.burst.check.relative_error <= peak.burst.check.tolerance
    assert peak.compute_unit == ("cuda_core" if ceiling == "fp32_fma" else "tensor_core")
    assert len(found.measurements) == references
    for reference in found.measurements:
        # The same kernels, but the power limit looks back, and may slow the second pass.
        assert reference.gpu_time.median_s <= 1.25 * reference.cpu_time.median_s
    if sustained_s:
        assert len(peak.sustained.curve) > 5
        assert 0.2 * peak.burst_tflops < peak.sustained_tflops < 1.2 * peak.burst_tflops


TIMING = {"warmup": 3, "iterations": 64, "time_budget_s": 0.3}
BANDWIDTH = {"size_mib": 1024, "transfer_size_mib": 64, "sweep_points": 1, "timing": TIMING}
ALONE = {"mixes": None, "cards": ["gpu0"], "energy": False, "sustained_s": 1}


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [
        *((level, 50, 20_000) for level in ("hbm", "d2d")),
        *((level, 100, 200_000) for level in ("l2", "l1", "shared")),
        *((level, 0.5, 1000) for level in ("h2d", "d2h")),
        ("sweep", 0, 0),
    ],
)
def test_bandwidths_are_of_their_kind(record, sealed, level, low, high):
    _, seals = sealed(Gemm())
    bandwidth.open_device_once.cache_clear()  # a device that was opened since has the stream
    measured = bandwidth.measure_level(record, level, seals["device"], BANDWIDTH | ALONE)
    assert level == "hbm" or not measured.idle
    for found in measured.bandwidths:
        assert bool(found.sustained) == (found.name in ("hbm_read", "hbm_copy"))
        assert low < found.gb_per_s < high
        assert found.checked_against and 1 <= len(found.trials) == found.search.tried <= found.search.offered
        assert (found.sm_clock_mhz is not None) == (level in ("l2", "l1", "shared"))
        if found.datasheet_gb_per_s:
            assert found.gb_per_s < 1.1 * found.datasheet_gb_per_s  # a sixteenth may have stayed in the L2
        if level in ("l1", "shared"):  # 32 lanes of 4 bytes
            assert 20 < found.gb_per_s * 1e3 / found.sm_clock_mhz / real_gpu().multiprocessors < 1.03 * 128
    for sweep in measured.sweeps:
        rates = [point.gb_per_s for point in sweep.points]
        assert rates[-1] < 0.8 * max(rates) and 1 <= len(sweep.plateaus) <= 4
