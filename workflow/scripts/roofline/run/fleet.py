"""A fleet's folder: which nodes are measured, by which settings, and what became of each.

plan.json                   the nodes and the settings, made anew whenever `make fleet` is called
nodes/{node}/run1/          where a node measures: the folder of a run; run1.log is what it said
nodes/{node}/run1.tar.gz    the archive of that run; run2 is a second one, to know the spread or to confirm a finding
nodes.json                  what became of each node, for the report
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from snakemake.utils import update_config

from roofline.core.formatting import counted
from roofline.operators.settings import EachOnce, Settings, Whole
from roofline.records.base import Record, read, write
from roofline.records.fleet import Fleet, FleetNode, FleetNodes
from roofline.run import settings, slurm
from roofline.run.folder import CONFIG_FILE

PLAN, NODES = Path("plan.json"), Path("nodes.json")
RUNS = (1, 2)
NEVER_STARTED, ENDED_AT_ONCE = {"DEADLINE"}, "FAILED"  # states of jobs
GPU_PACKAGES = ".venv/installed/cuda1?-*"
SLURM_LOGS = Path(".snakemake/slurm_logs/rule_measure")

RUN = {"devices": "all", "counters": "off"}  # what config/fleet.yaml need not say

Text = Annotated[str, Field(min_length=1)]


def _host_list(text: str) -> str:
    if not re.fullmatch(r"[\w.-]+(\[[\d,-]+\][\w.-]*)*", text):
        raise ValueError(f"{text!r} is no list of hosts; allowed: a name, or names such as gpu[01-16]")
    return text


Hosts = Annotated[Text, AfterValidator(_host_list)]


class FleetSettings(Settings):
    """config/fleet.yaml."""

    nodes: Annotated[list[Hosts], EachOnce] = Field(
        default=[], description="as Slurm names them, such as gpu01 or gpu[01-16]; []: all idle ones of the partition"
    )
    partition: Text | None = Field(default=None, description="null: the cluster's default partition")
    feature: Text | None = Field(default=None, description="of the idle nodes, those that have it alone")
    account: Text | None = Field(default=None, description="null: your default account")
    qos: Text | None = None
    minutes: Whole = Field(default=30, description="time limit per node; Slurm kills runs that exceed it")
    wait_minutes: Whole = Field(default=60, description="a job may wait for its node")
    repeated_nodes: Annotated[int, Field(ge=0)] = Field(
        default=2, description="nodes that are measured twice, so that the spread between runs of one card is known"
    )
    run: dict[str, Any] = Field(
        default=RUN,
        description="what each run has instead of the value in config/config.yaml",
    )


class PlannedNode(Record):
    node: str
    cpus: int
    gpus: int
    unavailable: str | None = Field(description="why no job was submitted to it; null if one was")


class Plan(Record):
    settings: dict[str, Any] = Field(description="of each run, beside the defaults")
    fleet: FleetSettings
    nodes: list[PlannedNode]

    def available(self) -> list[PlannedNode]:
        return [one for one in self.nodes if one.unavailable is None]


# ---------------------------------------------------------------- planning


def planned(config: Mapping, folder: Path) -> Plan:
    """Which nodes are to be measured, and how; written to the folder.

    Nodes of an earlier plan stay in the fleet. Raises settings.Faults and slurm.Refused.
    """
    asked = _checked(config)
    own = settings.read_file(settings.CHECKOUT / CONFIG_FILE) if (settings.CHECKOUT / CONFIG_FILE).exists() else {}
    update_config(own, {**RUN, **asked.run})
    complete = _complete(own, asked)
    known = slurm.nodes()
    partition = _partition(asked)
    before = [one.node for one in plan_of(folder).nodes] if (folder / PLAN).is_file() else []
    named = slurm.expanded(asked.nodes) or _of_partition(asked, partition, known, before)
    unknown = [name for name in named if name not in known]
    if unknown:
        raise settings.Faults([f"nodes: Slurm knows no node {name}; it has {_few(sorted(known))}" for name in unknown])
    plan = Plan(settings=own, fleet=asked, nodes=[_planned(name, known) for name in dict.fromkeys([*before, *named])])
    _require_gpu_packages(plan, complete)
    missing = [one for one in plan.available() if not archives(folder, one.node)]
    for one in {(one.cpus, one.gpus): one for one in missing}.values():
        slurm.require_accepted(_options(asked, partition, one))
    write(plan, folder / PLAN)
    return plan


def refreshed(plan: Plan, folder: Path) -> Plan:
    """The same plan with what Slurm now says of its nodes. Raises slurm.Refused."""
    known = slurm.nodes()
    plan = plan.model_copy(update={"nodes": [_planned(one.node, known) for one in plan.nodes]})
    write(plan, folder / PLAN)
    return plan


def _planned(name: str, known: Mapping[str, slurm.Node]) -> PlannedNode:
    if one := known.get(name):
        return PlannedNode(node=name, cpus=one.cpus, gpus=one.gpus, unavailable=one.unavailable)
    return PlannedNode(node=name, cpus=0, gpus=0, unavailable="no longer in Slurm's node list")


def _complete(own: dict, asked: FleetSettings) -> dict:
    try:
        return settings.complete(own).as_dict
    except settings.Faults as faults:
        lines = [f"run.{line}" if re.split(r"[.:\[]", line)[0] in asked.run else line for line in faults.lines]
        raise settings.Faults(lines) from None


def _checked(config: Mapping) -> FleetSettings:
    try:
        return FleetSettings.model_validate(dict(config))
    except ValidationError as error:
        raise settings.Faults(settings.lines_of(error, config, FleetSettings)) from None


def _partition(asked: FleetSettings) -> str | None:
    """The one that is asked for, or the default one. Slurm would let a job that is too long wait for ever."""
    there = slurm.partitions()
    name = asked.partition or next((name for name, one in there.items() if one.default), None)
    if name is None:
        return None
    if name not in there:
        raise settings.Faults([f"partition: {name!r} is unknown; Slurm has {_few(there)}"])
    if there[name].minutes is not None and asked.minutes > there[name].minutes:
        raise settings.Faults([f"minutes: {asked.minutes}; partition {name} allows {there[name].minutes:g}"])
    return name


def _of_partition(
    asked: FleetSettings, partition: str | None, known: Mapping[str, slurm.Node], before: Sequence[str]
) -> list[str]:
    """Idle nodes, and those on which no job starts: they are reported. Busy ones are left alone."""
    if partition is None:
        raise settings.Faults([f"partition: null, and Slurm has no default one; it has {_few(slurm.partitions())}"])
    there = [node for node in known.values() if partition in node.partitions]
    if asked.feature:
        there = [node for node in there if asked.feature in node.features]
        features = {name for node in known.values() for name in node.features}
        if not there:
            raise settings.Faults([f"feature: no node of {partition} has {asked.feature!r}; known: {_few(features)}"])
    chosen = [node for node in there if node.unavailable or "IDLE" in node.states]
    if not chosen and not before:
        raise settings.Faults(
            [f"nodes: partition {partition} has no idle nodes; list nodes here to queue for busy ones"]
        )
    return [node.name for node in chosen]


def _require_gpu_packages(plan: Plan, complete: Mapping) -> None:
    """The environment is shared: what is installed here is what the nodes have."""
    with_gpus = [one.node for one in plan.available() if one.gpus]
    wants_gpus = complete["devices"] in ("auto", "all") or any(name != "cpu" for name in complete["devices"])
    if with_gpus and wants_gpus and not list(settings.CHECKOUT.glob(GPU_PACKAGES)):
        raise settings.Faults(
            [f"node {with_gpus[0]} has GPUs, and .venv has the packages for CPUs alone: make fleet CUDA=12, or CUDA=13"]
        )


def plan_of(folder: Path) -> Plan:
    """Raises CorruptRecord and OSError."""
    return read(Plan, folder / PLAN)


def _few(names) -> str:
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(str, names[:5])) + more if names else "none"


# ---------------------------------------------------------------- jobs


def _options(asked: FleetSettings, partition: str | None, one: PlannedNode) -> list[str]:
    """sbatch's, of one node's job, as the executor composes them from `resources`."""
    given = {"partition": partition, "account": asked.account, "qos": asked.qos, "gpus": one.gpus or None}
    named = [f"--{name}={value}" for name, value in given.items() if value is not None]
    own = [f"--time={asked.minutes}", f"--cpus-per-task={one.cpus}", "--mem=0"]
    return [*named, *own, *pinned(asked, one.node).split()]


def pinned(asked: FleetSettings, node: str) -> str:
    """What the executor has no resource for. Slurm drops a job whose deadline cannot be met any more, and so one that
    has waited too long. The node comes last: the executor refuses options of its own, such as -n followed by a space.
    """
    return f"--exclusive --deadline=now+{asked.wait_minutes + asked.minutes}minutes --nodelist={node}"


def resources(plan: Plan) -> dict[str, Any]:
    """Of the rule that measures a node, as Snakemake and its executor name them: all of the node."""
    of = {one.node: one for one in plan.nodes}
    asked = plan.fleet
    fixed = {"slurm_partition": asked.partition, "slurm_account": asked.account, "qos": asked.qos}
    return {
        "runtime": asked.minutes,
        "mem_mb": 0,  # the node's, by the variable that the Snakefile sets
        "cpus_per_task": lambda wildcards: of[wildcards.node].cpus,
        "gpu": lambda wildcards: of[wildcards.node].gpus,
        "slurm_extra": lambda wildcards: pinned(asked, wildcards.node),
        **{name: value for name, value in fixed.items() if value is not None},
    }


def archive(node: str, number: int) -> Path:
    return Path("nodes", node, f"run{number}.tar.gz")


def run_folder(node: str, number: int) -> Path:
    return Path("nodes", node, f"run{number}")


def log_of(node: str, number: int) -> Path:
    return Path("nodes", node, f"run{number}.log")


def archives(folder: Path, node: str) -> list[str]:
    return [str(path) for number in RUNS if (folder / (path := archive(node, number))).is_file()]


def wanted(plan: Plan, folder: Path) -> list[str]:
    """The first archives of nodes that a job can start on, and second ones that exist: settings may have changed."""
    first = [str(archive(one.node, 1)) for one in plan.available()]
    return first + [path for one in plan.available() for path in archives(folder, one.node) if path not in first]


def repeats(plan: Plan, folder: Path, flagged: Sequence[str] = ()) -> list[str]:
    """The second archives that are missing: of the first few nodes, and of flagged ones."""
    nodes = dict.fromkeys([*(one.node for one in plan.available()[: plan.fleet.repeated_nodes]), *flagged])
    return [path for node in nodes if not (folder / (path := str(archive(node, 2)))).exists()]


# ---------------------------------------------------------------- what became of each node


def outcome(plan: Plan, folder: Path, failures: Mapping[str, str] = MappingProxyType({})) -> FleetNodes:
    """Of every node of the plan; `failures` are Slurm's states or errors by the archives that their jobs were for."""
    return FleetNodes(
        nodes=[_outcome(one, plan, folder, failures.get(str(archive(one.node, 1)))) for one in plan.nodes]
    )


def _outcome(planned: PlannedNode, plan: Plan, folder: Path, failure: str | None) -> FleetNode:
    found, log = archives(folder, planned.node), folder / log_of(planned.node, 1)
    if found and planned.unavailable:
        status, reason = "unavailable", f"{planned.unavailable}; judged by its earlier archive"
    elif found:
        status, reason = "measured", None
    elif failure in NEVER_STARTED:
        status, reason = "pending too long", f"did not start within {counted(plan.fleet.wait_minutes, 'minute')}"
    elif log.is_file():
        parts = (failure and f"Slurm: {failure}", _last_line(log), planned.unavailable)
        status, reason = "failed", "; ".join(filter(None, parts)) or "its log is empty"
    elif planned.unavailable:
        status, reason = "unavailable", planned.unavailable
    elif last := _slurm_log(folder, planned.node):
        status, reason = "failed", f"Slurm: {failure}; {_last_line(last)} (log: {last})"
    elif failure == ENDED_AT_ONCE:
        status = "failed"
        reason = f"its job failed before it wrote anything: is {folder.resolve()} on a file system that it shares?"
    else:
        status, reason = "failed", f"Slurm: {failure}" if failure else "its job was not seen to end"
    return FleetNode(node=planned.node, status=status, reason=reason, gpus=planned.gpus, archives=found)


def _slurm_log(folder: Path, node: str) -> Path | None:
    """What the executor kept of the last job that failed."""
    logs = (folder / SLURM_LOGS).glob(f"{node}_1/*.log")
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def _last_line(log: Path) -> str:
    """The last line that tells of an error, else the last one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line and not line.startswith("WorkflowError")]
    return (errors or lines or [""])[-1]


def report(plan: Plan, folder: Path, failures: Mapping[str, str] = MappingProxyType({})) -> Fleet:
    """Writes nodes.json and the fleet's report. Raises CorruptRecord and OSError."""
    from roofline.run import fleet_report  # what draws pages would slow the start of every job

    nodes = outcome(plan, folder, failures)
    write(nodes, folder / NODES)
    return fleet_report.report(nodes, folder, plan.settings)
