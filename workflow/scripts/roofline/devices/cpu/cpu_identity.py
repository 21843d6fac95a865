"""The CPU of this machine and its theoretical peak; nothing is opened, and NumPy is not loaded."""

import contextlib
import platform
from importlib import metadata
from pathlib import Path

from roofline.core.dtypes import FLOAT_BYTES, REGISTER_ONLY_DTYPES, dtype_bytes
from roofline.devices import host
from roofline.devices.base import Identity
from roofline.devices.cpu.topology import total_last_level_cache_bytes

CPUFREQ_SOURCE = "highest clock by the kernel's cpufreq"
CPUINFO_SOURCE = "clock reported now; the core may boost above it, so a measured peak may exceed the formula's"
NATIVE_DTYPES = tuple(name for name in REGISTER_ONLY_DTYPES.values() if dtype_bytes(name) >= FLOAT_BYTES)
NATIVE_CEILINGS = (*NATIVE_DTYPES, *(name for name, dtype in REGISTER_ONLY_DTYPES.items() if dtype in NATIVE_DTYPES))


def discover(capacities: bool = True) -> list[Identity]:
    """Return the CPU as the one device of this kind. `capacities` has a meaning for GPUs alone."""
    import psutil

    return [
        Identity(
            device="cpu",
            kind="cpu",
            name=host.cpu_name(),
            uuid=f"{host.core_allowance():g}-cores-{platform.machine()}",
            driver=None,
            memory_total_bytes=psutil.virtual_memory().total,
            memory_free_bytes=host.memory_available_bytes(),
            last_level_cache_bytes=total_last_level_cache_bytes(),
            software={name: metadata.version(name) for name in ("numpy", "ml_dtypes", "llvmlite")},
        )
    ]


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Return why this machine lacks a compute ceiling; None if it has it. Loads no NumPy."""
    if ceiling in NATIVE_CEILINGS:
        return None
    if ceiling in REGISTER_ONLY_DTYPES:
        return "register-only loops on the CPU compute in fp64 and fp32"
    return f"NumPy has no {ceiling} native arithmetic on the CPU, it converts; a ceiling would mislead"


def formula_peak_tflops(hardware: dict, item_bytes: int) -> float:
    """Return the theoretical peak in TFLOPS: clock x cores x SIMD lanes x (2 with fused multiply-add) x ports.

    Cores are physical: two threads of one core share its ports.
    """
    lanes = hardware["simd_bits"] // (8 * item_bytes)
    per_clock = hardware["cores_physical"] * lanes * hardware["fma_flops"] * hardware["vector_ports"]
    return hardware["clock_mhz"] * 1e6 * per_clock / 1e12


def simd_units(flags: set[str], machine: str, family: str | None) -> dict:
    """Return SIMD width, FLOPs per multiply-add and vector ports per core, from the flags that the kernel lists.

    Ports cannot be read from a CPU. Server cores since Haswell have two full-width multiply-add ports (Fog, The
    microarchitecture of Intel, AMD and VIA CPUs); AMD's family 25 splits 512-bit operations in two.
    """
    if machine in ("aarch64", "arm64"):
        return {"simd": "NEON", "simd_bits": 128, "fma_flops": 2, "vector_ports": 2, "ports_assumed": True}
    fma = 2 if "fma" in flags else 1
    if "avx512f" in flags:
        ports = 1 if family == "25" else 2
        return {"simd": "AVX-512", "simd_bits": 512, "fma_flops": 2, "vector_ports": ports, "ports_assumed": True}
    if "avx" in flags:
        name = "AVX2" if "avx2" in flags else "AVX"
        return {"simd": name, "simd_bits": 256, "fma_flops": fma, "vector_ports": 2, "ports_assumed": True}
    return {"simd": "SSE2", "simd_bits": 128, "fma_flops": 1, "vector_ports": 2, "ports_assumed": True}


def formula_clock(cpuinfo: dict[str, str]) -> dict:
    """Return the clock of the formula: the highest that the kernel lists, else the one that /proc/cpuinfo reports now.

    With `clock_may_boost` a core may boost above it, so that a measured peak may exceed the formula's.
    """
    try:
        highest = int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text()) / 1e3
        return {"clock_mhz": highest, "clock_source": CPUFREQ_SOURCE, "clock_may_boost": False}
    except (OSError, ValueError):
        mhz = None
        with contextlib.suppress(ValueError):
            mhz = float(cpuinfo.get("cpu MHz", "")) or None
        return {"clock_mhz": mhz, "clock_source": CPUINFO_SOURCE, "clock_may_boost": True}
