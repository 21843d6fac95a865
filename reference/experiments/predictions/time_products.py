"""Time products of drawn shapes by PyTorch, in a CUDA graph, over as many sets of operands as asked.

    python time_products.py OUT.json SEED COUNT SECONDS [bf16,fp8]    # with PyTorch; products.json holds what it wrote

Each product is timed cold (operands rotate through at least 256 MiB) and, where a set of weights is smaller than the
L2, as ai-dynamo/aiconfigurator does: one A, and the fewest sets of B that are larger than the L2, at most five.
"""

import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import torch

L2_BYTES = 50 << 20  # by which sets of weights are counted
COLD_BYTES = 256 << 20
MOST_BYTES = 4 << 30
SIZE = {"bf16": 2, "fp8": 1}


def draw(generator, low, high, multiple):
    """Return a size, log-uniform, rounded to a multiple."""
    return min(max(round(low * (high / low) ** generator.random() / multiple) * multiple, low), high)


def draws(seed, count):
    """Return so many shapes (m, n, k) whose operands fit MOST_BYTES in 16 bits."""
    generator, found = random.Random(seed), []
    while len(found) < count:
        m, n, k = draw(generator, 1, 16384, 1), draw(generator, 128, 65536, 16), draw(generator, 128, 65536, 16)
        if 2 * (m * k + n * k + m * n) <= MOST_BYTES:
            found.append((m, n, k))
    return found


class Pool:
    """One large buffer of random numbers for operands, one for results."""

    def __init__(self, dtype):
        self.dtype = dtype
        size = 6 << 30
        self.numbers = torch.empty(size // 2, dtype=torch.bfloat16, device="cuda").normal_()
        if dtype == "fp8":
            self.numbers = self.numbers.to(torch.float8_e4m3fn)
        self.results = torch.empty(6 << 29, dtype=torch.bfloat16, device="cuda")

    def operands(self, m, n, k, sets, one_a):
        """Return so many sets of A, B and C; with `one_a` all have the same A and C."""
        size, offset, at_result, out = len(self.numbers), 0, 0, []
        for index in range(sets):
            if not (one_a and index):
                if offset + m * k > size:
                    offset = 0
                a = self.numbers[offset : offset + m * k].view(m, k)
                offset = -(-(offset + m * k) // 256) * 256
            if offset + n * k > size:
                offset = 0
            b = self.numbers[offset : offset + n * k].view(n, k)
            offset = -(-(offset + n * k) // 256) * 256
            if not (one_a and index):
                if at_result + m * n > len(self.results):
                    at_result = 0
                c = self.results[at_result : at_result + m * n].view(m, n)
                at_result = -(-(at_result + m * n) // 128) * 128
            out.append((a, b, c))
        return out


def time_product(pool, m, n, k, sets, one_a):
    """Return seconds per product, the median of five replays after one to warm up."""
    scale = torch.ones((), device="cuda")
    operands = pool.operands(m, n, k, sets, one_a)

    def multiply():
        for a, b, c in operands:
            if pool.dtype == "bf16":
                torch.mm(a, b.t(), out=c)
            else:
                torch._scaled_mm(
                    a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True, out=c
                )

    guess = 2e-6 + 2 * m * n * k / 6e14
    rounds = max(1, min(200, math.ceil(40 / sets), math.ceil(2e-3 / (guess * sets))))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        multiply()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(rounds):
            multiply()
    times = []
    with torch.cuda.stream(stream):
        graph.replay()
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3 / (rounds * sets))
            if guess * rounds * sets > 0.05 and len(times) == 2:
                break
    return sorted(times)[len(times) // 2]


def main(out, seed, count, seconds, dtypes="bf16,fp8"):
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    began, rows = time.perf_counter(), []
    name = torch.cuda.get_device_name()
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"], capture_output=True, text=True
    ).stdout.strip()
    shapes = draws(int(seed), int(count))
    dtypes = dtypes.split(",")
    for place, dtype in enumerate(dtypes):
        pool = Pool(dtype)
        limit = float(seconds) * (place + 1) / len(dtypes)
        for m, n, k in shapes:
            if time.perf_counter() - began > limit:
                break
            size = SIZE[dtype]
            moved = size * (m * k + n * k) + 2 * m * n
            try:
                cold = time_product(pool, m, n, k, max(1, min(4096, math.ceil(COLD_BYTES / moved))), False)
                sets = max(1, min(5, math.ceil(L2_BYTES / (n * k * size))))
                rotated = time_product(pool, m, n, k, sets, True)
            except Exception as error:  # a shape that the library refuses
                rows.append([dtype, m, n, k, None, None, str(error)[:80]])
                torch.cuda.synchronize()
                continue
            rows.append([dtype, m, n, k, cold, sets, rotated])
        del pool
        torch.cuda.empty_cache()
    result = {"card": name, "driver": driver, "torch": torch.__version__, "seed": int(seed), "rows": rows}
    Path(out).write_text(json.dumps(result), encoding="utf-8")
    print(name, driver, len(rows), "rows", round(time.perf_counter() - began), "s")


main(*sys.argv[1:])
