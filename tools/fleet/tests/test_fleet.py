"""make fleet on a real Slurm: a job per node, and a report that names the node whose job failed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_cluster
import yaml
from slurm_cluster import CPUS, EXECUTOR, MEMORY_MB, call
from workflow_run import CHECKOUT, TINY, committed, new_checkout

ABSENT = slurm_cluster.missing()
SMALL = {
    "devices": ["cpu"],
    "peak_flops": TINY["peak_flops"] | {"dtypes": ["fp32_fma"]},
    "bandwidth": TINY["bandwidth"] | {"size_mib": None},  # the cache of this host is what it is
    **{name: {"enabled": False} for name in ("decode_attn", "row_norm", "rmsnorm_matmul")},
    "plot": TINY["plot"],
}
FLEET = {"nodes": [], "partition": None, "account": None, "minutes": 5, "run": SMALL}
QUICK = ("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if ABSENT:
        pytest.skip(ABSENT)
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment | {"PYTHONPATH": str(EXECUTOR)}


@pytest.fixture
def checkout(tmp_path) -> Path:
    made = new_checkout(tmp_path / "a checkout", "devices: [cpu]\n")
    shutil.copytree(CHECKOUT / "tools/fleet", made / "tools/fleet", ignore=shutil.ignore_patterns("tests", "__*"))
    (made / "fleet").mkdir()
    configure(made)
    return committed(made)


def configure(checkout: Path, **changes) -> None:
    (checkout / "tools/fleet/config.yaml").write_text(yaml.safe_dump(FLEET | changes))


def make(checkout: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess:
    """What the target does once the packages are installed."""
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", "tools/fleet/Snakefile"]
    command += ["--workflow-profile", "tools/fleet/profile", "--directory", "fleet", *QUICK, *options]
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def test_every_node_is_measured_by_a_job_of_its_own_and_one_that_fails_is_named(checkout, cluster):
    nodes = checkout / "fleet/nodes"
    nodes.mkdir()
    (nodes / "node2").write_text("where its folder would be")
    first = make(checkout, cluster)
    assert first.returncode == 1, first.stdout + first.stderr
    assert (checkout / "fleet/failing_nodes.txt").read_text() == "node2\n"
    assert (checkout / "fleet/passing_nodes.txt").read_text() == "node1,node3\n"
    assert "node2.tar.gz" in json.loads((checkout / "fleet/fleet.json").read_text())["failing"]["node2"]
    jobs = call(cluster, "scontrol", "-o", "show", "job").splitlines()
    on = {name: [job for job in jobs if f" ReqNodeList={name} " in job] for name in slurm_cluster.NODES}
    assert {name: len(some) for name, some in on.items()} == {"node1": 1, "node2": 2, "node3": 1}, "retried once"
    assert f"cpu={CPUS},mem={MEMORY_MB}M" in on["node1"][0], "the job has all of its node"

    (nodes / "node2").unlink()
    planned = make(checkout, cluster, "-n").stdout
    assert "output: nodes/node2.tar.gz" in planned and "output: nodes/node1.tar.gz" not in planned
    configure(checkout, run=SMALL | {"bandwidth": SMALL["bandwidth"] | {"iterations": 3}})
    assert "output: nodes/node1.tar.gz" in make(checkout, cluster, "-n").stdout, "a changed setting measures again"
    verified = [sys.executable, "-P", "workflow/commands/verify.py", str(nodes / "node1.tar.gz")]
    assert subprocess.run(verified, cwd=checkout, capture_output=True, check=False).returncode == 0


def test_an_unknown_node_is_one_line(checkout, cluster):
    configure(checkout, nodes=["node1", "node7"])
    done = make(checkout, cluster)
    assert done.returncode and "nodes: Slurm has no node node7; it has node1, node2, node3" in done.stderr
    assert "Traceback" not in done.stderr
