"""Measure what the instruction roofline of a GPU is drawn with, and print it; nothing is written.

    python workflow/commands/instruction_rates.py [gpu0]

The walls are counted too where Nsight Compute's ncu is there (NCU names another) and may read the counters.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline import devices
from roofline.analysis.instructions import LEVELS
from roofline.core.formatting import number, percent
from roofline.core.instructions import transactions
from roofline.devices.gpu import wall_counts
from roofline.measure import search
from roofline.measure.instructions import issue_rate, walls
from roofline.records.instructions import CountedWall
from roofline.report.markdown import table

BLOCK = {"warmup": 3, "iterations": 300, "time_budget_s": 0.3}
UNITS = {"stride": "sectors", "conflict": "wavefronts", "predication": "lanes on"}


def counts(name: str) -> tuple[dict[tuple[str, int], CountedWall], str]:
    """Each wall as ncu counts it, and why not."""
    ncu = shutil.which(os.environ.get("NCU", "ncu"))
    try:
        if not ncu:
            raise wall_counts.NotCounted("ncu is not on this machine")
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "walls.ncu-rep")
            wall_counts.profile(ncu, name, report)
            found = wall_counts.counted(wall_counts.launches(report))
            return {(wall.pattern, wall.of): wall for wall in found}, f"counted by {ncu}"
    except wall_counts.NotCounted as reason:
        return {}, f"not counted: {reason}"


def issued(device) -> str:
    """The rate of the fastest kernel, and of each the median of a few steps."""
    kernels = device.issue_kernels()
    tried, _ = search.try_all(device, kernels, lambda one: one.step, 2.0, lambda one: one.warp_instructions)
    rows = [[one.name, f"{one.warp_instructions / seconds / 1e9:.1f}"] for one, seconds in tried]
    rate = issue_rate(device, **BLOCK)
    share = percent(rate.fraction_of_peak) if rate.fraction_of_peak else "unknown"
    clock = f"{rate.sm_clock_mhz:.0f} MHz" if rate.sm_clock_mhz else "no clock"
    lines = [
        f"issue: {rate.warp_instructions_per_s / 1e9:.1f} G warp instructions/s by {rate.kernel}",
        f"{share} of {device.multiprocessors} multiprocessors x 4 x {clock}, {len(rate.latency.samples_s)} samples",
    ]
    return "\n".join([*lines, table(["kernel", "G/s"], rows, left=1)])


def moved(device) -> str:
    rows = []
    for level, ceiling in LEVELS.items():
        stream = next(one for one in device.streams("hbm" if level == "hbm" else level, None) if one.name == ceiling)
        tried, _ = search.try_all(device, list(stream.grids.values()), lambda step: step, 1.0)
        gb_per_s = stream.counted_bytes / min(seconds for _, seconds in tried) / 1e9
        rows.append([level, number(gb_per_s), number(transactions(gb_per_s, level))])
    return table(["level", "GB/s", "G transactions/s"], rows, left=1)


def walled(device, found: dict[tuple[str, int], CountedWall]) -> str:
    rows = []
    for wall in walls(device, **BLOCK):
        counted = found.get((wall.pattern, wall.of))
        per_request = wall.transactions_per_request or wall.of
        shown = [wall.pattern, str(wall.of), f"{per_request} {UNITS[wall.pattern]}", f"{wall.requests_per_s / 1e9:.2f}"]
        shown.append(f"{wall.cycles_per_request:.3f}" if wall.cycles_per_request else "")
        shown += (
            [f"{counted.counted:.3f}", f"{100 * counted.apart:+.2f} %"] if counted and counted.counted else ["", ""]
        )
        rows.append(shown)
    names = ["pattern", "of", "by construction", "G requests/s", "cycles per request", "counted", "apart"]
    return table(names, rows, left=1)


if __name__ == "__main__":
    name = sys.argv[1] if sys.argv[1:] else "gpu0"
    found, how = counts(name)  # before the device is opened here: profiling is another process
    device = devices.open_device(name)
    print("\n\n".join([device.identity.name, issued(device), moved(device), how, walled(device, found)]))
