"""On a real card alone (pytest -m gpu): what it tells of itself, and whether its times and results can be believed."""

import re
import time
from pathlib import Path

import bandwidth
import decode_attn
import device_query
import numpy
import peak_flops
import pytest
from test_cpu_device import cell_of, distance, reference

from roofline import checkpoint, devices, measuring
from roofline.measuring import StateLog
from roofline.operators import decode_attention as attention
from roofline.operators.gemm import Gemm
from roofline.prediction import seal
from roofline.records import read, write
from roofline.statistics import median

pytestmark = pytest.mark.gpu

DATASHEETS = Path(__file__).parents[1] / "config" / "datasheets.yaml"
MIB = 1 << 20


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
    return opened.copy_path("d2d", 256 * MIB)


@pytest.fixture
def copy(device, copied):
    """A copy within the device that takes about a tenth of a millisecond."""
    return copied


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
    counted = [device.clock_under(lambda index: few.fill(0), 2, 1e-6, lambda: None) for _ in range(20)]
    assert counted[-1] == pytest.approx(counted[-2], rel=0.02)
    assert 100 < counted[-1] < 5000


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
    event_time(device, copy.step, 20)
    expected = event_time(device, copy.step, 200)
    alone, called = device.device_times(copy.step, 200), device.step_times(copy.step, 200)
    assert len(alone) == len(called) == 200
    assert median(alone) == pytest.approx(expected, rel=0.1)
    assert median(called) == pytest.approx(expected, rel=0.1)
    assert sum(called) == pytest.approx(200 * expected, rel=0.1)


def test_times_agree_with_the_clock_on_the_wall(device, copy):
    device.synchronize()
    began = time.perf_counter()
    times = device.step_times(copy.step, 2000)
    wall = time.perf_counter() - began
    assert sum(times) == pytest.approx(wall, rel=0.1)


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
        copy.step(index)

    expected = median(device.device_times(copy.step, 50))
    times = device.device_times(step, 8)
    assert times is None or (len(times) == 8 and median(times) == pytest.approx(expected, rel=0.3))


def test_a_host_far_too_slow_gives_no_device_time_and_the_device_goes_on(device, copy):
    def step(index):
        time.sleep(0.6)
        copy.step(index)

    assert device.device_times(step, 2) is None
    assert median(device.device_times(copy.step, 50)) < 0.1


def test_step_numbers_reach_the_steps(device):
    numbers = []
    device.step_times(numbers.append, 3, first=7)
    device.device_times(numbers.append, 40)
    assert numbers == [7, 8, 9, *range(40)]


# ---------------------------------------------------------------------------------------------- numbers and results


@pytest.mark.parametrize(("dtype", "item_bytes"), [("fp16", 2), ("bf16", 2), ("fp32", 4), ("fp64", 8)])
def test_normal_numbers_are_normal(device, dtype, item_bytes):
    if device.unsupported(dtype):
        pytest.skip(device.unsupported(dtype))
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
    if device.unsupported(dtype):
        pytest.skip(device.unsupported(dtype))
    product = Gemm(device, 768, dtype, seed=1)
    product.check()
    product.step = lambda index: product.c.fill(0)
    with pytest.raises(ArithmeticError, match=f"{dtype} matmul 768"):
        product.check()


@pytest.mark.parametrize("scope", attention.SCOPES)
@pytest.mark.parametrize("seq_len", [1, 17, 128])
@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3)])
def test_decode_attention_is_right(device, dtype, tolerance, seq_len, scope):
    cell = cell_of(device, dtype, batch=3, seq_len=seq_len, heads=8, head_size=64, copies=2)
    assert cell.check(scope)[0].error < tolerance
    if scope == "core":
        expected = reference(*(device.to_host(array) for array in (cell.query, *cell.caches[1])))
        assert distance(device.to_host(cell.step("core")(1)), expected) < tolerance


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("scope", attention.SCOPES)
def test_a_wrong_decode_attention_fails(device, monkeypatch, dtype, scope):
    cell = cell_of(device, dtype, batch=3, seq_len=17, heads=8, head_size=64)
    right = cell.step(scope)

    def wrong(index):
        result = right(index)
        result[-1] *= 1.1
        return result

    monkeypatch.setattr(cell, "step", lambda scope: wrong)
    with pytest.raises(ArithmeticError, match=f"decode attention {scope} {dtype}"):
        cell.check(scope)


@pytest.mark.parametrize("level", ["d2d", "h2d", "d2h"])
def test_a_copy_that_did_not_run_is_found(device, level):
    path = device.copy_path(level, 4 * MIB)
    if level == "h2d":  # its check fetches what is on the device, which is zero as yet
        with pytest.raises(ArithmeticError):
            path.verify()
        path = device.copy_path(level, 4 * MIB)
    elif level == "d2d":
        with pytest.raises(ArithmeticError):
            path.verify()
    path.step(0)
    device.synchronize()
    assert path.verify() == "every byte of the destination compared with the source"


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


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_peak_lies_below_what_the_clock_allows(sealed, dtype):
    found = peak_flops.run("gpu0", dtype, *sealed, size=2048, warmup=3, iterations=50, time_budget_s=2)
    peak = found.peak
    assert peak.repeat_tflops == pytest.approx(peak.lab_tflops, rel=0.2)
    assert peak.clock_mhz > 100
    assert 0.1 < peak.fraction_of_clock < 1.03
    assert peak.lab.device_latency.median_s <= 1.1 * peak.lab.latency.median_s
    assert [state.when for state in peak.repeat.states] == ["before", "during", "after"]
    assert peak.unit == ("tensor_core" if dtype == "fp16" else "cuda_core")


@pytest.mark.parametrize(("level", "low", "high"), [("d2d", 50, 20_000), ("h2d", 1, 500), ("d2h", 1, 500)])
def test_bandwidths_are_of_their_kind(sealed, level, low, high):
    options = {"size_mib": 256, "transfer_size_mib": 64, "warmup": 3, "iterations": 20, "time_budget_s": 2}
    found = bandwidth.run("gpu0", level, *sealed, **options).bandwidth
    assert low < found.gb_per_s < high
    if found.vendor_gb_per_s:
        assert found.fraction_of_vendor < 1.02


def test_a_decode_job_measures_every_scope_twice_over(sealed, tmp_path):
    """What a caller gets is never less than the device's own part."""
    preset = checkpoint.Preset(layers=1, heads=8, head_size=64)
    checkpoint.generate(tmp_path / "weights.safetensors", preset, seed=0)
    options = {"implementations": ["eager"], "batch_sizes": [1, 8], "seed": 0, "warmup": 5, "iterations": 40}
    found = decode_attn.run(
        "gpu0", "made", preset, 128, "fp16", sealed[1], tmp_path / "weights.safetensors", time_budget_s=1, **options
    )
    assert [(one.shape["batch"], one.scope) for one in found.measurements] == [
        (1, "core"),
        (1, "block"),
        (8, "core"),
        (8, "block"),
    ]
    for one in found.measurements:
        assert one.cache == "cold" and one.overhead_s > 1e-6
        assert 0 < one.device_latency.median_s <= 1.1 * one.latency.median_s
        assert one.check.error <= one.check.tolerance
