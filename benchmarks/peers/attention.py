"""Decode attention: our fused kernel, scaled_dot_product_attention of PyTorch, and the batch decode of FlashInfer.

All read the same keys and values, cold (rotated through several times the L2), in CUDA graphs of 24 layers (4 of large
cells) in which each kernel waits for the one before it. FlashInfer takes part if it is installed. The figure of a peer
is the best of its ways: backends of PyTorch, page sizes and kinds of cores of FlashInfer. PyTorch has no attention over
FP8 keys and values: it widens them first. FlashInfer has no scale for each head: it runs without, ours with them.
"""

import importlib
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec

import timing

from roofline.operators.base import Case, count_rotation_copies
from roofline.operators.decode_attention.attention_arithmetic import FP8, AttentionShape, kv_cache_bytes, query_dtype
from roofline.operators.decode_attention.fused_attention import FusedAttentionGraph
from roofline.operators.decode_attention.operator import DecodeAttention

BATCHES, SEQ_LENS, DTYPES = (1, 8, 64, 256, 512), (128, 1024, 8192), ("fp16", "bf16", FP8, "fp32")
HEADS = ((8, 8, 64), (32, 8, 128))  # query heads, K/V heads, head size
SHORT = 8  # every eighth cell
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
PAGES = (16, 64)  # tokens of a page of FlashInfer
WORKSPACE_BYTES = 1 << 29  # of FlashInfer: partial results of split sequences
LAYERS, LAYERS_OF_LARGE, LARGE_BYTES = 24, 4, 1 << 30  # of a graph
CACHES_SHARE = 0.45  # of the free memory of the card; PyTorch copies keys and values for queries that share them
REPLAYS, BUDGET_S = 60, 0.08

# What makes, of a query and the caches, a function that attends over the cache at a place.
Maker = Callable[[object, list[tuple]], Callable[[int], object]]


def cells(short: bool) -> list[tuple[AttentionShape, str]]:
    found = [
        (AttentionShape(batch, *heads, seq_len), dtype)
        for dtype, heads, batch, seq_len in itertools.product(DTYPES, HEADS, BATCHES, SEQ_LENS)
    ]
    return found[::SHORT] if short else found


def cell_of(device, shape: AttentionShape, dtype: str, pool, layers: int) -> FusedAttentionGraph:
    """A cell whose caches lie in a pool that all cells share: filling tens of GB for each would take minutes."""
    case = Case(shape.as_dict(), dtype, params={"layers": layers})
    copies = FusedAttentionGraph.copies_wanted(
        case, count_rotation_copies(kv_cache_bytes(shape, dtype), device.last_level_cache_bytes)
    )
    of_one = (shape.batch, shape.kv_heads, shape.seq_len, shape.head_size)
    items = math.prod(of_one)
    parts = [pool[place * items : (place + 1) * items].reshape(of_one) for place in range(2 * copies)]
    caches = [{"keys": keys, "values": values} for keys, values in zip(parts[::2], parts[1::2], strict=True)]
    if dtype == FP8:
        ones = device.xp.ones(of_one[:2], "float32")
        caches = [cache | {"keys_scales": ones, "values_scales": ones} for cache in caches]
    query = device.normal((shape.batch, shape.heads, shape.head_size), query_dtype(dtype), seed=1)
    return FusedAttentionGraph.make_prepared(DecodeAttention(), device, case, {"query": query, "hidden": None}, caches)


def pool_of(device, dtype: str, size_bytes: int):
    """Normal random numbers: one piece drawn, and copied over the whole pool."""
    piece = device.normal((1 << 27,), dtype, seed=0)
    pool = device.xp.empty(size_bytes // piece.itemsize, piece.dtype)
    for start in range(0, pool.size, piece.size):
        part = pool[start : start + piece.size]
        part[...] = piece[: part.size]
    return pool


def makers(torch, shape: AttentionShape, dtype: str, refused: dict[str, str]) -> dict[str, Maker]:
    """Every way of every peer that is installed, by "PEER, WAY"."""
    found = {f"PyTorch, {backend.lower()}": by_sdpa(torch, shape, backend) for backend in BACKENDS}
    if find_spec("flashinfer") and "FlashInfer" not in refused:
        # Its tensor cores are for queries that share keys.
        for page, tensor_cores in itertools.product(PAGES, (False, True) if shape.group > 1 else (False,)):
            way = f"FlashInfer, pages of {page}{' on tensor cores' if tensor_cores else ''}"
            found[way] = by_flashinfer(torch, shape, dtype, page, tensor_cores)
    return found


def by_sdpa(torch, shape: AttentionShape, backend: str) -> Maker:
    options = {"enable_gqa": True} if shape.group > 1 else {}

    def make(query, caches):
        query = query.view(shape.batch, shape.heads, 1, shape.head_size)
        allowed = getattr(torch.nn.attention.SDPBackend, backend)

        def attend(place: int):
            keys, values = (cache.to(query.dtype) for cache in caches[place])  # FP8 alone is widened
            with torch.nn.attention.sdpa_kernel(allowed):
                return torch.nn.functional.scaled_dot_product_attention(query, keys, values, **options)

        return attend

    return make


def by_flashinfer(torch, shape: AttentionShape, dtype: str, page: int, tensor_cores: bool) -> Maker:
    """Over the caches as they lie: a page is `page` tokens of a head, and the next head is a sequence further."""
    pages = shape.seq_len // page
    a_sequence = shape.kv_heads * pages

    def paged(cache):
        sizes = ((shape.batch - 1) * a_sequence + pages, shape.kv_heads, page, shape.head_size)
        return cache.as_strided(sizes, (page * shape.head_size, shape.seq_len * shape.head_size, shape.head_size, 1))

    def make(query, caches):
        if dtype == "fp32":
            raise ValueError("16 bits only")
        wrapper = planned(query.dtype, caches[0][0].dtype)
        query = query.view(shape.batch, shape.heads, shape.head_size)
        views = [tuple(map(paged, pair)) for pair in caches]
        return lambda place: wrapper.run(query, views[place])

    def planned(kind, cached):
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
        wrapper.plan(starts, indices, last, *heads, page, q_data_type=kind, kv_data_type=cached)
        return wrapper

    make.planned = planned
    return make


def refusals(torch) -> dict[str, str]:
    """Why FlashInfer is missing from all cells, if it is. It compiles its modules at the first use, which takes half a
    minute: here all at once, before anything is timed. One that fails would be tried again in every cell."""
    if not find_spec("flashinfer"):
        return {"FlashInfer": "not installed"}
    wanted = [
        (by_flashinfer(torch, AttentionShape(1, *heads, 64), "fp16", 64, tensor_cores), *kinds)
        for heads in HEADS
        for kinds in ((torch.float16,) * 2, (torch.bfloat16,) * 2, (torch.float16, torch.float8_e4m3fn))
        for tensor_cores in ((False, True) if heads[0] > heads[1] else (False,))
    ]
    try:
        importlib.import_module("flashinfer")  # before the threads do
        with ThreadPoolExecutor(len(wanted)) as pool:
            for built in [pool.submit(maker.planned, *kinds) for maker, *kinds in wanted]:
                built.result()
    except Exception as error:  # a compiler may raise anything
        return {"FlashInfer": timing.first_line(error)}
    return {}


def of_peers(
    torch, device, cell: FusedAttentionGraph, ways: dict[str, Maker]
) -> tuple[dict[str, float], dict[str, str]]:
    """(seconds a layer by way, why a way has none)."""
    stream, layers = torch.cuda.ExternalStream(device.stream.ptr), cell.per_call
    query, ours = torch.from_dlpack(cell.query), torch.from_dlpack(cell.out)
    caches = [tuple(map(torch.from_dlpack, pair)) for pair in cell.caches]
    if cell.dtype == FP8:
        caches = [tuple(cache.view(torch.float8_e4m3fn) for cache in pair) for pair in caches]
    found, missing = {}, {}
    for name, maker in ways.items():
        graphs = []
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                attend = maker(query, caches)
                cell.step("core")(0)  # it ends at this cache
                timing.require_alike(ours, attend((layers - 1) % len(caches)), 4 * cell.tolerance[cell.dtype])
                for start in range(0, math.lcm(len(caches), layers), layers):
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=stream):
                        for place in range(start, start + layers):
                            attend(place % len(caches))
                    graphs.append(graph)
                way = timing.Way(lambda index, graphs=graphs: graphs[index % len(graphs)].replay(), layers)
                found[name] = timing.seconds(device, way, len(graphs), REPLAYS, BUDGET_S)
        except Exception as error:  # a peer may raise anything
            missing[name] = timing.first_line(error)
        attend = graph = way = None
        graphs.clear()
        torch.cuda.empty_cache()
    return found, missing


def turns(torch, device, cell: FusedAttentionGraph, refused: dict[str, str]) -> dict:
    """Seconds a layer, each the fastest of its turns. Of each peer the best way of the first turn takes the others."""
    with timing.without_overlap(device):
        own = timing.Way(cell.step("core"), cell.per_call)
    ours, theirs, why_not = [], {}, dict(refused)
    ways = makers(torch, cell.shape, cell.dtype, refused)
    for _ in range(timing.TURNS):
        ours.append(timing.seconds(device, own, len(cell.graphs), REPLAYS, BUDGET_S))
        found, missing = of_peers(torch, device, cell, ways)
        theirs |= {way: min(taken, theirs.get(way, taken)) for way, taken in found.items()}
        why_not |= missing
        ways = {way: ways[way] for way in best_ways(theirs)}
    return {"plan": cell.plan(), "ours_s": min(ours), "peers_s": theirs, "why_not": why_not}


def best_ways(theirs: dict[str, float]) -> list[str]:
    """Of each peer."""
    peers = dict.fromkeys(way.partition(",")[0] for way in theirs)
    return [min((way for way in theirs if way.startswith(f"{peer},")), key=theirs.get) for peer in peers]


def compare(torch, device, short: bool, results: timing.Results) -> None:
    refused, pool, pool_dtype = refusals(torch), None, None
    free = device.xp.cuda.runtime.memGetInfo()[0]
    for shape, dtype in cells(short):
        moved = kv_cache_bytes(shape, dtype)
        layers = LAYERS_OF_LARGE if moved > LARGE_BYTES else LAYERS
        copies = count_rotation_copies(moved, device.last_level_cache_bytes)
        needed = moved * (math.ceil(copies / layers) * layers if copies > layers else copies)
        row = {"dtype": dtype, **shape.as_dict(), "bytes": moved}
        if needed > CACHES_SHARE * free:
            why_not = {"all": f"{needed / 1e9:.0f} GB of caches"}
            results.add(row | {"ours_s": None, "peers_s": {}, "why_not": why_not})
            continue
        if dtype != pool_dtype:
            pool, pool_dtype = None, dtype
            device.xp.get_default_memory_pool().free_all_blocks()
            pool = pool_of(device, dtype, int(CACHES_SHARE * free))
        results.add(row | turns(torch, device, cell_of(device, shape, dtype, pool, layers), refused))


def main() -> None:
    given = timing.parser(__doc__).parse_args()
    torch = timing.pytorch()
    device = timing.our_device(torch)
    version = metadata.version("flashinfer-python") if find_spec("flashinfer") else None
    results = timing.Results(torch, given.output, uuid=device.identity.uuid, flashinfer=version)
    compare(torch, device, given.short, results)
    keys = ("dtype", "heads", "kv_heads", "head_size", "batch", "seq_len")
    results.close(keys, lambda row: row["dtype"] if row["dtype"] in ("fp32", FP8) else "fp16 and bf16")


if __name__ == "__main__":
    main()
