"""Matrix products: PyTorch, and the ceilings of a run that was measured before on the same card.

PyTorch multiplies two squares and, of the shapes and layouts that the search for the ceiling put first, the two fastest
by a block after a short rest. Each is timed as a ceiling is: three blocks, each after 0.1 s of rest and 4 GEMMs, of 10
GEMMs or 10 ms, by FLOPs over elapsed time; their median counts. This script needs nothing but PyTorch.
"""

import contextlib
import json
import math
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import timing

SIZES = (4096, 8192)
REST_S, WARMUP, BLOCKS = 0.1, 3, 3
BLOCK_STEPS, BLOCK_S, MOST_STEPS = 10, 0.01, 200  # whichever of the first two is longer
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
SHORT = ("fp16", "fp8_e4m3")
TRIED, SHORT_REST_S, FINALISTS = 8, 0.05, 2  # of each dtype


class Shape(NamedTuple):
    """D = A B as cuBLAS has it, by columns: the letters of a layout say whether A and B are kept transposed."""

    m: int
    n: int
    k: int
    layout: str | None = None  # both operands as PyTorch keeps them by itself

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}{f' {self.layout}' if self.layout else ''}"


def searched(record: Path) -> list[Shape]:
    """The shapes and layouts that the search for a ceiling tried, the fastest first; none without its record."""
    try:
        peak = json.loads(record.read_text(encoding="utf-8"))["peak"]
    except FileNotFoundError:
        return []
    products = [one["product"] for one in peak["candidates"]] if peak else []
    shapes = (Shape(*(one["shape"][key] for key in "mnk"), one["layout"]) for one in products if "k" in one["shape"])
    return list(dict.fromkeys(shapes))


def product(torch, dtype: str, shape: Shape):
    """A function that multiplies two matrices of a dtype once. Raises RuntimeError or AttributeError if PyTorch has no
    such product.

    What is by columns to cuBLAS is its transpose by rows to PyTorch: D^T = B^T A^T, of n x k and k x m.
    """
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    layout = shape.layout or ("TN" if dtype in ("int8", "fp8_e4m3") else "NN")
    wide = dtype == "fp64"  # of 53 bits, as the ceiling's
    a, b = (
        torch.randn(*(sizes if plain else sizes[::-1]), device="cuda", dtype=torch.float64 if wide else torch.float32)
        for sizes, plain in (((shape.n, shape.k), layout[1] == "N"), ((shape.k, shape.m), layout[0] == "N"))
    )
    if dtype == "int8":
        a, b = ((32 * x).round().clamp(-127, 127).to(torch.int8) for x in (a, b))
    elif dtype not in ("fp64", "fp32", "tf32"):
        kinds = {"fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}
        a, b = (x.to(getattr(torch, kinds[dtype])) for x in (a, b))
    a, b = (a if layout[1] == "N" else a.t()), (b if layout[0] == "N" else b.t())
    if dtype == "int8":
        return lambda index: torch._int_mm(a, b)
    if dtype == "fp8_e4m3":
        one = torch.ones((), device="cuda")
        return lambda index: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return lambda index: torch.mm(a, b)


def block(torch, multiply, shape: Shape, rest_s: float) -> float:
    """TFLOPS over the elapsed time of one block."""
    torch.cuda.synchronize()
    time.sleep(rest_s)
    step_s = timing.seconds_by_events(torch, multiply, 0, WARMUP)
    steps = min(MOST_STEPS, max(BLOCK_STEPS, math.ceil(BLOCK_S / step_s)))
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    multiply(0)  # finds an empty queue
    first.record()
    for index in range(steps):
        multiply(index)
    last.record()
    last.synchronize()
    return 2 * shape.m * shape.n * shape.k * steps / first.elapsed_time(last) / 1e9


def finalists(torch, dtype: str, shapes: list[Shape]) -> list[Shape]:
    """The fastest of the first shapes, by a block each."""
    found = {}
    for shape in shapes[:TRIED]:
        with contextlib.suppress(RuntimeError, AttributeError):  # PyTorch has no such product
            found[shape] = block(torch, product(torch, dtype, shape), shape, SHORT_REST_S)
    return sorted(found, key=found.get, reverse=True)[:FINALISTS]


def compare(torch, dtype: str, ceiling: dict, offered: list[Shape]) -> dict:
    found, why = {}, None
    for shape in [*(Shape(size, size, size) for size in SIZES), *finalists(torch, dtype, offered)]:
        try:
            multiply = product(torch, dtype, shape)
            found[str(shape)] = statistics.median(block(torch, multiply, shape, REST_S) for _ in range(BLOCKS))
        except (RuntimeError, AttributeError) as error:
            why = timing.first_line(error)
    fastest = max(found, key=found.get, default=None)
    return {
        "dtype": dtype,
        "ceiling_tflops": ceiling["burst_tflops"],
        "shapes_offered": len(offered),
        "pytorch_tflops": found,
        "fastest": fastest,
        "ratio": ceiling["burst_tflops"] / found[fastest] if fastest else None,
        "why_not": None if fastest else why,
    }


def shown(rows: list[dict]) -> str:
    """TFLOPS, and the ceiling over the best of PyTorch."""
    lines = [["dtype", "ceiling", *(f"PyTorch {size}" for size in SIZES), "best", "of shape", "ratio"]]
    for row in rows:
        found, best = row["pytorch_tflops"], row["fastest"]
        squares = [found.get(str(Shape(size, size, size))) for size in SIZES]
        rates = [row["ceiling_tflops"], *squares, found.get(best)]
        reported = [f"{rate:.1f}" if rate else "-" for rate in rates]
        lines.append([row["dtype"], *reported, best or row["why_not"], f"{row['ratio']:.3f}" if best else "-"])
    return timing.aligned(lines)


def main() -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--run", type=Path, default=Path("results"), metavar="FOLDER", help="results of the run")
    given = parser.parse_args()
    roofline = json.loads((given.run / "roofline.json").read_text(encoding="utf-8"))
    ceilings = {one["name"]: one for one in roofline["ceilings"] if one["device"] == "gpu0" and one["name"] in DTYPES}
    torch = timing.pytorch()
    results = timing.Results(torch, given.output)
    for dtype in SHORT if given.short else DTYPES:
        if dtype in ceilings:
            offered = searched(given.run / "gpu0" / "peak_flops" / f"{dtype}.json")
            results.add(compare(torch, dtype, ceilings[dtype], offered))
    print(f"\n{shown(results.rows)}")


if __name__ == "__main__":
    main()
