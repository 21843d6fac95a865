"""The peak of the CUDA cores: multiply-adds on registers alone, by a kernel of ours."""

import time

from roofline.devices import Workload
from roofline.dtypes import array_dtype
from roofline.measuring import relative_error, require_right
from roofline.records import Check, Product

# As in kernels/fma.cu.
NUMBERS, STEPS_A_ROUND = 16, 16
# The factors k and l of each way, in every lane.
FACTORS = {"turn": (0.3, 0.0), "fold": (-0.9990234375, 0.5)}
# fp16 numbers lie side by side, two in a register.
LANES = {"fp64": 1, "fp32": 1, "fp16": 2}
# One round is 16 steps; errors of rounding add up to a few units in the last place.
TOLERANCE = {"fp64": 1e-14, "fp32": 1e-5, "fp16": 1e-2}
GRIDS = ((256, 4), (512, 2), (512, 4), (256, 8), (1024, 2))  # threads a block, blocks a multiprocessor
STEP_S = 1e-3  # long against a launch, and a hundred of them short against a second
COMPARED_THREADS = 1 << 16


def dtype_of(ceiling: str) -> str:
    return ceiling.removesuffix("_fma")


def candidates(device, ceiling: str, seed: int) -> list[Workload]:
    """Both ways on several grids."""
    return [
        _workload(device, ceiling, way, threads, blocks, None, seed) for way in FACTORS for threads, blocks in GRIDS
    ]


def again(device, ceiling: str, product: Product, seed: int) -> Workload:
    """The same kernel on numbers of its own."""
    shape, way = product.shape, product.algorithm
    blocks = shape["blocks"] // device.multiprocessors
    return _workload(device, ceiling, way, shape["threads"], blocks, shape["rounds"], seed)


def flops(ceiling: str, blocks: int, threads: int, rounds: int) -> int:
    """A multiply-add, two FLOPs, for each number, lane and step."""
    return 2 * LANES[dtype_of(ceiling)] * NUMBERS * STEPS_A_ROUND * rounds * blocks * threads


def _workload(device, ceiling: str, way: str, threads: int, each: int, rounds: int | None, seed: int) -> Workload:
    import numpy

    dtype = dtype_of(ceiling)
    blocks, lanes = each * device.multiprocessors, LANES[dtype]
    before = device.normal((NUMBERS * blocks * threads * lanes,), dtype, seed)
    after = device.xp.empty_like(before)
    factors = device.array(numpy.repeat(numpy.array(FACTORS[way], array_dtype(dtype)), lanes))
    kernel = device.kernel("fma.cu", f"{way}_{dtype}")

    def run(count: int) -> None:
        arguments = (before, after, factors, numpy.uint32(count), device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    rounds = rounds or _rounds(device, run)

    def check() -> Check:
        run(1)
        device.synchronize()
        start, end = (_of_first_threads(device, array) for array in (before, after))
        k, offset = (float(factor) for factor in device.to_host(factors)[::lanes])
        error, tolerance = relative_error(end, REFERENCES[way](start, k, offset)), TOLERANCE[dtype]
        require_right(f"{ceiling} kernel", error, tolerance)
        return Check(compared="one round of its first threads against float64", error=error, tolerance=tolerance)

    return Workload(
        product=Product(
            library="a register-only kernel of this project (kernels/fma.cu)",
            shape={"blocks": blocks, "threads": threads, "rounds": rounds},
            layout=None,
            algorithm=way,
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


def _of_first_threads(device, array):
    """The numbers of the first threads, on the host, as (NUMBERS, threads x lanes)."""
    import numpy

    whole = device.to_host(array).reshape(NUMBERS, -1)
    return whole[:, : min(COMPARED_THREADS, whole.shape[1])].astype(numpy.float64)


def _turned(start, k: float, offset: float):
    """One round of turns, in float64."""
    import numpy

    x, y = start[: NUMBERS // 2].copy(), start[NUMBERS // 2 :].copy()
    for _ in range(STEPS_A_ROUND):
        x -= k * y
        y += k * x
    return numpy.concatenate([x, y])


def _folded(start, k: float, offset: float):
    """One round of folds, in float64."""
    x = start.copy()
    for _ in range(STEPS_A_ROUND):
        x = k * x + offset
    return x


REFERENCES = {"turn": _turned, "fold": _folded}
