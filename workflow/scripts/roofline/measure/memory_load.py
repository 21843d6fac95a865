"""What a GPU's memory sustains, and what it draws: reads, copies, and the points of the energy roofline."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from types import SimpleNamespace

from roofline.devices.base import Device
from roofline.measure.sustained import measure_sustained_once
from roofline.records.compute import WorkloadSpec
from roofline.records.energy_record import EnergyPoint, MemoryLoad

LOADED_CEILINGS = ("hbm_read", "hbm_copy")
LEAST_LAUNCH_S = 0.02  # of a launch: a queue of short ones runs dry


def measure_energy_points(device: Device, seconds: float) -> Iterator[EnergyPoint]:
    for kernel in device.make_energy_kernels():
        kernel.verify()
        *_, pass_s = device.time_steps(partial(_run_passes, kernel.run, 1), 2)
        passes = ceil(LEAST_LAUNCH_S / pass_s)
        step = partial(_run_passes, kernel.run, passes)
        if load := measure_memory_load(device, step, passes * kernel.bytes, passes * pass_s, seconds):
            fields = ("dtype", "multiplies", "blocks", "flops_per_byte")
            yield EnergyPoint(load=load, **{name: getattr(kernel, name) for name in fields})


def _run_passes(run: Callable[[int], None], count: int, index: int) -> None:
    run(count)


def measure_memory_load(device: Device, step, size_bytes: int, step_s: float, seconds: float) -> MemoryLoad | None:
    """What a step of so many bytes (or tokens) sustains for so many seconds, and its energy."""
    nothing = {"layout": None, "algorithm": None, "accumulation": "none", "output": "none"}
    work = SimpleNamespace(step=step, flops=size_bytes, product=WorkloadSpec(library="stream", shape={}, **nothing))
    load = measure_sustained_once(device, work, seconds, step_s)
    same = {name: getattr(load, name) for name in {*MemoryLoad.model_fields} - {"gb_per_s"}} if load else {}
    return MemoryLoad(gb_per_s=1e3 * load.tflops, **same) if load else None
