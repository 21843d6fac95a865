"""Loops over memory and over registers, compiled by LLVM for this host's vectors, and run by pinned threads together.

A loop is written as LLVM's intermediate representation, in vectors of the widest kind that the host has. No pass of
LLVM's optimiser runs: the code written here is the code that is timed. Each thread waits in compiled code until all
have arrived, and stores the nanoseconds at which it began and ended.
"""

import ctypes
import platform
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy

from roofline.core.dtypes import DTYPES
from roofline.devices.cpu.workers import Workers

ITERATION_BYTES = 512  # bytes of each array that one iteration covers: sizes are multiples of it
# An iteration of a copy covers one cache line. With several lines LLVM puts all loads before all stores, and a copy
# past the caches was seen to fall from 51 to 37 GB/s on two cores. A triad is 5 % faster with several lines.
COPY_ITERATION_BYTES = 64
TRIAD_SCALE = 3  # the factor of b in the triad, and the number that the write loop writes
PAGE_BYTES = 4096
# The frame makes threads begin together and stores when each ended; the `work` of a loop follows it.
TIMED_FRAME = Path(__file__).with_name("timed_frame.ll")
# Templates of such `work`, of which each says what is filled in.
ACCESS_LOOP, FMA_LOOP = (Path(__file__).with_name(name) for name in ("access_loop.ll", "fma_loop.ll"))
# Each thread has a row of 64-bit words, two cache lines, with the words named here and its arguments after them. The
# frame has the same numbers.
ROW_WORDS = 16
BEGIN_WORD, END_WORD, RESULT, CHAIN_NS, THREADS, CHAIN_ROUNDS, UNUSED, ARGUMENTS = range(8)
CHAIN_OPS = 64  # dependent additions and exclusive ors in a round of the clock chain, one clock each

Loop = Callable[[int, int], None]  # called with two addresses: the count of arrived threads, and a thread's row


class LoopRun(NamedTuple):
    """One run of a loop by several threads."""

    seconds: float  # from the first thread's begin to the last thread's end
    results: list[int]  # by thread
    clocks_mhz: list[float]  # by thread, counted right after the loop; empty if not asked for


@cache
def host_vectors() -> tuple[int, int]:
    """Return the bytes of the host's widest vectors, and the number of registers that hold them.

    On an ARM host they are NEON's: wider SVE is not used.
    """
    features = llvm.get_host_cpu_features()
    if platform.machine() in ("aarch64", "arm64"):
        return 16, 32
    if features.get("avx512f") and features.get("avx512vl"):
        return 64, 32
    return (32 if features.get("avx") else 16), 16


def run_together(workers: Workers, loop: Loop, arguments: Sequence[Sequence[int]], clock_rounds: int = 0) -> LoopRun:
    """Run a loop once on as many workers as there are `arguments`, one sequence for each.

    With `clock_rounds` each thread then runs so many rounds of a chain of dependent additions, which gives its clock.
    """
    row_bytes = 8 * ROW_WORDS
    words = allocate_aligned(row_bytes * (len(arguments) + 1), row_bytes).view(numpy.int64).reshape(-1, ROW_WORDS)
    words.fill(0)
    arrived, rows = words[0], words[1:]
    rows[:, THREADS], rows[:, CHAIN_ROUNDS] = len(arguments), clock_rounds
    for row, argument_words in zip(rows, arguments, strict=True):
        row[ARGUMENTS : ARGUMENTS + len(argument_words)] = argument_words
    arrived_address, first_row_address = arrived.ctypes.data, rows.ctypes.data
    workers.run(len(arguments), lambda thread: loop(arrived_address, first_row_address + row_bytes * thread))
    return LoopRun(
        seconds=max(1, rows[:, END_WORD].max() - rows[:, BEGIN_WORD].min()) / 1e9,
        results=rows[:, RESULT].tolist(),
        clocks_mhz=(clock_rounds * CHAIN_OPS * 1e3 / rows[:, CHAIN_NS]).tolist() if clock_rounds else [],
    )


def allocate_aligned(size_bytes: int, to_bytes: int) -> numpy.ndarray:
    """Return new memory as an array of `size_bytes` bytes that begins at a multiple of `to_bytes`."""
    memory = numpy.empty(size_bytes + to_bytes, numpy.uint8)
    start = -memory.ctypes.data % to_bytes
    return memory[start : start + size_bytes]


@cache
def compile_access_loop(mix: str, non_temporal: bool = False) -> Loop:
    """Compile a loop that reads, writes, copies or adds as in the STREAM triad, for this host's vectors.

    With `non_temporal` its stores bypass the caches. Its arguments are the addresses of a, b and c, bytes (a multiple
    of ITERATION_BYTES, or 0) and passes over these. Addresses are multiples of 64. A read returns the sum of a's 8-byte
    words modulo 2^64, all others 0.
    """
    return compile_loop(access_loop_ir(mix, non_temporal, host_vectors()[0]))


@cache
def compile_fma_loop(dtype: str, chains: int, vector_bytes: int) -> Loop:
    """Compile a loop of x = k x + x on `chains` vectors in registers.

    Its arguments are the addresses of the numbers (a vector of k, then the first x's) and of the results, then rounds
    and steps. A round begins with the first x's and adds the last x's to the results. The addend is one of the factors
    because ARM's multiply-add overwrites it: any other addend would have to be copied.
    """
    return compile_loop(fma_loop_ir(dtype, chains, vector_bytes))


def access_loop_ir(mix: str, non_temporal: bool, vector_bytes: int) -> str:
    """Return the LLVM IR of `work` for an access loop: see `compile_access_loop`.

    An iteration covers ITERATION_BYTES, of a copy COPY_ITERATION_BYTES. A read adds to up to 8 independent vector sums:
    %s0, %s1, ... hold them at the start of an iteration, and the last of the %t0, %t1, ... at its end.
    """
    iteration_bytes = COPY_ITERATION_BYTES if mix == "copy" else ITERATION_BYTES
    count = iteration_bytes // vector_bytes
    sums = min(8, count) if mix == "read" else 0
    integers = f"<{vector_bytes // 8} x i64>"
    carried_sums = []
    for index in range(sums):
        last = f"%t{count - sums + index}"
        carried_sums.append(f"  %s{index} = phi {integers} [zeroinitializer, %entry], [{last}, %loop]")
    body = [line for n in range(count) for line in _vector_instructions(mix, n, sums, non_temporal, vector_bytes)]
    end = ["  ret i64 0"]
    if sums:
        end = _lane_sum_instructions(integers, vector_bytes // 8, count - sums, sums)
    return Template(ACCESS_LOOP.read_text()).substitute(
        carried_sums="\n".join(carried_sums),
        body="\n".join(body),
        end="\n".join(end),
        iteration_bytes=iteration_bytes,
    )


def _vector_instructions(mix: str, number: int, sums: int, non_temporal: bool, vector_bytes: int) -> list[str]:
    """Return the instructions of an iteration on the vector with this number."""
    integers, floats = f"<{vector_bytes // 8} x i64>", f"<{vector_bytes // 4} x float>"
    splat = ", ".join([f"float {float(TRIAD_SCALE)}"] * (vector_bytes // 4))

    def at(array: str) -> list[str]:
        return [
            f"  %{array}o{number} = getelementptr i8, ptr %{array}, i64 %i",
            f"  %{array}{number} = getelementptr i8, ptr %{array}o{number}, i64 {number * vector_bytes}",
        ]

    def load(array: str, kind: str) -> list[str]:
        return [*at(array), f"  %{array}v{number} = load {kind}, ptr %{array}{number}, align {vector_bytes}"]

    def store(kind: str, value: str) -> list[str]:
        hint = ", !nontemporal !0" if non_temporal else ""
        return [*at("c"), f"  store {kind} {value}, ptr %c{number}, align {vector_bytes}{hint}"]

    if mix == "read":
        before = f"%s{number}" if number < sums else f"%t{number - sums}"
        return [*load("a", integers), f"  %t{number} = add {integers} {before}, %av{number}"]
    if mix == "write":
        return store(floats, f"<{splat}>")
    if mix == "copy":
        return [*load("a", integers), *store(integers, f"%av{number}")]
    product = [
        f"  %p{number} = fmul {floats} %bv{number}, <{splat}>",
        f"  %r{number} = fadd {floats} %av{number}, %p{number}",
    ]
    return [*load("a", floats), *load("b", floats), *product, *store(floats, f"%r{number}")]


def _lane_sum_instructions(integers: str, lanes: int, first: int, count: int) -> list[str]:
    """Return the instructions that add up all lanes of `count` vectors %t from the `first` on, and return the sum."""
    lines = [f"  %u0 = add {integers} %t{first}, zeroinitializer"]
    lines += [f"  %u{n} = add {integers} %u{n - 1}, %t{first + n}" for n in range(1, count)]
    lines += [f"  %l0 = extractelement {integers} %u{count - 1}, i32 0"]
    for lane in range(1, lanes):
        lines += [f"  %e{lane} = extractelement {integers} %u{count - 1}, i32 {lane}"]
        lines += [f"  %l{lane} = add i64 %l{lane - 1}, %e{lane}"]
    return [*lines, f"  ret i64 %l{lanes - 1}"]


def fma_loop_ir(dtype: str, chains: int, vector_bytes: int) -> str:
    """Return the LLVM IR of `work` for a loop of multiply-adds: see `compile_fma_loop`.

    The outer loop is over rounds, the inner one over steps. In a step each chain does one multiply-add on its vector.
    """
    bits = DTYPES[dtype].bits
    scalar, lanes = {64: "double", 32: "float"}[bits], 8 * vector_bytes // bits
    kinds = {"vector": f"<{lanes} x {scalar}>", "fma": f"@llvm.fmuladd.v{lanes}f{bits}", "vector_bytes": vector_bytes}
    lines = []
    for line in FMA_LOOP.read_text().splitlines():
        for chain in range(chains if "$chain" in line else 1):
            offsets = {"number_offset": (chain + 1) * vector_bytes, "sum_offset": chain * vector_bytes}
            lines.append(Template(line).substitute(kinds, chain=chain, **offsets))
    return "\n".join(lines)


def compile_loop(work: str) -> Loop:
    """Compile LLVM IR that defines `work(arguments) -> i64`, within the frame that starts threads together and stores
    begin and end. Return a function of two addresses: the count of arrived threads, and a thread's row.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(TIMED_FRAME.read_text() + work)
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("run"))
    run.engine = engine  # type: ignore[attr-defined]  # keeps the code in memory; ctypes allows it
    return run
