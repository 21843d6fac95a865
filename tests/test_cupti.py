"""The name of the kernel that ran, by the activity records of CUPTI, and the unit that it names."""

import sys
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import driver_calls

UNITS = {
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNN": True,
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_kernel__5x_cublas": True,
    "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_nn": True,
    "volta_h884gemm_256x128_ldg8_nn": True,
    "cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1": True,
    "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_dmma": True,
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4": False,
    "cutlass_80_simt_sgemm_256x128_8x4_nn_align1": False,
    "ampere_sgemm_128x64_nn": False,
    "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>": False,
    "cupy_copy__float32_float16": None,
}


def test_the_unit_by_the_names_of_cublas_kernels():
    assert {name: driver_calls.uses_tensor_cores(name) for name in UNITS} == UNITS


@pytest.fixture
def recording(monkeypatch):
    """CUPTI that records a kernel of 300 ns and one of twice 200 when it is flushed; a list says whether it records."""
    enabled, callbacks = [], []

    def flush(flag):
        times = [("nvjet", "kernel", 5000, 5200), ("ampere_sgemm", "kernel", 5200, 5500), ("a copy", "copy", 0, 9000)]
        times += [("nvjet", "kernel", 5500, 5700)]
        callbacks[0]([SimpleNamespace(name=n, kind=k, start=start, end=end) for n, k, start, end in times])

    module = SimpleNamespace(
        ActivityKind=SimpleNamespace(CONCURRENT_KERNEL="kernel", MEMCPY="copy"),
        activity_register_callbacks=lambda request, complete: callbacks.append(complete),
        activity_enable=enabled.append,
        activity_disable=enabled.remove,
        activity_flush_all=flush,
    )
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=module))
    return enabled


def test_the_longest_kernel_is_named_and_recording_ends_even_if_the_step_fails(recording, monkeypatch):
    ran = []
    found = driver_calls.kernel_of(lambda: ran.append(list(recording)))
    assert found == {"name": "nvjet", "tensor_cores": True, "how_known": "CUPTI activity record"}
    assert ran == [["kernel"]] and recording == []

    def fail():
        raise MemoryError

    assert driver_calls.kernel_of(fail)["name"] is None and recording == []
    monkeypatch.setitem(sys.modules, "cupti", None)  # not installed
    found = driver_calls.kernel_of(lambda: None)
    assert (found["name"], found["tensor_cores"]) == (None, None) and found["how_known"]
