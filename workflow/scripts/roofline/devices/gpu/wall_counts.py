"""What Nsight Compute counts of the walls' kernels."""

from collections.abc import Sequence

from roofline.core.model import sectors_per_request, wavefronts_per_request
from roofline.devices.gpu.instructions import LANES_ON, STRIDES, WAYS
from roofline.records.instructions import CountedWall

KERNELS = {"stride": "load_strided", "conflict": "load_conflicting", "predication": "issue_predicated"}
WARP_INSTRUCTIONS, THREADS_ON = "smsp__inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum"
# Of each pattern what a request is, and a transaction.
REQUESTS = {
    "stride": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "conflict": "smsp__inst_executed_op_shared_ld.sum",
}
TRANSACTIONS = {
    "stride": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "conflict": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
}
METRICS = [WARP_INSTRUCTIONS, THREADS_ON, *REQUESTS.values(), *TRANSACTIONS.values()]
BY_CONSTRUCTION = {"stride": sectors_per_request, "conflict": wavefronts_per_request, "predication": int}


def walls() -> list[tuple[str, int]]:
    """Pattern and size of each wall, in the order in which they are launched."""
    sizes = {"stride": STRIDES, "conflict": WAYS, "predication": LANES_ON}
    return [(pattern, of) for pattern, every in sizes.items() for of in every]


NUMBER = len(walls())


def counted(found: Sequence[dict[str, float]]) -> list[CountedWall]:
    """Each wall's counts. Raises ValueError where their number is another."""
    return [_wall(pattern, of, values) for (pattern, of), values in zip(walls(), found, strict=True)]


def _wall(pattern: str, of: int, values: dict[str, float]) -> CountedWall:
    requests, transactions = (values.get(names.get(pattern)) for names in (REQUESTS, TRANSACTIONS))
    warps, threads = values.get(WARP_INSTRUCTIONS), values.get(THREADS_ON)
    over, under = (threads, warps) if pattern == "predication" else (transactions, requests)
    ratio, expected = over / under if over and under else None, BY_CONSTRUCTION[pattern](of)
    return CountedWall(
        pattern=pattern,
        of=of,
        kernel=KERNELS[pattern],
        requests=requests,
        transactions=transactions,
        warp_instructions=warps,
        thread_instructions=threads,
        counted=ratio,
        by_construction=expected,
        apart=ratio / expected - 1 if ratio else None,
    )
