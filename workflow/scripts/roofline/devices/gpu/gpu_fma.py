"""The peak of the CUDA cores: multiply-adds on registers alone, by a kernel of ours."""

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy

from roofline.core.dtypes import DTYPES, array_dtype, operand_dtype, relative_error, require_close
from roofline.core.terms import Array
from roofline.devices.base import Workload
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

if TYPE_CHECKING:
    from roofline.devices.gpu.gpu_device import GpuDevice

LIBRARY = "a register-only kernel of this project (kernels/fma.cu)"
# Numbers per thread and steps per round. On H100 and H200 the first leads in fp64, the last in fp16.
NUMBERS_AND_STEPS = ((8, 4), (16, 16), (16, 32))
# The factors k and l of a fold x -> k x + l, in every lane. Folds draw numbers together, to 1/e within 1 / (1 + k)
# steps: as many as the dtype's digits allow, while the check can still tell a fold from none.
FOLD_FACTORS = {"fp64": (-1 + 2**-30, 0.5), "fp32": (-1 + 2**-16, 0.5), "fp16": (-1 + 2**-10, 0.5)}
# Rounding errors add up: over a few steps to a few units in the last place, in fp16 to 3 % of a number, since a fold
# takes it nearly back every second step; over all steps of a run, up to 32768, to 1.4e-5 in fp32 and a quarter in fp16.
# The error of a missing step, or of a number that was not written, is larger.
COMPARED_STEPS = 32
FEW_STEPS_TOLERANCE = {"fp64": 1e-14, "fp32": 1e-5, "fp16": 1e-2}
WHOLE_RUN_TOLERANCE = {"fp64": 1e-11, "fp32": 1e-4, "fp16": 0.5}
GRIDS = ((256, 4), (512, 4), (256, 8))  # threads per block, blocks per multiprocessor
STEP_S = 1e-3  # long compared with a launch; a hundred of them are short compared with a second
FEWEST_ROUNDS, MOST_ROUNDS = 16, 1 << 20
CHOOSE_ROUNDS = 0  # in place of a number of rounds
COMPARED_THREADS = 1 << 16


class FmaShape(NamedTuple):
    """A grid and the work of its threads. The fields are the keys of the recorded shape, in their order."""

    blocks: int
    threads: int  # of a block
    rounds: int  # of a launch; CHOOSE_ROUNDS: as many as take about STEP_S
    numbers: int  # of a thread, in registers
    steps: int  # of a round: multiply-adds on each number


def candidate_fma_workloads(device: "GpuDevice", ceiling: str, seed: int) -> list[Workload]:
    """Return every variant on several grids. The first takes about STEP_S, all others have about as many FLOPs."""
    workloads: list[Workload] = []
    for (threads, blocks_per_sm), (numbers, steps) in itertools.product(GRIDS, NUMBERS_AND_STEPS):
        one_round = FmaShape(blocks_per_sm * device.multiprocessors, threads, 1, numbers, steps)
        flops = fma_flops(ceiling, one_round)
        rounds = max(1, workloads[0].flops // flops) if workloads else CHOOSE_ROUNDS
        workloads.append(_make_workload(device, ceiling, seed, one_round._replace(rounds=rounds)))
    return workloads


def rebuild_fma_workload(device: "GpuDevice", ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
    """Return the workload of a recorded kernel and grid, on random numbers of this seed."""
    return _make_workload(device, ceiling, seed, FmaShape(**product.shape))


def fma_flops(ceiling: str, shape: FmaShape) -> int:
    """Return the FLOPs of a launch: two for a multiply-add on every number of every thread, in every step.

    Two fp16 numbers lie in one register and count as one of `shape.numbers`.
    """
    blocks, threads, rounds, numbers, steps = shape
    return 2 * DTYPES[operand_dtype(ceiling)].numbers_per_instruction * numbers * steps * rounds * blocks * threads


def _defines(numbers: int, steps: int) -> tuple[str, ...]:
    return (f"-DNUMBERS={numbers}", f"-DSTEPS_PER_ROUND={steps}")


KERNELS = [("fma.cu", "", _defines(*variant)) for variant in NUMBERS_AND_STEPS]


def _make_workload(device: "GpuDevice", ceiling: str, seed: int, shape: FmaShape) -> Workload:
    blocks, threads, rounds, numbers, steps = shape
    dtype = operand_dtype(ceiling)
    lanes = DTYPES[dtype].numbers_per_instruction  # side by side in a register
    before = device.normal((numbers * blocks * threads * lanes,), dtype, seed)
    after = device.xp.empty_like(before)
    factors = device.to_device(numpy.repeat(numpy.array(FOLD_FACTORS[dtype], array_dtype(dtype)), lanes))
    kernel = device.load_kernel("fma.cu", f"fold_{dtype}", _defines(numbers, steps))

    def run(count: int) -> None:
        kernel((blocks,), (threads,), (before, after, factors, numpy.uint32(count), device.kernel_clock))

    if rounds == CHOOSE_ROUNDS:
        rounds = _choose_rounds(device, run)
        shape = shape._replace(rounds=rounds)

    def error_after(count: int, tolerance: float) -> float:
        """Return the relative error of the first threads' numbers after so many steps. Raises ArithmeticError."""
        device.synchronize()
        start, end = (_first_threads_on_host(device, array, numbers) for array in (before, after))
        k, offset = (float(factor) for factor in device.to_host(factors)[::lanes])
        error = relative_error(end, expected_fold(start, count, k, offset))
        require_close(f"{ceiling} kernel, {count} steps", error, tolerance)
        return error

    def compare() -> Check:
        """Check all steps of the last run, then a few steps closely."""
        error = error_after(rounds * steps, WHOLE_RUN_TOLERANCE[dtype])
        device.poison(after)
        run(COMPARED_STEPS // steps)
        error_after(COMPARED_STEPS // steps * steps, FEW_STEPS_TOLERANCE[dtype])
        compared = f"all {rounds * steps} steps of its first threads against their closed form in float64"
        return Check(compared=compared, relative_error=error, tolerance=WHOLE_RUN_TOLERANCE[dtype])

    return Workload(
        product=WorkloadSpec(
            library=LIBRARY, shape=shape._asdict(), layout=None, algorithm="fold", accumulation=dtype, output=dtype
        ),
        flops=fma_flops(ceiling, shape),
        step=lambda index: run(rounds),
        clear=lambda: device.poison(after),
        compare=compare,
        clock_mhz=device.kernel_clock_mhz,
    )


def _choose_rounds(device: "GpuDevice", run: Callable[[int], None]) -> int:
    """Return the rounds that take about STEP_S: a power of two, so that another run finds the same."""
    rounds = FEWEST_ROUNDS
    while rounds < MOST_ROUNDS:
        run(rounds)
        device.synchronize()
        start = time.perf_counter()
        run(rounds)
        device.synchronize()
        if time.perf_counter() - start > STEP_S / 1.5:
            break
        rounds *= 2
    return rounds


def _first_threads_on_host(device: "GpuDevice", array: Array, numbers: int) -> numpy.ndarray:
    """Return the numbers of the first threads on the host, as [numbers of a thread, threads x lanes] of float64."""
    by_thread = device.to_host(array).reshape(numbers, -1)
    return by_thread[:, :COMPARED_THREADS].astype(numpy.float64)


def expected_fold(start: numpy.ndarray, steps: int, k: float, offset: float) -> numpy.ndarray:
    """Return float64 numbers after so many folds x -> k x + l: k^n x + l (1 - k^n) / (1 - k), `offset` being l."""
    return k**steps * start + offset * (1 - k**steps) / (1 - k)
