"""The CPU as a device: its threads, arrays, formula and products."""

import math
import platform

import numpy
import pytest

from roofline.devices import discovery, host
from roofline.devices.cpu import cpu_identity
from roofline.devices.cpu.cpu_device import CpuDevice
from roofline.operators.gemm import gemm_arithmetic, numpy_products


@pytest.fixture(scope="module")
def device():
    return discovery.open_device("cpu")


@pytest.mark.parametrize("dtype", ["fp16", "fp64"])
def test_normal_numbers_are_normal(device, dtype):
    values = device.normal((512, 1024), dtype, seed=1)
    assert values.shape == (512, 1024)
    assert values.dtype.itemsize == {"fp64": 8, "fp32": 4}.get(dtype, 2)
    wide = values.astype(numpy.float64)
    error = 1 / math.sqrt(wide.size)
    assert abs(wide.mean()) < 5 * error
    assert wide.var() == pytest.approx(1, abs=5 * math.sqrt(2) * error + 1e-3)
    assert (wide**4).mean() == pytest.approx(3, abs=5 * math.sqrt(96) * error + 5e-3)


def test_normal_numbers_are_the_same_for_any_number_of_cores(device, monkeypatch):
    shape = (3, 700_001)  # more than one piece of a million, the last of them short
    values = device.normal(shape, "fp32", seed=7)
    monkeypatch.setattr(host, "usable_core_count", lambda: 1)
    assert numpy.array_equal(values, CpuDevice(device.identity).normal(shape, "fp32", seed=7))
    monkeypatch.undo()
    CpuDevice(device.identity)  # gives the BLAS its threads back
    assert not numpy.array_equal(values, device.normal(shape, "fp32", seed=8))
    pieces = values.reshape(-1)
    assert abs(numpy.corrcoef(pieces[: 1 << 20], pieces[1 << 20 : 1 << 21])[0, 1]) < 0.01
    array = device.normal((3, 5), "fp32", seed=0)
    arrays = [array, *device.rolled_copies(array, 7)]
    assert len(arrays) == 8 and all(sorted(copy.ravel()) == sorted(array.ravel()) for copy in arrays)
    assert all((copy != earlier).all() for index, copy in enumerate(arrays) for earlier in arrays[:index])


def test_peak_formula_by_hand():
    hardware = {"clock_mhz": 2100, "cores_physical": 16, "simd_bits": 512, "fma_flops": 2, "vector_ports": 2}
    assert cpu_identity.formula_peak_tflops(hardware, 4) == pytest.approx(2.1504)
    assert cpu_identity.formula_peak_tflops(hardware, 8) == pytest.approx(1.0752)


ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (b"processor: 0\nmodel name: A\xff CPU\n\n", "A\ufffd CPU"),
        (ARM.format("0xd4f").encode(), "ARM Neoverse-V2"),
        ((2 * ARM.format("0xd85") + ARM.format("0xd87")).encode(), "ARM Cortex-X925 and ARM Cortex-A725"),
        (ARM.format("0xfff").encode(), "ARM part 0xfff"),
        (ARM.replace("0x41", "0x99").format("0x1").encode(), "ARM implementer 0x99 part 0x1"),
        (ARM.replace("0x41", "").format("").encode(), "ARM implementer  part "),
        (b"processor: 0\ncpu: POWER10 (raw)\n\n", "POWER10 (raw)"),
        (b"", f"unknown {platform.machine()} CPU"),
        (None, f"unknown {platform.machine()} CPU"),
    ],
)
def test_a_cpu_is_named_by_what_the_kernel_lists(tmp_path, monkeypatch, cpuinfo, name):
    monkeypatch.setattr(host, "SYSTEM_ROOT", tmp_path)
    if cpuinfo is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_bytes(cpuinfo)
    assert host.cpu_name() == name
    device = discovery.open_device("cpu")
    hardware = device.read_hardware()
    assert device.identity.name == name and device.datasheet_figures(hardware, "")["peaks_by"] == "formula"


def test_simd_units():
    avx512 = "sse2 avx avx2 fma avx512f"
    for flags, machine, family, name, flops_per_clock in (
        ("sse2", "x86_64", "6", "SSE2", 4 * 1 * 2),
        ("sse2 avx fma", "x86_64", "21", "AVX", 8 * 2 * 2),
        ("sse2 avx avx2 fma", "x86_64", "23", "AVX2", 8 * 2 * 2),
        (avx512, "x86_64", "6", "AVX-512", 16 * 2 * 2),
        (avx512, "x86_64", "25", "AVX-512", 16 * 2 * 1),  # Zen 4: two halves of 256 bits
        (avx512, "x86_64", "26", "AVX-512", 16 * 2 * 2),  # Zen 5
        ("asimd", "aarch64", None, "NEON", 4 * 2 * 2),
    ):
        units = cpu_identity.simd_units(set(flags.split()), machine, family)
        assert units["simd"] == name
        assert units["simd_bits"] // 32 * units["fma_flops"] * units["vector_ports"] == flops_per_clock


@pytest.mark.parametrize(("dtype", "error"), [("fp64", 1e-14), ("fp32", 1e-6)])
def test_a_product_is_checked_and_a_wrong_one_fails_the_job(device, monkeypatch, dtype, error):
    workload = numpy_products.reference_workload(device, dtype, 96, seed=1)
    assert (workload.product.shape, workload.flops) == ({"m": 96, "n": 96, "k": 96}, 2 * 96**3)
    assert workload.run_and_check().relative_error < error
    monkeypatch.setattr(numpy, "matmul", lambda a, b, out: out.__setitem__(slice(None), a.dot(b)) or out[95].fill(0))
    with pytest.raises(ArithmeticError, match=f"{dtype} matmul 96"):
        workload.run_and_check()
    monkeypatch.setattr(numpy, "matmul", lambda a, b, out: None)
    with pytest.raises(ArithmeticError, match="inf"):
        workload.run_and_check()


def candidates(device, most_flops=1e12):
    return numpy_products.candidate_workloads(device, "fp32", 48, most_flops, seed=1)


def test_the_largest_product_within_size_flops_and_memory_is_taken(device, monkeypatch):
    (workload,) = candidates(device)
    rebuilt = numpy_products.rebuild_workload(device, "fp32", 48, workload.product, seed=9)
    assert (rebuilt.product, rebuilt.flops) == (workload.product, workload.flops)
    rebuilt.run_and_check()
    monkeypatch.setattr(numpy_products, "SIDE_STEP", 8)
    limits = (1e12, 2 * 48**3, 2 * 41**3, 1)  # an odd multiple
    assert [candidates(device, flops_limit)[0].product.shape["m"] for flops_limit in limits] == [40, 40, 40, 8]
    monkeypatch.setattr(host, "memory_available_bytes", lambda: gemm_arithmetic.square_gemm_bytes(48, "fp32"))
    assert candidates(device)[0].product.shape["m"] == 8
