"""A real Slurm of three nodes, all of them this machine: slurmctld and a slurmd for each node."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun")
NODES = ("node1", "node2", "node3")
CPUS, MEMORY_MB = 2, 2000  # of each node
START_S = 20
EXECUTOR = Path(sys.prefix, "tools", "fleet")  # where envs/install.sh puts it
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
NodeName=node[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} RealMemory={memory}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""


def missing() -> str | None:
    """Why no Slurm can be started here; None where it can."""
    search = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    absent = [name for name in PROGRAMS if not shutil.which(name, path=search)]
    if absent:
        return f"no {absent[0]}: apt-get install slurm-wlm"
    if not EXECUTOR.is_dir():
        return "what submits jobs is not installed: make setup-fleet"
    return None if os.getuid() == 0 else "only root starts Slurm's daemons"


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which its commands answer."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    port = free_ports(1 + len(NODES))
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host, folder=folder, port=port, first=port + 1, last=port + len(NODES), cpus=CPUS, memory=MEMORY_MB
        )
    )
    # The executor drops SLURM_CONF from the environment of a job.
    for name in ("srun", "sinfo"):
        wrapper = folder / "bin" / name
        wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which(name)} "$@"\n')
        wrapper.chmod(0o755)
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"], "/usr/sbin"]),
        "ROOFLINE_RUN_PROCESS": "1",  # neighbours on this machine are no other load
    }
    try:
        call(environment, "slurmctld", "-c")
        for node in NODES:
            call(environment, "slurmd", "-N", node)
        wait_until_idle(environment)
        yield environment
    finally:
        for file in folder.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), 9)


def wait_until_idle(environment: dict[str, str]) -> None:
    end = time.monotonic() + START_S
    idle = ("sinfo", "--noheader", "--responding", "--states=idle", "--format=%D")
    while call(environment, *idle, check=False).strip() != "3":
        assert time.monotonic() < end, "Slurm did not start"
        time.sleep(0.2)


def call(environment: dict[str, str], *command: str, check: bool = True) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def free_ports(count: int) -> int:
    """The first of so many that follow one another."""
    for first in range(21000 + 10 * (os.getpid() % 1000), 40000, 10):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no ports are free")
