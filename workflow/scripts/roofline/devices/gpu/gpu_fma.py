"""The peak of the CUDA cores: multiply-adds on registers alone, by a kernel of ours."""

import itertools
import time

import numpy

from roofline.core.dtypes import array_dtype, operand_dtype, relative_error, require_close
from roofline.devices.base import Workload
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

# Numbers per thread and steps per round. On H100 and H200 the first leads in fp64, the last in fp16.
NUMBERS_AND_STEPS = ((8, 4), (16, 16), (16, 32))
# The factors k and l, in every lane. A fold draws its numbers together, within 1 / (1 + k) steps to 1/e: as many as the
# dtype's digits allow, and the check can tell from none.
FOLD_FACTORS = {"fp64": (-1 + 2**-30, 0.5), "fp32": (-1 + 2**-16, 0.5), "fp16": (-1 + 2**-10, 0.5)}
# fp16 numbers lie side by side, two in a register.
NUMBERS_PER_REGISTER = {"fp64": 1, "fp32": 1, "fp16": 2}
# Over a few steps errors of rounding add up to a few units in the last place, and in fp16, where a fold takes a number
# nearly back every second step, to 3 % of it; over all steps of a run, up to 32768, in fp32 to 1.4e-5, in fp16 to a
# quarter. A step left out or a number not written is more.
COMPARED_STEPS = 32
FEW_STEPS_TOLERANCE = {"fp64": 1e-14, "fp32": 1e-5, "fp16": 1e-2}
WHOLE_RUN_TOLERANCE = {"fp64": 1e-11, "fp32": 1e-4, "fp16": 0.5}
GRIDS = ((256, 4), (512, 4), (256, 8))  # threads per block, blocks per multiprocessor
STEP_S = 1e-3  # long against a launch, and a hundred of them short against a second
COMPARED_THREADS = 1 << 16


def candidate_fma_workloads(device, ceiling: str, seed: int) -> list[Workload]:
    """Every variant on several grids, each of about STEP_S."""
    found: list[Workload] = []
    for (threads, each), (numbers, steps) in itertools.product(GRIDS, NUMBERS_AND_STEPS):
        shape = {"blocks": each * device.multiprocessors, "threads": threads, "numbers": numbers, "steps": steps}
        rounds = max(1, found[0].flops // fma_flops(ceiling, rounds=1, **shape)) if found else None
        found.append(_make_workload(device, ceiling, seed, rounds=rounds, **shape))
    return found


def rebuild_fma_workload(device, ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
    """The same kernel on its own numbers."""
    return _make_workload(device, ceiling, seed, **product.shape)


def fma_flops(ceiling: str, blocks: int, threads: int, rounds: int, numbers: int, steps: int) -> int:
    """A multiply-add, two FLOPs, for each number, lane and step."""
    return 2 * NUMBERS_PER_REGISTER[operand_dtype(ceiling)] * numbers * steps * rounds * blocks * threads


def _defines(numbers: int, steps: int) -> tuple[str, ...]:
    return (f"-DNUMBERS={numbers}", f"-DSTEPS_PER_ROUND={steps}")


KERNELS = [("fma.cu", "", _defines(*variant)) for variant in NUMBERS_AND_STEPS]


def _make_workload(device, ceiling: str, seed: int, blocks, threads, rounds: int | None, numbers, steps) -> Workload:
    dtype, lanes = operand_dtype(ceiling), NUMBERS_PER_REGISTER[operand_dtype(ceiling)]
    before = device.normal((numbers * blocks * threads * lanes,), dtype, seed)
    after = device.xp.empty_like(before)
    factors = device.to_device(numpy.repeat(numpy.array(FOLD_FACTORS[dtype], array_dtype(dtype)), lanes))
    kernel = device.load_kernel("fma.cu", f"fold_{dtype}", _defines(numbers, steps))

    def run(count: int) -> None:
        arguments = (before, after, factors, numpy.uint32(count), device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    rounds = rounds or _choose_rounds(device, run)

    def error_after(count: int, tolerance: float) -> float:
        device.synchronize()
        start, end = (_first_threads_on_host(device, array, numbers) for array in (before, after))
        k, offset = (float(factor) for factor in device.to_host(factors)[::lanes])
        error = relative_error(end, expected_fold(start, count, k, offset))
        require_close(f"{ceiling} kernel, {count} steps", error, tolerance)
        return error

    def compare() -> Check:
        """All steps of the last run, then a few steps closely."""
        error = error_after(rounds * steps, WHOLE_RUN_TOLERANCE[dtype])
        device.poison(after)
        run(COMPARED_STEPS // steps)
        error_after(COMPARED_STEPS // steps * steps, FEW_STEPS_TOLERANCE[dtype])
        what = f"all {rounds * steps} steps of its first threads against their closed form in float64"
        return Check(compared=what, error=error, tolerance=WHOLE_RUN_TOLERANCE[dtype])

    shape = {"blocks": blocks, "threads": threads, "rounds": rounds, "numbers": numbers, "steps": steps}
    return Workload(
        product=WorkloadSpec(
            library="a register-only kernel of this project (kernels/fma.cu)",
            shape=shape,
            layout=None,
            algorithm="fold",
            accumulation=dtype,
            output=dtype,
        ),
        flops=fma_flops(ceiling, **shape),
        step=lambda index: run(rounds),
        clear=lambda: device.poison(after),
        compare=compare,
        clock_mhz=device.kernel_clock_mhz,
    )


def _choose_rounds(device, run) -> int:
    """As many rounds as take about STEP_S, in powers of two so that another run finds the same."""
    rounds = 16
    while rounds < 1 << 20:
        run(rounds)
        device.synchronize()
        start = time.perf_counter()
        run(rounds)
        device.synchronize()
        if time.perf_counter() - start > STEP_S / 1.5:
            break
        rounds *= 2
    return rounds


def _first_threads_on_host(device, array, numbers: int):
    """The numbers of the first threads, on the host, as (numbers a thread, threads x lanes)."""
    whole = device.to_host(array).reshape(numbers, -1)
    return whole[:, : min(COMPARED_THREADS, whole.shape[1])].astype(numpy.float64)


def expected_fold(start, steps: int, k: float, offset: float):
    """So many folds, in float64: k^n x + l (1 - k^n) / (1 - k)."""
    return k**steps * start + offset * (1 - k**steps) / (1 - k)
