"""The CPU's memory ceilings beside an OpenMP stream in C, and its register peaks beside clock x cores x lanes x ports.

Run in the repository's root, with the workflow's Python, on a machine that does nothing else:

    .venv/bin/python reference/experiments/cpu_stream/compare.py [--size-mib N] [--repetitions 2]

Needs gcc with OpenMP; the workflow does not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "workflow" / "scripts"))

from roofline import devices  # noqa: E402
from roofline.devices import host  # noqa: E402
from roofline.measure import memory_ceiling  # noqa: E402

MIB = 1 << 20
MIXES = ("read", "copy", "triad", "write")
NO_VENDOR = SimpleNamespace(vendor=SimpleNamespace(bandwidth=None))


def in_c(folder: str, size_mib: int, cores: int) -> dict[str, tuple[float, float]]:
    """By mix, the rates of the fastest pass and of the median one."""
    program = Path(folder) / "stream"
    if not program.exists():
        build = ["gcc", "-O3", "-march=native", "-fopenmp", str(HERE / "stream.c"), "-o", str(program)]
        subprocess.run(build, check=True)
    pinned = {"OMP_NUM_THREADS": str(cores), "OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}
    command = [str(program), str(size_mib), "100"]
    done = subprocess.run(command, env=os.environ | pinned, check=True, capture_output=True, text=True)
    return {name: (float(best), float(median)) for name, best, median in map(str.split, done.stdout.splitlines())}


def ours(device, size_mib: int) -> dict[str, tuple[float, float]]:
    """The same of the workflow's: the median is the ceiling (of reads, unless the copy's is higher)."""
    streams = [one for one in device.streams("dram", size_mib * MIB) if one.name.count("_") == 1]
    options = {"warmup": 3, "iterations": 1000, "time_budget_s": 1.0}
    found = [memory_ceiling.measure(device, NO_VENDOR, stream, **options) for stream in streams]
    return {one.mix: (one.bytes / min(one.latency.samples_s) / 1e9, one.gb_per_s) for one in found}


def peaks(device) -> list[str]:
    lines = []
    for ceiling in ("fp64_fma", "fp32_fma"):
        best = max(
            device.fma_candidates(ceiling, seed=1), key=lambda one: one.flops / min(device.step_times(one.step, 20))
        )
        best.check()
        times = sorted(device.step_times(best.step, 200))
        tflops, clock_mhz, cores = best.flops / times[100] / 1e12, best.clock_mhz(), best.cores()
        line = f"{ceiling}: {tflops:.3f} TFLOPS at {clock_mhz:.0f} MHz"
        if cores.flops_per_clock:
            limit = clock_mhz * 1e6 * cores.physical * cores.flops_per_clock / 1e12
            line += f", {tflops / limit:.1%} of {cores.physical} cores x {cores.ports} ports x lanes = {limit:.3f}"
        lines.append(f"{line} ({cores.threads} threads, {cores.listed} cores listed; {cores.reason or 'conclusive'})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mib", type=int, help="of each of three arrays (default: what the workflow takes)")
    parser.add_argument("--repetitions", type=int, default=2)
    asked = parser.parse_args()
    device = devices.open_device("cpu")
    from roofline.devices.cpu import memory

    free = host.memory_available_bytes()
    size = asked.size_mib or memory.automatic_bytes(device.cores, device.last_level_cache_bytes, free) // MIB
    caches = f"last-level cache {device.last_level_cache_bytes / MIB:g} MiB"
    print(f"{device.identity.name}, {device.cores} cores, {caches}, three arrays of {size} MiB each")
    print("GB/s of the fastest and of the median pass")
    print(f"{'':10}{'C':>16}{'ours':>16}{'ratio':>16}")
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(asked.repetitions):
            peer, own = in_c(folder, size, device.cores), ours(device, size)
            for mix in MIXES:
                ratios = [mine / theirs for mine, theirs in zip(own[mix], peer[mix], strict=True)]
                rates = "".join(f"{one:8.1f}" for one in (*peer[mix], *own[mix]))
                print(f"{mix:6}{repetition + 1:>4}{rates}{ratios[0]:8.3f}{ratios[1]:8.3f}")
            print("\n".join(peaks(device)))


if __name__ == "__main__":
    main()
