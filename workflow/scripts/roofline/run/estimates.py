"""About how long a run takes: what its jobs took before, and of new ones what their settings allow."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from roofline.core.terms import DEVICE_TRAITS
from roofline.devices import discovery
from roofline.measure.memory_load import LOADED_CEILINGS
from roofline.measure.sustained import MOST_EXTENSION_S
from roofline.plan.settings import Checked
from roofline.run.jobs import job_times
from roofline.run.planned_jobs import PlannedJob

# Estimates in seconds for jobs that have not run here before, from runs on H100 and H200.
START_UP_S, HOST_START_UP_S, OTHER_JOB_S, ENERGY_S = 2.0, 1.0, 0.5, 65.0
FIXED_S = {"device_query": 2.0, "calibration": 5.0, "counters": 8.0, "peak_flops_fma": 3.0, "bandwidth_p2p": 10.0}
FIXED_S |= {"all_reduce": 9.0}
BUDGETS = 3  # time budgets that a measuring job spends
SEARCH_S = 0.5  # at most, of a GPU: the search runs out of candidates


def estimate_jobs(jobs: Iterable[PlannedJob], checked: Checked) -> tuple[float, dict[str, float]]:
    """Return the seconds of a run, whose GPUs measure at the same time, and those of each job by its first output."""
    jobs, earlier, total_s, seconds = list(jobs), read_earlier_times(), 0.0, {}
    devices = {job.device for job in jobs if measures(job.rule, checked)}
    at_once = max(1, len(devices - {"cpu"}))
    for job in jobs:
        output, device = job.outputs[0], job.device or "cpu"
        seconds[output] = earlier.get(output) or estimate_s(job.rule, checked, len(job.outputs), device)
        total_s += seconds[output] / (1 if device == "cpu" or discovery.peer_name(Path(output).stem) else at_once)
    return total_s, seconds


def read_earlier_times() -> dict[str, float]:
    """Return the seconds that the last job of each output took, with the start of its process."""
    seconds = {}
    for output, job in job_times().items():
        elapsed = datetime.fromisoformat(job["ended_at"]) - datetime.fromisoformat(job["started_at"])
        seconds[output] = OTHER_JOB_S + elapsed.total_seconds()
    return seconds


def estimate_s(rule: str, checked: Checked, records: int = 1, device: str = "gpu0") -> float:
    """Estimate the seconds of a job that has not run here before."""
    budget_s, rule = _time_budget_s(rule, checked), rule.partition("_gpu")[0]
    if budget_s is None or rule in FIXED_S:
        return FIXED_S.get(rule, OTHER_JOB_S)
    energy_s, sustained_s = ENERGY_S if checked.config.bandwidth.energy else 0.0, checked.config.peak_flops.sustained_s
    load_s = sustained_s + MOST_EXTENSION_S if sustained_s and device != "cpu" else 0.0
    loads_s = {"bandwidth_hbm": energy_s + len(LOADED_CEILINGS) * load_s, "peak_flops": load_s}
    limit_s = SEARCH_S if rule == "peak_flops" and device != "cpu" else budget_s
    return (
        (START_UP_S if DEVICE_TRAITS[discovery.kind_from_name(device)].accelerator else HOST_START_UP_S)
        + records * BUDGETS * min(budget_s, limit_s)
        + loads_s.get(rule, 0.0)
    )


def measures(rule: str, checked: Checked) -> bool:
    """Return whether the jobs of a rule measure."""
    return rule.partition("_gpu")[0] in FIXED_S or _time_budget_s(rule, checked) is not None


def _time_budget_s(rule: str, checked: Checked) -> float | None:  # None for a rule that does not measure in one
    names = {"bandwidth": "bandwidth", "instructions": "bandwidth", "peak_flops": "peak_flops"}
    section = getattr(checked.config, next((names[prefix] for prefix in names if rule.startswith(prefix)), rule), None)
    return getattr(section, "time_budget_s", None)
