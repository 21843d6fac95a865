"""A run's figures recomputed from its raw samples, by code that shares nothing with the library.

    python tests/oracle.py RESULTS

NumPy and json alone: an error of the library is not repeated here. The rules are those that docs/ states.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CLOSE = 1e-9  # relative: both sides are float64
MISS = 20  # one interval in so many may miss its median: 95 %
EXPLAINED, FACTOR = 0.5, 2.0  # docs/prediction.md
STARVED = 0.03  # less work a clock cycle than most: the queue ran dry
THROTTLED = {"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"}
CELL = ("operator", "implementation", "preset", "scope", "dtype", "cache", "shape")
RATES = {"gb_per_s": ("bytes", 1e9), "tflops": ("flops", 1e12), "requests_per_s": ("requests", 1)}
TIMES = {"cpu_": "cpu_time", "gpu_": "gpu_time"}  # rows' prefix, records' field
Lines = Iterator[str]


class Run:
    """The JSON files of a run by their paths below results/, its records, and the ceilings by their samples."""

    def __init__(self, folder: Path):
        paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.json")}
        self.json = {name: json.loads(path.read_bytes()) for name, path in paths.items()}
        self.table = self.json["roofline.json"]
        self.records = {path: one for path, one in self.json.items() if "seals" in one and "elapsed_s" in one}
        self.ceilings, measured = {}, {}  # by device and name, FLOP/s or bytes/s; by path and cell
        for path, record in self.records.items():
            for one in record.get("bandwidths", []):
                self.ceilings[record["device"], one["name"]] = one["bytes"] / median(one["timing"])
            if record.get("peak"):
                self.ceilings[record["device"], record["name"]] = max(peak_rates(record).values())
            measured |= {(path, identity(one)): one for one in record["measurements"]}
        rows = self.table["operators"]
        self.cells = [(row, measured[row["record"], identity(row)]) for row in rows if row["record"]]

    def limits(self, row: dict, measured: dict) -> list[float | None]:
        """Seconds that the ceilings allow for FLOPs and bytes. Of memory the first that was measured counts."""
        names = (measured["compute_ceiling"], *measured["memory_ceilings"])
        compute, *memory = (self.ceilings.get((row["device"], name)) for name in names)
        rates = {"flops": compute, "bytes": next(filter(None, memory), None)}
        return [rate and measured[amount] / rate if measured[amount] else 0.0 for amount, rate in rates.items()]

    def with_caches(self, row: dict, measured: dict, limits: list[float | None]) -> list[float | None]:
        """The same, with the bytes that an implementation declares for caches: the slowest level counts."""
        compute, memory = limits
        under = measured.get("level_ceilings", {})
        moved = [
            (size, self.ceilings.get((row["device"], under.get(level, level))))
            for level, size in measured["level_bytes"].items()
        ]
        return [compute, memory and max([memory, *(size / rate for size, rate in moved if rate)])]


def check(folder: Path) -> list[str]:
    """A line for everything in a results folder that contradicts its samples or its seals."""
    run = Run(folder)
    parts = (timings, rates, ceilings, cells, predictions, speed_ups)
    return [f"{part.__name__}: {line}" for part in parts for line in part(run)]


def timings(run: Run) -> Lines:
    for where, one in nested(run.json, "samples_s"):
        yield from differs(f"{where} median_s", one["median_s"], median(one))
        if "ci95_s" in one:
            yield from differs(f"{where} ci95_s", one["ci95_s"], interval(one))


def rates(run: Run) -> Lines:
    """FLOPs over elapsed time; bytes over the median of their times, and the interval."""
    blocks = list(nested(run.records, "timing"))
    assert blocks, "a run has timed blocks"
    for where, one in blocks:
        for rate, (work, unit) in RATES.items():
            if rate in one and work in one:
                time_s = block_s(one, run.records[where.split()[0]]) if rate == "tflops" else median(one["timing"])
                yield from differs(f"{where} {rate}", one[rate], one[work] / time_s / unit)
                if "ci95_gb_per_s" in one:
                    ends = reversed(interval(one["timing"]) or [])
                    yield from differs(
                        f"{where} ci95_gb_per_s", one["ci95_gb_per_s"], [one[work] / end / unit for end in ends] or None
                    )


def block_s(block: dict, record: dict) -> float:
    """The mean time of a product; on a CPU the median, since f3cb0fd6."""
    median_counts = record["device"] == "cpu" and record["started_at"] > "2026-11-28T11:18"
    return (np.median if median_counts else np.mean)(block["timing"]["samples_s"])


def ceilings(run: Run) -> Lines:
    for row in run.table["ceilings"]:
        where, peak = f"{row['device']} {row['name']}", run.records[row["record"]].get("peak")
        kind, unit = ("tflops", 1e12) if peak else ("gb_per_s", 1e9)
        found = {kind: run.ceilings[row["device"], row["name"]] / unit}
        found["fraction_of_datasheet"] = ratio(found[kind], row[f"datasheet_{kind}"])
        if peak:
            found |= {name: rate / 1e12 for name, rate in peak_rates(run.records[row["record"]]).items()}
        for name, value in found.items():
            yield from differs(f"{where} {name}", row[name], value)


def peak_rates(record: dict) -> dict[str, float]:
    """The median block; and of the load, once settled, work over time, less what heat or a late host spoilt."""
    found = sorted(one["flops"] / block_s(one, record) for one in record["peak"]["repeats"])
    rates, load = {"burst_tflops": found[len(found) // 2]}, record["peak"]["sustained"]
    if not load:
        return rates
    late = [one for one in load["curve"] if one["at_s"] > load["settled_after_s"]]
    counted = [one for one in late if not THROTTLED.intersection(one["throttle_reasons"] or [])] or late
    if work := [one["tflops"] / one["sm_clock_mhz"] for one in counted if one["sm_clock_mhz"]]:
        least = (1 - STARVED) * np.median(work)
        counted = [one for one in counted if one["tflops"] >= least * (one["sm_clock_mhz"] or 0)]
    return rates | {"sustained_tflops": len(counted) / sum(1 / one["tflops"] for one in counted) * 1e12}


def cells(run: Run) -> Lines:
    """Each under the roof that was declared for it: the longer of the times that its two ceilings allow."""
    for row, measured in run.cells:
        flops, peak = measured["flops"], run.ceilings.get((row["device"], measured["compute_ceiling"]))
        limits = run.limits(row, measured)
        roof_s = None if row["no_roof_reason"] else max((one for one in limits if one is not None), default=None)
        found = {
            "flops": flops,
            "bytes": measured["bytes"],
            "intensity_flops_per_byte": ratio(flops, measured["bytes"]),
            "roof_tflops": ratio(flops / 1e12, roof_s),
            "fraction_of_compute_peak": ratio(flops / median(measured["cpu_time"]), peak),
            "regime": regime(measured, *run.with_caches(row, measured, limits)),
        }
        for of, time in TIMES.items():
            if (time_s := median(measured[time])) is not None:
                found[f"{of}time_s"] = time_s
                found[f"{of}time_ci95_s"] = interval(measured[time])
                found[f"{of}attained_tflops".removeprefix("cpu_")] = flops / time_s / 1e12
                found[f"{of}fraction_of_roof".removeprefix("cpu_")] = ratio(roof_s, time_s)
        for name, value in found.items():
            yield from differs(f"{words(row)} {name}", row[name], value)


def regime(measured: dict, compute_s: float | None, memory_s: float | None) -> str | None:
    """By docs/prediction.md: what explains the caller's time."""
    caller_s, device_s = (median(measured[time]) for time in TIMES.values())
    other_s = measured["overhead_s"] or 0.0
    if device_s is not None:
        other_s = max(0.0, caller_s - device_s) + min(measured["start_s"] or 0.0, device_s)
    other_s = min(other_s, caller_s)
    if compute_s is None or memory_s is None:
        return "overhead" if other_s >= EXPLAINED * caller_s else None
    roof_s = max(compute_s, memory_s)
    if roof_s + other_s < EXPLAINED * caller_s:
        return "implementation"
    return "overhead" if other_s > roof_s else "compute" if compute_s >= memory_s else "memory"


def predictions(run: Run) -> Lines:
    """What was sealed, against what was measured; how many are right."""
    right = []
    for row, measured in run.cells:
        sealed = measured["sealed"]
        yield from differs(f"{words(row)} sealed regime", row["sealed"]["regime"], sealed["regime"])
        over = [ratio(sealed[f"{time}_s"], median(measured[time])) for time in TIMES.values()]
        for name, one in zip(("sealed_cpu_time_error", "sealed_gpu_time_error"), over, strict=True):
            yield from differs(f"{words(row)} {name}", row[name], one and one - 1)
        if over[0] and row["regime"] and not (row["doubt"] or row["roof_doubt"]):
            right.append((sealed["regime"] == row["regime"], 1 / FACTOR <= over[0] <= FACTOR))
    counts = {"cell_count": len(right), "both_right": sum(map(all, right))}
    counts |= {"regimes_right": sum(one for one, _ in right), "times_right": sum(other for _, other in right)}
    for name, count in counts.items():
        yield from differs(f"score {name}", run.table["score"][name], count)


def speed_ups(run: Run) -> Lines:
    """Over the baselines of an operator, in the same case."""
    cases = {(row["device"], identity(row)): measured for row, measured in run.cells}
    for row, measured in run.cells:
        for baseline, lines in row["speed_up"].items():
            other = cases[row["device"], identity(row | {"implementation": baseline})]
            for time in TIMES.values():
                value = lines[f"{time}_ratio"]
                found = ratio(median(other[time]), median(measured[time]))
                yield from differs(f"{words(row)} {time} over {baseline}", value, found)


def median(timing: dict | None) -> float | None:
    return timing and float(np.median(timing["samples_s"]))


def interval(timing: dict) -> list[float] | None:
    """Of the median, from order statistics, for as many independent samples as these correlated ones are worth."""
    samples, middle, count = np.array(timing["samples_s"]), median(timing), len(timing["samples_s"])
    worth = int(count / max(1.0, memory(samples > middle), memory(samples < middle)))
    rank, ways, below = 0, 1, 1  # of 2^worth splits about the median, those with at most `rank` samples below it
    while rank < worth // 2 and 2 * MISS * below <= 2**worth:
        ways = ways * (worth - rank) // (rank + 1)
        rank, below = rank + 1, below + ways
    place = (worth + (2 * rank - 1) * count) // (2 * worth)
    return np.sort(samples)[[place - 1, count - place]].tolist() if rank else None


def memory(beyond: np.ndarray) -> float:
    """Four times the autocovariances of an indicator over all lags: Geyer's initial monotone sequence."""
    count, mean = len(beyond), int(beyond.sum()) / len(beyond)

    def covariance(lag: int) -> float:
        early, late = beyond[: count - lag], beyond[lag:]
        return (int((early & late).sum()) - mean * int(early.sum() + late.sum())) / (count - lag) + mean**2

    total, last, lag = -mean * (1 - mean), math.inf, 0
    while lag + 1 < count and (pair := covariance(lag) + covariance(lag + 1)) > 0:
        last = min(pair, last)
        total, lag = total + 2 * last, lag + 2
    return 4 * total * (1 + max(1, 2 * lag - 1) / count)


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def differs(what: str, lines: object, found: object) -> Lines:
    """A line where a figure, a pair of figures or a text of the run is not what was found."""
    exact = {str, type(None)} & {type(lines), type(found)}
    same = lines == found if exact else np.allclose(lines, found, rtol=CLOSE, atol=1e-14)
    if not same:
        yield f"{what} is {lines}, and by its samples {found}"


def nested(content: object, key: str, where: str = "") -> Iterator[tuple[str, dict]]:
    """Every object below that has this key, with its place."""
    if isinstance(content, dict) and key in content:
        yield where, content
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, one in inside:
        yield from nested(one, key, f"{where} {name}".lstrip())


def identity(cell: dict) -> str:
    return json.dumps([cell[key] for key in CELL], sort_keys=True)


def words(row: dict) -> str:
    return " ".join([row["device"], *(str(row[key]) for key in CELL if row[key])])


if __name__ == "__main__":
    contradictions = check(Path(sys.argv[1]))
    print("\n".join(contradictions) or "no contradictions")
    sys.exit(1 if contradictions else 0)
