"""What Slurm says of its nodes, by `scontrol`, and how its jobs are watched."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

# States in which no job starts: https://slurm.schedmd.com/sinfo.html, "NODE STATE CODES". A node that is powered down
# to save energy starts when a job wants it.
UNAVAILABLE = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL", "MAINT"}
UNAVAILABLE |= {"NOT_RESPONDING", "RESERVED", "UNKNOWN"}
STATE_FLAGS = "*~#!%$@^-"  # follow a state, as in DOWN*
ASK_S = {False: 3, True: 30}  # of squeue, and of sacct, which asks a database
ANSWER_S = 60  # a busy controller takes seconds


class Refused(Exception):
    """What Slurm refuses, or that it is not here: one line."""


class Node(NamedTuple):
    name: str
    states: frozenset[str]
    cpus: int  # that jobs may use
    gpus: int
    partitions: frozenset[str]
    features: frozenset[str]
    reason: str | None  # why it is down or drained, as an administrator or Slurm noted

    @property
    def unavailable(self) -> str | None:
        """Why no job starts on it; None if one does."""
        if not self.states & UNAVAILABLE:
            return None
        state = "+".join(sorted(self.states)).lower()
        return f"{state}: {self.reason}" if self.reason else state


class Partition(NamedTuple):
    default: bool
    minutes: float | None  # that a job may take; None without a limit


def nodes() -> dict[str, Node]:
    """All nodes of the cluster by their names. Raises Refused."""
    lines = call("scontrol", "--oneliner", "show", "node").splitlines()
    return {node.name: node for node in map(parsed, lines) if node}


def partitions() -> dict[str, Partition]:
    """All partitions by their names. Raises Refused."""
    lines = call("scontrol", "--oneliner", "show", "partition").splitlines()
    found = [fields for line in lines if "PartitionName" in (fields := _fields(line))]
    return {
        one["PartitionName"]: Partition(one.get("Default") == "YES", minutes(one.get("MaxTime", ""))) for one in found
    }


def minutes(limit: str) -> float | None:
    """Of a time limit such as 1-02:30:00; None for UNLIMITED."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", limit)
    if not found:
        return None
    days, hours, whole, seconds = (int(part or 0) for part in found.groups())
    return 1440 * days + 60 * hours + whole + seconds / 60


def expanded(names: Sequence[str]) -> list[str]:
    """Host lists such as gpu[01-16] as single names, in order, each once. Raises Refused for what is none."""
    return list(dict.fromkeys(call("scontrol", "show", "hostnames", ",".join(names)).split())) if names else []


def accounting() -> bool:
    """Whether a database knows jobs that have ended. Raises Refused."""
    return bool(
        re.search(r"AccountingStorageType\s*=\s*accounting_storage/slurmdbd", call("scontrol", "show", "config"))
    )


def require_accepted(arguments: Sequence[str]) -> None:
    """Raises Refused, with Slurm's reason, where it would not take a job with these options of sbatch."""
    call("sbatch", "--test-only", *arguments, "--wrap", "true")


def call(program: str, *arguments: str) -> str:
    """What a program of Slurm's prints. Raises Refused."""
    if not shutil.which(program):
        raise Refused(
            f"{program} is not on this machine: make fleet runs where jobs are submitted to Slurm. Archives that you"
            ' collected otherwise: make fleet-report ARCHIVES="one.tar.gz other.tar.gz"'
        )
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        raise Refused(f"{program} did not answer within {ANSWER_S} s") from None
    if done.returncode:
        lines = [re.sub(rf"^{program}: (error: )?", "", line) for line in done.stderr.splitlines() if line.strip()]
        raise Refused(f"Slurm refuses: {'; '.join(lines) or f'{program} ended with status {done.returncode}'}")
    return done.stdout


def ask_after_jobs() -> None:
    """Have Snakemake's executor ask after its jobs at a steady pace: by itself it asks every three minutes in the end,
    which is as long as a run takes. Raises Refused."""
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    seconds, usual = ASK_S[accounting()], RemoteExecutor.next_seconds_between_status_checks
    RemoteExecutor.next_seconds_between_status_checks = property(
        lambda executor: min(seconds, usual.fget(executor)), usual.fset
    )


def parsed(line: str) -> Node | None:
    """A node by its line; None for a line of none."""
    found = _fields(line)
    if "NodeName" not in found:
        return None
    reason = re.search(r" Reason=(.*?)(?: \[[^\]]*\])?(?= \w+=|$)", line)
    state = found.get("State", "UNKNOWN")
    states = {part.strip(STATE_FLAGS) for part in state.split("+")}
    return Node(
        name=found["NodeName"],
        states=frozenset(states | ({"NOT_RESPONDING"} if "*" in state else set())),
        cpus=int(found.get("CPUEfctv") or found["CPUTot"]),
        gpus=_gpus(found.get("Gres", "")),
        partitions=_names(found.get("Partitions")),
        features=_names(found.get("ActiveFeatures")),
        reason=reason[1].strip() or None if reason else None,
    )


def _fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


def _names(text: str | None) -> frozenset[str]:
    return frozenset(text.split(",")) if text and text != "(null)" else frozenset()


def _gpus(gres: str) -> int:
    """Of gpu:h200:8(S:0-1),gpu:a100:2,shard:4: ten."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts)) or len(re.findall(r"(?:^|,)gpu(?=,|$)", gres))
