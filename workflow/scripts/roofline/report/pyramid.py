"""The levels of a device's memory, from the registers out: what each holds, and what was measured of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofline.core.formatting import capacity, count_words, duration, mark_doubtful, number, plateau_label
from roofline.core.grouping import group_by
from roofline.core.levels import ALL_CORES, LEVEL_TITLES, LEVELS, MAIN_MEMORY, main_memory_ceiling
from roofline.core.terms import CACHE_LEVELS, DEVICE_TRAITS
from roofline.report.words import format_interval, format_picojoules, format_rate
from roofline.table.rows import Ceiling, ComputeCeiling, DeviceRow, MemoryCeiling, Plateau, Roofline

OPERANDS = 4  # of a multiply-add: three registers read, one written
PER_MULTIPLY_ADD = 2 / OPERANDS / 4  # FLOPs over the bytes of fp32 operands

CeilingsByName = Mapping[str, MemoryCeiling]  # of one device


@dataclass(frozen=True)
class PyramidLayer:
    """One level of a device's memory, in words."""

    name: str
    size: str
    bandwidth: str
    source: str
    latency: str = ""
    energy: str = ""  # pJ/B of its reads, or else copies


def build_pyramid(name: str, roofline: Roofline) -> list[PyramidLayer]:
    """Return the levels of a device's memory of which something was measured."""
    device = roofline.devices[name]
    memory = {row.name: row for row in roofline.memory_ceilings(name)}
    if DEVICE_TRAITS[device.device_kind].accelerator:
        layers = _levels_of_gpu(device, memory, roofline.ceiling(name, "fp32_fma"))
    else:
        layers = _levels_of_cpu(device, memory, cache_plateaus(roofline, name))
    return [layer for layer in layers if layer.bandwidth]


def cache_plateaus(roofline: Roofline, device: str) -> list[Plateau]:
    """Return the caches as all cores of a device saw them in a sweep, each core with its own working set."""
    sweeps = [sweep for sweep in roofline.sweeps if (sweep.device, sweep.series) == (device, ALL_CORES)]
    return [plateau for sweep in sweeps for plateau in sweep.plateaus if plateau.name in CACHE_LEVELS]


def describe_plateau(plateau: Plateau) -> str:
    """Return the name and the rate of a level that a sweep found."""
    return f"{plateau_label(plateau.name, plateau.knee_bytes)} {number(plateau.gb_per_s)} GB/s"


def _levels_of_gpu(device: DeviceRow, ceilings: CeilingsByName, fma: Ceiling | None) -> Iterator[PyramidLayer]:
    """Yield the registers, then a layer for each store of the table of levels."""
    count = device.hardware.get("multiprocessors") or 0
    capacities = device.hardware | {"memory_total_bytes": device.memory_total_bytes}
    yield PyramidLayer(
        "registers",
        _capacity(count * 4 * (device.hardware.get("registers_per_multiprocessor") or 0)),
        f"≥ {format_rate(1e3 * fma.tflops / PER_MULTIPLY_ADD)}" if isinstance(fma, ComputeCeiling) else "",
        f"fp32_fma: {OPERANDS} operands of 4 bytes per multiply-add",
    )
    layered = [level for level in LEVELS.values() if level.layer]
    for title, levels in group_by(layered, lambda level: level.layer).items():
        size_bytes = capacities.get(levels[0].capacity_key)
        size = _capacity(size_bytes)
        if size_bytes and levels[0].per_multiprocessor:
            size = f"≥ {_capacity(count * size_bytes)}"
        shown = [name for level in levels for name in level.shown if name in ceilings]
        yield _layer(title, size, ceilings, shown[:1] if levels[0].medium == "memory" else shown)


def _levels_of_cpu(device: DeviceRow, ceilings: CeilingsByName, caches: Sequence[Plateau]) -> Iterator[PyramidLayer]:
    """Yield the caches by the sweep of all cores, and main memory."""
    cores = device.hardware.get("cores_usable")
    readers = count_words(cores, "core") if cores else "all cores"
    for plateau in caches:
        name, rate = plateau_label(plateau.name, plateau.knee_bytes), format_rate(plateau.gb_per_s)
        yield PyramidLayer(name, _cache_size(plateau), f"{rate} by {readers}", "the sweep, all cores")
    title, size = LEVEL_TITLES[MAIN_MEMORY["cpu"]], _capacity(device.memory_total_bytes)
    yield _layer(title, size, ceilings, (main_memory_ceiling("cpu", "read"),))


def _cache_size(plateau: Plateau) -> str:
    """48 KiB per core; 240 MiB shared, of the cache that several cores use."""
    size = _capacity(plateau.reported_bytes)
    return size and f"{size} {'shared' if plateau.name == CACHE_LEVELS[-1] else 'per core'}"


def _capacity(size_bytes: int | None) -> str:
    return capacity(size_bytes) if size_bytes else ""


def _layer(title: str, size: str, ceilings: CeilingsByName, names: Sequence[str]) -> PyramidLayer:
    """A layer with the rates, load latency and energy of the ceilings of these names that were measured."""
    measured = [ceilings[name] for name in names if name in ceilings]
    rates = [mark_doubtful(format_rate(ceiling.gb_per_s), ceiling.doubt) for ceiling in measured]
    for ceiling in measured:
        if ceiling.sustained_gb_per_s:
            rates.append(f"{format_rate(ceiling.sustained_gb_per_s)}{format_interval(ceiling.sustained)} sustained")
    return PyramidLayer(
        name=title,
        size=size,
        bandwidth=" / ".join(dict.fromkeys(rates)),
        source=" / ".join(ceiling.name for ceiling in measured),
        latency="".join(duration(ceiling.load_latency_s) for ceiling in measured if ceiling.load_latency_s),
        energy="".join(map(format_picojoules, measured)),
    )
