"""What the instruction roofline is measured with: kernels of ours whose warp instructions or requests are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy

from roofline.core.dtypes import relative_error, require_close
from roofline.core.roofline_model import (
    LANES_PER_WARP,
    SCHEDULERS_PER_SM,
    WORD_BYTES,
    sectors_per_request,
    wavefronts_per_request,
)
from roofline.devices.gpu.gpu_fma import FEW_STEPS_TOLERANCE, WHOLE_RUN_TOLERANCE, expected_fold
from roofline.devices.gpu.hbm_benchmarks import PATTERN_START
from roofline.records.timing_record import Check

KERNEL_FILE = "instructions.cu"
# As the source has them.
CHAINS_PER_THREAD, LOADS_PER_ROUND, SHARED_WORDS = 8, 8, 2048
FACTOR, OFFSET, ROTATED_BITS = -1 + 2**-16, 0.5, 7

PAIRS_PER_ROUND = (128, 256, 64)  # of instructions per round: how much code a round is decides how well it is fetched
THREADS = (256, 512)  # of a block; so many blocks as fill the multiprocessors
STEP_CYCLES = 1 << 21  # about a millisecond: long against a launch
COMPARED_ROUNDS = 2
STRIDES = (0, 1, 2, 4, 8, 16, 32)  # words; 0: one word for all lanes
CONFLICT_WAYS = (1, 2, 4, 8, 16, 32)
SET_WORDS = 2048  # that requests begin in: with the longest stride 12 KiB, which every L1 holds


@dataclass(frozen=True)
class IssueKernel:
    """One way to keep all schedulers busy: `step(i)` issues so many warp instructions."""

    name: str
    warp_instructions: int
    step: Callable[[int], object]
    check: Callable[[], Check]


@dataclass(frozen=True)
class AccessLimitKernel:
    """One pattern: `step(i)` makes the requests; `verify()` raises ArithmeticError if what was loaded is wrong."""

    pattern: str
    of: int
    requests: int
    transactions_per_request: int
    step: Callable[[int], object]
    verify: Callable[[], str]


def make_issue_kernels(device) -> list[IssueKernel]:
    return [_issue_kernel(device, threads, pairs) for threads in THREADS for pairs in PAIRS_PER_ROUND]


def make_access_limit_kernels(device) -> list[AccessLimitKernel]:
    return [_stride_kernel(device, stride) for stride in STRIDES] + [
        _conflict_kernel(device, ways) for ways in CONFLICT_WAYS
    ]


def _defines(pairs: int) -> tuple[str, ...]:
    """Given to every kernel of the source, so that it is compiled once for each number of pairs."""
    return (f"-DPAIRS_PER_ROUND={pairs}",)


KERNELS = [(KERNEL_FILE, "", _defines(pairs)) for pairs in PAIRS_PER_ROUND]


# ---------------------------------------------------------------- issue


def _issue_kernel(device, threads: int, pairs: int) -> IssueKernel:
    blocks = device.max_threads // threads * device.multiprocessors
    warps = blocks * threads // LANES_PER_WARP
    rounds = max(COMPARED_ROUNDS, STEP_CYCLES * SCHEDULERS_PER_SM // (2 * pairs * (warps // device.multiprocessors)))
    kernel = device.load_kernel(KERNEL_FILE, "issue", _defines(pairs))
    floats, words = (device.xp.empty(blocks * threads * CHAINS_PER_THREAD, dtype) for dtype in ("float32", "uint32"))

    def run(count: int) -> None:
        kernel((blocks,), (threads,), (floats, words, numpy.uint32(count), device.kernel_clock))

    def of_first_block(count: int) -> list:
        """Its floats and words after so many rounds."""
        for array in (floats, words):
            device.poison(array)
        run(count)
        device.synchronize()
        return [
            device.to_host(array[: threads * CHAINS_PER_THREAD]).reshape(threads, CHAINS_PER_THREAD)
            for array in (floats, words)
        ]

    def check() -> Check:
        """The floats of a whole step, then both kinds of number after a few rounds."""
        first = start_words(threads)
        for count, tolerance in ((rounds, WHOLE_RUN_TOLERANCE["fp32"]), (COMPARED_ROUNDS, FEW_STEPS_TOLERANCE["fp32"])):
            found, shifts = of_first_block(count)
            expected = expected_fold(first.astype(numpy.float64), count * pairs // CHAINS_PER_THREAD, FACTOR, OFFSET)
            error = relative_error(found, expected)
            require_close(f"issue kernel, {count} rounds", error, tolerance)
        if not numpy.array_equal(shifts, expected_shifts(first, COMPARED_ROUNDS * pairs)):
            raise ArithmeticError(f"issue kernel: words after {COMPARED_ROUNDS} rounds are wrong")
        what = f"numbers of the first block: floats after {rounds} rounds and all after {COMPARED_ROUNDS}"
        return Check(compared=what, error=error, tolerance=tolerance)

    return IssueKernel(
        name=f"{2 * pairs} instructions per round, {blocks} blocks of {threads} threads",
        warp_instructions=warps * rounds * 2 * pairs,
        step=lambda index: run(rounds),
        check=check,
    )


def start_words(threads: int):
    """The words that a block's threads begin with, a row each."""
    return numpy.arange(threads * CHAINS_PER_THREAD, dtype=numpy.uint32).reshape(threads, CHAINS_PER_THREAD)


def expected_shifts(words, count: int):
    """So many funnel shifts, one number after another: each takes ROTATED bits of the next one."""
    words = words.copy()
    for place in range(count):
        i, following = place % CHAINS_PER_THREAD, (place + 1) % CHAINS_PER_THREAD
        words[:, i] = words[:, i] << ROTATED_BITS | words[:, following] >> 32 - ROTATED_BITS
    return words


# ---------------------------------------------------------------- loads


def _stride_kernel(device, stride: int) -> AccessLimitKernel:
    sectors = sectors_per_request(stride)
    cycles = max(
        sectors // 4, len({lane * stride * WORD_BYTES // 128 for lane in range(LANES_PER_WARP)})
    )  # a request, about
    words = SET_WORDS + LANES_PER_WARP * max(STRIDES) + 8 * LOADS_PER_ROUND
    numbers, places = (numpy.uint32(stride), numpy.uint32(SET_WORDS)), partial(strided_word_indices, stride)
    step, requests, verify = _load_step(device, "load_strided", cycles, words, numbers, places)
    return AccessLimitKernel("stride", stride, requests, sectors, step, verify)


def _conflict_kernel(device, ways: int) -> AccessLimitKernel:
    wavefronts, numbers, places = (
        wavefronts_per_request(ways),
        (numpy.uint32(ways),),
        partial(shared_word_indices, ways),
    )
    step, requests, verify = _load_step(device, "load_conflicting", wavefronts, SHARED_WORDS, numbers, places)
    return AccessLimitKernel("conflict", ways, requests, wavefronts, step, verify)


def _load_step(device, name: str, cycles: int, size: int, numbers: tuple, places) -> tuple[Callable, int, Callable]:
    """A step, the requests that it makes, and its check. `places` are the words that lanes load in turn."""
    threads = THREADS[0]
    each = device.max_threads // threads
    blocks, warps = each * device.multiprocessors, each * threads // LANES_PER_WARP
    rounds = max(1, STEP_CYCLES // (LOADS_PER_ROUND * warps * max(1, cycles)))
    words, kernel = (
        device.cache_buffer(4 * size).view("uint32"),
        device.load_kernel(KERNEL_FILE, name, _defines(PAIRS_PER_ROUND[0])),
    )

    def step(index: int) -> None:
        arguments = (words, *numbers, numpy.uint32(rounds), device.word_sum, device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    def verify() -> str:
        words[...] = device.to_device(numpy.arange(size, dtype=numpy.uint32) + numpy.uint32(PATTERN_START))
        device.word_sum.data.memset_async(0, device.word_sum.nbytes, device.stream)
        step(0)
        device.synchronize()
        found, expected = int(device.to_host(device.word_sum)[0]), blocks * expected_load_sum(places(threads, rounds))
        if found != expected % 2**32:
            raise ArithmeticError(f"{name}: the words loaded add up to {found}, and must to {expected % 2**32}")
        return "the sum of every word loaded"

    return step, blocks * threads // LANES_PER_WARP * rounds * LOADS_PER_ROUND, verify


def strided_word_indices(stride: int, threads: int, rounds: int) -> Iterator:
    """The words that each warp of a block loads, round by round: (places, how many rounds they are)."""
    lanes, loads = numpy.arange(LANES_PER_WARP)[:, None] * stride, numpy.arange(LOADS_PER_ROUND) * 8
    turns = SET_WORDS // (8 * LOADS_PER_ROUND)
    for warp in range(threads // LANES_PER_WARP):
        for turn in range(min(turns, rounds)):
            at = (warp + turn) * 8 * LOADS_PER_ROUND % SET_WORDS
            yield lanes + loads + at, len(range(turn, rounds, turns))


def shared_word_indices(ways: int, threads: int, rounds: int) -> Iterator:
    lanes, loads = numpy.arange(LANES_PER_WARP)[:, None] * ways, numpy.arange(LOADS_PER_ROUND) * 32
    turns = SHARED_WORDS // 2 // (32 * LOADS_PER_ROUND)
    for turn in range(min(turns, rounds)):
        at = turn * 32 * LOADS_PER_ROUND
        yield lanes + loads + at, len(range(turn, rounds, turns)) * (threads // LANES_PER_WARP)


def expected_load_sum(places) -> int:
    """Of words that hold START plus their place."""
    return sum((int(where.sum()) + PATTERN_START * where.size) * times for where, times in places)
