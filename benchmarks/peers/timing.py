"""What the scripts of this folder share: arguments, our device in the process of PyTorch, times, table and file.

A row is one cell: its sizes, `ours_s`, and `peers_s` by the name of a peer, or by "PEER, WAY" if a peer has several
ways. The best way of a peer counts.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

TURNS = 3
FEWEST_REPLAYS = 5
FASTEST = "fastest peer"


class Way(NamedTuple):
    """CUDA graphs that are replayed: a step, which takes its number, and how many applications one replay holds.

    A graph does not keep its buffers alive: `kept` is what has them, where the step itself does not.
    """

    step: Callable[[int], object]
    applications: int
    kept: object = None


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write the results, as JSON")
    made.add_argument("--short", action="store_true", help="a few of the cells, to see that it runs")
    return made


def pytorch():
    """PyTorch, with GPUs numbered as a run numbers them. Ends the process if PyTorch or a GPU is missing."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        import torch
    except ImportError:
        sys.exit(f"PyTorch is not installed in {sys.executable}")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    return torch


def our_device(torch):
    """The first GPU, opened for our kernels and held for this process. Ends the process if it cannot be opened."""
    torch.zeros(1, device="cuda")  # PyTorch's context first: the device that is opened is the only one left visible
    from roofline.devices import discovery
    from roofline.measure import lock

    try:
        device = discovery.open_device("gpu0")
    except (ImportError, LookupError, RuntimeError) as error:
        sys.exit(f"our kernels cannot run in {sys.executable}: {error}")
    lock.take_locks([lock.HOST_LOCK])
    return device


@contextlib.contextmanager
def without_overlap(device) -> Iterator[None]:
    """Graphs that are made here run each kernel after the one before it has ended, as PyTorch's graphs do."""
    overlaps, device.supports_overlap = device.supports_overlap, False
    try:
        yield
    finally:
        device.supports_overlap = overlaps


def replaying(torch, stream, graph, kept: object) -> Callable[[int], None]:
    """A step that replays a graph on a stream, and keeps what the graph reads and writes."""

    def replay(index: int) -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    replay.kept = kept
    return replay


def seconds(device, way: Way, warmup: int, most: int, budget_s: float) -> float:
    """Median seconds of an application, over as many replays as the budget allows, timed by our device's events."""
    device.time_steps(way.step, warmup)
    (one,) = device.time_steps(way.step, 1)
    replays = max(FEWEST_REPLAYS, min(most, int(budget_s / one)))
    return statistics.median(device.time_steps(way.step, replays)) / way.applications


def seconds_by_events(torch, step: Callable[[int], object], warmup: int, count: int, stream=None) -> float:
    """Median seconds of a step between PyTorch's events, on a stream or on the current one."""
    for index in range(warmup):
        step(index)
    torch.cuda.synchronize()
    stream = stream or torch.cuda.current_stream()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record(stream)
    for index, event in enumerate(events[1:]):
        step(index)
        event.record(stream)
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairwise(events)) / 1e3


def fastest_of_turns(ways: Mapping[str, Way], timed: Callable[[Way], float]) -> dict[str, float]:
    """Seconds of each way, the fastest of its turns. The ways alternate."""
    times: dict[str, float] = {}
    for _ in range(TURNS):
        for name, way in ways.items():
            times[name] = min(timed(way), times.get(name, math.inf))
    return times


def require_alike(result, expected, tolerance: float) -> None:
    """Raises ArithmeticError if two tensors differ by more than a tolerance: norm of the difference over the norm."""
    result, expected = result.view_as(expected).double(), expected.double()
    apart = float((result - expected).norm() / expected.norm())
    if not apart <= tolerance:
        raise ArithmeticError(f"the results are {apart:.1e} apart")


def first_line(error: Exception) -> str:
    """Why a peer is missing: the first line of what it raised."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


def by_peer(row: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each peer, by its best way."""
    found: dict[str, float] = {}
    for way, taken in row["peers_s"].items():
        peer = way.partition(",")[0]
        found[peer] = min(taken, found.get(peer, math.inf))
    return found


def ratios(row: Mapping[str, Any]) -> dict[str, float]:
    """How many times as fast ours is as each peer, and as the fastest of them."""
    peers = by_peer(row)
    if not row["ours_s"] or not peers:
        return {}
    return {peer: taken / row["ours_s"] for peer, taken in {**peers, FASTEST: min(peers.values())}.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    mean = math.exp(sum(map(math.log, values)) / len(values))
    return {"cells": len(values), "geometric_mean": mean, "least": min(values), "most": max(values)}


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The spread of the ratios to each peer."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for peer, ratio in ratios(row).items():
            found.setdefault(peer, []).append(ratio)
    return {peer: spread(values) for peer, values in found.items()}


class Results:
    """Rows with where they were measured, written after each row: an interrupted run keeps what it has."""

    def __init__(self, torch, output: Path, **known):
        self.output, self.rows = output, []
        self.found = {
            "pytorch": torch.__version__,
            "cuda": torch.version.cuda,
            "card": torch.cuda.get_device_name(),
            "commit": commit(),
            "measured_at": datetime.now(UTC).isoformat(),
            **known,
            "rows": self.rows,
        }

    def add(self, row: dict) -> None:
        self.rows.append(row)
        self.write()
        print(".", end="", file=sys.stderr, flush=True)

    def write(self) -> None:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.output.write_text(f"{json.dumps(self.found, indent=1)}\n", encoding="utf-8")

    def close(self, keys: Sequence[str], group: Callable[[Mapping[str, Any]], str]) -> None:
        """Write the summary of each group of rows, and print it below the table of all rows."""
        groups: dict[str, list[dict]] = {}
        for row in self.rows:
            groups.setdefault(group(row), []).append(row)
        shown = self.found["times_as_fast"] = {name: summary(rows) for name, rows in groups.items()}
        self.write()
        peers = list(dict.fromkeys(peer for row in self.rows for peer in by_peer(row)))
        lines = [[*keys, "ours", *peers]]
        lines += [[*(str(row.get(key, "")) for key in keys), *cells_of(row, peers)] for row in self.rows]
        print(f"\n{self.found['card']}, PyTorch {self.found['pytorch']}; us, and how many times as fast ours is\n")
        print(aligned(lines))
        lines = [["", "peer", "geometric mean", "least", "most", "cells"]]
        for name, of_peers in shown.items():
            for peer, of in of_peers.items():
                figures = (f"{of[key]:.2f}" for key in ("geometric_mean", "least", "most"))
                lines.append([name, peer, *figures, str(of["cells"])])
        print(f"\n{aligned(lines)}")
        for reason in sorted({f"{name}: {why}" for row in self.rows for name, why in row["why_not"].items()}):
            print(f"missing: {reason}")


def cells_of(row: Mapping[str, Any], peers: Iterable[str]) -> list[str]:
    """The columns of ours and of each peer."""
    times, found = by_peer(row), ratios(row)
    shown = [f"{row['ours_s'] * 1e6:.2f}" if row["ours_s"] else "-"]
    for peer in peers:
        ratio = f" ({found[peer]:.2f})" if peer in found else ""
        shown.append(f"{times[peer] * 1e6:.2f}{ratio}" if peer in times else "-")
    return shown


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def commit() -> str | None:
    """Of this checkout, by git, else by ROOFLINE_COMMIT."""
    checkout = Path(__file__).absolute().parents[2]
    command = ["git", "-c", f"safe.directory={checkout}", "-C", checkout, "rev-parse", "--verify", "--quiet", "HEAD"]
    shown = subprocess.run(command, capture_output=True, text=True).stdout.strip() if shutil.which("git") else ""
    return shown or os.environ.get("ROOFLINE_COMMIT")
