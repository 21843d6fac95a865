"""What Nsight Compute counts of the walls' kernels, in a process of its own, which this module is too when run."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from roofline.core.instructions import sectors_per_request, wavefronts_per_request
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
TIMEOUT_S = 300


class NotCounted(Exception):
    """Why nothing was counted, in one line."""


def profile(ncu: str, device: str, report: Path) -> None:
    """Leave Nsight Compute's report of one launch of every wall. Raises NotCounted with what it said."""
    library = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(library)}
    options = ["--clock-control", "none", "--kernel-name", f"regex:^({'|'.join(KERNELS.values())})$"]
    options += ["--metrics", ",".join(METRICS), "--force-overwrite", "--export", str(report)]
    command = [ncu, *options, sys.executable, "-P", "-m", __name__, device]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCounted(f"{ncu}: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    said = (done.stdout + done.stderr).splitlines()
    errors = [line for line in said if "==ERROR==" in line]
    if done.returncode or errors or not report.exists():
        raise NotCounted((errors or said[-1:] or [f"{ncu} ended with status {done.returncode}"])[0].strip())


def launches(report: Path) -> list[tuple[str, dict[str, float]]]:
    """(kernel, values by metric) in the order of launches. Raises NotCounted for a report that cannot be read."""
    import ncu_report

    try:
        of_process = ncu_report.load_report(str(report)).range_by_idx(0)
        actions = [of_process.action_by_idx(place) for place in range(of_process.num_actions())]
    except Exception as error:  # whatever the library raises for a truncated file
        raise NotCounted(f"{report.name}: {(str(error).splitlines() or [type(error).__name__])[0]}") from None
    found = []
    for action in actions:
        metrics = ((name, action.metric_by_name(name)) for name in METRICS)
        found.append((action.name(), {name: metric.as_double() for name, metric in metrics if metric is not None}))
    return found


def walls() -> list[tuple[str, int]]:
    """Pattern and size of each wall, in the order in which they are launched."""
    sizes = {"stride": STRIDES, "conflict": WAYS, "predication": LANES_ON}
    return [(pattern, of) for pattern, every in sizes.items() for of in every]


def counted(found: Sequence[tuple[str, dict[str, float]]]) -> list[CountedWall]:
    """Each wall's counts. Raises NotCounted where other kernels ran than the walls'."""
    names = [name for name, _ in found]
    if names != [KERNELS[pattern] for pattern, _ in walls()]:
        raise NotCounted(f"{len(names)} kernels were profiled, and {len(walls())} are needed")
    return [_wall(pattern, of, values) for (pattern, of), (_, values) in zip(walls(), found, strict=True)]


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


if __name__ == "__main__":
    from roofline.devices import open_device

    opened = open_device(sys.argv[1])
    kernels = opened.wall_kernels()
    assert [(one.pattern, one.of) for one in kernels] == walls()
    for kernel in kernels:
        kernel.launch()
    opened.synchronize()
