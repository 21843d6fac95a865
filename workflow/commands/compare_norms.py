"""Row normalisation, and RMSNorm with the product that follows it, beside PyTorch's and Transformer Engine's:
`make peers`, where one Python has PyTorch and CuPy. Neither run nor results depend on it.

All go over the same inputs, cold (rotated through several times the L2), as CUDA graphs of as many applications. Ours
is timed in both protocols: each kernel waiting for the one before it, as PyTorch's do, and overlapped with its end. A
time is for one application, the median over replays, of the fastest of three turns that all take one after another.
"""

import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.core import statistics
from roofline.core.formatting import duration, number, percent
from roofline.operators.base import Case, Operator, rotation_copies
from roofline.operators.rmsnorm_matmul import RmsNormMatmul
from roofline.operators.rmsnorm_matmul.counts import EPS
from roofline.operators.rmsnorm_matmul.unfused import FEWEST_IN_GRAPH
from roofline.operators.row_norm import RowNorm

ROWS = ((1024, 128), (4096, 256), (8192, 512), (16384, 1024))
BATCHES, HIDDEN, DTYPES = (1, 8, 32, 128), (2048, 4096, 8192), ("fp16", "bf16")
TURNS, REPLAYS, FEWEST_REPLAYS, SECONDS = 3, 40, 5, 0.03
OURS = {RowNorm.name: "welford_graph", RmsNormMatmul.name: "fused_graph"}
PEERS = {
    "pytorch compiled": "torch.compile",
    "pytorch max-autotune": "max-autotune",
    "pytorch layer_norm": "F.layer_norm",
    "pytorch eager": "PyTorch eager",
    "pytorch transformer engine": "Transformer Engine",
    "unfused_graph waiting": "unfused_graph",
}
AUTOTUNED = ("bf16", 4096)  # dtype and hidden of the products that max-autotune compiles: it takes a while for each
FASTEST = "fastest of them"
SCOPES = ("waiting", "overlapped")
RESULT = Path("results/norms_pytorch.json")


class Way(NamedTuple):
    """A graph that is replayed: its step, and how many applications it holds."""

    step: Callable[[int], object]
    applications: int


def cells() -> list[tuple[Operator, Case]]:
    found = [(RowNorm(), Case({"rows": rows, "columns": columns}, "fp32")) for rows, columns in ROWS]
    return found + [
        (RmsNormMatmul(), Case({"batch": batch, "hidden": hidden}, dtype))
        for dtype in DTYPES
        for hidden in HIDDEN
        for batch in BATCHES
    ]


def ours(operator: Operator, device, case: Case, shared: dict, copies: list[dict]) -> dict[str, Way]:
    """Each implementation that is a graph, in the protocols that it has."""
    found = {}
    for kind in operator.implementations_on("gpu"):
        if not kind.graph:
            continue
        cell = kind(operator, device, case, shared, copies)
        for scope in cell.scopes:
            operator.check(cell, scope)
            found[f"{kind.name} {scope or 'overlapped'}"] = Way(cell.step(scope), cell.per_call)
        if cell.scopes == (None,):  # it overlaps where the card can
            found[f"{kind.name} waiting"] = Way(_without_overlap(device, cell), cell.per_call)
    return found


def _without_overlap(device, cell) -> Callable[[int], object]:
    overlaps, device.overlaps = device.overlaps, False
    try:
        return cell.step(None)
    finally:
        device.overlaps = overlaps


def formula(torch, operator: Operator, case: Case, shared: dict, inputs: list[list]) -> dict[str, Callable]:
    """What PyTorch computes of a copy of the inputs: by its own functions, as one writes it, and by its compiler; and
    Transformer Engine, where it is installed."""
    functional = torch.nn.functional

    def compiled(function):
        return torch.compile(function, dynamic=False)

    def autotuned(function):
        return torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs")

    if operator.name == RowNorm.name:

        def layer_norm(x):
            return functional.layer_norm(x, x.shape[-1:], eps=0)

        def as_written(x):
            return (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)

        by_compiler = {"compiled": compiled(as_written), "max-autotune": autotuned(as_written)}
        return {"layer_norm": layer_norm, "eager": as_written, **by_compiler}

    g = torch.from_dlpack(shared["g"])

    def pair(x, w):
        return functional.linear(functional.rms_norm(x, g.shape, g, EPS), w)

    found = {"eager": pair, "compiled": compiled(pair)}
    if (case.dtype, case.shape["hidden"]) == AUTOTUNED:
        found["max-autotune"] = autotuned(pair)
    if find_spec("transformer_engine"):
        found["transformer engine"] = by_transformer_engine(g, [w for _, w in inputs])
    return found


def by_transformer_engine(g, weights: list) -> Callable:
    """A module for each W, on the same memory; made at the first call."""
    modules: dict[int, Callable] = {}

    def normed_linear(x, w):
        if not modules:
            import transformer_engine.pytorch as te

            for one in weights:
                outputs, hidden = one.shape
                module = te.LayerNormLinear(
                    hidden, outputs, eps=EPS, bias=False, normalization="RMSNorm", params_dtype=one.dtype
                )
                module.layer_norm_weight.data, module.weight.data = g, one
                modules[one.data_ptr()] = module
        return modules[w.data_ptr()](x)

    return normed_linear


def of_pytorch(torch, device, operator: Operator, case: Case, shared: dict, copies: list[dict]):
    """(PyTorch's graphs by name, why one is missing). A graph goes through all copies."""
    applications = math.ceil(FEWEST_IN_GRAPH / len(copies)) * len(copies)
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    names = [name for name in ("x", "w") if name in copies[0]]
    inputs = [[torch.from_dlpack(copy[name]) for name in names] for copy in copies]
    found, missing = {}, {}
    torch._dynamo.reset()  # its compiler gives up on a function after a few shapes
    for name, function in formula(torch, operator, case, shared, inputs).items():
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                require_alike(torch, function(*inputs[0]), copies[0]["y"])
                graph, results = torch.cuda.CUDAGraph(), []
                with torch.cuda.graph(graph, stream=stream):
                    for place in range(applications):  # each with a result of its own, as ours: one would stay in L2
                        results.append(function(*inputs[place % len(inputs)]))
            found[name] = Way(_replaying(torch, stream, graph, results), applications)
        except Exception as error:  # a compiler may raise anything
            missing[name] = peers.first_line(error)
    return found, missing


def _replaying(torch, stream, graph, results: list) -> Callable[[int], None]:
    """A step that replays a graph on a stream, and keeps what it writes to."""

    def replay(index: int) -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    replay.results = results
    return replay


def require_alike(torch, theirs, ours) -> None:
    """Raises ArithmeticError where the results differ by more than rounding."""
    ours = torch.from_dlpack(ours).double()
    apart = float((ours - theirs.double()).norm() / theirs.double().norm())
    if not apart <= 0.02:
        raise ArithmeticError(f"the results are {apart:.1e} apart")


def seconds(device, way: Way) -> float:
    """The median of an application."""
    device.step_times(way.step, 1)
    (one,) = device.step_times(way.step, 1)
    replays = max(FEWEST_REPLAYS, min(REPLAYS, int(SECONDS / one)))
    return statistics.median(device.step_times(way.step, replays)) / way.applications


def compare(torch, device) -> list[tuple]:
    """Of each cell the operator, the case, seconds by way, and why a way is missing."""
    found = []
    for operator, case in cells():
        shared = operator.shared_inputs(device, case, 1)
        one = operator.rotated_inputs(device, case, 2, 1)[0]
        count = rotation_copies(sum(array.nbytes for array in one.values()), device.last_level_cache_bytes)
        kinds = [kind for kind in operator.implementations_on("gpu") if kind.graph]
        count = max(kind.copies_wanted(case, count) for kind in kinds)
        copies = operator.rotated_inputs(device, case, 2, count)
        ways = ours(operator, device, case, shared, copies)
        theirs, missing = of_pytorch(torch, device, operator, case, shared, copies)
        times: dict[str, float] = {}
        for _ in range(TURNS):
            for name, way in {**ways, **{f"pytorch {name}": way for name, way in theirs.items()}}.items():
                times[name] = min(seconds(device, way), times.get(name, math.inf))
        found.append((operator, case, times, missing))
        del ways, theirs, copies, shared, one
        torch.cuda.empty_cache()
        device.xp.get_default_memory_pool().free_all_blocks()
    return found


def row(operator: Operator, case: Case, times: dict[str, float], missing: dict[str, str], roofs: dict) -> dict:
    """A cell, in both protocols of ours: how many times as fast it is as each peer and as the fastest of them, and its
    share of what the memory gives to its mix of accesses."""
    others = {name: seconds for name, seconds in times.items() if name in PEERS}
    fastest = min(others, key=others.get, default=None)
    held = others | ({FASTEST: others[fastest]} if fastest else {})
    mine = {scope: times[way] for scope in SCOPES if (way := f"{OURS[operator.name]} {scope}") in times}
    moved = operator.bytes(case)
    return {
        "operator": operator.name,
        "dtype": case.dtype,
        **case.shape,
        "bytes": moved,
        "seconds": times,
        "why_not": missing,
        "fastest_peer": fastest,
        "ratios": {scope: {name: one / own for name, one in held.items()} for scope, own in mine.items()},
        f"share_of_{operator.mix}": {scope: moved / own / 1e9 / roofs[operator.mix] for scope, own in mine.items()},
    }


def summary(rows: list[dict]) -> dict:
    """Of each operator, and of its largest batch: in both protocols, beside each peer and the fastest of them."""
    groups = {
        "row_norm": [one for one in rows if one["operator"] == "row_norm"],
        "rmsnorm_matmul": [one for one in rows if one["operator"] == "rmsnorm_matmul"],
        "rmsnorm_matmul, batch 128": [one for one in rows if one.get("batch") == max(BATCHES)],
    }
    return {
        name: {scope: beside_peers([one["ratios"].get(scope, {}) for one in group]) for scope in SCOPES}
        for name, group in groups.items()
    }


def beside_peers(cells: list[dict[str, float]]) -> dict[str, dict]:
    """Of the cells that a peer has: their number, how many are slower than it, geometric mean and range."""
    by_peer = {name: [one[name] for one in cells if name in one] for name in (FASTEST, *PEERS)}
    return {
        name: {
            "cells": len(ratios),
            "slower": sum(ratio < 1 for ratio in ratios),
            "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
            "least": min(ratios),
            "most": max(ratios),
        }
        for name, ratios in by_peer.items()
        if ratios
    }


def table(rows: list[dict]) -> str:
    columns = ["operator", "case"]
    columns += [part for scope in SCOPES for part in (f"ours, {scope}", "of memory", "times as fast")]
    lines = [f"| {' | '.join([*columns, *PEERS.values()])} |", "|---" * (len(columns) + len(PEERS)) + "|"]
    for one in rows:
        sizes = (f"{key} {one[key]}" for key in ("rows", "columns", "batch", "hidden") if key in one)
        told = [one["operator"], f"{one['dtype']}, {', '.join(sizes)}"]
        (share,) = (value for key, value in one.items() if key.startswith("share_of_"))
        for scope in SCOPES:
            seconds = one["seconds"].get(f"{OURS[one['operator']]} {scope}")
            ratio = one["ratios"].get(scope, {}).get(FASTEST)
            told += [duration(seconds), percent(share[scope])] if seconds else ["-", "-"]
            told.append(f"{ratio:.2f}" if ratio else "-")
        told += [duration(one["seconds"][peer]) if peer in one["seconds"] else "-" for peer in PEERS]
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def in_words(told: dict, roofs: dict) -> str:
    rates = ", ".join(f"{mix} {number(rate)} GB/s" for mix, rate in roofs.items())
    lines = [
        f"Of memory: of its read, for row_norm of its copy, in this process: {rates}.",
        "Times as fast: as the fastest peer.",
        "",
        "| operator | ours | beside | times as fast, geometric mean | least | most | cells | slower |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, scopes in told.items():
        for scope, peers_of_scope in scopes.items():
            for peer, of in peers_of_scope.items():
                figures = f"{of['geometric_mean']:.2f} | {of['least']:.2f} | {of['most']:.2f}"
                figures += f" | {of['cells']} | {of['slower']}"
                lines.append(f"| {name} | {scope} | {PEERS.get(peer, peer)} | {figures} |")
    return "\n".join(lines)


def measured(torch, device) -> tuple[dict, str]:
    """Figures and table; the memory's own rates are timed before and after all cells."""
    before = memory_gb_per_s(device)
    cells = compare(torch, device)
    roofs = {mix: max(rate, before[mix]) for mix, rate in memory_gb_per_s(device).items()}
    rows = [row(*cell, roofs) for cell in cells]
    told = summary(rows)
    text = f"{in_words(told, roofs)}\n\n{table(rows)}"
    return {"memory_gb_per_s": roofs, **told, "by_peer": counted(rows), "rows": rows}, text


def counted(rows: list[dict]) -> dict:
    """Of each peer in how many cells it was timed, and why not in others."""
    return peers.counted(
        (
            [words for name, words in PEERS.items() if name in one["seconds"]],
            {PEERS[f"pytorch {name}"]: why for name, why in one["why_not"].items()},
        )
        for one in rows
    )


def memory_gb_per_s(device) -> dict[str, float]:
    found = {mix: peers.memory_gb_per_s(device, mix) for mix in ("read", "copy")}
    device.xp.get_default_memory_pool().free_all_blocks()
    return found


def main() -> str | None:
    return peers.with_our_kernels(measured, RESULT)


if __name__ == "__main__":
    sys.exit(main())
