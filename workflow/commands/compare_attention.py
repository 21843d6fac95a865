"""Decode attention beside PyTorch's: `make peers`, where one Python has PyTorch and CuPy. Neither run nor
results depend on it.

Both go over the same keys and values, cold (rotated through several times the L2), as CUDA graphs of as many layers,
replayed in turn; PyTorch's figure is the best of the backends of its scaled_dot_product_attention. A cell's time is for
one layer, the median over replays, of the fastest of three turns that both take one after another: as ceilings are,
since a card at its power limit is slower for a moment now and then.
"""

import itertools
import math
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.analysis.attention_peers import COLUMNS, summary, table_rows
from roofline.core import statistics
from roofline.core.dtypes import array_dtype
from roofline.core.formatting import duration, number, percent
from roofline.operators.base import Case, rotation_copies
from roofline.operators.decode_attention import DecodeAttention
from roofline.operators.decode_attention.counts import Shape, cache_bytes
from roofline.operators.decode_attention.fused import FusedGraph
from roofline.report.markdown import table as markdown

BATCHES, SEQ_LENS, DTYPES = (1, 8, 64, 256, 512), (128, 1024, 8192), ("fp16", "bf16", "fp32")
HEADS = ((8, 8, 64), (32, 8, 128))  # query heads, K/V heads, head size
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
LAYERS, LAYERS_OF_LARGE, LARGE_BYTES = 24, 4, 1 << 30  # of a graph
CACHES_SHARE = 0.45  # of the card's free memory; PyTorch copies keys and values for queries that share them
REPLAYS, FEWEST_REPLAYS, SECONDS = 60, 5, 0.08
TURNS = 3
SIZE_CLASSES = (4e9, 1e9, 256e6)  # bytes moved, from which cells are held against that read together
RESULT = Path("results/attention_pytorch.json")


def cell_of(device, shape: Shape, dtype: str, pool, layers: int) -> FusedGraph:
    """A cell whose caches lie in a pool that all cells share: filling tens of GB anew for each would take minutes."""
    case = Case(shape.as_dict(), dtype, params={"layers": layers})
    copies = FusedGraph.copies_wanted(case, rotation_copies(cache_bytes(shape, dtype), device.last_level_cache_bytes))
    items = cache_bytes(shape, dtype) // 2 // pool.itemsize
    of_one = (shape.batch, shape.kv_heads, shape.seq_len, shape.head_size)
    parts = [pool[place * items : (place + 1) * items].reshape(of_one) for place in range(2 * copies)]
    caches = [{"keys": keys, "values": values} for keys, values in zip(parts[::2], parts[1::2], strict=True)]
    query = device.normal((shape.batch, shape.heads, shape.head_size), dtype, seed=1)
    return FusedGraph(DecodeAttention(), device, case, {"query": query, "hidden": None}, caches)


def cells():
    for (heads, kv_heads, head_size), dtype in itertools.product(HEADS, DTYPES):
        for batch, seq_len in itertools.product(BATCHES, SEQ_LENS):
            yield Shape(batch, heads, kv_heads, head_size, seq_len), dtype


def replayed(device, launch, count: int, layers: int, seconds: float) -> float:
    """Median seconds a layer of graphs replayed one after another."""
    device.step_times(launch, count)
    (one,) = device.step_times(launch, 1)
    replays = max(FEWEST_REPLAYS, min(REPLAYS, int(seconds / one)))
    return statistics.median(device.step_times(launch, replays)) / layers


def of_pytorch(torch, device, cell, layers: int, backends) -> tuple[dict[str, float], dict[str, str]]:
    """(seconds a layer by backend, why a backend has none)."""
    shape = cell.shape
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    query = torch.from_dlpack(cell.query).view(shape.batch, shape.heads, 1, shape.head_size)
    caches = [tuple(map(torch.from_dlpack, pair)) for pair in cell.caches]
    found, missing = {}, {}

    def attend(place: int):
        keys, values = caches[place % len(caches)]
        options = {"enable_gqa": True} if shape.group > 1 else {}
        return torch.nn.functional.scaled_dot_product_attention(query, keys, values, **options)

    for backend in backends:
        graphs = []
        try:
            allowed = torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend))
            with allowed, torch.cuda.stream(stream):
                _require_alike(torch, attend(0), cell)
                for start in range(0, math.lcm(len(caches), layers), layers):
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        for place in range(start, start + layers):
                            attend(place)
                    graphs.append(graph)
                found[backend] = replayed(
                    device, lambda i, graphs=graphs: graphs[i % len(graphs)].replay(), len(graphs), layers, SECONDS
                )
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
            missing[backend] = str(error).strip().splitlines()[0][:100]
        graphs.clear()
        torch.cuda.empty_cache()
    return found, missing


def _require_alike(torch, theirs, cell) -> None:
    """Raises ArithmeticError where ours and PyTorch's results differ by more than rounding."""
    cell._launching(cell.kernel, cell.division.blocks, cell.division.shared_bytes)(0)
    ours = torch.from_dlpack(cell.out).view_as(theirs).double()
    apart = float((ours - theirs.double()).norm() / theirs.double().norm())
    if not apart <= 4 * cell.tolerance[cell.dtype]:
        raise ArithmeticError(f"{cell.shape} {cell.dtype}: results are {apart:.1e} apart")


def compare(torch, device) -> list[dict]:
    rows, pool = [], None
    free = device.xp.cuda.runtime.memGetInfo()[0]
    for shape, dtype in sorted(cells(), key=lambda cell: DTYPES.index(cell[1])):
        moved = cache_bytes(shape, dtype)
        layers = LAYERS_OF_LARGE if moved > LARGE_BYTES else LAYERS
        copies = rotation_copies(moved, device.last_level_cache_bytes)
        needed = moved * (math.ceil(copies / layers) * layers if copies > layers else copies)
        row = {"dtype": dtype, **asdict(shape), "bytes": moved, "fused_s": None, "apart_s": None}
        row |= {"pytorch_s": {}, "why_not": {}}
        rows.append(row)
        if needed > CACHES_SHARE * free:
            row["why_not"] = {"all": f"{needed / 1e9:.0f} GB of caches"}
            continue
        if pool is None or pool.dtype != array_dtype(dtype):
            pool = None
            device.xp.get_default_memory_pool().free_all_blocks()
            pool = _pool(device, dtype, int(CACHES_SHARE * free))
        cell = cell_of(device, shape, dtype, pool, layers)
        row["plan"] = str(cell.division)
        row |= turns(torch, device, cell, layers)
        best = min(row["pytorch_s"].values(), default=None)
        row["ratio"] = best / row["fused_s"] if best else None
        row["apart_ratio"] = best / row["apart_s"] if best else None
    return rows


def turns(torch, device, cell, layers: int) -> dict:
    """What both take, each the fastest of its turns; of PyTorch's backends the best of the first takes the others."""
    ours, alone, theirs, why_not, backends = [], [], {}, {}, BACKENDS
    for _ in range(TURNS):
        ours.append(replayed(device, cell.step("core"), len(cell.graphs), layers, SECONDS))
        alone.append(apart(device, cell, layers))
        found, missing = of_pytorch(torch, device, cell, layers, backends)
        theirs |= {backend: min(seconds, theirs.get(backend, seconds)) for backend, seconds in found.items()}
        why_not |= missing
        backends = [min(theirs, key=theirs.get)] if theirs else []
    return {"fused_s": min(ours), "apart_s": min(alone), "pytorch_s": theirs, "why_not": why_not}


def apart(device, cell, layers: int) -> float:
    """Seconds a layer where each kernel begins after the one before it has ended, as PyTorch's do."""
    overlaps, device.overlaps = device.overlaps, False
    try:
        graphs = cell._captured(cell.kernel, cell.division.blocks, cell.division.shared_bytes)
    finally:
        device.overlaps = overlaps
    return replayed(device, cell._replaying(graphs), len(graphs), layers, SECONDS)


def _pool(device, dtype: str, size_bytes: int):
    """Normal random numbers over the whole pool: one piece drawn, and copied side by side."""
    xp, kind = device.xp, array_dtype(dtype)
    pool = xp.empty(size_bytes // kind.itemsize, kind)
    piece = device.normal((1 << 27,), dtype, seed=0)
    for start in range(0, pool.size, piece.size):
        part = pool[start : start + piece.size]
        part[...] = piece[: part.size]
    return pool


def shares_of_read(rows: list[dict], read_roof: float) -> dict[str, float | None]:
    """The least share of the read roof that cells attain, from a size on."""
    return {
        f"from_{least / 1e6:.0f}_mb": min(
            (
                row["bytes"] / row["fused_s"] / 1e9 / read_roof
                for row in rows
                if row["fused_s"] and row["bytes"] >= least
            ),
            default=None,
        )
        for least in SIZE_CLASSES
    }


def table(rows: list[dict], read_roof: float) -> str:
    lines = [
        "| dtype | heads | batch | S | MB | fused_graph | GB/s | of read | PyTorch | backend | times as fast | apart |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        heads = f"{row['heads']}/{row['kv_heads']} of {row['head_size']}"
        cell = f"| {row['dtype']} | {heads} | {row['batch']} | {row['seq_len']} | {number(row['bytes'] / 1e6)} |"
        if not row["fused_s"]:
            lines.append(f"{cell} does not fit | | | | | | |")
            continue
        best = min(row["pytorch_s"], key=row["pytorch_s"].get, default=None)
        theirs = "none | | | |"
        if best:
            theirs = f"{duration(row['pytorch_s'][best])} | {best.lower().removesuffix('_attention')} | "
            theirs += f"{row['ratio']:.2f} | {row['apart_ratio']:.2f} |"
        speed = row["bytes"] / row["fused_s"] / 1e9
        share = f"{number(speed)} | {percent(speed / read_roof)}"
        lines.append(f"{cell} {duration(row['fused_s'])} | {share} | {theirs}")
    return "\n".join(lines)


def in_words(found: dict, shares: dict, read_roof: float) -> str:
    """The summary under the table."""
    least = ", ".join(
        f"{percent(share)} {name.replace('_', ' ').replace('mb', 'MB')}" for name, share in shares.items() if share
    )
    return (
        "Times as fast as PyTorch, geometric means with the range:\n\n"
        f"{markdown(COLUMNS, table_rows(found))}\n\n"
        f"Reads of memory reach {number(read_roof)} GB/s, of which cells attain at least: {least}."
    )


def measured(torch, device) -> tuple[dict, str]:
    """Figures and table; the memory's own read is timed before and after all cells."""
    before = peers.memory_gb_per_s(device, "read")
    rows = compare(torch, device)
    device.xp.get_default_memory_pool().free_all_blocks()
    read_roof = max(before, peers.memory_gb_per_s(device, "read"))
    found, shares = summary(rows), shares_of_read(rows, read_roof)
    text = f"{table(rows, read_roof)}\n\n{in_words(found, shares, read_roof)}"
    return {"read_gb_per_s": read_roof, "summary": found, "least_share_of_read": shares, "rows": rows}, text


def main() -> str | None:
    return peers.with_our_kernels(measured, RESULT)


if __name__ == "__main__":
    sys.exit(main())
