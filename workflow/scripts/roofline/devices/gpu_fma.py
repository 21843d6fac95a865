"""The peak of the CUDA cores: multiply-adds on registers alone, by a kernel of ours."""

import time

from roofline.devices import Workload
from roofline.dtypes import array_dtype
from roofline.measuring import relative_error, require_right
from roofline.records import Check, Product

# As in kernels/fma.cu.
PAIRS, STEPS_A_ROUND = 8, 16
TURN = 0.3
# Numbers a lane holds in one register: two fp16 side by side.
NUMBERS = {"fp64": 1, "fp32": 1, "fp16": 2}
# One round turns every point 16 times; errors of rounding add up to a few units in the last place.
TOLERANCE = {"fp64": 1e-14, "fp32": 1e-5, "fp16": 1e-2}
GRIDS = ((256, 4), (512, 2), (512, 4), (256, 8), (1024, 2))  # threads a block, blocks a multiprocessor
STEP_S = 2e-3  # long against a launch, short against the power limit's hundredths of a second
COMPARED_THREADS = 1 << 16


def dtype_of(ceiling: str) -> str:
    return ceiling.removesuffix("_fma")


def candidates(device, ceiling: str, seed: int) -> list[Workload]:
    """The kernel on several grids."""
    return [_workload(device, ceiling, threads, blocks, None, seed) for threads, blocks in GRIDS]


def again(device, ceiling: str, product: Product, seed: int) -> Workload:
    shape = product.shape
    blocks = shape["blocks"] // device.multiprocessors
    return _workload(device, ceiling, shape["threads"], blocks, shape["rounds"], seed)


def flops(ceiling: str, blocks: int, threads: int, rounds: int) -> int:
    """Two multiply-adds a step and pair, two FLOPs each, times the numbers in a register."""
    return 2 * 2 * NUMBERS[dtype_of(ceiling)] * PAIRS * STEPS_A_ROUND * rounds * blocks * threads


def _workload(device, ceiling: str, threads: int, per_multiprocessor: int, rounds: int | None, seed: int) -> Workload:
    import numpy

    dtype = dtype_of(ceiling)
    blocks = per_multiprocessor * device.multiprocessors
    numbers = 2 * PAIRS * blocks * threads * NUMBERS[dtype]
    points = device.normal((numbers,), dtype, seed)
    turned = device.xp.empty_like(points)
    turn = device.array(numpy.full(NUMBERS[dtype], TURN, array_dtype(dtype)))
    kernel = device.kernel("fma.cu", f"turn_{dtype}")

    def run(count: int) -> None:
        arguments = (points, turned, turn, numpy.uint32(count), device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    rounds = rounds or _rounds(device, run)

    def check() -> Check:
        run(1)
        before, after = (_of_first_threads(device, array, blocks * threads) for array in (points, turned))
        error, tolerance = relative_error(after, _turned(before, float(turn[0]))), TOLERANCE[dtype]
        require_right(f"{ceiling} kernel", error, tolerance)
        return Check(compared="one round of its first threads against float64", error=error, tolerance=tolerance)

    return Workload(
        product=Product(
            library="a register-only kernel of this project (kernels/fma.cu)",
            shape={"blocks": blocks, "threads": threads, "rounds": rounds},
            layout=None,
            algorithm=None,
            accumulation=dtype,
            output=dtype,
        ),
        flops=flops(ceiling, blocks, threads, rounds),
        step=lambda index: run(rounds),
        check=check,
        clock_mhz=device.clock_of_kernel,
    )


def _rounds(device, run) -> int:
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


def _of_first_threads(device, array, threads: int):
    """The points of the first threads, on the host, as (2 PAIRS, numbers)."""
    import numpy

    whole = device.to_host(array).reshape(2 * PAIRS, -1)
    return whole[:, : min(COMPARED_THREADS, whole.shape[1])].astype(numpy.float64)


def _turned(points, turn: float):
    """The kernel's one round, in float64."""
    import numpy

    x, y = points[:PAIRS].copy(), points[PAIRS:].copy()
    for _ in range(STEPS_A_ROUND):
        x -= turn * y
        y += turn * x
    return numpy.concatenate([x, y])
