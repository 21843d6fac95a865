"""What the instruction roofline is measured with: kernels of ours whose warp instructions or requests are known."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy

from roofline.core import roofline_model
from roofline.core.dtypes import COMMON_DTYPE, relative_error, require_close
from roofline.core.roofline_model import LANES_PER_WARP, SCHEDULERS_PER_SM, WORD_BYTES
from roofline.devices.base import AccessLimitKernel, IssueKernel, Step
from roofline.devices.gpu.gpu_fma import FEW_STEPS_TOLERANCE, WHOLE_RUN_TOLERANCE, expected_fold
from roofline.devices.gpu.hbm_benchmarks import PATTERN_START
from roofline.devices.gpu.pointer_chase import LINE_BYTES
from roofline.records.timing_record import Check

if TYPE_CHECKING:
    from roofline.devices.gpu.gpu_device import GpuDevice

KERNEL_FILE = "instructions.cu"
# As in the source.
CHAINS_PER_THREAD, LOADS_PER_ROUND, SHARED_WORDS = 8, 8, 2048
FACTOR, OFFSET, ROTATED_BITS = -1 + 2**-16, 0.5, 7

PAIRS_PER_ROUND = (128, 256, 64)  # pairs of instructions: how much code a round is decides how well it is fetched
THREADS = (256, 512)  # of a block; as many blocks as fill the multiprocessors
STEP_CYCLES = 1 << 21  # about a millisecond, which is long compared with a launch
COMPARED_ROUNDS = 2
STRIDES = (0, 1, 2, 4, 8, 16, 32)  # words; 0: one word for all lanes
CONFLICT_WAYS = (1, 2, 4, 8, 16, 32)
SECTORS_PER_CYCLE = 4  # of L1, about
SET_WORDS = 2048  # in which requests begin: with the longest stride 12 KiB, which every L1 holds
LOAD_SPACING, SHARED_LOAD_SPACING = 8, 32  # words from a load of a lane to its next one, as in the source

WordIndices = Iterator[tuple[numpy.ndarray, int]]  # words that a warp loads in a round, and the rounds that load them


class LoadPattern(NamedTuple):
    """The loads of a kernel. `word_indices` yields the words that one block loads, from its threads and rounds."""

    kernel_name: str
    cycles: int  # of a request, about
    words: int  # of the array that is read
    arguments: tuple  # of the kernel, after the array
    word_indices: Callable[[int, int], WordIndices]


def make_issue_kernels(device: "GpuDevice") -> list[IssueKernel]:
    """Return a kernel for each size of a block and number of pairs per round."""
    return [_issue_kernel(device, threads, pairs) for threads in THREADS for pairs in PAIRS_PER_ROUND]


def make_access_limit_kernels(device: "GpuDevice") -> list[AccessLimitKernel]:
    """Return a kernel for each stride from L1, and for each number of conflicts in shared memory."""
    strided = [_stride_kernel(device, stride) for stride in STRIDES]
    return strided + [_conflict_kernel(device, conflict_ways) for conflict_ways in CONFLICT_WAYS]


def _defines(pairs: int) -> tuple[str, ...]:
    """Return the macros of every kernel of the source, so that it is compiled once for each number of pairs."""
    return (f"-DPAIRS_PER_ROUND={pairs}",)


KERNELS = [(KERNEL_FILE, "", _defines(pairs)) for pairs in PAIRS_PER_ROUND]


# ---------------------------------------------------------------- issue


def _issue_kernel(device: "GpuDevice", threads: int, pairs: int) -> IssueKernel:
    blocks = device.max_threads // threads * device.multiprocessors
    warps = blocks * threads // LANES_PER_WARP
    warps_per_sm = warps // device.multiprocessors
    rounds = max(COMPARED_ROUNDS, STEP_CYCLES * SCHEDULERS_PER_SM // (2 * pairs * warps_per_sm))
    kernel = device.load_kernel(KERNEL_FILE, "issue", _defines(pairs))
    numbers = blocks * threads * CHAINS_PER_THREAD
    arrays = device.xp.empty(numbers, "float32"), device.xp.empty(numbers, "uint32")

    def run(count: int) -> None:
        kernel((blocks,), (threads,), (*arrays, numpy.uint32(count), device.kernel_clock))

    def run_first_block(count: int) -> list[numpy.ndarray]:
        """Return the floats and the words of the first block after so many rounds, a row for each thread."""
        for array in arrays:
            device.poison(array)
        run(count)
        device.synchronize()
        return [device.to_host(array[: threads * CHAINS_PER_THREAD]).reshape(threads, -1) for array in arrays]

    def check() -> Check:
        """Check the floats of all rounds of a step, then both kinds of number after a few rounds."""
        start = start_words(threads)
        for count, tolerance in (
            (rounds, WHOLE_RUN_TOLERANCE[COMMON_DTYPE]),
            (COMPARED_ROUNDS, FEW_STEPS_TOLERANCE[COMMON_DTYPE]),
        ):
            floats, words = run_first_block(count)
            expected = expected_fold(start.astype(numpy.float64), count * pairs // CHAINS_PER_THREAD, FACTOR, OFFSET)
            error = relative_error(floats, expected)
            require_close(f"issue kernel, {count} rounds", error, tolerance)
        if not numpy.array_equal(words, expected_shifts(start, COMPARED_ROUNDS * pairs)):
            raise ArithmeticError(f"issue kernel: words after {COMPARED_ROUNDS} rounds are wrong")
        compared = f"numbers of the first block: floats after {rounds} rounds and all after {COMPARED_ROUNDS}"
        return Check(compared=compared, relative_error=error, tolerance=tolerance)

    return IssueKernel(
        name=f"{2 * pairs} instructions per round, {blocks} blocks of {threads} threads",
        warp_instructions=warps * rounds * 2 * pairs,
        step=lambda index: run(rounds),
        check=check,
    )


def start_words(threads: int) -> numpy.ndarray:
    """Return the words that a block's threads begin with, a row for each thread."""
    return numpy.arange(threads * CHAINS_PER_THREAD, dtype=numpy.uint32).reshape(threads, CHAINS_PER_THREAD)


def expected_shifts(words: numpy.ndarray, count: int) -> numpy.ndarray:
    """Return a block's words after `count` funnel shifts, one number of a thread after another: each takes ROTATED_BITS
    bits of the next number."""
    words = words.copy()
    for shift in range(count):
        number, following = shift % CHAINS_PER_THREAD, (shift + 1) % CHAINS_PER_THREAD
        words[:, number] = words[:, number] << ROTATED_BITS | words[:, following] >> 32 - ROTATED_BITS
    return words


# ---------------------------------------------------------------- loads


def _stride_kernel(device: "GpuDevice", stride: int) -> AccessLimitKernel:
    sectors = roofline_model.sectors_per_request(stride)
    lines = {lane * stride * WORD_BYTES // LINE_BYTES for lane in range(LANES_PER_WARP)}
    cycles = max(sectors // SECTORS_PER_CYCLE, len(lines))
    words = SET_WORDS + LANES_PER_WARP * max(STRIDES) + LOAD_SPACING * LOADS_PER_ROUND
    arguments, word_indices = (numpy.uint32(stride), numpy.uint32(SET_WORDS)), partial(strided_word_indices, stride)
    pattern = LoadPattern("load_strided", cycles, words, arguments, word_indices)
    step, requests, verify = _load_step(device, pattern)
    return AccessLimitKernel("stride", stride, requests, sectors, step, verify)


def _conflict_kernel(device: "GpuDevice", conflict_ways: int) -> AccessLimitKernel:
    wavefronts = roofline_model.wavefronts_per_request(conflict_ways)
    arguments, word_indices = (numpy.uint32(conflict_ways),), partial(shared_word_indices, conflict_ways)
    pattern = LoadPattern("load_conflicting", wavefronts, SHARED_WORDS, arguments, word_indices)
    step, requests, verify = _load_step(device, pattern)
    return AccessLimitKernel("conflict", conflict_ways, requests, wavefronts, step, verify)


def _load_step(device: "GpuDevice", pattern: LoadPattern) -> tuple[Step, int, Callable[[], str]]:
    """Return a step, the requests that it makes, and its check."""
    threads = THREADS[0]
    blocks_per_sm = device.max_threads // threads
    blocks, warps_per_sm = blocks_per_sm * device.multiprocessors, blocks_per_sm * threads // LANES_PER_WARP
    rounds = max(1, STEP_CYCLES // (LOADS_PER_ROUND * warps_per_sm * max(1, pattern.cycles)))
    words = device.cache_buffer(WORD_BYTES * pattern.words).view("uint32")
    name = pattern.kernel_name
    kernel = device.load_kernel(KERNEL_FILE, name, _defines(PAIRS_PER_ROUND[0]))

    def step(index: int) -> None:
        arguments = (words, *pattern.arguments, numpy.uint32(rounds), device.word_sum, device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    def verify() -> str:
        words[...] = device.to_device(numpy.arange(pattern.words, dtype=numpy.uint32) + numpy.uint32(PATTERN_START))
        device.word_sum.data.memset_async(0, device.word_sum.nbytes, device.stream)
        step(0)
        device.synchronize()
        word_sum = int(device.to_host(device.word_sum)[0])
        expected = blocks * expected_load_sum(pattern.word_indices(threads, rounds)) % 2**32
        if word_sum != expected:
            raise ArithmeticError(f"{name}: the words loaded add up to {word_sum}, and must to {expected}")
        return "the sum of every word loaded"

    return step, blocks * threads // LANES_PER_WARP * rounds * LOADS_PER_ROUND, verify


def strided_word_indices(stride: int, threads: int, rounds: int) -> WordIndices:
    """Yield the words that each warp of a block loads from global memory in a round, and the rounds that load them.

    Words are an array [lanes, loads]. Rounds begin at other words until the set is used up, then repeat.
    """
    lanes = numpy.arange(LANES_PER_WARP)[:, None] * stride
    loads = numpy.arange(LOADS_PER_ROUND) * LOAD_SPACING
    round_words = LOAD_SPACING * LOADS_PER_ROUND
    period = SET_WORDS // round_words
    for warp in range(threads // LANES_PER_WARP):
        for first_round in range(min(period, rounds)):
            start = (warp + first_round) * round_words % SET_WORDS
            yield lanes + loads + start, len(range(first_round, rounds, period))


def shared_word_indices(conflict_ways: int, threads: int, rounds: int) -> WordIndices:
    """Yield the words of shared memory that every warp of a block loads in a round, and how often a block loads them.

    `conflict_ways` lanes want each bank. Words are an array [lanes, loads].
    """
    lanes = numpy.arange(LANES_PER_WARP)[:, None] * conflict_ways
    loads = numpy.arange(LOADS_PER_ROUND) * SHARED_LOAD_SPACING
    round_words = SHARED_LOAD_SPACING * LOADS_PER_ROUND
    period = SHARED_WORDS // 2 // round_words
    for first_round in range(min(period, rounds)):
        warp_rounds = len(range(first_round, rounds, period)) * (threads // LANES_PER_WARP)
        yield lanes + loads + first_round * round_words, warp_rounds


def expected_load_sum(word_indices: Iterable[tuple[numpy.ndarray, int]]) -> int:
    """Return the sum of loaded words, each of which holds PATTERN_START plus its index; not modulo 2^32."""
    return sum((int(indices.sum()) + PATTERN_START * indices.size) * times for indices, times in word_indices)
