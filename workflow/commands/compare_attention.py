"""Decode attention beside PyTorch's, FlashInfer's and flash-attn's: `make peers`, where one Python has PyTorch and
CuPy, and of the others what is installed. Neither run nor results depend on it.

All go over the same keys and values, cold (rotated through several times the L2), as CUDA graphs of as many layers,
replayed in turn; a peer's figure is the best of its ways: PyTorch's are the backends of its
scaled_dot_product_attention, FlashInfer's sizes of pages and kinds of cores. A cell's time is for one layer, the median
over replays, of the fastest of three turns that all take one after another: as ceilings are, since a card at its power
limit is slower for a moment now and then.
"""

import importlib
import itertools
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.analysis.attention_peers import COLUMNS, PYTORCH, beside, summaries, summary, table_rows
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
PAGES = (16, 64)  # tokens of FlashInfer's pages
WORKSPACE_BYTES = 1 << 29  # of FlashInfer: partial results of split sequences
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


# What makes of a cell's query and caches a function that attends over the cache at a place.
Maker = Callable[[object, list[tuple]], Callable[[int], object]]


def makers(torch, shape: Shape, dtype: str) -> dict[tuple[str, str], Maker]:
    """Every way of every peer that is installed, by (peer, way)."""
    found = {(PYTORCH, backend): by_sdpa(torch, shape, backend) for backend in BACKENDS}
    if find_spec("flashinfer"):
        # Its tensor cores are for queries that share keys.
        for page, tensor_cores in itertools.product(PAGES, (False, True) if shape.group > 1 else (False,)):
            way = f"pages of {page}{', tensor cores' if tensor_cores else ''}"
            found["FlashInfer", way] = by_flashinfer(torch, shape, dtype, page, tensor_cores)
    if find_spec("flash_attn"):
        found["flash-attn", "flash_attn_with_kvcache"] = by_flash_attn(torch, shape)
    return found


def by_sdpa(torch, shape: Shape, backend: str) -> Maker:
    options = {"enable_gqa": True} if shape.group > 1 else {}

    def make(query, caches):
        query = query.view(shape.batch, shape.heads, 1, shape.head_size)
        allowed = getattr(torch.nn.attention.SDPBackend, backend)

        def attend(place: int):
            with torch.nn.attention.sdpa_kernel(allowed):
                return torch.nn.functional.scaled_dot_product_attention(query, *caches[place], **options)

        return attend

    return make


def by_flashinfer(torch, shape: Shape, dtype: str, page: int, tensor_cores: bool) -> Maker:
    """Over the caches as they lie: a page is `page` tokens of a head, and the next head's lie a sequence further."""
    pages = shape.seq_len // page
    a_sequence = shape.kv_heads * pages

    def paged(cache):
        sizes = ((shape.batch - 1) * a_sequence + pages, shape.kv_heads, page, shape.head_size)
        return cache.as_strided(sizes, (page * shape.head_size, shape.seq_len * shape.head_size, shape.head_size, 1))

    def make(query, caches):
        if dtype == "fp32":
            raise ValueError("16 bits only")
        wrapper = planned(query.dtype)
        query = query.view(shape.batch, shape.heads, shape.head_size)
        views = [tuple(map(paged, pair)) for pair in caches]
        return lambda place: wrapper.run(query, views[place])

    def planned(kind):
        import flashinfer

        sequences = torch.arange(shape.batch, device="cuda", dtype=torch.int32) * a_sequence
        indices = (sequences[:, None] + torch.arange(pages, device="cuda", dtype=torch.int32)).flatten()
        starts = torch.arange(shape.batch + 1, dtype=torch.int32) * pages
        last = torch.full((shape.batch,), page, dtype=torch.int32)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda"),
            "HND",
            use_cuda_graph=True,
            use_tensor_cores=tensor_cores,
            paged_kv_indptr_buffer=starts.cuda(),
            paged_kv_indices_buffer=indices.clone(),
            paged_kv_last_page_len_buffer=last.cuda(),
        )
        heads = (shape.heads, shape.kv_heads, shape.head_size)
        wrapper.plan(starts, indices, last, *heads, page, q_data_type=kind, kv_data_type=kind)
        return wrapper

    make.planned = planned
    return make


def by_flash_attn(torch, shape: Shape) -> Maker:
    def make(query, caches):
        from flash_attn import flash_attn_with_kvcache

        query = query.view(shape.batch, 1, shape.heads, shape.head_size)
        views = [tuple(cache.transpose(1, 2) for cache in pair) for pair in caches]
        lengths = torch.full((shape.batch,), shape.seq_len, dtype=torch.int32, device="cuda")
        return lambda place: flash_attn_with_kvcache(query, *views[place], cache_seqlens=lengths)

    return make


def refusals(torch) -> dict[str, str]:
    """Why a peer that is installed is left out of all cells. FlashInfer compiles its modules at the first use, which
    takes half a minute: here all at once, before anything is timed; one that fails would be tried again in every cell.
    """
    if not find_spec("flashinfer"):
        return {}
    wanted = [
        (by_flashinfer(torch, Shape(1, heads, kv_heads, head_size, 64), dtype, 64, tensor_cores), kind)
        for (heads, kv_heads, head_size) in HEADS
        for dtype, kind in (("fp16", torch.float16), ("bf16", torch.bfloat16))
        for tensor_cores in ((False, True) if heads > kv_heads else (False,))
    ]
    try:
        importlib.import_module("flashinfer")  # before the threads do
        with ThreadPoolExecutor(len(wanted)) as pool:
            for built in [pool.submit(maker.planned, kind) for maker, kind in wanted]:
                built.result()
    except Exception as error:  # a compiler may raise anything
        print(f"FlashInfer: {str(error)[-3000:]}", file=sys.stderr, flush=True)
        return {"FlashInfer": peers.first_line(error)}
    return {}


def of_peers(torch, device, cell, layers: int, ways: dict[tuple[str, str], Maker]):
    """(seconds a layer by (peer, way), why a way has none)."""
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    query = torch.from_dlpack(cell.query)
    caches = [tuple(map(torch.from_dlpack, pair)) for pair in cell.caches]
    found, missing = {}, {}
    for name, maker in ways.items():
        graphs = []
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                attend = maker(query, caches)
                _require_alike(torch, attend(0), cell)
                for start in range(0, math.lcm(len(caches), layers), layers):
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        for place in range(start, start + layers):
                            attend(place % len(caches))
                    graphs.append(graph)
                found[name] = replayed(
                    device, lambda i, graphs=graphs: graphs[i % len(graphs)].replay(), len(graphs), layers, SECONDS
                )
        except Exception as error:  # a peer may raise anything
            missing[name] = peers.first_line(error)
        attend = graph = None
        graphs.clear()
        torch.cuda.empty_cache()
    return found, missing


def _require_alike(torch, theirs, cell) -> None:
    """Raises ArithmeticError where ours and PyTorch's results differ by more than rounding."""
    cell._launching(cell.kernel, cell.division.blocks, cell.division.shared_bytes)(0)
    ours = torch.from_dlpack(cell.out).view_as(theirs).double()
    apart = float((ours - theirs.double()).norm() / theirs.double().norm())
    if not apart <= 4 * cell.tolerance[cell.dtype]:
        raise ArithmeticError(f"the results are {apart:.1e} apart")


def compare(torch, device) -> list[dict]:
    rows, pool = [], None
    refused = refusals(torch)
    free = device.xp.cuda.runtime.memGetInfo()[0]
    for shape, dtype in sorted(cells(), key=lambda cell: DTYPES.index(cell[1])):
        moved = cache_bytes(shape, dtype)
        layers = LAYERS_OF_LARGE if moved > LARGE_BYTES else LAYERS
        copies = rotation_copies(moved, device.last_level_cache_bytes)
        needed = moved * (math.ceil(copies / layers) * layers if copies > layers else copies)
        row = {"dtype": dtype, **asdict(shape), "bytes": moved, "fused_s": None, "apart_s": None}
        row |= {"pytorch_s": {}, "peers_s": {}, "why_not": {}}
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
        row |= turns(torch, device, cell, layers, refused)
        row |= {key: beside(row, PYTORCH)[key] for key in ("ratio", "apart_ratio")}
    return rows


def turns(torch, device, cell, layers: int, refused: dict[str, str]) -> dict:
    """What all take, each the fastest of its turns; of a peer's ways the best of the first takes the others."""
    ours, alone, why_not = [], [], {(peer, "every way"): why for peer, why in refused.items()}
    theirs: dict[tuple[str, str], float] = {}
    ways = {way: make for way, make in makers(torch, cell.shape, cell.dtype).items() if way[0] not in refused}
    for _ in range(TURNS):
        ours.append(replayed(device, cell.step("core"), len(cell.graphs), layers, SECONDS))
        alone.append(apart(device, cell, layers))
        found, missing = of_peers(torch, device, cell, layers, ways)
        theirs |= {way: min(seconds, theirs.get(way, seconds)) for way, seconds in found.items()}
        why_not |= missing
        ways = {way: ways[way] for way in fastest_ways(theirs)}
    return {"fused_s": min(ours), "apart_s": min(alone), **by_peer_of(theirs, why_not)}


def fastest_ways(theirs: dict[tuple[str, str], float]) -> list[tuple[str, str]]:
    """Of each peer."""
    peers_of = dict.fromkeys(peer for peer, _ in theirs)
    return [min((way for way in theirs if way[0] == peer), key=theirs.get) for peer in peers_of]


def by_peer_of(theirs: dict[tuple[str, str], float], why_not: dict[tuple[str, str], str]) -> dict:
    """As a row has them: PyTorch's seconds by backend, the others' by peer and way."""
    others: dict[str, dict[str, float]] = {}
    for (peer, way), seconds in theirs.items():
        others.setdefault(peer, {})[way] = seconds
    told = {way if peer == PYTORCH else f"{peer}, {way}": why for (peer, way), why in why_not.items()}
    return {"pytorch_s": others.pop(PYTORCH, {}), "peers_s": others, "why_not": told}


def counted(rows: list[dict]) -> dict:
    """Of each peer in how many cells it was timed, and why not in others: what its first way raised."""
    cells = []
    for row in rows:
        ran = {peer: times for peer, times in {PYTORCH: row["pytorch_s"], **row["peers_s"]}.items() if times}
        missing: dict[str, str] = {}
        for way, why in row["why_not"].items():
            named = ["FlashInfer", "flash-attn", PYTORCH] if way == "all" else [way.split(",")[0]]
            for peer in named:
                missing.setdefault(PYTORCH if peer in BACKENDS else peer, why)
        cells.append((ran, {peer: why for peer, why in missing.items() if peer not in ran}))
    return peers.counted(cells)


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
    others = list(dict.fromkeys(peer for row in rows for peer in row.get("peers_s", {})))
    columns = ["dtype", "heads", "batch", "S", "MB", "fused_graph", "GB/s", "of read"]
    for peer in (PYTORCH, *others):
        columns += [peer, "backend" if peer == PYTORCH else "way", "times as fast", "apart"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        told = [row["dtype"], f"{row['heads']}/{row['kv_heads']} of {row['head_size']}"]
        told += [str(row["batch"]), str(row["seq_len"]), number(row["bytes"] / 1e6)]
        if row["fused_s"]:
            speed = row["bytes"] / row["fused_s"] / 1e9
            told += [duration(row["fused_s"]), number(speed), percent(speed / read_roof)]
            for peer in (PYTORCH, *others):
                told += of_peer(beside(row, peer))
        else:
            told.append("does not fit")
        lines.append(f"| {' | '.join(told)} |" + " |" * (len(columns) - len(told)))
    return "\n".join(lines)


def of_peer(row: dict) -> list[str]:
    """A peer's columns of a cell."""
    best = min(row["pytorch_s"], key=row["pytorch_s"].get, default=None)
    if not best:
        return ["none", "-", "-", "-"]
    way = best.lower().removesuffix("_attention")
    return [duration(row["pytorch_s"][best]), way, f"{row['ratio']:.2f}", f"{row['apart_ratio']:.2f}"]


def in_words(found: dict[str, dict], shares: dict, read_roof: float) -> str:
    """The summary above the table, `found` by peer."""
    least = ", ".join(
        f"{percent(share)} {name.replace('_', ' ').replace('mb', 'MB')}" for name, share in shares.items() if share
    )
    parts = [
        f"Times as fast as {peer}, geometric means with the range:\n\n{markdown(COLUMNS, table_rows(of_peer))}"
        for peer, of_peer in found.items()
    ]
    parts.append(f"Reads of memory reach {number(read_roof)} GB/s, of which cells attain at least: {least}.")
    return "\n\n".join(parts)


def measured(torch, device) -> tuple[dict, str]:
    """Figures and table; the memory's own read is timed before and after all cells."""
    before = peers.memory_gb_per_s(device, "read")
    rows = compare(torch, device)
    device.xp.get_default_memory_pool().free_all_blocks()
    read_roof = max(before, peers.memory_gb_per_s(device, "read"))
    found, shares = summaries(rows), shares_of_read(rows, read_roof)
    text = f"{in_words(found, shares, read_roof)}\n\n{table(rows, read_roof)}"
    known = {"read_gb_per_s": read_roof, "summary": summary(rows), "summaries": found, "least_share_of_read": shares}
    return {**known, "by_peer": counted(rows), "rows": rows}, text


def main() -> str | None:
    return peers.with_our_kernels(measured, RESULT)


if __name__ == "__main__":
    sys.exit(main())
