"""How a GPU is timed and loaded, on stand-ins: what is queued, when readings are taken, which kernel ran."""

from types import SimpleNamespace

import pytest
from fake_gpu import open_gpu, record_launches

from roofline.devices.base import LoadLimit
from roofline.devices.gpu import cuda_timing, driver_calls


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch)


def time_out(monkeypatch, device, above):
    """Make queueing more than so many steps behind the hold take too long; return a list of the steps timed."""
    timed, queue = [], device.timer._queue_steps

    def queue_behind_hold(step, first, events):
        queue(step, first, events)
        count = len(events) - 1
        device.timer._timed_out[0] = count > above
        if count <= above:
            timed.extend(range(first, first + count))

    monkeypatch.setattr(device.timer, "_queue_steps", queue_behind_hold)
    return timed


def test_fewer_steps_wait_behind_a_hold_that_timed_out(monkeypatch, device):
    for above in (100, 31, 8, 2):
        with monkeypatch.context() as patch:
            timed = time_out(patch, device, above)
            assert len(device.time_steps_on_device(lambda index: None, 70)) == 70
        # Numbers run on past a batch that timed out: what it rotated through is in the cache.
        assert len(timed) == 70 and timed == sorted(set(timed))
        assert (timed[0] == 0) == (above >= 32)
    time_out(monkeypatch, device, 1)  # a step that takes the host half a second has no launch gaps to leave out
    assert device.time_steps_on_device(lambda index: None, 70) is None


@pytest.mark.parametrize(("count", "behind"), [(8, 6), (1, 0)])
def test_readings_are_taken_once_three_quarters_of_the_queued_steps_are_over(monkeypatch, device, count, behind):
    done = []

    class Event(device.xp.cuda.Event):
        def record(self, stream=None):
            super().record(stream)
            self.after = sum(isinstance(entry, int) for entry in done)

        def synchronize(self):
            done.append(f"waited for {self.after}")

    monkeypatch.setattr(device.xp.cuda, "Event", Event)
    times = device.time_steps(done.append, count, 7, lambda: done.append("look"))
    assert done == [*range(7, 7 + count), f"waited for {behind}", "look"]
    assert len(times) == count and min(times) > 0


def test_the_clock_of_a_block_is_counted_by_all_multiprocessors(monkeypatch, device):
    launches, done = record_launches(monkeypatch, device), []
    device.time_steps(lambda index: done.append(len(launches)), 3)
    assert [name for name, *_ in launches] == ["mark_clocks", "mark_clocks"] and done == [1, 1, 1]
    assert {blocks for _, blocks, *_ in launches} == {device.multiprocessors}
    assert device.block_clock_mhz() == pytest.approx(1980)
    device.timer._clock_marks[1, 0] = 0  # one multiprocessor got no block
    assert device.block_clock_mhz() == pytest.approx(1980)
    device.timer._clock_marks[1, :, 1] = device.timer._clock_marks[0, :, 1] + 100_000  # ns
    assert device.block_clock_mhz() is None, "too short"


def test_load_is_queued_ahead_chunk_by_chunk(monkeypatch, device):
    done, now, queued_until = [], [100.0], [100.0]

    class Event:
        def record(self, stream):
            self.at = queued_until[0]

        def synchronize(self):
            now[0] = max(now[0], self.at)

    def step(index):
        done.append(index)
        queued_until[0] = max(queued_until[0], now[0]) + 2.5e-3

    monkeypatch.setattr(device.xp.cuda, "Event", Event)
    monkeypatch.setattr(device.xp.cuda, "get_elapsed_time", lambda start, end: (end.at - start.at) * 1e3)
    monkeypatch.setattr(cuda_timing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    chunks, ahead = [], []
    for chunk in device.time_load_chunks(step, 4, LoadLimit(0.095), chunks_timed_singly=2):
        chunks.append(chunk)
        ahead.append(queued_until[0] - now[0])
    assert [at_s for at_s, *_ in chunks] == pytest.approx([0.01 * place for place in range(1, 14)])
    assert [len(each_s) for _, each_s, _ in chunks] == [4, 4] + [1] * 11, "singly at the beginning"
    assert all(each_s == pytest.approx([2.5e-3] * len(each_s)) for _, each_s, _ in chunks)
    assert [clock for *_, clock in chunks] == pytest.approx([1980] * 13)
    assert ahead[:-4] == pytest.approx([0.03] * 9), "the next chunks wait, so that the device does not"
    assert done == [0, 1, 2, 3] * 13
    assert list(device.time_load_chunks(step, 1, LoadLimit(0))) == []


UNITS = {
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNN": True,
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_kernel__5x_cublas": True,
    "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_nn": True,
    "cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1": True,
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4": False,
    "ampere_sgemm_128x64_nn": False,
    "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>": False,
    "cupy_copy__float32_float16": None,
}


def test_the_unit_by_the_names_of_cublas_kernels():
    assert {name: driver_calls.uses_tensor_cores(name) for name in UNITS} == UNITS
