"""The levels of a device's memory, from the registers out: what each holds, and what was measured of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofline.core.formatting import capacity, count_words, duration, mark_doubtful, plateau_label
from roofline.core.terms import DEVICE_TRAITS
from roofline.report.words import LEVELS, format_picojoules, format_rate
from roofline.table.rows import ComputeCeiling, DeviceRow, MemoryCeiling, Plateau, Roofline

ALL_CORES = "all_cores"  # the series of a sweep
CACHES = ("l1", "l2", "l3")
OPERANDS = 4  # of a multiply-add: three registers read, one written
PER_MULTIPLY_ADD = 2 / OPERANDS / 4  # FLOPs over the bytes of fp32 operands

Ceilings = Mapping[str, ComputeCeiling | MemoryCeiling]  # of one device, by name


@dataclass(frozen=True)
class PyramidLayer:
    name: str
    size: str
    bandwidth: str
    source: str
    latency: str = ""
    energy: str = ""  # pJ/B of its reads, or else copies


def build_pyramid(name: str, roofline: Roofline) -> list[PyramidLayer]:
    device, ceilings = roofline.devices[name], {c.name: c for c in roofline.ceilings if c.device == name}
    caches = [
        plateau
        for sweep in roofline.sweeps
        if (sweep.device, sweep.series) == (name, ALL_CORES)
        for plateau in sweep.plateaus
    ]
    accelerator = DEVICE_TRAITS[device.device_kind].accelerator
    layers = _levels_of_gpu(device, ceilings) if accelerator else _levels_of_cpu(device, ceilings, caches)
    return [PyramidLayer(*layer) for layer in layers if layer[2]]  # of which something was measured


def _levels_of_gpu(device: DeviceRow, ceilings: Ceilings) -> list[tuple]:
    hardware, count = device.hardware, device.hardware.get("multiprocessors") or 0
    fma, shared = ceilings.get("fp32_fma"), hardware.get("shared_memory_per_multiprocessor_bytes")
    memory = [ceilings[name] for name in ("hbm_read", "d2d") if name in ceilings]
    registers = f"fp32_fma: {OPERANDS} operands of 4 bytes per multiply-add"
    return [
        (
            "registers",
            _held(count * 4 * (hardware.get("registers_per_multiprocessor") or 0)),
            f"≥ {format_rate(1e3 * fma.tflops / PER_MULTIPLY_ADD)}" if fma else "",
            registers,
        ),
        ("L1 and shared memory", f"≥ {_held(count * shared)}" if shared else "", *_measured(ceilings, "l1", "shared")),
        ("L2", _held(hardware.get("l2_bytes")), *_measured(ceilings, "l2")),
        ("device memory", _held(device.memory_total_bytes), *_measured(ceilings, *(c.name for c in memory[:1]))),
        ("host link", "", *_measured(ceilings, "h2d", "d2h")),
    ]


def _levels_of_cpu(device: DeviceRow, ceilings: Ceilings, all_cores: Sequence[Plateau]) -> list[tuple]:
    """Caches as all cores saw them in the sweep, each core with its own working set."""
    cores = device.hardware.get("cores_usable")
    caches = [
        (
            plateau_label(one.name, one.knee_bytes),
            f"{capacity(one.reported_bytes)} per core" if one.reported_bytes else "",
            f"{format_rate(one.gb_per_s)} by {count_words(cores, 'core') if cores else 'all cores'}",
            "the sweep, all cores",
        )
        for one in all_cores
        if one.name in CACHES
    ]
    return [*caches, (LEVELS["dram"], _held(device.memory_total_bytes), *_measured(ceilings, "dram_read"))]


def _held(size: int | None) -> str:
    return capacity(size) if size else ""


def _measured(ceilings: Ceilings, *names: str) -> tuple[str, str, str, str]:
    """Rates, names, load latency and energy of a byte, of those that were measured."""
    there = [ceilings[name] for name in names if name in ceilings]
    rates = dict.fromkeys(mark_doubtful(format_rate(c.gb_per_s), c.doubt) for c in there)
    rates |= {f"{format_rate(c.sustained_gb_per_s)} sustained": None for c in there if c.sustained_gb_per_s}
    latency = "".join(duration(c.load_latency_s) for c in there if c.load_latency_s)
    return " / ".join(rates), " / ".join(c.name for c in there), latency, "".join(map(format_picojoules, there))
