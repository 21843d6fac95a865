"""Row normalisation, and RMSNorm with the product that follows it, beside PyTorch's: `make peers`, where one Python has
PyTorch and CuPy. Neither run nor results depend on it.

All go over the same inputs, cold (rotated through several times the L2), as CUDA graphs of as many applications. Ours
is timed in both protocols: each kernel waiting for the one before it, as PyTorch's do, and overlapped with its end. A
time is for one application, the median over replays, of the fastest of three turns that all take one after another.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import peers

from roofline.core import statistics
from roofline.core.formatting import duration
from roofline.operators.base import Case, Operator, rotation_copies
from roofline.operators.rmsnorm_matmul import RmsNormMatmul
from roofline.operators.rmsnorm_matmul.counts import EPS
from roofline.operators.rmsnorm_matmul.unfused import FEWEST_IN_GRAPH
from roofline.operators.row_norm import RowNorm

ROWS = ((1024, 128), (4096, 256), (8192, 512), (16384, 1024))
BATCHES, HIDDEN, DTYPES = (1, 8, 32, 128), (2048, 4096, 8192), ("fp16", "bf16")
TURNS, REPLAYS, FEWEST_REPLAYS, SECONDS = 3, 40, 5, 0.03
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


def formula(torch, operator: Operator, shared: dict) -> dict[str, Callable]:
    """What PyTorch computes of a copy of the inputs: by its own functions, and by its compiler."""
    functional = torch.nn.functional
    if operator.name == RowNorm.name:

        def by_functions(x):
            return functional.layer_norm(x, x.shape[-1:], eps=0)

        def as_written(x):
            return (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)

        return {"eager": by_functions, "compiled": torch.compile(as_written, dynamic=False)}

    g = torch.from_dlpack(shared["g"])

    def pair(x, w):
        return functional.linear(functional.rms_norm(x, g.shape, g, EPS), w)

    return {"eager": pair, "compiled": torch.compile(pair, dynamic=False)}


def of_pytorch(torch, device, operator: Operator, shared: dict, copies: list[dict]):
    """(PyTorch's graphs by name, why one is missing). A graph goes through all copies."""
    applications = math.ceil(FEWEST_IN_GRAPH / len(copies)) * len(copies)
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    names = [name for name in ("x", "w") if name in copies[0]]
    inputs = [[torch.from_dlpack(copy[name]) for name in names] for copy in copies]
    found, missing = {}, {}
    torch._dynamo.reset()  # its compiler gives up on a function after a few shapes
    for name, function in formula(torch, operator, shared).items():
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                require_alike(torch, function(*inputs[0]), copies[0]["y"])
                graph, results = torch.cuda.CUDAGraph(), []
                with torch.cuda.graph(graph, stream=stream):
                    for place in range(applications):  # each with a result of its own, as ours: one would stay in L2
                        results.append(function(*inputs[place % len(inputs)]))
            found[name] = Way(_replaying(torch, stream, graph, results), applications)
        except Exception as error:  # a compiler may raise anything
            missing[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
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


def compare(torch, device) -> list[dict]:
    rows = []
    for operator, case in cells():
        shared = operator.shared_inputs(device, case, 1)
        one = operator.rotated_inputs(device, case, 2, 1)[0]
        count = rotation_copies(sum(array.nbytes for array in one.values()), device.last_level_cache_bytes)
        kinds = [kind for kind in operator.implementations_on("gpu") if kind.graph]
        count = max(kind.copies_wanted(case, count) for kind in kinds)
        copies = operator.rotated_inputs(device, case, 2, count)
        ways = ours(operator, device, case, shared, copies)
        theirs, missing = of_pytorch(torch, device, operator, shared, copies)
        times: dict[str, float] = {}
        for _ in range(TURNS):
            for name, way in {**ways, **{f"pytorch {name}": way for name, way in theirs.items()}}.items():
                times[name] = min(seconds(device, way), times.get(name, math.inf))
        rows.append(row(operator, case, times, missing))
        del ways, theirs, copies, shared, one
        torch.cuda.empty_cache()
        device.xp.get_default_memory_pool().free_all_blocks()
    return rows


def row(operator: Operator, case: Case, times: dict[str, float], missing: dict[str, str]) -> dict:
    """A cell: `ratio` of the fastest way that is not ours fused to ours, each kernel waiting; `overlapped_ratio` of the
    same where kernels overlap."""
    best = "welford_graph" if operator.name == RowNorm.name else "fused_graph"
    others = {name: one for name, one in times.items() if not name.startswith(best)}
    fastest = min(others, key=others.get, default=None)
    found = {"operator": operator.name, "dtype": case.dtype, **case.shape, "bytes": operator.bytes(case)}
    found |= {"seconds": times, "why_not": missing, "fastest_other": fastest}
    for key, scope in (("ratio", "waiting"), ("overlapped_ratio", "overlapped")):
        mine = times.get(f"{best} {scope}")
        found[key] = others[fastest] / mine if mine and fastest else None
    return found


def summary(rows: list[dict]) -> dict:
    """Of each operator, and of its largest batch: the geometric mean of the ratios and the least of them."""
    groups = {
        "row_norm": [one for one in rows if one["operator"] == "row_norm"],
        "rmsnorm_matmul": [one for one in rows if one["operator"] == "rmsnorm_matmul"],
        "rmsnorm_matmul, batch 128": [one for one in rows if one.get("batch") == max(BATCHES)],
    }
    return {
        name: {key: _mean_and_least([one[key] for one in group if one[key]]) for key in ("ratio", "overlapped_ratio")}
        for name, group in groups.items()
    }


def _mean_and_least(ratios: list[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    return {"geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)), "least": min(ratios)}


def table(rows: list[dict]) -> str:
    lines = [
        "| operator | case | ours, waiting | overlapped | GB/s overlapped | unfused | eager | compiled | times as fast "
        "| overlapped |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        times = one["seconds"]
        best = "welford_graph" if one["operator"] == "row_norm" else "fused_graph"
        sizes = (f"{key} {one[key]}" for key in ("rows", "columns", "batch", "hidden") if key in one)
        told = [f"{best} waiting", f"{best} overlapped", "unfused_graph waiting", "pytorch eager", "pytorch compiled"]
        waiting, overlapped, *others = (duration(times[name]) if name in times else "-" for name in told)
        speed = f"{one['bytes'] / times[told[1]] / 1e9:.0f}" if told[1] in times else "-"
        ratios = (f"{one[key]:.2f}" if one[key] else "-" for key in ("ratio", "overlapped_ratio"))
        cells_of_row = [one["operator"], f"{one['dtype']}, {', '.join(sizes)}", waiting, overlapped, speed]
        lines.append(f"| {' | '.join([*cells_of_row, *others, *ratios])} |")
    return "\n".join(lines)


def in_words(told: dict) -> str:
    lines = []
    for name, group in told.items():
        of_group = [
            f"{words} {group[key]['geometric_mean']:.2f} times as fast as the fastest other (geometric mean; at least "
            f"{group[key]['least']:.2f} times)"
            for key, words in (("ratio", "waiting"), ("overlapped_ratio", "overlapped"))
            if group[key]
        ]
        lines.append(f"{name}: {', '.join(of_group) or 'nothing to compare with'}.")
    return "\n".join(lines)


def measured(torch, device) -> tuple[dict, str]:
    rows = compare(torch, device)
    told = summary(rows)
    return {**told, "rows": rows}, f"{table(rows)}\n\n{in_words(told)}"


def main() -> str | None:
    return peers.with_our_kernels(measured, RESULT)


if __name__ == "__main__":
    sys.exit(main())
