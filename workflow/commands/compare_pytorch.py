"""PyTorch's products beside this run's ceilings: `make peers`, where PyTorch is installed. It is no dependency.

Each product is timed as the reference GEMM is, 3 warm-up and 100 timed after a rest, on normal random operands. No
ceiling may lie below the best of them.
"""

import json
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


def measured(torch) -> str | None:
    try:
        roofline = json.loads(Path("results/roofline.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "results/roofline.json is not there; run make first"
    of_gpu = [c for c in roofline["ceilings"] if c["device"] == "gpu0" and c["kind"] == "compute"]
    ceilings = {c["name"]: c["tflops"] for c in of_gpu}
    rows = compare(torch, ceilings, {c["name"]: c["lab_tflops"] for c in of_gpu})
    peers.write(RESULT, {**peers.provenance(torch), "rows": rows})
    print(table(rows))
    below = [row["dtype"] for row in rows if row["below"]]
    return f"below PyTorch's best: {', '.join(below)}" if below else None


def main() -> str | None:
    return peers.with_pytorch(measured)


if __name__ == "__main__":
    sys.exit(main())
