"""Row normalisation, and RMSNorm with the product that follows it: our kernels and those of PyTorch.

All read the same inputs, cold (rotated through several times the L2), in CUDA graphs in which each kernel waits for the
one before it. `unfused_graph`, our kernel for the norm and then cuBLASLt, counts as a peer of the fused kernel.
"""

import contextlib
import math
from collections.abc import Callable

import timing

from roofline.operators.base import Case, Operator, count_rotation_copies
from roofline.operators.rmsnorm_matmul.operator import NORM_EPS, RmsNormMatmul
from roofline.operators.row_norm.operator import RowNorm

ROWS = ((1024, 128), (4096, 256), (8192, 512), (16384, 1024))
BATCHES, HIDDEN, DTYPES = (1, 8, 32, 128), (2048, 4096, 8192), ("fp16", "bf16")
SHORT = 5  # every fifth cell
REPLAYS, BUDGET_S = 40, 0.03
FEWEST_IN_GRAPH = 24  # applications: the launch of the graph is shared among them
OURS = {RowNorm.name: "welford_graph", RmsNormMatmul.name: "fused_graph"}
AUTOTUNED = ("bf16", 4096)  # dtype and hidden size of the products that max-autotune compiles: each takes long
TOLERANCE = 0.02


def cells(short: bool) -> list[tuple[Operator, Case]]:
    found = [(RowNorm(), Case({"rows": rows, "columns": columns}, "fp32")) for rows, columns in ROWS]
    found += [
        (RmsNormMatmul(), Case({"batch": batch, "hidden": hidden}, dtype))
        for dtype in DTYPES
        for hidden in HIDDEN
        for batch in BATCHES
    ]
    return found[::SHORT] if short else found


def ours(operator: Operator, device, case: Case, shared: dict, copies: list[dict]) -> dict[str, timing.Way]:
    """Our graphs by name, each checked against float64 first."""
    found = {}
    for kind in operator.implementations_on("gpu"):
        if kind.graph:
            cell = kind.make_prepared(operator, device, case, shared, copies)
            scope = "waiting" if "waiting" in cell.scopes else None
            operator.check(cell, scope)
            # Row normalisation has no such scope, and overlaps if the card can.
            with contextlib.nullcontext() if scope else timing.without_overlap(device):
                found[kind.name] = timing.Way(cell.step(scope), cell.per_call, cell)
    return found


def formulas(torch, operator: Operator, case: Case, shared: dict) -> dict[str, Callable]:
    """What PyTorch computes of a copy of the inputs: by its own functions, as one writes it, and by its compiler."""
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

        by_compiler = {"torch.compile": compiled(as_written), "max-autotune": autotuned(as_written)}
        return {"F.layer_norm": layer_norm, "PyTorch eager": as_written, **by_compiler}

    g = torch.from_dlpack(shared["g"])

    def pair(x, w):
        return functional.linear(functional.rms_norm(x, g.shape, g, NORM_EPS), w)

    found = {"PyTorch eager": pair, "torch.compile": compiled(pair)}
    if (case.dtype, case.shape["hidden"]) == AUTOTUNED:
        found["max-autotune"] = autotuned(pair)
    return found


def of_pytorch(torch, device, operator: Operator, case: Case, shared: dict, copies: list[dict]):
    """(PyTorch's graphs by name, why one is missing). A graph goes through all copies."""
    applications = math.ceil(FEWEST_IN_GRAPH / len(copies)) * len(copies)
    stream = torch.cuda.ExternalStream(device.stream.ptr)
    names = [name for name in ("x", "w") if name in copies[0]]
    inputs = [[torch.from_dlpack(copy[name]) for name in names] for copy in copies]
    expected = torch.from_dlpack(copies[0]["y"])
    found, missing = {}, {}
    torch._dynamo.reset()  # its compiler gives up on a function after a few shapes
    for name, function in formulas(torch, operator, case, shared).items():
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                timing.require_alike(expected, function(*inputs[0]), TOLERANCE)
                graph, results = torch.cuda.CUDAGraph(), []
                with torch.cuda.graph(graph, stream=stream):
                    for place in range(applications):  # each with its own result, as ours: one would stay in L2
                        results.append(function(*inputs[place % len(inputs)]))
            found[name] = timing.Way(timing.replaying(torch, stream, graph, results), applications)
        except Exception as error:  # a compiler may raise anything
            missing[name] = timing.first_line(error)
    return found, missing


def compare(torch, device, operator: Operator, case: Case) -> dict:
    shared = operator.shared_inputs(device, case, 1)
    one = operator.rotated_inputs(device, case, 2, 1)[0]
    count = count_rotation_copies(sum(array.nbytes for array in one.values()), device.last_level_cache_bytes)
    kinds = [kind for kind in operator.implementations_on("gpu") if kind.graph]
    copies = operator.rotated_inputs(device, case, 2, max(kind.copies_wanted(case, count) for kind in kinds))
    ways = ours(operator, device, case, shared, copies)
    theirs, missing = of_pytorch(torch, device, operator, case, shared, copies)
    times = timing.fastest_of_turns(ways | theirs, lambda way: timing.seconds(device, way, 1, REPLAYS, BUDGET_S))
    return {
        "operator": operator.name,
        "dtype": case.dtype,
        **case.shape,
        "bytes": operator.bytes(case),
        "ours_s": times.pop(OURS[operator.name]),
        "peers_s": times,
        "why_not": missing,
    }


def main() -> None:
    given = timing.parser(__doc__).parse_args()
    torch = timing.pytorch()
    device = timing.our_device(torch)
    results = timing.Results(torch, given.output, uuid=device.identity.uuid)
    for operator, case in cells(given.short):
        results.add(compare(torch, device, operator, case))
        torch.cuda.empty_cache()
        device.xp.get_default_memory_pool().free_all_blocks()
    results.close(("operator", "dtype", "rows", "columns", "batch", "hidden"), lambda row: row["operator"])


if __name__ == "__main__":
    main()
