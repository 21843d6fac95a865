"""Matrix products: whether one of PyTorch's beats a ceiling that a run measured before on the same card.

For each dtype the product of the ceiling, checked again, alternates with PyTorch's product of each of ten shapes, in
one process: A B B A, six blocks of either, on one stream. A block comes after 0.1 s of rest and 4 products, and lasts
10 ms or 5 products. Of PyTorch's layouts the faster one counts. The ratio is the median of A over the median of B.
"""

import contextlib
import ctypes
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import timing

REST_S, SHORT_REST_S, WARMUP = 0.1, 0.05, 3
BLOCK_STEPS, BLOCK_S, MOST_STEPS = 5, 0.01, 200  # whichever of the first two is longer
TURNS = "ABBA" * 3
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
SHORT = ("fp16", "fp8_e4m3")
OUTPUTS = {"int8": "int32"}  # that PyTorch has, where it is not the ceiling's
# Square and wide ones, and the fastest of NVIDIA's published tables: of one or two waves of tiles, with a long k.
SHAPES = (
    (8192, 8192, 8192),
    (8448, 4096, 8192),
    (8448, 4096, 16384),
    (6144, 5632, 16384),
    (4224, 4096, 32768),
    (3328, 2560, 65536),
    (2816, 3072, 65536),
    (2816, 1536, 16384),
    (2816, 1536, 65536),
    (4352, 65536, 8192),
)
LONGEST_S = 0.02  # of a product: in fp64 and fp32 some take much longer than a block
SEED = 11


class Product(NamedTuple):
    """A function that multiplies once, and what it counts as."""

    multiply: Callable[[int], object]
    flops: int


def ceiling_product(device, dtype: str, peak: dict) -> tuple[Product, str, float]:
    """The product of a ceiling's bursts, or of PyTorch's output; its description, and its error against float64."""
    from roofline.operators.gemm import cuda_products
    from roofline.records.compute import WorkloadSpec

    blocks = [peak["repeats"][0], *peak["variants"]]
    block = next(one for one in blocks if one["product"]["output"] == OUTPUTS.get(dtype, one["product"]["output"]))
    spec = WorkloadSpec(**block["product"])
    workload = cuda_products.rebuild_workload(device, dtype, spec.shape["m"], spec, SEED)
    workload.run_and_check()
    name = f"{' x '.join(map(str, spec.shape.values()))} {spec.layout} by {spec.library}"
    return Product(workload.step, workload.flops), name, workload.compare().relative_error


def pytorch_product(torch, dtype: str, shape: tuple[int, int, int], transposed: bool) -> Product:
    """PyTorch's product of m x k and k x n numbers, the second `transposed` as the weights of a layer are.

    Raises RuntimeError or AttributeError if it has none.
    """
    m, n, k = shape
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    number = torch.float64 if dtype == "fp64" else torch.float32
    a, b = (torch.randn(*sizes, device="cuda", dtype=number) for sizes in ((m, k), (n, k) if transposed else (k, n)))
    if dtype == "int8":
        a, b = ((32 * x).round().clamp(-127, 127).to(torch.int8) for x in (a, b))
    elif dtype not in ("fp64", "fp32", "tf32"):
        kinds = {"fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn"}
        a, b = (x.to(getattr(torch, kinds[dtype])) for x in (a, b))
    b = b.t() if transposed else b
    flops = 2 * m * n * k
    if dtype == "int8":
        return Product(lambda index: torch._int_mm(a, b), flops)
    if dtype == "fp8_e4m3":
        one = torch.ones((), device="cuda")
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
        return Product(lambda index: torch._scaled_mm(a, b, one, one, **options), flops)
    out = torch.empty((m, n), device="cuda", dtype=a.dtype)
    return Product(lambda index: torch.mm(a, b, out=out), flops)


def block(torch, product: Product, rest_s: float) -> float:
    """TFLOPS over the elapsed time of one block on the current stream."""
    torch.cuda.synchronize()
    time.sleep(rest_s)
    step_s = timing.seconds_by_events(torch, product.multiply, 0, WARMUP)
    steps = min(MOST_STEPS, max(BLOCK_STEPS, math.ceil(BLOCK_S / step_s)))
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    product.multiply(0)  # finds an empty queue
    first.record()
    for index in range(steps):
        product.multiply(index)
    last.record()
    last.synchronize()
    return product.flops * steps / first.elapsed_time(last) / 1e9


def faster_layout(torch, dtype: str, shape: tuple[int, int, int]) -> Product:
    """PyTorch's product in the layout that a block is faster in. Raises RuntimeError or AttributeError for none."""
    layouts = (True,) if dtype in ("int8", "fp8_e4m3") else (True, False)
    products = [pytorch_product(torch, dtype, shape, transposed) for transposed in layouts]
    return max(products, key=lambda product: block(torch, product, SHORT_REST_S)) if products[1:] else products[0]


def compare(torch, device, dtype: str, peak: dict) -> dict:
    ceiling, name, error = ceiling_product(device, dtype, peak)
    most_flops = LONGEST_S * peak["burst_tflops"] * 1e12
    found, why_not = {}, {}
    for shape in SHAPES:
        label = " x ".join(map(str, shape))
        if 2 * math.prod(shape) > most_flops:
            why_not[label] = f"takes more than {LONGEST_S} s"
            continue
        try:
            peer = faster_layout(torch, dtype, shape)
            rates: dict[str, list[float]] = {"A": [], "B": []}
            for turn in TURNS:
                rates[turn].append(block(torch, ceiling if turn == "A" else peer, REST_S))
        except (RuntimeError, AttributeError) as problem:
            why_not[label] = timing.first_line(problem)
            continue
        ours, theirs = statistics.median(rates["A"]), statistics.median(rates["B"])
        found[label] = {"ceiling_tflops": ours, "pytorch_tflops": theirs, "ratio": ours / theirs, "blocks": rates}
    return {"dtype": dtype, "ceiling": name, "error": error, "shapes": found, "why_not": why_not}


def cublas_versions() -> dict[str, int]:
    """The version of each cuBLASLt that this process has loaded, by its path: PyTorch and CuPy may bring their own."""
    paths = re.findall(r"\S*libcublasLt\.so\S*", Path("/proc/self/maps").read_text(encoding="utf-8"))
    versions = {}
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError, AttributeError):
            get_version = ctypes.CDLL(path).cublasLtGetVersion
            get_version.restype = ctypes.c_size_t
            versions[path.rpartition("/site-packages/")[2]] = get_version()
    return versions


def shown(rows: Iterable[dict]) -> str:
    """A line for each dtype and shape: TFLOPS of both, and the ceiling over PyTorch."""
    lines = [["dtype", "ceiling", "error", "shape", "TFLOPS", "PyTorch", "ratio"]]
    for row in rows:
        for shape, of in row["shapes"].items():
            rates = (f"{of[key]:.1f}" for key in ("ceiling_tflops", "pytorch_tflops"))
            lines.append([row["dtype"], row["ceiling"], f"{row['error']:.1e}", shape, *rates, f"{of['ratio']:.3f}"])
    return timing.aligned(lines)


def main() -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--run", type=Path, default=Path("results"), metavar="FOLDER", help="results of the run")
    given = parser.parse_args()
    torch = timing.pytorch()
    device = timing.our_device(torch)
    results = timing.Results(torch, given.output)
    with torch.cuda.stream(torch.cuda.ExternalStream(device.stream.ptr)):
        for dtype in SHORT if given.short else DTYPES:
            record = given.run / "gpu0" / "peak_flops" / f"{dtype}.json"
            peak = json.loads(record.read_text(encoding="utf-8"))["peak"] if record.exists() else None
            if peak:
                results.add(compare(torch, device, dtype, peak))
    results.found["cublaslt"] = cublas_versions()
    ratios = [of["ratio"] for row in results.rows for of in row["shapes"].values()]
    results.found["least_ratio"] = min(ratios, default=None)
    results.write()
    print(f"\n{shown(results.rows)}\n\nleast ratio {min(ratios, default=math.nan):.3f}; {results.found['cublaslt']}")


if __name__ == "__main__":
    main()
