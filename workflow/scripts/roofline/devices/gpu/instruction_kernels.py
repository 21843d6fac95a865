"""What the instruction roofline is measured with: kernels of ours whose warp instructions or requests are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy

from roofline.core.dtypes import relative_error, require_close
from roofline.core.roofline_model import LANES, SCHEDULERS, WORD_BYTES, sectors_per_request, wavefronts_per_request
from roofline.devices.gpu.gpu_fma import TOLERANCE, TOLERANCE_OF_ALL, folded
from roofline.devices.gpu.hbm_benchmarks import START
from roofline.records.timing_record import Check

SOURCE = "instructions.cu"
# As the source has them.
NUMBERS, LOADS, SHARED_WORDS = 8, 8, 2048
FACTOR, OFFSET, ROTATED = -1 + 2**-16, 0.5, 7

PAIRS = (128, 256, 64)  # of instructions per round: how much code a round is decides how well it is fetched
THREADS = (256, 512)  # of a block; so many blocks as fill the multiprocessors
STEP_CYCLES = 1 << 21  # about a millisecond: long against a launch
COMPARED_ROUNDS = 2
STRIDES = (0, 1, 2, 4, 8, 16, 32)  # words; 0: one word for all lanes
WAYS = (1, 2, 4, 8, 16, 32)
SET_WORDS = 2048  # that requests begin in: with the longest stride 12 KiB, which every L1 holds


@dataclass(frozen=True)
class IssueKernel:
    """One way to keep all schedulers busy: `step(i)` issues so many warp instructions."""

    name: str
    warp_instructions: int
    step: Callable[[int], object]
    check: Callable[[], Check]


@dataclass(frozen=True)
class WallKernel:
    """One pattern: `step(i)` makes the requests; `verify()` raises ArithmeticError if what was loaded is wrong."""

    pattern: str
    of: int
    requests: int
    transactions_per_request: int
    step: Callable[[int], object]
    verify: Callable[[], str]


def issue_kernels(device) -> list[IssueKernel]:
    return [_issue(device, threads, pairs) for threads in THREADS for pairs in PAIRS]


def wall_kernels(device) -> list[WallKernel]:
    return [_strided(device, stride) for stride in STRIDES] + [_conflicting(device, ways) for ways in WAYS]


def _macros(pairs: int) -> tuple[str, ...]:
    """Given to every kernel of the source, so that it is compiled once for each number of pairs."""
    return (f"-DPAIRS={pairs}",)


KERNELS = [(SOURCE, "", _macros(pairs)) for pairs in PAIRS]


# ---------------------------------------------------------------- issue


def _issue(device, threads: int, pairs: int) -> IssueKernel:
    blocks = device.max_threads // threads * device.multiprocessors
    warps = blocks * threads // LANES
    rounds = max(COMPARED_ROUNDS, STEP_CYCLES * SCHEDULERS // (2 * pairs * (warps // device.multiprocessors)))
    kernel = device.kernel(SOURCE, "issue", _macros(pairs))
    floats, words = (device.xp.empty(blocks * threads * NUMBERS, dtype) for dtype in ("float32", "uint32"))

    def run(count: int) -> None:
        kernel((blocks,), (threads,), (floats, words, numpy.uint32(count), device.kernel_clock))

    def of_first_block(count: int) -> list:
        """Its floats and words after so many rounds."""
        for array in (floats, words):
            device.poison(array)
        run(count)
        device.synchronize()
        return [device.to_host(array[: threads * NUMBERS]).reshape(threads, NUMBERS) for array in (floats, words)]

    def check() -> Check:
        """The floats of a whole step, then both kinds of number after a few rounds."""
        first = starts(threads)
        for count, tolerance in ((rounds, TOLERANCE_OF_ALL["fp32"]), (COMPARED_ROUNDS, TOLERANCE["fp32"])):
            found, shifts = of_first_block(count)
            expected = folded(first.astype(numpy.float64), count * pairs // NUMBERS, FACTOR, OFFSET)
            error = relative_error(found, expected)
            require_close(f"issue kernel, {count} rounds", error, tolerance)
        if not numpy.array_equal(shifts, shifted(first, COMPARED_ROUNDS * pairs)):
            raise ArithmeticError(f"issue kernel: words after {COMPARED_ROUNDS} rounds are wrong")
        what = f"numbers of the first block: floats after {rounds} rounds and all after {COMPARED_ROUNDS}"
        return Check(compared=what, error=error, tolerance=tolerance)

    return IssueKernel(
        name=f"{2 * pairs} instructions per round, {blocks} blocks of {threads} threads",
        warp_instructions=warps * rounds * 2 * pairs,
        step=lambda index: run(rounds),
        check=check,
    )


def starts(threads: int):
    """The words that a block's threads begin with, a row each."""
    return numpy.arange(threads * NUMBERS, dtype=numpy.uint32).reshape(threads, NUMBERS)


def shifted(words, count: int):
    """So many funnel shifts, one number after another: each takes ROTATED bits of the next one."""
    words = words.copy()
    for place in range(count):
        i, following = place % NUMBERS, (place + 1) % NUMBERS
        words[:, i] = words[:, i] << ROTATED | words[:, following] >> 32 - ROTATED
    return words


# ---------------------------------------------------------------- loads


def _strided(device, stride: int) -> WallKernel:
    sectors = sectors_per_request(stride)
    cycles = max(sectors // 4, len({lane * stride * WORD_BYTES // 128 for lane in range(LANES)}))  # a request, about
    words = SET_WORDS + LANES * max(STRIDES) + 8 * LOADS
    numbers, places = (numpy.uint32(stride), numpy.uint32(SET_WORDS)), partial(strided_places, stride)
    step, requests, verify = _loads(device, "load_strided", cycles, words, numbers, places)
    return WallKernel("stride", stride, requests, sectors, step, verify)


def _conflicting(device, ways: int) -> WallKernel:
    wavefronts, numbers, places = wavefronts_per_request(ways), (numpy.uint32(ways),), partial(shared_places, ways)
    step, requests, verify = _loads(device, "load_conflicting", wavefronts, SHARED_WORDS, numbers, places)
    return WallKernel("conflict", ways, requests, wavefronts, step, verify)


def _loads(device, name: str, cycles: int, size: int, numbers: tuple, places) -> tuple[Callable, int, Callable]:
    """A step, the requests that it makes, and its check. `places` are the words that lanes load in turn."""
    threads = THREADS[0]
    each = device.max_threads // threads
    blocks, warps = each * device.multiprocessors, each * threads // LANES
    rounds = max(1, STEP_CYCLES // (LOADS * warps * max(1, cycles)))
    words, kernel = device.cache_words(4 * size).view("uint32"), device.kernel(SOURCE, name, _macros(PAIRS[0]))

    def step(index: int) -> None:
        arguments = (words, *numbers, numpy.uint32(rounds), device.total, device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    def verify() -> str:
        words[...] = device.array(numpy.arange(size, dtype=numpy.uint32) + numpy.uint32(START))
        device.total.data.memset_async(0, device.total.nbytes, device.stream)
        step(0)
        device.synchronize()
        found, expected = int(device.to_host(device.total)[0]), blocks * sum_of(places(threads, rounds))
        if found != expected % 2**32:
            raise ArithmeticError(f"{name}: the words loaded add up to {found}, and must to {expected % 2**32}")
        return "the sum of every word loaded"

    return step, blocks * threads // LANES * rounds * LOADS, verify


def strided_places(stride: int, threads: int, rounds: int) -> Iterator:
    """The words that each warp of a block loads, round by round: (places, how many rounds they are)."""
    lanes, loads = numpy.arange(LANES)[:, None] * stride, numpy.arange(LOADS) * 8
    turns = SET_WORDS // (8 * LOADS)
    for warp in range(threads // LANES):
        for turn in range(min(turns, rounds)):
            at = (warp + turn) * 8 * LOADS % SET_WORDS
            yield lanes + loads + at, len(range(turn, rounds, turns))


def shared_places(ways: int, threads: int, rounds: int) -> Iterator:
    lanes, loads = numpy.arange(LANES)[:, None] * ways, numpy.arange(LOADS) * 32
    turns = SHARED_WORDS // 2 // (32 * LOADS)
    for turn in range(min(turns, rounds)):
        at = turn * 32 * LOADS
        yield lanes + loads + at, len(range(turn, rounds, turns)) * (threads // LANES)


def sum_of(places) -> int:
    """Of words that hold START plus their place."""
    return sum((int(where.sum()) + START * where.size) * times for where, times in places)
