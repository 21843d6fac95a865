"""What the instruction roofline is measured with: kernels of ours whose warp instructions or requests are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from roofline.core.dtypes import relative_error, require_close
from roofline.core.model import LANES, SCHEDULERS, WORD_BYTES, sectors_per_request, wavefronts_per_request
from roofline.devices.gpu.fma import REFERENCES, TOLERANCE, TOLERANCE_OF_ALL
from roofline.devices.gpu.memory import START
from roofline.records.timing import Check

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
    """One pattern: `step(i)` makes so many requests.

    `verify()` compares what was loaded with what must be; it says how, and raises ArithmeticError where it differs.
    """

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


# ---------------------------------------------------------------- issue


class _Chains:
    """Launches of the kernel that issues, and what they must leave."""

    def __init__(self, device, threads: int, pairs: int):
        self.device, self.threads, self.pairs = device, threads, pairs
        self.blocks = device.max_threads // threads * device.multiprocessors
        self.warps = self.blocks * threads // LANES
        each = self.warps // device.multiprocessors
        self.rounds = max(COMPARED_ROUNDS, STEP_CYCLES * SCHEDULERS // (2 * pairs * each))
        self.kernel = device.kernel(SOURCE, "issue", _macros(pairs))
        words = self.blocks * threads * NUMBERS
        self.floats, self.words = device.xp.empty(words, "float32"), device.xp.empty(words, "uint32")

    def run(self, rounds: int) -> None:
        import numpy

        arguments = (self.floats, self.words, numpy.uint32(rounds), self.device.kernel_clock)
        self.kernel((self.blocks,), (self.threads,), arguments)

    def check(self) -> Check:
        """Of the first block: the floats of a whole step, then both kinds of number after a few rounds."""
        self._run_poisoned(self.rounds)
        self._floats_apart(self.rounds, TOLERANCE_OF_ALL["fp32"])
        self._run_poisoned(COMPARED_ROUNDS)
        error = self._floats_apart(COMPARED_ROUNDS, TOLERANCE["fp32"])
        self._require_words(COMPARED_ROUNDS)
        what = f"numbers of the first block: floats after {self.rounds} rounds and all after {COMPARED_ROUNDS}"
        return Check(compared=what, error=error, tolerance=TOLERANCE["fp32"])

    def _run_poisoned(self, rounds: int) -> None:
        self.device.poison(self.floats)
        self.device.poison(self.words)
        self.run(rounds)

    def _of_first_block(self, array):
        self.device.synchronize()
        return self.device.to_host(array[: self.threads * NUMBERS]).reshape(self.threads, NUMBERS)

    def _floats_apart(self, rounds: int, tolerance: float) -> float:
        import numpy

        start = starts(self.threads).astype(numpy.float64)
        expected = REFERENCES["fold"](start, rounds * self.pairs // NUMBERS, FACTOR, OFFSET)
        error = relative_error(self._of_first_block(self.floats), expected)
        require_close(f"issue kernel, {rounds} rounds", error, tolerance)
        return error

    def _require_words(self, rounds: int) -> None:
        import numpy

        expected = shifted(starts(self.threads), rounds * self.pairs)
        if not numpy.array_equal(self._of_first_block(self.words), expected):
            raise ArithmeticError(f"issue kernel: words after {rounds} rounds are wrong")


def starts(threads: int):
    """The words that a block's threads begin with, a row each."""
    import numpy

    return numpy.arange(threads * NUMBERS, dtype=numpy.uint32).reshape(threads, NUMBERS)


def shifted(words, count: int):
    """So many funnel shifts, one number after another: each takes ROTATED bits of the next one."""
    words = words.copy()
    for place in range(count):
        i, following = place % NUMBERS, (place + 1) % NUMBERS
        words[:, i] = words[:, i] << ROTATED | words[:, following] >> 32 - ROTATED
    return words


def _issue(device, threads: int, pairs: int) -> IssueKernel:
    chains = _Chains(device, threads, pairs)
    return IssueKernel(
        name=f"{2 * pairs} instructions per round, {chains.blocks} blocks of {threads} threads",
        warp_instructions=chains.warps * chains.rounds * 2 * pairs,
        step=lambda index: chains.run(chains.rounds),
        check=chains.check,
    )


# ---------------------------------------------------------------- loads


def _strided(device, stride: int) -> WallKernel:
    import numpy

    sectors = sectors_per_request(stride)
    lines = len({lane * stride * WORD_BYTES // 128 for lane in range(LANES)})
    words = SET_WORDS + LANES * max(STRIDES) + 8 * LOADS
    numbers = (numpy.uint32(stride), numpy.uint32(SET_WORDS))
    return _loading(
        device, "load_strided", "stride", stride, sectors, max(sectors // 4, lines), words, numbers, strided_places
    )


def _conflicting(device, ways: int) -> WallKernel:
    import numpy

    wavefronts, numbers = wavefronts_per_request(ways), (numpy.uint32(ways),)
    return _loading(
        device, "load_conflicting", "conflict", ways, wavefronts, wavefronts, SHARED_WORDS, numbers, shared_places
    )


def _loading(
    device, name: str, pattern: str, of: int, transactions: int, cycles: int, size: int, numbers: tuple, places
) -> WallKernel:
    """`cycles` is about what a request takes a multiprocessor; `places` the words that lanes load in turn."""
    import numpy

    threads = THREADS[0]
    each = device.max_threads // threads
    blocks, warps = each * device.multiprocessors, each * threads // LANES
    rounds = max(1, STEP_CYCLES // (LOADS * warps * max(1, cycles)))
    words, kernel = device.cache_words(4 * size).view("uint32"), device.kernel(SOURCE, name, _macros(PAIRS[0]))

    def run(count: int) -> None:
        arguments = (words, *numbers, numpy.uint32(count), device.total, device.kernel_clock)
        kernel((blocks,), (threads,), arguments)

    def verify() -> str:
        words[...] = device.array(numpy.arange(size, dtype=numpy.uint32) + numpy.uint32(START))
        device.total.data.memset_async(0, device.total.nbytes, device.stream)
        run(rounds)
        device.synchronize()
        found, expected = int(device.to_host(device.total)[0]), blocks * sum_of(places(of, threads, rounds))
        if found != expected % 2**32:
            raise ArithmeticError(f"{name}: the words loaded add up to {found}, and must to {expected % 2**32}")
        return "the sum of every word loaded"

    return WallKernel(
        pattern=pattern,
        of=of,
        requests=blocks * threads // LANES * rounds * LOADS,
        transactions_per_request=transactions,
        step=lambda index: run(rounds),
        verify=verify,
    )


def strided_places(stride: int, threads: int, rounds: int) -> Iterator:
    """The words that each warp of a block loads, round by round: (places, how many rounds they are)."""
    import numpy

    lanes, loads = numpy.arange(LANES)[:, None] * stride, numpy.arange(LOADS) * 8
    turns = SET_WORDS // (8 * LOADS)
    for warp in range(threads // LANES):
        for turn in range(min(turns, rounds)):
            at = (warp + turn) * 8 * LOADS % SET_WORDS
            yield lanes + loads + at, len(range(turn, rounds, turns))


def shared_places(ways: int, threads: int, rounds: int) -> Iterator:
    import numpy

    lanes, loads = numpy.arange(LANES)[:, None] * ways, numpy.arange(LOADS) * 32
    turns = SHARED_WORDS // 2 // (32 * LOADS)
    for turn in range(min(turns, rounds)):
        at = turn * 32 * LOADS
        yield lanes + loads + at, len(range(turn, rounds, turns)) * (threads // LANES)


def sum_of(places) -> int:
    """Of words that hold START plus their place."""
    return sum((int(where.sum()) + START * where.size) * times for where, times in places)
