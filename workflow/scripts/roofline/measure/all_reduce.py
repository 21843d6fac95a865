"""All-reduces between two GPUs by kernels of ours: the fastest grid of each size, checked and timed."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from roofline.core.terms import Array
from roofline.core.units import KIB
from roofline.devices.gpu.all_reduce_pair import (
    DTYPE,
    LAUNCHES,
    AllReducePair,
    ComparedSums,
    Grid,
    PairOfGraphs,
    launches_of,
)
from roofline.devices.gpu.card_pair import Card
from roofline.devices.gpu.gpu_device import GpuDevice
from roofline.measure.protocol import make_timing
from roofline.measure.undisturbed import StateLog, flag_throttled, repeat_until_undisturbed
from roofline.operators.gemm.tensor_matmul import make_launch
from roofline.records.all_reduce_record import (
    AfterProduct,
    AllReduceImplementation,
    AllReduceTrial,
    TimedAllReduce,
)
from roofline.records.timing_record import Timing

METHOD = "a CUDA graph on each card, replayed together after an untimed replay; events around each; the later card"
FEWEST_REPLAYS, MOST_REPLAYS, BLOCK_S = 8, 200, 0.06  # of a timed block, and its length
PRODUCT = (2048, 2048, 1536)  # m, n and k; takes 20 us on an H200
SIZE_AFTER_PRODUCT = 16 * KIB


def measure_ours(device: GpuDevice, pair: AllReducePair) -> Iterator[TimedAllReduce]:
    """Yield the all-reduces of each size that fits, by the fastest kernel and grid of ours.

    Raises ArithmeticError for a wrong sum, and TimeoutError if one card waits for the other in vain.
    """
    for size in pair.sizes:
        trials = sorted(_try_grids(pair, size), key=lambda trial: trial.time_s)
        fastest = Grid(trials[0].kernel, trials[0].blocks, trials[0].threads)
        graphs = pair.capture_launches(pair.make_launches(fastest, size), launches_of(size))
        yield time_checked(device, pair, graphs, "ours", size).model_copy(update={"trials": trials})


def _try_grids(pair: AllReducePair, size: int) -> Iterator[AllReduceTrial]:
    """Yield the time of each grid: the faster of two replays."""
    for grid in pair.list_grids(size):
        graphs = pair.capture_launches(pair.make_launches(grid, size), launches_of(size))
        time_s = min(graphs.time_replays(2))
        pair.synchronize()
        yield AllReduceTrial(kernel=grid.kernel, blocks=grid.blocks, threads=grid.threads, time_s=time_s)


def time_checked(
    device: GpuDevice, pair: AllReducePair, graphs: PairOfGraphs, implementation: AllReduceImplementation, size: int
) -> TimedAllReduce:
    """Return the timing of graphs whose sums are compared before and after. Raises ArithmeticError for a wrong sum."""

    def run_checked() -> ComparedSums:
        pair.poison()
        graphs.replay()
        return pair.check(size)

    before, log = run_checked(), StateLog(device)
    timing = _time_graphs(device, graphs, log)
    if (after := run_checked()) != before:
        raise ArithmeticError(f"an all-reduce of {size} bytes gives other numbers when it is replayed")
    return TimedAllReduce(
        implementation=implementation,
        size_bytes=size,
        launches=graphs.launches,
        timing=timing,
        states=log.states,
        largest_relative_error=max(before.largest_relative_error, after.largest_relative_error),
        checked_against="the fp64 sum of every number, the other card's bits, and those of another replay",
    )


def _time_graphs(device: GpuDevice, graphs: PairOfGraphs, log: StateLog) -> Timing:
    replay_s = graphs.launches * graphs.time_replays(1)[0]
    count = max(FEWEST_REPLAYS, min(MOST_REPLAYS, int(BLOCK_S / replay_s)))

    def time_block() -> Timing:
        earlier_states = len(log.states)
        log.read("before")
        samples = graphs.time_replays(count, lambda: log.read("during"))
        log.read("after")
        return flag_throttled(make_timing(METHOD, 1, count, samples), log.states[earlier_states:])

    timing, contention = repeat_until_undisturbed(device, time_block, lambda timing: timing.median_s)
    return timing.model_copy(update={"contention": contention})


def measure_after_product(device: GpuDevice, pair: AllReducePair, ours: Sequence[TimedAllReduce]) -> AfterProduct:
    """Return the times of pairs of a product and an all-reduce, and by how much one card begins the latter later.

    The all-reduce is the fastest one-shot of its size among `ours`. In it a card waits for the other's first packet for
    the latency and for as long as it began earlier; the latency is the mean of both waits without a product.
    """
    size, count = SIZE_AFTER_PRODUCT, LAUNCHES
    trials = next(timed.trials for timed in ours if timed.size_bytes == size)
    grid = next(Grid(trial.kernel, trial.blocks, trial.threads) for trial in trials if trial.kernel == "one_shot")
    launches = pair.make_launches(grid, size)
    operands = [_make_operands(device, card) for card in pair.cards]  # alive while they are multiplied

    def queue_products(number: int, with_all_reduce: bool) -> None:
        multiply = make_launch(device, DTYPE, *operands[number])
        for index in range(count):
            multiply()
            if with_all_reduce:
                launches[number](index)

    pair.capture_launches(launches, count).time_replays(2)
    latency = median([(own + other) / 2 for own, other in pair.read_waits()])
    alone, together = (
        pair.capture([partial(queue_products, card.number, both) for card in pair.cards], count)
        for both in (False, True)
    )
    product_s, log = median(alone.time_replays(FEWEST_REPLAYS)), StateLog(device)
    together_s = median(together.time_replays(10 * FEWEST_REPLAYS, lambda: log.read("during")))
    pair.synchronize()
    skew = median([max(0.0, max(waits) - latency) for waits in pair.read_waits()])
    clock_mhz = log.states[0].sm_clock_mhz
    return AfterProduct(
        product=f"{DTYPE}, {' x '.join(map(str, PRODUCT))}",
        size_bytes=size,
        product_time_s=product_s,
        together_time_s=together_s,
        entry_skew_s=skew / clock_mhz / 1e6 if clock_mhz else None,
        sm_clock_mhz=clock_mhz,
    )


def _make_operands(device: GpuDevice, card: Card) -> list[Array]:
    """Return A, B and C of the product on a card of the pair."""
    rows, columns, depth = PRODUCT
    with card:
        return [
            device.normal(shape, DTYPE, seed)
            for seed, shape in enumerate(((rows, depth), (columns, depth), (rows, columns)))
        ]
