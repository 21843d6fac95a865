"""make fleet on a real Slurm: every node is measured, or named with the reason."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import slurm_cluster
import yaml
from slurm_cluster import CPUS, MEMORY_MB, call
from workflow_run import CHECKOUT, TINY, committed, new_checkout

from roofline.run import run_lock, settings, slurm
from roofline.run.fleet import FleetSettings, outcome, planned, wanted

ABSENT = slurm_cluster.missing()
SMALL = {
    "devices": ["cpu"],
    "peak_flops": TINY["peak_flops"] | {"dtypes": ["fp32_fma"]},
    "bandwidth": TINY["bandwidth"],
    **{name: {"enabled": False} for name in ("decode_attn", "row_norm", "rmsnorm_matmul")},
    "plot": TINY["plot"],
}
FLEET = {"nodes": ["node[1-3]"], "minutes": 5, "wait_minutes": 5, "repeated_nodes": 0, "run": SMALL}


class Fleet:
    """A checkout, and the cluster that its commands see."""

    def __init__(self, root: Path, environment: dict[str, str]):
        self.root, self.environment = root, environment

    def configure(self, **changes) -> None:
        (self.root / "config" / "fleet.yaml").write_text(yaml.safe_dump(FLEET | changes))

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-P", "workflow/commands/fleet.py", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )

    def nodes(self) -> dict[str, dict]:
        found = json.loads((self.root / "fleet" / "nodes.json").read_text())
        return {one["node"]: one for one in found["nodes"]}

    def archive(self, node: str) -> Path:
        return self.root / "fleet" / "nodes" / node / "run1.tar.gz"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if ABSENT:
        pytest.skip(ABSENT)
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def fleet(cluster, tmp_path) -> Fleet:
    made = Fleet(new_checkout(tmp_path / "checkout", "devices: [cpu]\n"), cluster)
    made.configure()
    committed(made.root)
    return made


class Killer(threading.Thread):
    """Ends a node's job while it measures, as often as it does."""

    def __init__(self, node: str, folder: Path):
        super().__init__(daemon=True)
        self.node, self.folder, self.kills, self.done = node, folder, 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            for process in psutil.process_iter(["cmdline"]) if (self.folder / "results").exists() else ():
                command = process.info["cmdline"] or []
                if command[-2:] == [self.node, "1"] and str(self.folder.parents[3]) in " ".join(command):
                    process.kill()
                    self.kills += 1


def test_every_node_is_measured_or_named_and_a_second_call_would_measure_what_is_missing(fleet, cluster):
    call(cluster, "scontrol", "update", "nodename=node3", "state=drain", "reason=bad dimm")
    killer = Killer("node2", fleet.root / "fleet/nodes/node2/run1")
    killer.start()
    first = fleet.make()
    killer.done.set()
    assert first.returncode == 1, first.stdout + first.stderr
    nodes = fleet.nodes()
    assert {name: one["status"] for name, one in nodes.items()} == {
        "node1": "measured",
        "node2": "failed",
        "node3": "unavailable",
    }
    assert killer.kills >= 2, "it was not tried once more"
    assert "bad dimm" in nodes["node3"]["reason"]
    assert (fleet.root / "fleet" / "failing_nodes.txt").read_text() == "node2,node3\n"
    assert nodes["node2"]["reason"].startswith("Slurm: FAILED")
    # The job had all of its node.
    (job,) = [
        line for line in call(cluster, "scontrol", "-o", "show", "job").splitlines() if "wildcards_node1_1" in line
    ]
    assert f"cpu={CPUS},mem={MEMORY_MB}M" in job

    call(cluster, "scontrol", "update", "nodename=node3", "state=resume")
    slurm_cluster.wait_until_idle(cluster)
    assert "3 nodes, 2 jobs" in (again := fleet.make("-n").stdout), again
    assert "nodes/node1/" not in again, "what was measured is not missing"
    fleet.configure(run=SMALL | {"bandwidth": SMALL["bandwidth"] | {"iterations": 3}})
    assert "3 nodes, 3 jobs" in fleet.make("-n").stdout, "a changed setting measures again"
    verified = subprocess.run(
        [sys.executable, "-P", "workflow/commands/verify.py", str(fleet.archive("node1"))],
        cwd=fleet.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout


# ---------------------------------------------------------------- which nodes


def node(name: str, *states: str, gpus: int = 0) -> slurm.Node:
    return slurm.Node(name, frozenset(states), 8, gpus, frozenset({"gpu"}), frozenset({"h200"}), None)


@pytest.fixture
def cluster_of(monkeypatch):
    """What Slurm would say of these nodes."""
    monkeypatch.setattr(slurm, "partitions", lambda: {"gpu": slurm.Partition(default=True, minutes=None)})
    monkeypatch.setattr(slurm, "expanded", list)
    monkeypatch.setattr(slurm, "require_accepted", lambda options: None)

    def say(*nodes: slurm.Node) -> None:
        monkeypatch.setattr(slurm, "nodes", lambda: {one.name: one for one in nodes})

    return say


def test_idle_nodes_are_measured_unavailable_ones_named_and_busy_ones_left_alone(cluster_of, tmp_path):
    cluster_of(node("a", "IDLE"), node("b", "ALLOCATED"), node("c", "IDLE", "DRAIN"), node("d", "DOWN"))
    plan = planned({"run": {"devices": ["cpu"]}}, tmp_path)
    assert wanted(plan, tmp_path) == ["nodes/a/run1.tar.gz"]
    assert {one.node: one.status for one in outcome(plan, tmp_path, {"nodes/a/run1.tar.gz": "DEADLINE"}).nodes} == {
        "a": "pending too long",
        "c": "unavailable",
        "d": "unavailable",
    }


def test_nodes_of_an_earlier_call_stay_in_the_fleet_however_busy_they_are(cluster_of, tmp_path):
    config = {"run": {"devices": ["cpu"]}}
    cluster_of(node("a", "IDLE"), node("b", "IDLE"))
    planned(config, tmp_path)
    cluster_of(node("a", "ALLOCATED"), node("c", "IDLE"))
    plan = planned(config, tmp_path)
    assert [one.node for one in plan.nodes] == ["a", "b", "c"]
    assert {one.node: one.unavailable for one in plan.nodes} == {
        "a": None,
        "b": "no longer in Slurm's node list",
        "c": None,
    }
    cluster_of(node("a", "ALLOCATED"), node("b", "DOWN"), node("c", "ALLOCATED"))
    assert [one.unavailable for one in planned(config, tmp_path).nodes] == [None, "down", None]


def test_without_an_idle_node_it_says_so(cluster_of, tmp_path):
    cluster_of(node("b", "ALLOCATED"))
    with pytest.raises(settings.Faults, match="partition gpu has no idle nodes; list nodes here"):
        planned({"run": {"devices": ["cpu"]}}, tmp_path)


def test_nodes_with_gpus_need_the_packages_for_them(cluster_of, tmp_path):
    cluster_of(node("a", "IDLE", gpus=8))
    with pytest.raises(
        settings.Faults, match=r"node a has GPUs, and \.venv has the packages for CPUs alone: make fleet"
    ):
        planned({}, tmp_path)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("FAILED", "shares"),
        ("Batch job submission failed: Invalid qos specification", "Slurm: Batch job submission failed: Invalid qos"),
        (None, "was not seen to end"),
    ],
)
def test_what_slurm_says_of_a_job_that_never_began_is_the_reason(cluster_of, tmp_path, failure, reason):
    cluster_of(node("a", "IDLE"))
    plan = planned({"run": {"devices": ["cpu"]}}, tmp_path)
    (one,) = outcome(plan, tmp_path, {"nodes/a/run1.tar.gz": failure} if failure else {}).nodes
    assert one.status == "failed" and reason in one.reason


# ---------------------------------------------------------------- what cannot be had


def test_the_file_that_users_edit_has_every_setting_with_its_default():
    content = yaml.safe_load((CHECKOUT / "config" / "fleet.yaml").read_text())
    assert content == FleetSettings().model_dump()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes": ["node7"]}, "nodes: Slurm knows no node node7; it has node1, node2, node3"),
        ({"nodes": [], "partition": "gpu"}, "partition: 'gpu' is unknown; Slurm has main"),
        ({"nodes": [], "feature": "h200"}, "feature: no node of main has 'h200'; known: none"),
        ({"nodes": ["node[1-"]}, "nodes[0]: 'node[1-' is no list of hosts"),
        ({"minutes": 0}, "minutes: 0; allowed: a whole number from 1"),
        ({"node": ["node1"]}, "node: unknown key; did you mean nodes?"),
        ({"run": {"effort": "slow"}}, "run.effort: 'slow' is unknown; allowed: quick, default, thorough"),
        ({"minutes": 61}, "minutes: 61; partition main allows 60"),
    ],
)
def test_what_is_wrong_is_one_line(fleet, changes, why):
    fleet.configure(**changes)
    done = fleet.make()
    assert done.returncode == 2 and done.stdout.startswith(f"config/fleet.yaml: {why}"), done.stdout
    assert done.stdout.count("\n") == 1
    assert not done.stderr


def test_two_fleets_in_one_folder_take_no_turns(fleet):
    lock = fleet.root / "fleet" / run_lock.LOCK
    lock.parent.mkdir(parents=True)
    with open(lock, "w") as file:
        file.write("123")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        done = fleet.make()
    assert done.returncode == 2 and "another run is going on in this folder (process 123)" in done.stdout


def test_without_slurm_it_says_where_it_runs(tmp_path):
    found = Fleet(new_checkout(tmp_path / "checkout", "devices: [cpu]\n"), {**os.environ, "PATH": str(tmp_path)})
    done = found.make()
    assert done.returncode == 2 and "scontrol is not on this machine" in done.stdout and "fleet-report" in done.stdout


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [("gpu:h200:8(S:0-1)", 8), ("gpu:2", 2), ("gpu:a100:2,gpu:h100:4,shard:16", 6), ("(null)", 0), ("", 0)],
)
def test_gpus_of_a_node(gres, gpus):
    line = f"NodeName=n1 CPUTot=64 Gres={gres} State=DOWN*+DRAIN Partitions=a,b Reason=no answer [root@2026-01-01]"
    node = slurm.parsed(line)
    assert node.gpus == gpus and node.cpus == 64 and node.partitions == {"a", "b"}
    assert node.unavailable == "down+drain+not_responding: no answer"
