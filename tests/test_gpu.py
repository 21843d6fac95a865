"""On a real card alone (pytest -m gpu): what it tells of itself, and whether its times and results can be believed."""

import re
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import bandwidth
import decode_attn
import device_query
import numpy
import peak_flops
import pytest
from numpy_card import Idle, Short, replace_kernels

from roofline import devices
from roofline.core.prediction import seal
from roofline.core.statistics import median
from roofline.devices.datasheets import CEILINGS
from roofline.devices.gpu import fma as gpu_fma
from roofline.devices.gpu import memory as gpu_memory
from roofline.measure import timing as measuring
from roofline.measure.timing import StateLog
from roofline.operators.decode_attention import checkpoint
from roofline.operators.gemm import cuda_products as gpu_gemm
from roofline.operators.gemm import operator as gemm
from roofline.operators.gemm.cuda_products import OUTPUTS, LtProducts, Shape
from roofline.operators.gemm.operator import Gemm
from roofline.records.base import read, write

pytestmark = pytest.mark.gpu

DATASHEETS = Path(__file__).parents[1] / "config" / "datasheets.yaml"
MIB = 1 << 20
RAGGED = 64 * MIB + 32 * 7  # no whole number of any grid's tiles
FMA = tuple(ceiling for ceiling in CEILINGS if ceiling.endswith("_fma"))
EVERY_OUTPUT = [(dtype, output, how) for dtype in OUTPUTS for output, how in OUTPUTS[dtype]]


@pytest.fixture(scope="module")
def opened():
    return devices.open_device("gpu0")


@pytest.fixture
def device(opened):
    """The device with its stream as the current one: jobs in other tests open it anew."""
    opened.stream.use()
    return opened


@pytest.fixture(scope="module")
def record():
    return device_query.query("gpu0", str(DATASHEETS))


@pytest.fixture(scope="module")
def copied(opened):
    opened.stream.use()
    (stream,) = opened.streams("d2d", 256 * MIB)
    (step,) = stream.grids.values()
    return step


@pytest.fixture
def copy(device, copied):
    """The step of a copy within the device that takes about a tenth of a millisecond."""
    return copied


def skip_unless_supported(device, ceiling):
    if device.unsupported(ceiling):
        pytest.skip(device.unsupported(ceiling))


# ---------------------------------------------------------------------------------------------- what it tells


def test_it_describes_itself(record, tmp_path):
    write(record, tmp_path / "device_query.json")
    assert read(type(record), tmp_path / "device_query.json") == record
    hardware = record.hardware
    assert record.name and record.uuid.startswith(("GPU-", "MIG-"))
    assert re.fullmatch(r"\d+\.\d", hardware["compute_capability"])
    assert 1 <= hardware["multiprocessors"] <= 1000
    assert MIB <= record.last_level_cache_bytes == hardware["l2_bytes"] <= 1024 * MIB
    assert 0 < record.memory_free_bytes <= record.memory_total_bytes
    assert 500 <= hardware["sm_clock_max_mhz"] <= 5000
    assert hardware["sm_clock_now_mhz"] <= hardware["sm_clock_max_mhz"]
    assert 10 <= hardware["power_limit_w"] <= 3000
    assert all(record.software[name] for name in ("cupy", "driver", "cuda_of_driver", "cuda_runtime", "nvrtc"))
    assert record.vendor.peaks["fp32"].tflops > 1


def test_its_state(device):
    state = device.state()
    assert state["sm_clock_mhz"] > 0 and state["memory_clock_mhz"] > 0
    assert state["power_w"] > 1
    assert 0 < state["temperature_c"] < 110
    assert state["throttle_reasons"] is not None


def test_under_load_the_clock_and_the_power_are_those_of_load(device, record):
    """By NVML, which is behind, after a while of load; by a kernel amid the block at once."""
    time.sleep(4)
    idle = device.state()
    product = Gemm(device, 4096, "fp16", seed=1)
    step_s = median(device.step_times(product.step, 20))
    device.step_times(product.step, max(1, int(0.5 / step_s)))
    log, began = StateLog(device), time.perf_counter()
    device.while_busy(product.step, step_s, 0.2, lambda: log.read("during"))
    took = time.perf_counter() - began
    counted = device.clock_under(product.step, max(2, int(0.1 / step_s)), step_s, lambda: log.read("during"))
    busy, amid = log.states
    assert took == pytest.approx(0.2, rel=0.5)
    for during in (busy, amid):
        assert 0.3 * record.hardware["sm_clock_max_mhz"] < during.sm_clock_mhz <= record.hardware["sm_clock_max_mhz"]
        assert during.power_w > 1.2 * idle["power_w"]
        assert "gpu_idle" not in during.throttle_reasons
    assert 0.3 * record.hardware["sm_clock_max_mhz"] < counted < 1.02 * record.hardware["sm_clock_max_mhz"]
    assert counted == pytest.approx(amid.sm_clock_mhz, rel=0.3)  # NVML tells of a moment some 100 ms ago


def test_the_counted_clock_repeats(device):
    """Without load to speak of, so that nothing but the counting can move it."""
    few = device.xp.zeros(32, device.xp.float32)
    counted = [device.clock_under(lambda index: few.fill(0), 2, 1e-5, lambda: None) for _ in range(20)]
    assert counted[-1] == pytest.approx(counted[-2], rel=0.02)
    assert 100 < counted[-1] < 5000


def test_the_clock_that_a_kernel_counts_of_itself_is_nvmls(device, record):
    workload = gpu_fma.candidates(device, "fp32_fma", seed=1)[0]
    step_s = median(device.step_times(workload.step, 20))
    device.step_times(workload.step, max(1, int(0.5 / step_s)))
    seen = []
    device.while_busy(workload.step, step_s, 0.3, lambda: seen.append(device.state()["sm_clock_mhz"]))
    assert workload.clock_mhz() == pytest.approx(seen[0], rel=0.3)
    assert workload.clock_mhz() < 1.02 * record.hardware["sm_clock_max_mhz"]


@pytest.mark.parametrize("level", ["l2", "l1", "shared"])
def test_every_kernel_of_ours_counts_a_clock(device, record, level):
    for stream in device.streams(level, RAGGED):
        step = next(iter(stream.grids.values()))
        device.kernel_clock[...] = 0
        assert stream.clock_mhz() is None
        device.step_times(step, 5)
        assert 100 < stream.clock_mhz() < 1.1 * record.hardware["sm_clock_max_mhz"]


def test_the_kernel_is_named_or_the_reason_is_told(device):
    product = Gemm(device, 1024, "fp16", seed=1)
    found = device.kernel_of(product.step)
    assert found["how_known"]
    if found["name"]:
        assert found["tensor_cores"] is True
    else:
        assert "CUPTI" in found["how_known"]


# ---------------------------------------------------------------------------------------------- time


def event_time(device, step, count):
    """Seconds of each of so many steps between two events of our own."""
    start, end = device.xp.cuda.Event(), device.xp.cuda.Event()
    device.synchronize()
    start.record(device.stream)
    for index in range(count):
        step(index)
    end.record(device.stream)
    end.synchronize()
    return device.xp.cuda.get_elapsed_time(start, end) / 1e3 / count


def test_times_of_a_copy_agree_with_events_of_our_own(device, copy):
    """A copy of 256 MiB is long enough to hide its launch: all ways of timing it must agree."""
    event_time(device, copy, 20)
    expected = event_time(device, copy, 200)
    alone, called = device.device_times(copy, 200), device.step_times(copy, 200)
    assert len(alone) == len(called) == 200
    assert median(alone) == pytest.approx(expected, rel=0.1)
    assert median(called) == pytest.approx(expected, rel=0.1)
    assert sum(called) == pytest.approx(200 * expected, rel=0.1)


def test_times_agree_with_the_clock_on_the_wall(device, copy):
    device.synchronize()
    began = time.perf_counter()
    times = device.step_times(copy, 2000)
    wall = time.perf_counter() - began
    assert sum(times) == pytest.approx(wall, rel=0.1)


def test_watched_times_are_the_same_and_looked_at_once_while_the_steps_run(device, copy):
    expected, seen = median(device.step_times(copy, 200)), []
    half, ended = device.xp.cuda.Event(), device.xp.cuda.Event()

    def step(index):
        copy(index)
        if index in (10 + 499, 10 + 999):
            (half if index == 10 + 499 else ended).record(device.stream)

    times = device.watched_times(step, 1000, 10, lambda: seen.append((half.done, ended.done)))
    assert seen == [(True, False)], "looked at once, late, and the steps were not over"
    assert len(times) == 1000 and median(times) == pytest.approx(expected, rel=0.1)


def test_load_goes_on_in_chunks_for_as_long_as_wanted(device, copy):
    each_s, looks = median(device.step_times(copy, 200)), []
    count = max(1, round(0.05 / each_s))
    chunks = list(device.load_times(copy, count, 0.5, lambda: looks.append(1)))
    ends = [at_s for at_s, _ in chunks]
    assert len(chunks) == len(looks) >= 5
    assert ends == sorted(ends) and 0.45 < ends[-1] < 1
    assert all(step_s == pytest.approx(each_s, rel=0.2) for _, step_s in chunks)
    assert sum(count * step_s for _, step_s in chunks) == pytest.approx(ends[-1], rel=0.1), "without a pause"


def test_a_tiny_step_takes_a_caller_longer_than_the_device(device):
    """Launches from Python come microseconds apart; queued behind a block they run back to back."""
    few = device.xp.zeros(32, device.xp.float32)

    def step(index):
        device.xp.add(few, 1, out=few)

    device.step_times(step, 50)
    called, alone = median(device.step_times(step, 500)), median(device.device_times(step, 320))
    assert 1e-6 < called < 1e-3
    assert 0 < alone <= called
    assert float(few[0]) == 50 + 500 + 320


def test_a_host_that_queues_too_slowly_neither_hangs_nor_lies(device, copy):
    """0.1 s a step: 8 outlast the block, 2 do not. What is told must be the copy's time and not the sleep's."""

    def step(index):
        time.sleep(0.1)
        copy(index)

    expected = median(device.device_times(copy, 50))
    times = device.device_times(step, 8)
    assert times is None or (len(times) == 8 and median(times) == pytest.approx(expected, rel=0.3))


def test_a_host_far_too_slow_gives_no_device_time_and_the_device_goes_on(device, copy):
    def step(index):
        time.sleep(0.6)
        copy(index)

    assert device.device_times(step, 2) is None
    assert median(device.device_times(copy, 50)) < 0.1


def test_step_numbers_reach_the_steps(device):
    numbers = []
    device.step_times(numbers.append, 3, first=7)
    device.device_times(numbers.append, 40)
    assert numbers == [7, 8, 9, *range(40)]


# ---------------------------------------------------------------------------------------------- numbers and results


@pytest.mark.parametrize(("dtype", "item_bytes"), [("fp16", 2), ("bf16", 2), ("fp32", 4), ("fp64", 8)])
def test_normal_numbers_are_normal(device, dtype, item_bytes):
    skip_unless_supported(device, dtype)
    values = device.to_host(device.normal((1000, 1001), dtype, seed=1))
    assert values.shape == (1000, 1001) and values.dtype.itemsize == item_bytes
    wide = values.astype(numpy.float64)
    assert wide.mean() == pytest.approx(0, abs=0.006)
    assert wide.var() == pytest.approx(1, abs=0.01)
    assert (wide**4).mean() == pytest.approx(3, abs=0.06)
    assert numpy.array_equal(wide, device.to_host(device.normal((1000, 1001), dtype, seed=1)).astype(numpy.float64))
    assert not numpy.array_equal(wide, device.to_host(device.normal((1000, 1001), dtype, seed=2)).astype(numpy.float64))


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
def test_products_are_right_and_a_wrong_one_fails(device, dtype):
    skip_unless_supported(device, dtype)
    product = Gemm(device, 768, dtype, seed=1)
    product.check()
    product.step = lambda index: product.c.fill(0)
    with pytest.raises(ArithmeticError, match=f"{dtype} matmul 768"):
        product.check()


# ---------------------------------------------------------------------------------------------- ways to the ceilings


def by_cublaslt(workloads):
    return (workload for workload in workloads if workload.product.library == "cuBLASLt")


def require_right(workload):
    check = workload.check()
    assert 0 <= check.error <= check.tolerance


@pytest.mark.parametrize("dtype", OUTPUTS)
def test_the_labs_product_and_candidates_are_right(device, dtype):
    skip_unless_supported(device, dtype)
    require_right(device.lab_product(dtype, 1024, seed=1))
    found = list(islice(by_cublaslt(device.peak_candidates(dtype, 1024, 8 * 1024**3, seed=3)), 3))
    assert len(found) == 3
    for workload in found:
        require_right(workload)


@pytest.mark.parametrize(("dtype", "output", "how"), EVERY_OUTPUT)
def test_every_layout_output_and_accumulation_is_right(device, dtype, output, how):
    """On three different sides, of which a transposed result would not pass."""
    skip_unless_supported(device, dtype)
    found = list(islice(LtProducts(device, dtype, [Shape(512, 768, 1024)], seed=1).candidates(output, how), 3))
    assert found
    for workload in found:
        assert (workload.product.output, workload.product.accumulation) == (output, how)
        require_right(workload)


def change_runs(monkeypatch, change):
    """Make products run as `change` says: it is given the arguments of a run, after it has run or not."""
    algorithms = gpu_gemm.CublasLt.algorithms

    def changed(self, *arguments, **options):
        found = algorithms(self, *arguments, **options)
        return [replace(one, run=lambda *given, run=one.run: change(run, *given)) for one in found]

    monkeypatch.setattr(gpu_gemm.CublasLt, "algorithms", changed)


@pytest.mark.parametrize(("dtype", "output", "how"), EVERY_OUTPUT)
@pytest.mark.parametrize("wrong", ["did not run", "last column is zero"])
def test_a_product_that_is_wrong_or_did_not_run_is_found(device, monkeypatch, dtype, output, how, wrong):
    skip_unless_supported(device, dtype)
    shape = Shape(512, 256, 1024)
    column_bytes = shape.m * gpu_gemm.array_dtype(output).itemsize

    def change(run, a, b, d, stream):
        if wrong == "last column is zero":
            run(a, b, d, stream)
            device.xp.cuda.runtime.memsetAsync(d + (shape.n - 1) * column_bytes, 0, column_bytes, stream)

    change_runs(monkeypatch, change)
    with pytest.raises(ArithmeticError, match=f"{dtype} product 512 x 256 x 1024"):
        next(LtProducts(device, dtype, [shape], seed=1).candidates(output, how)).check()


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "fp8_e4m3"])
def test_the_comparison_sees_the_rounding_of_a_right_product(device, monkeypatch, dtype):
    """Else it would compare nothing, or the result with itself."""
    skip_unless_supported(device, dtype)
    workload = next(gpu_gemm.of_shape(device, dtype, {"m": 512, "n": 512, "k": 512}, seed=1))
    monkeypatch.setitem(gemm.TOLERANCE, dtype, 1e-9)
    with pytest.raises(ArithmeticError, match=f"{dtype} product"):
        workload.check()


@pytest.mark.parametrize("dtype", OUTPUTS)
def test_what_was_found_is_found_again(device, dtype):
    skip_unless_supported(device, dtype)
    workload = list(islice(device.peak_candidates(dtype, 1024, 8 * 1024**3, seed=3), 4))[-1]
    again = device.peak_workload(dtype, 1024, workload.product, seed=5)
    assert again.product == workload.product
    require_right(again)


@pytest.mark.parametrize("ceiling", FMA)
def test_every_multiply_add_kernel_is_right_and_within_what_the_clock_allows(device, record, ceiling):
    skip_unless_supported(device, ceiling)
    peak = record.vendor.peaks.get(ceiling)
    for workload in device.peak_candidates(ceiling, 4096, 0, seed=1):
        require_right(workload)
        seconds = median(device.step_times(workload.step, 5))
        assert 1e-4 < seconds < 1e-2
        if peak and peak.operations_per_clock_per_multiprocessor:
            per_clock = workload.flops / seconds / device.multiprocessors / (workload.clock_mhz() * 1e6)
            assert per_clock < 1.05 * peak.operations_per_clock_per_multiprocessor


@pytest.mark.parametrize("ceiling", FMA)
def test_a_multiply_add_kernel_that_does_nothing_is_found(device, monkeypatch, ceiling):
    skip_unless_supported(device, ceiling)
    monkeypatch.setattr(gpu_fma, "_rounds", lambda device, run: 64)
    names = {f"{way}_{gpu_fma.dtype_of(ceiling)}" for way in gpu_fma.FACTORS}
    replace_kernels(monkeypatch, device, names, Idle)
    for workload in gpu_fma.candidates(device, ceiling, seed=1)[: 2 * len(gpu_fma.VARIANTS)]:
        with pytest.raises(ArithmeticError, match=f"{ceiling} kernel"):
            workload.check()


# ---------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("size_bytes", [32, 32 * 7, RAGGED])
@pytest.mark.parametrize("mix", gpu_memory.MIXES)
def test_every_grid_of_device_memory_reaches_every_byte(device, mix, size_bytes):
    stream = device.streams("hbm", size_bytes)[gpu_memory.MIXES.index(mix)]
    assert stream.mix == mix and len(stream.grids) >= 4 * len(gpu_memory.DEPTHS)
    for grid in stream.grids:
        assert stream.verify(grid)


@pytest.mark.parametrize("wrong", [Short, Idle])
@pytest.mark.parametrize("mix", gpu_memory.MIXES)
def test_a_kernel_that_leaves_out_the_last_vector_or_all_is_found(device, monkeypatch, mix, wrong):
    replace_kernels(monkeypatch, device, {f"{mix}_{depth}" for depth in (2, 4, 8)}, wrong)
    stream = device.streams("hbm", RAGGED)[gpu_memory.MIXES.index(mix)]
    for grid in list(stream.grids)[::5]:
        if grid.endswith(" 1 in flight"):  # which the checks themselves use
            assert stream.verify(grid)
        else:
            with pytest.raises(ArithmeticError):
                stream.verify(grid)


@pytest.mark.parametrize("level", ["l2", "l1", "shared"])
def test_every_grid_of_a_cache_reads_every_byte_of_every_pass(device, level):
    for stream in device.streams(level, None):
        for grid in stream.grids:
            assert stream.verify(grid)


@pytest.mark.parametrize("level", ["l2", "l1", "shared"])
def test_a_reader_of_a_cache_that_leaves_out_the_last_vector_is_found(device, monkeypatch, level):
    replace_kernels(monkeypatch, device, {f"read_{level}"}, Short)
    for stream in device.streams(level, None):
        with pytest.raises(ArithmeticError, match="the words read add up to"):
            stream.verify(next(iter(stream.grids)))


@pytest.mark.parametrize("level", ["d2d", "h2d", "d2h"])
def test_copies_arrive_and_one_that_did_not_run_is_found(device, monkeypatch, level):
    for stream in device.streams(level, 4 * MIB + 32 * 7):
        (grid,) = stream.grids
        assert stream.verify(grid) == "every byte of the destination compared with the source"
        if level == "d2d":
            continue
        with monkeypatch.context() as patch:
            patch.setattr(device.xp.cuda.runtime, "memcpyAsync", lambda *arguments: None)
            with pytest.raises(ArithmeticError, match="the copy differs from its source"):
                stream.verify(grid)


@pytest.mark.parametrize("place", [0, 12345, -1])
def test_one_bit_that_differs_is_found(device, place):
    source = device.normal((MIB + 7,), "fp32", seed=1)
    destination = source.copy()
    assert gpu_memory.same_bits(device, source, destination)
    destination.view(device.xp.uint32)[place] ^= 1
    assert not gpu_memory.same_bits(device, source, destination)


def test_a_step_of_a_sweep_reads_what_it_says(device):
    readers = max(1, device.multiprocessors // gpu_memory.READERS)
    for series, sets in zip(device.sweeps(1), (readers, 1), strict=True):
        for size in {series.sizes[0], series.sizes[len(series.sizes) // 2], series.sizes[-1]}:
            step, bytes_read = series.step(size)
            words = device.cache_words(sets * size)
            gpu_memory._write_pattern(device, words)
            expected = gpu_memory._pattern_sum(words.size) * (bytes_read // size) % 2**32
            gpu_memory._require_sum(device, lambda step=step: step(0), expected, words.size)


# ---------------------------------------------------------------------------------------------- whole jobs


@pytest.fixture(scope="module")
def sealed(record, tmp_path_factory):
    """The device's record and its seal as files, and a lock of our own."""
    folder = tmp_path_factory.mktemp("sealed")
    write(record, folder / "device_query.json")
    write(seal(record, folder / "device_query.json", record.queried_at), folder / "prediction.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "HOST_LOCK", folder / "lock")
        yield str(folder / "device_query.json"), str(folder / "prediction.json")


@pytest.mark.parametrize("ceiling", ["fp16", "tf32", "fp32_fma"])
def test_a_peak_lies_below_what_the_clock_allows(device, sealed, ceiling):
    skip_unless_supported(device, ceiling)
    sustained_s = 1 if ceiling == "fp16" else 0
    options = {"size": 2048, "warmup": 3, "iterations": 50, "time_budget_s": 0.3, "sustained_s": sustained_s}
    peak = peak_flops.run("gpu0", ceiling, *sealed, **options).peak
    by_product = ceiling != "fp32_fma"
    assert peak.tflops == max(peak.burst_tflops, peak.sustained_tflops or 0)
    assert peak.search.tried == len(peak.candidates) <= peak.search.offered
    assert peak.clock_mhz > 100
    assert 0.1 < peak.fraction_of_clock < 1.03
    assert peak.burst.check.error <= peak.burst.check.tolerance
    assert [state.when for state in peak.burst.states] == ["before", "after"] + ["during"] * by_product
    assert peak.unit == ("tensor_core" if by_product else "cuda_core")
    assert len(peak.candidates) > 3 and peak.candidates == sorted(peak.candidates, key=lambda one: -one.trial_tflops)
    if by_product:
        # The same kernels, but the power limit looks back, and may slow the second pass.
        assert peak.lab.device_latency.median_s <= 1.25 * peak.lab.latency.median_s
    if sustained_s:
        assert len(peak.sustained.curve) > 5
        assert 0.2 * peak.burst_tflops < peak.sustained_tflops < 1.2 * peak.burst_tflops


BANDWIDTH = {"size_mib": 1024, "transfer_size_mib": 64, "sweep_points": 1, "warmup": 3, "iterations": 64}


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [("hbm", 50, 20_000), ("d2d", 50, 20_000), ("l2", 100, 100_000), ("h2d", 0.5, 1000), ("d2h", 0.5, 1000)],
)
def test_bandwidths_are_of_their_kind(sealed, level, low, high):
    for found in bandwidth.run("gpu0", level, *sealed, time_budget_s=0.3, **BANDWIDTH).bandwidths:
        assert low < found.gb_per_s < high
        assert found.verified and 1 <= len(found.trials) == found.search.tried <= found.search.offered
        assert (found.sm_clock_mhz is not None) == (level == "l2")
        if found.vendor_gb_per_s:
            assert found.fraction_of_vendor < 1.1  # a sixteenth may have stayed in the L2


@pytest.mark.parametrize("level", ["l1", "shared"])
def test_a_multiprocessor_reads_no_more_than_32_lanes_of_4_bytes_a_clock(sealed, level):
    for found in bandwidth.run("gpu0", level, *sealed, time_budget_s=0.3, **BANDWIDTH).bandwidths:
        assert 20 < found.bytes_per_clock_per_multiprocessor < 1.03 * 128


def test_a_sweep_falls_from_the_caches_to_the_memory(sealed):
    for sweep in bandwidth.run("gpu0", "sweep", *sealed, time_budget_s=0.3, **BANDWIDTH).sweeps:
        rates = [point.gb_per_s for point in sweep.points]
        assert rates[-1] < 0.8 * max(rates)
        assert 1 <= len(sweep.levels) <= 4


def test_a_decode_job_measures_every_implementation_and_scope(sealed, tmp_path):
    """What a caller gets is never less than the device's own part."""
    preset = checkpoint.Preset(layers=3, heads=8, head_size=64, kv_heads=2)
    checkpoint.generate(tmp_path / "weights.safetensors", preset, seed=0)
    options = {"batch_sizes": [1, 8], "seed": 0, "cache": "cold", "warmup": 5, "iterations": 40, "time_budget_s": 1}
    implementations = ["eager", "fused", "fused_graph"]
    found = decode_attn.run(
        "gpu0", "made", preset, 128, "bf16", sealed[1], tmp_path / "weights.safetensors", implementations, **options
    )
    assert [(one.implementation, one.shape["batch"], one.scope) for one in found.measurements] == [
        ("eager", 1, "core"),
        ("eager", 1, "block"),
        ("eager", 8, "core"),
        ("eager", 8, "block"),
        ("fused", 1, "core"),
        ("fused", 8, "core"),
        ("fused_graph", 1, "core"),
        ("fused_graph", 8, "core"),
    ]
    for one in found.measurements:
        assert one.cache == "cold" and one.overhead_s > 0 and one.device_overhead_s > 0
        assert 0 < one.device_latency.median_s <= 1.1 * one.latency.median_s
        assert one.check.error <= one.check.tolerance
    eager, fused, graph = (
        next(one for one in found.measurements if one.implementation == name) for name in implementations
    )
    assert (eager.empty_kernel_s, fused.layers, graph.layers) == (None, 1, 3)
    assert graph.latency.median_s < fused.latency.median_s < eager.latency.median_s
