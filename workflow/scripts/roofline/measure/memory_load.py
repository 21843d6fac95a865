"""What a GPU's memory sustains, and what it draws: reads, copies, and the points of the energy roofline."""

from collections.abc import Iterator
from functools import partial
from math import ceil

from roofline.core.grouping import group_by
from roofline.core.levels import main_memory_ceiling
from roofline.devices.base import CudaDevice, Step
from roofline.measure.sustained import LoadedWork, measure_sustained_once
from roofline.records.base import copy_fields, shared_fields
from roofline.records.compute import WorkloadSpec
from roofline.records.energy_record import EnergyPoint, LoadFigures, LoadMoment, MemoryLoad, MemoryLoadPoint

LOADED_CEILINGS = (main_memory_ceiling("gpu", "read"), main_memory_ceiling("gpu", "copy"))
LEAST_LAUNCH_S = 0.02  # of an energy kernel: a queue of shorter launches runs dry


def measure_energy_points(device: CudaDevice, seconds: float) -> Iterator[EnergyPoint]:
    """Yield a point of the energy roofline for each energy kernel, verified first, then under load for `seconds`.

    At the end one of each dtype is measured again: how repeats agree is to be held against how the fit misses. Raises
    ArithmeticError for a wrong sum.
    """
    kernels = list(device.make_energy_kernels())
    by_dtype = group_by(kernels, lambda kernel: kernel.dtype).values()
    for kernel in [*kernels, *(of_dtype[len(of_dtype) // 2] for of_dtype in by_dtype)]:
        kernel.verify()
        *_, pass_s = device.time_steps(partial(kernel.run, 1), 2)
        passes = ceil(LEAST_LAUNCH_S / pass_s)
        step = partial(kernel.run, passes)
        if load := measure_memory_load(device, step, passes * kernel.bytes, passes * pass_s, seconds):
            yield EnergyPoint(
                **copy_fields(kernel, "dtype", "multiply_adds_per_number", "blocks_per_multiprocessor"),
                intensity_flops_per_byte=kernel.flops_per_byte,
                sustained=load,
            )


def measure_memory_load(
    device: CudaDevice, step: Step, size_bytes: float, step_s: float, seconds: float
) -> MemoryLoad | None:
    """Run a step of `size_bytes` bytes without a pause for `seconds`, or longer while its mean rate is uncertain.

    Return GB/s once settled, clock, temperature and energy; None if the device ran no chunk. `step_s` is about what a
    step takes.
    """
    spec = WorkloadSpec(library="stream", shape={}, layout=None, algorithm=None, accumulation="none", output="none")
    load = measure_sustained_once(device, LoadedWork(step, size_bytes, spec, follows_clock=False), seconds, step_s)
    if load is None:
        return None

    def gb_per_s(tera_bytes_per_s: float) -> float:
        return 1e3 * tera_bytes_per_s  # what a load counts in TFLOPS are bytes here

    return MemoryLoad(
        **shared_fields(load, LoadFigures),
        gb_per_s=gb_per_s(load.tflops),
        ci95_gb_per_s=load.ci95_tflops and (gb_per_s(load.ci95_tflops[0]), gb_per_s(load.ci95_tflops[1])),
        curve=[
            MemoryLoadPoint(**shared_fields(point, LoadMoment), gb_per_s=gb_per_s(point.tflops)) for point in load.curve
        ],
    )
