"""make audit: recompute a run's figures from its raw samples, by code of its own, and say what differs.

    python workflow/commands/audit.py [RUN]

RUN is a results folder, a folder with one, or an archive; without it results/. Nothing of the library is used, NumPy
alone: a fault there is not repeated here. The rules are those that the documents state. Writes results/audit/audit.md.
Ends with status 0 where everything agrees, 1 where something differs, 2 where nothing can be read.
"""

import hashlib
import json
import math
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

PAGE = Path("results/audit/audit.md")
RECORDS = 5  # the schema version of records that it reads; the table's is another
CLOSE = 1e-9  # relative: both sides are float64
EXPLAINED, FACTOR = 0.5, 2.0  # docs/prediction.md
READS, REGISTERS, AWAY = 0.85, 0.90, 0.30  # docs/health.md
NAMED = 5  # of what differs, in the page
CELL = ("operator", "implementation", "preset", "scope", "dtype", "cache", "shape")
Found = Iterator[tuple[str, bool]]  # what was recomputed, and whether it agrees


class Unreadable(Exception):
    """Why, in a line."""


class Run:
    """The files of a run by their paths below results/, and its records."""

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        content = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
        self.manifest, self.table = content["manifest.json"], content["roofline.json"]
        self.records = {name: one for name, one in content.items() if "seals" in one and "elapsed_s" in one}
        if not self.records:
            raise Unreadable("it holds no samples; an audit needs the whole archive")
        if versions := {one["schema_version"] for one in self.records.values()} - {RECORDS}:
            told = ", ".join(map(str, sorted(versions)))
            raise Unreadable(f"its records are of schema version {told}; this audit reads {RECORDS}")
        self.ceilings = {}  # by device and name: the rate by its samples, and the record's or block's own
        for record in self.records.values():
            for one in record.get("bandwidths", []):
                rate = one["bytes"] / median(one["latency"]) / 1e9
                self.ceilings[record["device"], one["name"]] = (rate, one["gb_per_s"])
            if peak := record.get("peak"):
                blocks = [peak["burst"], *peak["slower_remeasurements"]]
                rate = max(one["flops"] / median(one["latency"]) / 1e12 for one in blocks)
                load = sustained(peak["sustained"]) if peak["sustained"] else 0.0
                self.ceilings[record["device"], record["dtype"]] = (max(rate, load), peak["tflops"])

    def cells(self) -> Iterator[tuple[dict, dict]]:
        """Each cell of the table with the measurement that it was made from; the user's own operations have none."""
        known = {
            (path, *(json.dumps(one[key], sort_keys=True) for key in CELL)): one
            for path, record in self.records.items()
            for one in record["measurements"]
        }
        for cell in self.table["operators"]:
            if cell["record"] is None:
                continue
            yield cell, known[cell["record"], *(json.dumps(cell[key], sort_keys=True) for key in CELL)]

    def roof_s(self, cell: dict, name: str, amount: float) -> float | None:
        """Seconds that a ceiling allows for so many FLOPs or bytes; None where it was not measured."""
        if not amount:
            return 0.0
        rate = self.ceilings.get((cell["device"], cell[name]))
        return rate and amount / rate[0] / (1e12 if name == "compute_ceiling" else 1e9)


def read(path: Path) -> Run:
    """Raises Unreadable."""
    try:
        if path.is_dir():
            manifests = [*path.glob("manifest.json"), *path.glob("results/manifest.json")]
            if not manifests:
                raise ValueError("it has no manifest.json")
            root = manifests[0].parent
            files = {one.relative_to(root).as_posix(): one.read_bytes() for one in root.rglob("*") if one.is_file()}
        else:
            with tarfile.open(path) as archive:
                members = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}
            root = next(PurePosixPath(name).parent for name in members if name.endswith("results/manifest.json"))
            files = {
                PurePosixPath(name).relative_to(root).as_posix(): content
                for name, content in members.items()
                if PurePosixPath(name).is_relative_to(root)
            }
        return Run(files)
    except Unreadable as error:
        raise Unreadable(f"{path}: {error}") from None
    except (OSError, tarfile.TarError, ValueError, KeyError, StopIteration) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unreadable(f"{path}: no run with its manifest ({why})") from None


# ---------------------------------------------------------------- what is recomputed


def hashes(run: Run) -> Found:
    """Every file that the manifest lists, and every seal that a record names."""
    outputs = [*run.manifest["outputs"]]
    for one in outputs:
        name = one["path"].removeprefix("results/")
        if name in run.files:
            yield name, sha256(run.files[name]) == one["sha256"]
    for path, record in run.records.items():
        for seal, expected in record["seals"].items():
            yield f"{path}: {seal}", seal in run.files and sha256(run.files[seal]) == expected


def seals(run: Run) -> Found:
    """Each was written before the job began that it holds for."""
    written = {
        path: one["ended_at"] for one in run.manifest["outputs"] for path in [one["path"].removeprefix("results/")]
    }
    for path, record in run.records.items():
        for seal in record["seals"]:
            yield f"{path}: {seal}", written[seal] <= record["started_at"]


def medians(run: Run) -> Found:
    for path, record in run.records.items():
        for where, timing in nested(record, "samples_s"):
            yield f"{path}: {where}", close(median(timing), timing["median_s"])


def rates(run: Run) -> Found:
    """Ceilings by their samples, and the table's copy of them."""
    for (device, name), (rate, recorded) in run.ceilings.items():
        yield f"{device} {name}", close(rate, recorded)
    for one in run.table["ceilings"]:
        told = one["tflops"] if one["kind"] == "compute" else one["gb_per_s"]
        yield f"table: {one['device']} {one['name']}", close(told, run.ceilings[one["device"], one["name"]][0])


def shares(run: Run) -> Found:
    """Of the roof: the longer of the times that FLOPs and bytes take at ceilings that were measured, of the cell's."""
    for cell, measured in run.cells():
        parts = [run.roof_s(cell, "compute_ceiling", cell["flops"]), run.roof_s(cell, "memory_ceiling", cell["bytes"])]
        roof_s = max((one for one in parts if one is not None), default=None)
        for latency, share in (("latency", "fraction_of_roof"), ("device_latency", "device_fraction_of_roof")):
            if cell[share] is not None:
                yield f"{words(cell)}: {share}", close(roof_s / median(measured[latency]), cell[share])


def regimes(run: Run) -> Found:
    for cell, measured in run.cells():
        yield f"{words(cell)}: {cell['regime']}", regime(run, cell, measured) == cell["regime"]


def regime(run: Run, cell: dict, measured: dict) -> str | None:
    """By docs/prediction.md: what explains the caller's time."""
    caller_s = median(measured["latency"])
    if on_device := measured["device_latency"]:
        device_s = median(on_device)
        other_s = max(0.0, caller_s - device_s) + min(measured["device_overhead_s"] or 0.0, device_s)
    else:
        other_s = measured["overhead_s"] or 0.0
    other_s = min(other_s, caller_s)
    compute_s = run.roof_s(cell, "compute_ceiling", cell["flops"])
    memory_s = run.roof_s(cell, "memory_ceiling", cell["bytes"])
    if compute_s is None or memory_s is None:
        return "overhead" if other_s >= EXPLAINED * caller_s else None
    roof_s = max(compute_s, memory_s)
    if roof_s + other_s < EXPLAINED * caller_s:
        return "implementation"
    return "overhead" if other_s > roof_s else "compute" if compute_s >= memory_s else "memory"


def predictions(run: Run) -> Found:
    """The error of each sealed time, whether it is within a factor of two, and the score."""
    right = {"regimes_right": 0, "times_right": 0, "both_right": 0}
    for cell, measured in run.cells():
        sealed = cell["predicted"] and cell["predicted"]["sealed"]
        if not sealed or cell["sealed_error"] is None:
            continue
        ratio = sealed["latency_s"] / median(measured["latency"])
        yield f"{words(cell)}: sealed time", close(ratio - 1, cell["sealed_error"])
        found, time_right = regime(run, cell, measured), 1 / FACTOR <= ratio <= FACTOR
        yield f"{words(cell)}: within a factor of two", time_right == cell["sealed_time_right"]
        if found:
            right["regimes_right"] += sealed["regime"] == found
            right["times_right"] += time_right
            right["both_right"] += sealed["regime"] == found and time_right
    for name, count in right.items():
        yield f"score: {name}", count == run.table["score"][name]


def verdicts(run: Run) -> Found:
    """Checks that follow from rates alone, of every GPU."""
    checks = {(one["device"], one["check"]): one["result"] for one in run.table["checks"]}
    of = {(one["device"], one["name"]): one for one in run.table["ceilings"]}
    for device, kind in ((name, one["kind"]) for name, one in run.table["devices"].items()):
        if kind != "gpu":
            continue
        mine = {name: (rate, of[where, name]) for (where, name), (rate, _) in run.ceilings.items() if where == device}
        limits = {
            "memory reads at 85 %": ([rate / one["vendor_gb_per_s"] for name, (rate, one) in mine.items()
                                      if name == "hbm_read" and one["vendor_gb_per_s"]], READS),
            "register-only kernels at 90 %": ([rate / one["clock_tflops"] for rate, one in mine.values()
                                               if one.get("method") == "fma" and one["clock_tflops"]], REGISTERS),
            "matrix products within 30 %": ([rate / one["vendor_tflops"] for rate, one in mine.values()
                                             if one.get("method") == "gemm" and one["vendor_tflops"]], 1 - AWAY),
        }  # fmt: skip
        for begins, (found, limit) in limits.items():
            for (where, check), result in checks.items():
                if where == device and check.startswith(begins) and result in ("pass", "fail"):
                    yield f"{device}: {check}", (min(found) >= limit) == (result == "pass")


PARTS = {
    "hashes of files and seals": hashes,
    "seals written before what they hold for": seals,
    "medians of samples": medians,
    "ceilings": rates,
    "shares of the roof": shares,
    "regimes": regimes,
    "predictions and their score": predictions,
    "verdicts": verdicts,
}


# ---------------------------------------------------------------- arithmetic


def median(timing: dict) -> float:
    return float(np.median(timing["samples_s"] or timing["throttled_samples_s"]))


def sustained(load: dict) -> float:
    """Over what counts: work over time, or by earlier versions the median."""
    begun = load["settled_after_s"]
    points = load["curve"]
    late = [one for one in points if one["at_s"] > begun] if begun is not None else points[-(len(points) // 3) :]
    hot = {"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"}
    free = [one for one in late if not hot.intersection(one["throttle_reasons"] or [])] or late
    clocked = [one["tflops"] / one["sm_clock_mhz"] for one in free if one["sm_clock_mhz"]]
    if clocked and load.get("starved_points") is not None:  # the host was late: left out, in earlier records counted
        least = 0.97 * np.median(clocked)
        free = [one for one in free if not one["sm_clock_mhz"] or one["tflops"] / one["sm_clock_mhz"] >= least]
    tflops = np.array([one["tflops"] for one in free])
    return float(np.median(tflops) if load.get("rule", "median") == "median" else len(tflops) / np.sum(1 / tflops))


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def nested(content: object, key: str, where: str = "") -> Iterator[tuple[str, dict]]:
    """Every mapping below that has this key."""
    if isinstance(content, dict):
        if key in content:
            yield where, content
        for name, one in content.items():
            yield from nested(one, key, f"{where}.{name}".lstrip("."))
    elif isinstance(content, list):
        for place, one in enumerate(content):
            yield from nested(one, key, f"{where}[{place}]")


def words(cell: dict) -> str:
    shape = ",".join(f"{name}{size}" for name, size in cell["shape"].items())
    parts = [cell[name] for name in ("device", "operator", "implementation", "scope", "dtype", "cache")]
    return " ".join(filter(None, [*parts, shape]))


# ---------------------------------------------------------------- the page


def main(arguments: list[str]) -> int:
    path = Path(arguments[0] if arguments else "results")
    try:
        found = {what: list(part(run)) for run in [read(path)] for what, part in PARTS.items()}
    except Unreadable as error:
        print(error)
        return 2
    differing = {what: [name for name, agrees in some if not agrees] for what, some in found.items()}
    lines = ["| recomputed | figures | differ |", "|---|--:|--:|"]
    lines += [f"| {what} | {len(some)} | {len(differing[what])} |" for what, some in found.items()]
    for what, names in differing.items():
        lines += ["", *(f"- {what}: {name}" for name in names[:NAMED])] if names else []
    total, wrong = sum(map(len, found.values())), sum(map(len, differing.values()))
    last = f"{total} figures recomputed from raw samples, {wrong or 'none'} differ{'s' if wrong == 1 else ''}."
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join([f"# Audit of {path.name}", "", *lines, "", last, ""]), encoding="utf-8")
    print("\n".join([*lines, "", f"{last} ({PAGE})"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
