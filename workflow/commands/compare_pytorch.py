"""PyTorch's products beside this run's ceilings: `make peers`, where PyTorch is installed. It is no dependency.

Each product is timed as the reference GEMM is, 3 warm-up and 100 timed after a rest, on normal random operands: of two
squares, and of the fastest by short trials among the shapes and layouts that the ceiling's own search tried. No ceiling
may lie below the best of them. Where several GPUs were measured, copies between them are timed too.
"""

import json
import math
import os
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.core import statistics
from roofline.core.formatting import number, percent

SIZES = (4096, 8192)
WARMUP, ITERATIONS, REST_S = 3, 100, 0.5
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
NOISE = 0.02  # ratios within one run hold within so much
PEER_BYTES, PEER_COPIES, PEER_TAKES = 1 << 30, 30, 3
PEER_CEILING = re.compile(r"p2p_gpu(\d+)(_both)?")  # of copies; those of kernels have no counterpart in PyTorch
TRIALS_S, FINALISTS = 1.5, 2  # of each dtype
RECORDS = Path("results/gpu0/peak_flops")
RESULT = Path("results/pytorch.json")


class Shape(NamedTuple):
    """D = A B as cuBLAS has it, by columns: a layout's letters tell whether A and B are kept transposed."""

    m: int
    n: int
    k: int
    layout: str | None = None  # both operands as PyTorch keeps them by itself

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}{f' {self.layout}' if self.layout else ''}"


def searched(record: Path) -> list[Shape]:
    """The shapes and layouts that a ceiling's search tried, the fastest first; none without its record."""
    try:
        peak = json.loads(record.read_text(encoding="utf-8"))["peak"]
    except FileNotFoundError:
        return []
    products = [one["product"] for one in peak["candidates"]] if peak else []
    shapes = (Shape(*(one["shape"][key] for key in "mnk"), one["layout"]) for one in products if "k" in one["shape"])
    return list(dict.fromkeys(shapes))


def product(torch, dtype: str, shape: Shape):
    """A function that multiplies two matrices of a dtype once. Raises RuntimeError or AttributeError where PyTorch has
    no such product.

    What is by columns to cuBLAS is its transpose by rows to PyTorch: D^T = B^T A^T, of n x k and k x m.
    """
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    layout = shape.layout or ("TN" if dtype in ("int8", "fp8_e4m3") else "NN")
    a, b = (
        torch.randn(*(sizes if plain else sizes[::-1]), device="cuda")
        for sizes, plain in (((shape.n, shape.k), layout[1] == "N"), ((shape.k, shape.m), layout[0] == "N"))
    )
    if dtype == "int8":
        a, b = ((32 * x).round().clamp(-127, 127).to(torch.int8) for x in (a, b))
    elif dtype not in ("fp32", "tf32"):
        kinds = {"fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}
        a, b = (x.to(getattr(torch, kinds[dtype])) for x in (a, b))
    a, b = (a if layout[1] == "N" else a.t()), (b if layout[0] == "N" else b.t())
    if dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if dtype == "fp8_e4m3":
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return lambda: torch.mm(a, b)


def tflops(torch, multiply, shape: Shape, warmup: int = WARMUP, iterations: int = ITERATIONS) -> float:
    """Median of one block, from event to event."""
    for _ in range(warmup):
        multiply()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    events[0].record()
    for event in events[1:]:
        multiply()
        event.record()
    torch.cuda.synchronize()
    times_ms = [start.elapsed_time(end) for start, end in pairwise(events)]
    return 2 * shape.m * shape.n * shape.k / (statistics.median(times_ms) / 1e3) / 1e12


def finalists(torch, dtype: str, shapes: list[Shape], budget_s: float = TRIALS_S) -> list[Shape]:
    """The fastest by short trials, as many as a budget allows."""
    found, deadline = {}, time.monotonic() + budget_s
    for shape in shapes:
        if time.monotonic() >= deadline:
            break
        try:
            found[shape] = tflops(torch, product(torch, dtype, shape), shape, warmup=1, iterations=3)
        except (RuntimeError, AttributeError):  # PyTorch has no such product
            continue
    return sorted(found, key=found.get, reverse=True)[:FINALISTS]


def compare(torch, ceilings: dict[str, float], references: dict[str, float], records: Path = RECORDS) -> list[dict]:
    """`references` are of the reference GEMM: the same shape as PyTorch's first. `records` tell the shapes to try."""
    rows = []
    for dtype in (dtype for dtype in DTYPES if dtype in ceilings):
        found, why = {}, None
        offered = searched(records / f"{dtype}.json")
        for shape in [*(Shape(size, size, size) for size in SIZES), *finalists(torch, dtype, offered)]:
            try:
                multiply = product(torch, dtype, shape)
                time.sleep(REST_S)
                found[str(shape)] = tflops(torch, multiply, shape)
            except (RuntimeError, AttributeError) as error:
                why = str(error).splitlines()[0]
        fastest = max(found, key=found.get, default=None)
        best = found[fastest] if fastest else None
        rows.append(
            {
                "dtype": dtype,
                "ceiling_tflops": ceilings[dtype],
                "reference_tflops": references[dtype],
                "shapes_offered": len(offered),
                "pytorch_tflops": found,
                "fastest": fastest,
                "ratio": ceilings[dtype] / best if best else None,
                "below": bool(best and ceilings[dtype] < best * (1 - NOISE)),
                "why_not": why if best is None else None,
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    lines = ["| dtype | ceiling | reference GEMM | PyTorch 4096 | PyTorch 8192 | best | of shape | ceiling over best |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        found, best = row["pytorch_tflops"], row["fastest"]
        squares = (str(Shape(size, size, size)) for size in SIZES)
        told = [number(found[square]) if square in found else "-" for square in squares]
        told += [number(found[best]), best, percent(row["ratio"])] if best else ["-", "-", row["why_not"]]
        ours = f"{number(row['ceiling_tflops'])} | {number(row['reference_tflops'])}"
        lines.append(f"| {row['dtype']} | {ours} | {' | '.join(told)} |")
    return "\n".join(lines)


def in_words(rows: list[dict]) -> str:
    """Over all dtypes that PyTorch multiplies."""
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    if not ratios:
        return "PyTorch has none of these products."
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    spread = f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"Ceiling over PyTorch's best, geometric mean of {len(ratios)} dtypes with the range: {spread}. TFLOPS:"


def copies_gb_per_s(torch, card: int, other: int, both: bool) -> float:
    """GB/s of tensor.copy_ from one card to another, or both ways at once and added up; the best of a few takes."""
    copies = []
    for source, destination in [(card, other), (other, card)][: 1 + both]:
        sent = torch.randn(PEER_BYTES // 4, device=f"cuda:{source}")
        arrived = torch.empty(PEER_BYTES // 4, device=f"cuda:{destination}")
        # Streams of its own for each direction: PyTorch has a copy wait for both cards' current ones.
        copies.append((sent, arrived, [torch.cuda.Stream(source), torch.cuda.Stream(destination)]))

    def take(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            for sent, arrived, (first, second) in copies:
                with torch.cuda.stream(first), torch.cuda.stream(second):
                    arrived.copy_(sent, non_blocking=True)
        torch.cuda.synchronize(card)
        torch.cuda.synchronize(other)
        return count * len(copies) * PEER_BYTES / (time.perf_counter() - start) / 1e9

    take(WARMUP)
    return max(take(PEER_COPIES) for _ in range(PEER_TAKES))


def compare_peers(torch, ceilings: list[dict]) -> list[dict]:
    """Of the ceilings of copies between cards."""
    rows = []
    for ceiling in ceilings:
        named = PEER_CEILING.fullmatch(ceiling["name"])
        if named and torch.cuda.device_count() > int(named[1]):
            found = copies_gb_per_s(torch, int(ceiling["device"][3:]), int(named[1]), bool(named[2]))
            ratio = ceiling["gb_per_s"] / found
            known = {"device": ceiling["device"], "ceiling": ceiling["name"], "gb_per_s": ceiling["gb_per_s"]}
            rows.append({**known, "pytorch_gb_per_s": found, "ratio": ratio, "below": ratio < 1 - NOISE})
    return rows


def peers_table(rows: list[dict]) -> str:
    lines = ["| device | ceiling | GB/s | PyTorch's copy | ceiling over PyTorch |", "|---|---|---|---|---|"]
    for row in rows:
        figures = f"{number(row['gb_per_s'])} | {number(row['pytorch_gb_per_s'])} | {percent(row['ratio'])}"
        lines.append(f"| {row['device']} | {row['ceiling']} | {figures} |")
    return "\n".join(lines)


def measured(torch) -> str | None:
    try:
        roofline = json.loads(Path("results/roofline.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "results/roofline.json is not there; run make first"
    of_gpu = [c for c in roofline["ceilings"] if c["device"] == "gpu0" and c["kind"] == "compute"]
    ceilings = {c["name"]: c["tflops"] for c in of_gpu}
    rows = compare(torch, ceilings, {c["name"]: c["reference_tflops"] for c in of_gpu})
    between = compare_peers(torch, [c for c in roofline["ceilings"] if c["kind"] == "memory"])
    text = f"{in_words(rows)}\n\n{table(rows)}"
    if between:
        text += f"\n\n{peers_table(between)}"
    reasons = [{"PyTorch": row["why_not"]} if row["why_not"] else {} for row in rows]
    by_peer = peers.counted(([] if why_not else ["PyTorch"], why_not) for why_not in reasons)
    found = {**peers.provenance(torch), "by_peer": by_peer, "rows": rows} | ({"peers": between} if between else {})
    peers.tell(RESULT, found, text)
    below = [row.get("dtype") or f"{row['device']} {row['ceiling']}" for row in rows + between if row["below"]]
    return f"below PyTorch's best: {', '.join(below)}" if below else None


def main() -> str | None:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the GPUs of a run are numbered
    return peers.with_pytorch(measured)


if __name__ == "__main__":
    sys.exit(main())
