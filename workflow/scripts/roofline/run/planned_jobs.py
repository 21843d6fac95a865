"""The jobs that Snakemake is about to do, and why: the only module that reads `workflow.dag` and `Reason`, of which
Snakemake promises nothing. tests/test_planned_jobs.py fails on a version that has them otherwise."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from roofline.core.formatting import count_words
from roofline.records.files import RESULTS

LONGEST_VALUES = 120  # of changed settings, in columns
MOST_FILES = 2  # that a reason names


class PlannedJob(NamedTuple):
    """A job that a run does."""

    rule: str
    outputs: list[str]
    device: str | None
    reason: str  # in words


def list_planned_jobs(workflow: Any, corrupt: Sequence[str] = ()) -> list[PlannedJob]:
    """Return the jobs that a workflow with a complete DAG has to do, in an order in which they can be done.

    `corrupt` are files that a run sets aside: Snakemake does not know yet that they and what follows is made again.
    """
    dag, planned, also_made = workflow.dag, [], set()
    for job in (job for level in dag.toposorted() for job in sorted(level, key=str)):
        outputs, device = [str(path) for path in job.output], dict(job.wildcards).get("device")
        made_inputs = [path for parent, paths in dag.dependencies[job].items() if parent in also_made for path in paths]
        if dag.needrun(job):
            reason = describe_reason(dag.reason(job))
        else:
            inputs = (path for path in made_inputs if not path.is_ancient)
            reason = _name_files("corrupt output files", set(outputs).intersection(corrupt))
            reason = reason or _name_files("input files updated by another job", inputs)
            also_made |= {job} if reason else set()
        if reason and outputs:
            planned.append(PlannedJob(job.rule.name, outputs, device, reason))
    return planned


def is_complete(workflow: Any) -> bool:
    """Return whether all that was asked for is there; not if an error came before that was known."""
    return workflow.dag is not None and bool(workflow.dag.jobs) and not any(workflow.dag.needrun_jobs())


def makes(workflow: Any, rule: str) -> bool:
    """Return whether a rule is a part of what was asked for, to be done or done before."""
    return any(job.rule.name == rule for job in workflow.dag.jobs)


def describe_reason(reason: Any) -> str:
    """Return why a job is done, from a `Reason` of Snakemake; in Snakemake's words if it has other fields."""
    try:
        if reason.forced:
            return "asked for"
        parts = [
            _name_files("missing output files", reason.missing_output),
            _name_files("incomplete output files", reason.incomplete_output),
            _name_files("updated input files", reason.updated_input - reason.updated_input_run),
            _name_files("input files updated by another job", reason.updated_input_run),
            "other input files" if reason.input_changed else "",
            _name_values(reason.params_changed) if reason.params_changed else "",
        ]
    except AttributeError:
        return str(reason)
    return "; ".join(filter(None, parts)) or str(reason)


def format_plan(jobs: Iterable[PlannedJob]) -> list[str]:
    """Return a line for each job with its reason, then one with the count of each rule."""
    jobs = list(jobs)
    rules = [job.rule for job in jobs]
    totals = ", ".join(f"{rules.count(rule)} {rule}" for rule in dict.fromkeys(rules))
    shown = [f"{job.outputs[0].removeprefix(f'{RESULTS}/')}: {job.reason}" for job in jobs]
    return [*shown, f"{count_words(len(jobs), 'job')}: {totals}"]


def _name_files(why: str, paths: Iterable[Any]) -> str:
    """Return a reason with at most two of its files, without the folders that all share; "" without files."""
    names = [path.rpartition("/roofline/")[2].removeprefix(f"{RESULTS}/") for path in sorted(map(str, paths))]
    more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    return f"{why}: {', '.join(names[:MOST_FILES])}{more}" if names else ""


def _name_values(change: Any) -> str:
    values = f"{', '.join(sorted(change.only_old))} -> {', '.join(sorted(change.only_new))}"
    return f"settings, device or software have changed{f': {values}' if len(values) <= LONGEST_VALUES else ''}"
