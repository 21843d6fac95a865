"""PyTorch's products beside this run's ceilings: `make peers`, where PyTorch is installed. It is no dependency.

Each product is timed as the reference GEMM is, 3 warm-up and 100 timed after a rest, on normal random operands. No
ceiling may lie below the best of them. Where several GPUs were measured, copies between them are timed too.
"""

import json
import os
import re
import sys
import time
from itertools import pairwise
from pathlib import Path

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
RESULT = Path("results/pytorch.json")


def product(torch, dtype: str, size: int):
    """A function that multiplies two size x size matrices of a dtype once; None where PyTorch has no such product."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    if dtype in ("fp32", "tf32"):
        return lambda: torch.mm(a, b)
    if dtype == "int8":
        a, b = ((32 * x).round().clamp(-127, 127).to(torch.int8) for x in (a, b))
        return lambda: torch._int_mm(a, b.t())
    if dtype == "fp8_e4m3":
        a, b = (x.to(torch.float8_e4m3fn) for x in (a, b))
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    kind = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    a, b = a.to(kind), b.to(kind)
    return lambda: torch.mm(a, b)


def tflops(torch, multiply, size: int) -> float:
    """Median of one block, from event to event."""
    time.sleep(REST_S)
    for _ in range(WARMUP):
        multiply()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(ITERATIONS + 1)]
    events[0].record()
    for event in events[1:]:
        multiply()
        event.record()
    torch.cuda.synchronize()
    times_ms = [start.elapsed_time(end) for start, end in pairwise(events)]
    return 2 * size**3 / (statistics.median(times_ms) / 1e3) / 1e12


def compare(torch, ceilings: dict[str, float], references: dict[str, float]) -> list[dict]:
    """`references` are of the reference GEMM: the same shape as PyTorch's first."""
    rows = []
    for dtype in (dtype for dtype in DTYPES if dtype in ceilings):
        found, why = {}, None
        for size in SIZES:
            try:
                found[str(size)] = tflops(torch, product(torch, dtype, size), size)
            except (RuntimeError, AttributeError) as error:
                why = str(error).splitlines()[0]
        best = max(found.values(), default=None)
        rows.append(
            {
                "dtype": dtype,
                "ceiling_tflops": ceilings[dtype],
                "reference_tflops": references[dtype],
                "pytorch_tflops": found,
                "ratio": ceilings[dtype] / best if best else None,
                "below": bool(best and ceilings[dtype] < best * (1 - NOISE)),
                "why_not": why,
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    lines = ["| dtype | ceiling | reference GEMM | PyTorch 4096 | PyTorch 8192 | ceiling over PyTorch |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        found = row["pytorch_tflops"]
        told = [number(found[str(size)]) if str(size) in found else "-" for size in SIZES]
        ratio = percent(row["ratio"]) if row["ratio"] else row["why_not"]
        ours = f"{number(row['ceiling_tflops'])} | {number(row['reference_tflops'])}"
        lines.append(f"| {row['dtype']} | {ours} | {told[0]} | {told[1]} | {ratio} |")
    return "\n".join(lines)


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
    peers.write(RESULT, {**peers.provenance(torch), "rows": rows} | ({"peers": between} if between else {}))
    print(table(rows))
    if between:
        print(f"\n{peers_table(between)}")
    below = [row.get("dtype") or f"{row['device']} {row['ceiling']}" for row in rows + between if row["below"]]
    return f"below PyTorch's best: {', '.join(below)}" if below else None


def main() -> str | None:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the GPUs of a run are numbered
    return peers.with_pytorch(measured)


if __name__ == "__main__":
    sys.exit(main())
