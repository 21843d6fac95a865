"""CPU memory and the CPU's peak in registers: streams, sweeps, and the threads and compiled loops that run them."""

import itertools
from types import SimpleNamespace

import numpy
import pytest

from roofline.core.dtypes import dtype_bytes
from roofline.core.units import MIB
from roofline.devices import discovery
from roofline.devices.cpu import cpu_fma, dram_benchmarks, loops
from roofline.devices.cpu.topology import measured_core_counts
from roofline.devices.cpu.workers import Workers

SIZE = 3 * MIB
MIXES = {"read": 1, "write": 1, "copy": 2, "triad": 3}
WIDTHS = [width for width in (16, 32, 64) if width <= loops.host_vectors()[0]]


@pytest.fixture(scope="module")
def device():
    return discovery.open_device("cpu")


def array_of(values):
    """Float32 in memory aligned for vectors, with a guard at the end."""
    array = loops.allocate_aligned(4 * len(values) + 64, 64).view(numpy.float32)
    array[: len(values)], array[len(values) :] = values, 77
    return array


@pytest.mark.parametrize("mix", MIXES)
def test_a_loop_does_what_numpy_does_and_no_more(mix):
    for width, non_temporal, blocks in itertools.product(WIDTHS, (True, False), (0, 1, 3, 37)):
        items = blocks * loops.ITERATION_BYTES // 4
        rng = numpy.random.default_rng(blocks)
        a, b, c = (array_of(rng.integers(1, 1000, items)) for _ in range(3))
        originals = [array.copy() for array in (a, b, c)]
        arguments = [*(array.ctypes.data for array in (a, b, c)), 4 * items, 3]
        loop = loops.compile_loop(loops.access_loop_ir(mix, non_temporal, width))
        run = loops.run_together(Workers(1), loop, [arguments])
        expected = {
            "read": originals[2],
            "write": loops.TRIAD_SCALE,
            "copy": originals[0],
            "triad": originals[0] + loops.TRIAD_SCALE * originals[1],
        }
        assert numpy.array_equal(c[:items], numpy.broadcast_to(expected[mix], c.shape)[:items])
        assert (c[items:] == 77).all() and numpy.array_equal(a, originals[0]) and numpy.array_equal(b, originals[1])
        if mix == "read":
            words = int(originals[0][:items].view(numpy.uint64).sum(dtype=numpy.uint64))
            assert (run.results[0] - 3 * words) % 2**64 == 0
        assert run.seconds > 0 and run.clocks_mhz == []


def streams_of(device, size_bytes=SIZE):
    return {benchmark.name: benchmark for benchmark in device.bandwidth_benchmarks("dram", size_bytes)}


@pytest.mark.parametrize("mix", MIXES)
def test_every_way_to_run_a_stream_is_right_and_a_piece_left_out_is_found(device, monkeypatch, mix):
    benchmark = streams_of(device, SIZE + dram_benchmarks.PARTS_PER_ARRAY * loops.ITERATION_BYTES)[f"dram_{mix}"]
    for grid, step in benchmark.steps_by_grid.items():
        assert step(0) > 0 and benchmark.verify(grid)
        assert benchmark.threads_of_grid(grid) == int(grid.split()[0])

    def lazy(workers, loop, arguments, *more, run=loops.run_together):
        return run(workers, loop, [(*arguments[0][:3], 0, 1), *arguments[1:]], *more)

    monkeypatch.setattr(dram_benchmarks, "run_together", lazy)
    for grid in benchmark.steps_by_grid:
        with pytest.raises(ArithmeticError, match=f"dram_{mix} with {grid}"):
            benchmark.verify(grid)


def test_reads_have_a_ceiling_for_all_cores_and_for_fewer(device, monkeypatch):
    for cores, counts in ((1, [1]), (6, [6, 3, 1]), (16, [16, 8, 4, 2, 1])):
        assert measured_core_counts(cores) == counts
        workers = SimpleNamespace(count=cores, run=lambda count, work: [work(number) for number in range(count)])
        reads = [stream for stream in dram_benchmarks.bandwidth_benchmarks(workers, SIZE) if stream.mix == "read"]
        threads = {stream.name: [*map(stream.threads_of_grid, stream.steps_by_grid)] for stream in reads}
        fewer = {f"dram_read_{f'{count}_cores' if count > 1 else 'one_core'}": [count] for count in counts[1:]}
        assert threads == {"dram_read": counts[:2], **fewer}
        assert [stream.cores for stream in reads] == [None, *counts[1:]]
    monkeypatch.setattr(device, "cores", 16)
    for cores_used, names in ((1, ["dram_read_one_core"]), (3, ["dram_read_4_cores"]), (9, []), (None, [])):
        assert device.memory_ceiling_names("read", cores_used) == [*names, "dram_read", "dram_copy"]
    assert device.memory_ceiling_names("copy", 1) == ["dram_copy"]


@pytest.mark.parametrize("readers", [1, 3])
def test_a_step_of_a_sweep_reads_what_it_counts_and_less_is_found(monkeypatch, readers):
    reads, missing = [], 0

    def noted(workers, loop, arguments, run=loops.run_together):
        reads.append([(words[0], words[3] * words[4]) for words in arguments])
        *leading, last = arguments
        return run(workers, loop, [*leading, (*last[:4], last[4] - missing)])

    monkeypatch.setattr(dram_benchmarks, "NEAR_STEP_BYTES", MIB // 4)
    monkeypatch.setattr(dram_benchmarks, "FAR_STEP_BYTES", MIB // 32)
    monkeypatch.setattr(dram_benchmarks, "run_together", noted)
    caches = dram_benchmarks.ReaderCaches(readers, {"l2": MIB // 32, "l3": MIB // 16}, MIB // 16)
    (series,) = dram_benchmarks.sweep_benchmarks(Workers(readers), [caches], readers * MIB, 2)
    assert series.sizes[-1] == 256 << 10
    assert (series.series == "one_core") == (series.reader == "one core") == (readers == 1)
    for size in series.sizes:
        reads.clear()
        step, step_bytes = series.step(size)
        (first,) = reads  # all of the set is read once
        assert [count for _, count in first] == [size] * readers
        assert len({address for address, _ in first}) == readers
        reads.clear()
        step(0)
        assert sum(count for _, count in reads[0]) == step_bytes
    step, _ = series.step(16384)
    missing = 1
    with pytest.raises(ArithmeticError):
        step(1)


# ---------------------------------------------------------------- the peak in registers


@pytest.mark.parametrize("ceiling", ["fp64_fma", "fp32_fma"])
def test_every_loop_gives_what_the_closed_form_says_and_counts_its_clock(device, ceiling):
    for workload in device.candidate_fma_workloads(ceiling, seed=3):
        workload.step(0)
        assert workload.run_and_check().relative_error < cpu_fma.TOLERANCE_BY_BITS[8 * dtype_bytes(ceiling[:4])] / 10
        shape = workload.product.shape
        assert shape["threads"] == device.cores
        lanes = shape["vector_bits"] // 8 // dtype_bytes(ceiling[:4])
        steps = shape["rounds"] * cpu_fma.STEPS_PER_ROUND
        assert workload.flops == 2 * steps * shape["chains"] * lanes * device.cores
        assert workload.clock_mhz() > 0
        rebuilt = device.rebuild_fma_workload(ceiling, workload.product, seed=9)
        assert (rebuilt.product, rebuilt.flops) == (workload.product, workload.flops)
