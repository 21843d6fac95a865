"""Loops over memory and over registers, compiled by LLVM for this host's vectors, and run by pinned threads together.

A loop is written as LLVM's intermediate representation, in vectors of the widest kind that the host has. No pass of
LLVM's optimiser runs: what is written here is timed. Each thread waits in compiled code until all are there, and
leaves the nanoseconds at which it began and ended.
"""

import ctypes
import platform
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy

from roofline.devices.cpu.workers import Workers

ITERATION_BYTES = 512  # that an iteration of a stream's loop covers: sizes are multiples of it
# That an iteration of a copy covers: with several lines, LLVM puts all loads before all stores, and a copy past the
# caches was seen to fall from 51 to 37 GB/s on two cores. A triad is 5 % faster by blocks.
COPY_ITERATION_BYTES = 64
TRIAD_SCALE = 3  # of b in the triad, and what the write stream writes
PAGE_BYTES = 4096
ROW_WORDS = 16  # of a thread's own row of BEGIN, END, ..., arguments; two cache lines
BEGIN_WORD, END_WORD, RESULT, CHAIN_NS, THREADS, CHAIN_ROUNDS, UNUSED, ARGUMENTS = range(8)
CHAIN_OPS = 64  # dependent additions and exclusive ors in a round of the chain, one clock each
CLOCK_CHAIN_IR = "\n".join(f"  %x{n + 1} = {('add', 'xor')[n % 2]} i64 %x{n}, %{'yz'[n % 2]}" for n in range(CHAIN_OPS))

# What makes threads begin together, and notes when each ended; the work of a loop follows it.
TIMED_FRAME_IR = f"""
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

define i64 @now() {{
  %time = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %rest = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %rest
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}}

define i64 @chain(i64 %rounds, i64 %y, i64 %z) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x0 = phi i64 [%y, %entry], [%x{CHAIN_OPS}, %loop]
{CLOCK_CHAIN_IR}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
  ret i64 %x{CHAIN_OPS}
}}

define void @run(ptr %arrived, ptr %own) {{
entry:
  %threads_at = getelementptr i64, ptr %own, i64 {THREADS}
  %threads = load i64, ptr %threads_at
  %before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %wait
wait:
  %there = load atomic i64, ptr %arrived seq_cst, align 8
  %all = icmp uge i64 %there, %threads
  br i1 %all, label %go, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
go:
  %begin = call i64 @now()
  store i64 %begin, ptr %own
  %arguments = getelementptr i64, ptr %own, i64 {ARGUMENTS}
  %result = call i64 @work(ptr %arguments)
  fence seq_cst
  %end = call i64 @now()
  %end_at = getelementptr i64, ptr %own, i64 {END_WORD}
  store i64 %end, ptr %end_at
  %result_at = getelementptr i64, ptr %own, i64 {RESULT}
  store i64 %result, ptr %result_at
  %rounds_at = getelementptr i64, ptr %own, i64 {CHAIN_ROUNDS}
  %rounds = load i64, ptr %rounds_at
  %counted = icmp ugt i64 %rounds, 0
  br i1 %counted, label %count, label %done
count:
  %count_begin = call i64 @now()
  %last = call i64 @chain(i64 %rounds, i64 %begin, i64 %end)
  %count_end = call i64 @now()
  %chain_ns = sub i64 %count_end, %count_begin
  %chain_at = getelementptr i64, ptr %own, i64 {CHAIN_NS}
  store i64 %chain_ns, ptr %chain_at
  %unused_at = getelementptr i64, ptr %own, i64 {UNUSED}
  store i64 %last, ptr %unused_at
  br label %done
done:
  ret void
}}
"""


Loop = Callable[[int, int], None]  # of the addresses of the count of threads that arrived, and of a thread's own row


class LoopRun(NamedTuple):
    """One run of a loop: seconds from the release to the last thread's end; then by thread."""

    seconds: float
    results: list[int]
    clocks_mhz: list[float]  # counted right after the loop; empty where it was not asked for


@cache
def host_vectors() -> tuple[int, int]:
    """Bytes of the widest vectors, and how many registers hold them. Of an ARM host NEON's: wider SVE is not used."""
    features = llvm.get_host_cpu_features()
    if platform.machine() in ("aarch64", "arm64"):
        return 16, 32
    if features.get("avx512f") and features.get("avx512vl"):
        return 64, 32
    return (32 if features.get("avx") else 16), 16


def run_together(workers: Workers, loop: Loop, arguments: Sequence[Sequence[int]], chain: int = 0) -> LoopRun:
    """One run of a loop by the first workers. With `chain` each then adds dependent numbers, which gives its clock."""
    words = (
        allocate_aligned(8 * ROW_WORDS * (len(arguments) + 1), 8 * ROW_WORDS).view(numpy.int64).reshape(-1, ROW_WORDS)
    )
    words.fill(0)
    arrived, rows = words[0], words[1:]
    rows[:, THREADS], rows[:, CHAIN_ROUNDS] = len(arguments), chain
    for row, own in zip(rows, arguments, strict=True):
        row[ARGUMENTS : ARGUMENTS + len(own)] = own
    shared, first, stride = arrived.ctypes.data, rows.ctypes.data, rows.strides[0]
    workers.run(len(arguments), lambda thread: loop(shared, first + stride * thread))
    return LoopRun(
        seconds=max(1, rows[:, END_WORD].max() - rows[:, BEGIN_WORD].min()) / 1e9,
        results=rows[:, RESULT].tolist(),
        clocks_mhz=(chain * CHAIN_OPS * 1e3 / rows[:, CHAIN_NS]).tolist() if chain else [],
    )


def allocate_aligned(size_bytes: int, to_bytes: int):
    """Bytes of new memory that begin at a multiple of `to_bytes`."""
    room = numpy.empty(size_bytes + to_bytes, numpy.uint8)
    start = -room.ctypes.data % to_bytes
    return room[start : start + size_bytes]


@cache
def compile_access_loop(mix: str, streaming: bool = False) -> Loop:
    """Read, write, copy or triad, with stores past the caches or ordinary ones.

    Its arguments are the addresses of a, b and c, bytes (a multiple of BLOCK_BYTES, or 0) and passes over these. Read
    returns the sum of a's 8-byte words, modulo 2^64; addresses are multiples of 64.
    """
    return compile_loop(access_loop_ir(mix, streaming, host_vectors()[0]))


@cache
def compile_fma_loop(dtype: str, chains: int, vector_bytes: int) -> Loop:
    """x = k x + x on so many vectors in registers. Its arguments are the addresses of the numbers (a vector of k, and
    the first x's) and of the sums, then rounds and steps. A round begins with the first x's and adds the last to the
    sums. The addend is one of the factors because ARM's multiply-add overwrites it: any other would have to be copied.
    """
    return compile_loop(fma_loop_ir(dtype, chains, vector_bytes))


def access_loop_ir(mix: str, streaming: bool, vector_bytes: int) -> str:
    iteration_bytes = COPY_ITERATION_BYTES if mix == "copy" else ITERATION_BYTES
    count = iteration_bytes // vector_bytes
    sums = min(8, count) if mix == "read" else 0
    integers = f"<{vector_bytes // 8} x i64>"
    carried = [
        f"  %s{n} = phi {integers} [zeroinitializer, %entry], [%t{count - sums + n}, %loop]" for n in range(sums)
    ]
    return "\n".join(
        [
            *_load_argument_instructions("ptr a", "ptr b", "ptr c", "i64 bytes", "i64 passes"),
            "  %total = mul i64 %bytes, %passes",
            "  %nothing = icmp eq i64 %total, 0",
            "  br i1 %nothing, label %out, label %loop",
            "loop:",
            "  %i = phi i64 [0, %entry], [%next, %loop]",
            "  %done = phi i64 [0, %entry], [%sofar, %loop]",
            *carried,
            *(line for n in range(count) for line in _vector_instructions(mix, n, sums, streaming, vector_bytes)),
            f"  %after = add i64 %i, {iteration_bytes}",
            "  %wrapped = icmp eq i64 %after, %bytes",
            "  %next = select i1 %wrapped, i64 0, i64 %after",
            f"  %sofar = add i64 %done, {iteration_bytes}",
            "  %more = icmp ult i64 %sofar, %total",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *(_lane_sum_instructions(integers, vector_bytes // 8, count - sums, sums) if sums else ["  ret i64 0"]),
            "out:",
            "  ret i64 0",
            "}",
            "!0 = !{i32 1}",
        ]
    )


def _vector_instructions(mix: str, n: int, sums: int, streaming: bool, vector_bytes: int) -> list[str]:
    """What an iteration does with its n-th vector."""
    integers, floats = f"<{vector_bytes // 8} x i64>", f"<{vector_bytes // 4} x float>"
    splat = ", ".join([f"float {float(TRIAD_SCALE)}"] * (vector_bytes // 4))

    def at(array: str) -> list[str]:
        return [
            f"  %{array}o{n} = getelementptr i8, ptr %{array}, i64 %i",
            f"  %{array}{n} = getelementptr i8, ptr %{array}o{n}, i64 {n * vector_bytes}",
        ]

    def load(array: str, kind: str) -> list[str]:
        return [*at(array), f"  %{array}v{n} = load {kind}, ptr %{array}{n}, align {vector_bytes}"]

    def store(kind: str, value: str) -> list[str]:
        hint = ", !nontemporal !0" if streaming else ""
        return [*at("c"), f"  store {kind} {value}, ptr %c{n}, align {vector_bytes}{hint}"]

    if mix == "read":
        before = f"%s{n}" if n < sums else f"%t{n - sums}"
        return [*load("a", integers), f"  %t{n} = add {integers} {before}, %av{n}"]
    if mix == "write":
        return store(floats, f"<{splat}>")
    if mix == "copy":
        return [*load("a", integers), *store(integers, f"%av{n}")]
    product = [f"  %p{n} = fmul {floats} %bv{n}, <{splat}>", f"  %r{n} = fadd {floats} %av{n}, %p{n}"]
    return [*load("a", floats), *load("b", floats), *product, *store(floats, f"%r{n}")]


def _lane_sum_instructions(integers: str, lanes: int, first: int, count: int) -> list[str]:
    """Returns the sum of all lanes of the vectors %t from the first on."""
    lines = [f"  %u0 = add {integers} %t{first}, zeroinitializer"]
    lines += [f"  %u{n} = add {integers} %u{n - 1}, %t{first + n}" for n in range(1, count)]
    lines += [f"  %l0 = extractelement {integers} %u{count - 1}, i32 0"]
    for lane in range(1, lanes):
        lines += [f"  %e{lane} = extractelement {integers} %u{count - 1}, i32 {lane}"]
        lines += [f"  %l{lane} = add i64 %l{lane - 1}, %e{lane}"]
    return [*lines, f"  ret i64 %l{lanes - 1}"]


def fma_loop_ir(dtype: str, chains: int, vector_bytes: int) -> str:
    scalar, item_bytes = {"fp64": ("double", 8), "fp32": ("float", 4)}[dtype]
    lanes = vector_bytes // item_bytes
    vector = f"<{lanes} x {scalar}>"
    fma = f"@llvm.fmuladd.v{lanes}f{8 * item_bytes}"

    def vectors_at(base: str, name: str, first: int = 0) -> list[str]:
        return [
            f"  %{name}at{n} = getelementptr i8, ptr %{base}, i64 {(first + n) * vector_bytes}" for n in range(chains)
        ]

    def each(line: str) -> list[str]:
        return [line.format(n=n, v=vector, bytes=vector_bytes, fma=fma) for n in range(chains)]

    return "\n".join(
        [
            f"declare {vector} {fma}({vector}, {vector}, {vector})",
            *_load_argument_instructions("ptr numbers", "ptr sums", "i64 rounds", "i64 steps"),
            f"  %k = load {vector}, ptr %numbers, align {vector_bytes}",
            *vectors_at("numbers", "x", 1),
            *vectors_at("sums", "s"),
            "  br label %round",
            "round:",
            "  %r = phi i64 [0, %entry], [%rnext, %added]",
            *each("  %x{n} = load {v}, ptr %xat{n}, align {bytes}"),
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %round], [%next, %loop]",
            *each("  %y{n} = phi {v} [%x{n}, %round], [%z{n}, %loop]"),
            *each("  %z{n} = call {v} {fma}({v} %y{n}, {v} %k, {v} %y{n})"),
            "  %next = add i64 %i, 1",
            "  %more = icmp ult i64 %next, %steps",
            "  br i1 %more, label %loop, label %added",
            "added:",
            *each("  %sum{n} = load {v}, ptr %sat{n}, align {bytes}"),
            *each("  %new{n} = fadd {v} %sum{n}, %z{n}"),
            *each("  store {v} %new{n}, ptr %sat{n}, align {bytes}"),
            "  %rnext = add i64 %r, 1",
            "  %again = icmp ult i64 %rnext, %rounds",
            "  br i1 %again, label %round, label %out",
            "out:",
            "  ret i64 0",
            "}",
        ]
    )


def _load_argument_instructions(*kinds: str) -> list[str]:
    lines = ["define i64 @work(ptr %arguments) {", "entry:"]
    for number, (kind, name) in enumerate(one.split() for one in kinds):
        lines.append(f"  %{name}_at = getelementptr i64, ptr %arguments, i64 {number}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}_at")
    return lines


def compile_loop(work: str) -> Loop:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(TIMED_FRAME_IR + work)
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("run"))
    run.engine = engine  # keeps the code in memory
    return run
