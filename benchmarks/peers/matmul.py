"""Matrix products: PyTorch, and the ceilings of a run that was measured before on the same card.

PyTorch multiplies two squares and, of the shapes and layouts that the search for the ceiling tried, the two fastest by
short trials. Each is timed as the reference GEMM of the run: 3 warm-up and 100 timed products after a rest, on normal
random operands. The best one counts. This script needs nothing but PyTorch.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

import timing

SIZES = (4096, 8192)
WARMUP, ITERATIONS, REST_S = 3, 100, 0.5
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
SHORT = ("fp16", "fp8_e4m3")
TRIALS_S, FINALISTS = 1.5, 2  # of each dtype


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
        return lambda index: torch._int_mm(a, b)
    if dtype == "fp8_e4m3":
        one = torch.ones((), device="cuda")
        return lambda index: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return lambda index: torch.mm(a, b)


def tflops(torch, multiply, shape: Shape, warmup: int = WARMUP, iterations: int = ITERATIONS) -> float:
    """Of the median product of one block."""
    return 2 * shape.m * shape.n * shape.k / timing.seconds_by_events(torch, multiply, warmup, iterations) / 1e12


def finalists(torch, dtype: str, shapes: list[Shape]) -> list[Shape]:
    """The fastest by short trials, as many as a budget allows."""
    found, deadline = {}, time.monotonic() + TRIALS_S
    for shape in shapes:
        if time.monotonic() >= deadline:
            break
        try:
            found[shape] = tflops(torch, product(torch, dtype, shape), shape, warmup=1, iterations=3)
        except (RuntimeError, AttributeError):  # PyTorch has no such product
            continue
    return sorted(found, key=found.get, reverse=True)[:FINALISTS]


def compare(torch, dtype: str, ceiling: dict, offered: list[Shape]) -> dict:
    found, why = {}, None
    for shape in [*(Shape(size, size, size) for size in SIZES), *finalists(torch, dtype, offered)]:
        try:
            multiply = product(torch, dtype, shape)
            time.sleep(REST_S)
            found[str(shape)] = tflops(torch, multiply, shape)
        except (RuntimeError, AttributeError) as error:
            why = timing.first_line(error)
    fastest = max(found, key=found.get, default=None)
    return {
        "dtype": dtype,
        "ceiling_tflops": ceiling["tflops"],
        "reference_tflops": ceiling["reference_tflops"],
        "shapes_offered": len(offered),
        "pytorch_tflops": found,
        "fastest": fastest,
        "ratio": ceiling["tflops"] / found[fastest] if fastest else None,
        "why_not": None if fastest else why,
    }


def shown(rows: list[dict]) -> str:
    """TFLOPS, and the ceiling over the best of PyTorch."""
    lines = [
        ["dtype", "ceiling", "reference GEMM", *(f"PyTorch {size}" for size in SIZES), "best", "of shape", "ratio"]
    ]
    for row in rows:
        found, best = row["pytorch_tflops"], row["fastest"]
        rates = [row["ceiling_tflops"], row["reference_tflops"]]
        rates += [found.get(str(Shape(size, size, size))) for size in SIZES] + [found.get(best)]
        reported = [f"{rate:.1f}" if rate else "-" for rate in rates]
        lines.append([row["dtype"], *reported, best or row["why_not"], f"{row['ratio']:.2f}" if best else "-"])
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
    if ratios := [row["ratio"] for row in results.rows if row["ratio"]]:
        of = results.found["ceiling_over_best"] = timing.spread(ratios)
        results.write()
        print(f"\ngeometric mean {of['geometric_mean']:.2f} ({of['least']:.2f} to {of['most']:.2f})")


if __name__ == "__main__":
    main()
