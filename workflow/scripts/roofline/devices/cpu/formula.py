"""The theoretical peak of a CPU: clock x cores x SIMD lanes x FMA x ports."""

from collections.abc import Mapping
from pathlib import Path

REPORTED_NOW = "clock reported now"


def peak_formula_tflops(hardware: dict, item_bytes: int) -> float:
    """Theoretical peak = clock x cores x SIMD lanes x (2 with fused multiply-add) x ports, in TFLOPS.

    Cores are physical: two threads of one core share its ports.
    """
    lanes = hardware["simd_bits"] // (8 * item_bytes)
    per_clock = hardware["cores_physical"] * lanes * hardware["fma_flops"] * hardware["vector_ports"]
    return hardware["clock_mhz"] * 1e6 * per_clock / 1e12


def simd_units(flags: set[str], machine: str, family: int | None) -> dict:
    """SIMD width, FLOPs per multiply-add and vector ports per core, from the flags that the kernel lists.

    Ports cannot be read from a CPU. Two full-width multiply-add ports is what server cores since Haswell have
    (Fog, The microarchitecture of Intel, AMD and VIA CPUs); AMD's family 25 splits 512-bit operations in two.
    """
    if machine in ("aarch64", "arm64"):
        return {"simd": "NEON", "simd_bits": 128, "fma_flops": 2, "vector_ports": 2, "ports_assumed": True}
    fma = 2 if "fma" in flags else 1
    if "avx512f" in flags:
        ports = 1 if family == 25 else 2
        return {"simd": "AVX-512", "simd_bits": 512, "fma_flops": 2, "vector_ports": ports, "ports_assumed": True}
    if "avx" in flags:
        name = "AVX2" if "avx2" in flags else "AVX"
        return {"simd": name, "simd_bits": 256, "fma_flops": fma, "vector_ports": 2, "ports_assumed": True}
    return {"simd": "SSE2", "simd_bits": 128, "fma_flops": 1, "vector_ports": 2, "ports_assumed": True}


def of_an_idle_moment(hardware: Mapping) -> bool:
    """Whether the formula's clock is one that a core may boost above: its peak is at least that."""
    return str(hardware.get("clock_source", "")).startswith(REPORTED_NOW)


def clock(described: dict[str, str]) -> dict:
    """The clock of the formula: the highest that the kernel lists, else the one that /proc/cpuinfo reports now."""
    try:
        highest = int(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text())
        return {"clock_mhz": highest / 1e3, "clock_source": "highest clock by the kernel's cpufreq"}
    except (OSError, ValueError):
        reported = described.get("cpu MHz")
        source = f"{REPORTED_NOW}; the core may boost above it, so a measured peak may exceed the formula's"
        return {"clock_mhz": float(reported) if reported else None, "clock_source": source}


def cpu_family(described: dict[str, str]) -> int | None:
    """Of x86, as /proc/cpuinfo has it."""
    family = described.get("cpu family", "")
    return int(family) if family.isdecimal() else None
