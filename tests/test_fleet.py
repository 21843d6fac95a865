"""make fleet on a real Slurm: every node is measured, or named with the reason."""

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
from workflow_run import TINY, committed, new_checkout


ABSENT = slurm_cluster.missing()
SMALL = {
    "devices": ["cpu"],
    "peak_flops": TINY["peak_flops"] | {"dtypes": ["fp32_fma"]},
    "bandwidth": TINY["bandwidth"],
    **{name: {"enabled": False} for name in ("decode_attn", "row_norm", "rmsnorm_matmul")},
    "models": [],
}
FLEET = {"nodes": ["node[1-3]"], "minutes": 5, "wait_minutes": 5, "repeat": 0, "run": SMALL}


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
        self.node, self.records, self.kills, self.done = node, folder / "results", 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            for process in psutil.process_iter(["cmdline"]) if self.records.exists() else ():
                if (process.info["cmdline"] or [])[-2:] == [self.node, "1"]:
                    process.kill()
                    self.kills += 1


def test_every_node_is_measured_or_named_and_a_second_call_measures_what_is_missing(fleet, cluster):
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
    # The job had all of its node.
    (job,) = [
        line for line in call(cluster, "scontrol", "-o", "show", "job").splitlines() if "wildcards_node1_1" in line
    ]
    assert f"cpu={CPUS},mem={MEMORY_MB}M" in job
    record = json.loads((fleet.root / "fleet/nodes/node1/run1/results/cpu/device_query.json").read_text())
    assert record["hardware"]["cores_usable"] == len(os.sched_getaffinity(0))

    call(cluster, "scontrol", "update", "nodename=node3", "state=resume")
    kept = fleet.archive("node1").stat().st_mtime_ns
    second = fleet.make()
    assert "2 runs to make" in second.stdout, second.stdout + second.stderr
    assert {one["status"] for one in fleet.nodes().values()} == {"measured"}
    assert fleet.archive("node1").stat().st_mtime_ns == kept
    verified = subprocess.run(
        [sys.executable, "-P", "workflow/commands/verify.py", str(fleet.archive("node3"))],
        cwd=fleet.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout
    assert "0 runs to make" in fleet.make("-n").stdout
    fleet.configure(run=SMALL | {"bandwidth": SMALL["bandwidth"] | {"iterations": 3}})
    assert "3 runs to make" in fleet.make("-n").stdout
