"""make fleet: measure every node of a Slurm cluster by a job of its own, and compare the cards.

    python workflow/commands/fleet.py [--folder FLEET] [options of snakemake]

By config/fleet.yaml, into the folder (fleet/): an archive per node, fleet.html, FLEET.md, fleet.json, passing_nodes.txt
and failing_nodes.txt. Measures what is missing. A node whose run fails is tried once more; cards that the report flags
are measured again before they are named. Ends with status 0 where every node passes, 1 where one does not, 2 where
nothing can be measured.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.formatting import counted, listed
from roofline.records.base import CorruptRecord
from roofline.report import fleet_page
from roofline.run import fleet, plan, run_lock, settings, slurm
from roofline.run.archive import Refused
from roofline.run.fleet_report import FILES
from roofline.run.jobs import exit_with, print_what_can_be_printed
from roofline.run.settings import CHECKOUT

CONFIG, PROFILE = CHECKOUT / "config" / "fleet.yaml", CHECKOUT / "profiles" / "slurm"
SNAKEFILE, LOG = CHECKOUT / "workflow" / "fleet" / "Snakefile", Path("fleet.log")
SNAKEMAKE = ["--snakefile", str(SNAKEFILE), "--workflow-profile", str(PROFILE)]
PACKAGES = Path(sys.prefix) / "fleet"  # where envs/install.sh puts the executor
HERE = Path()  # the fleet's folder, where all of this happens
FAILING, CANNOT, INTERRUPTED = 1, 2, 130
# Lines of Snakemake's executor: which job is which node's, and how one ended.
SUBMITTED = re.compile(r"SLURM jobid (\d+) \(log: \S*/rule_measure/([^/\s]+)_\d+/")
ENDED = re.compile(r"SLURM-job '(\d+)' failed.*?SLURM status is: '(\w+)'")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, default=Path("fleet"))
    asked, options = parser.parse_known_args(arguments)
    try:
        config = settings.read_file(CONFIG)
        asked.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(asked.folder):
            return measure(config, options, asked.folder)
    except settings.Faults as faults:
        print("\n".join(faults.lines))
    except (slurm.Refused, plan.Failed, Refused, CorruptRecord, OSError) as error:
        print(error)
    except KeyboardInterrupt:
        print("stopped: what was finished is kept, and the next make fleet goes on from there")
        return INTERRUPTED
    return CANNOT


def measure(config: dict, options: Sequence[str], folder: Path) -> int:
    if run_lock.is_held():
        raise Refused(run_lock.refusal())
    if not PACKAGES.is_dir():
        raise Refused(f"{PACKAGES} is missing, with which jobs are submitted: make setup-fleet")
    os.environ["PYTHONPATH"] = str(PACKAGES)
    planned = fleet.planned(config, HERE)
    wanted = fleet.wanted(planned)
    missing = [path for path in wanted if not Path(path).exists()]
    print(f"{counted(len(planned.nodes), 'node')}, {counted(len(missing), 'run')} to make", flush=True)
    for one in planned.nodes:
        if one.unavailable and not fleet.archives(HERE, one.node):
            print(f"{one.node} is not available: {one.unavailable}", flush=True)
    if plan.DRY.intersection(options):
        jobs, _ = plan.plan([*SNAKEMAKE, *wanted])
        print("\n".join([*(f"{job.output}: {job.reason}" for job in jobs), f"{counted(len(jobs), 'job')} to submit"]))
        return 0
    run_lock.hold()
    for path in missing:
        fleet.log_beside(path).unlink(missing_ok=True)
    states = submitted(wanted, options)
    planned = fleet.planned(config, HERE)  # a node may have failed meanwhile
    failed = [path for path in fleet.wanted(planned) if not Path(path).exists() and fleet.started(path, states)]
    if failed:
        print(f"tried once more: {listed(failed)}", flush=True)
        states |= submitted(failed, options)
    found = fleet.report(planned, HERE, states)
    if found.again:
        print(f"measured again, since a card of theirs is flagged: {listed(found.again)}", flush=True)
        states |= submitted([str(fleet.archive(node, 2)) for node in found.again], options)
        found = fleet.report(planned, HERE, states)
    print(fleet_page.screen(found))
    print(f"{folder}/: {', '.join(FILES)}")
    return FAILING if found.failing else 0


def submitted(targets: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    """Have Snakemake make these archives; Slurm's states of the jobs that failed, by node.

    What Snakemake says goes to fleet.log; a line for each job that is submitted or ends is shown.
    """
    status = [] if slurm.accounting() else ["--slurm-status-command", "squeue"]
    nodes, states = {}, {}
    with open(LOG, "a", encoding="utf-8") as log:
        workflow = subprocess.Popen(
            [sys.executable, "-P", "-m", "snakemake", *SNAKEMAKE, *status, *options, *targets],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in workflow.stdout:
            log.write(line)
            log.flush()
            if found := SUBMITTED.search(line):
                nodes[found[1]] = found[2]
                print(f"{found[2]}: Slurm job {found[1]}", flush=True)
            elif (found := ENDED.search(line)) and found[1] in nodes:
                states[nodes[found[1]]] = found[2]
                print(f"{nodes[found[1]]}: Slurm job {found[1]} ended as {found[2]}", flush=True)
        workflow.wait()
    return states


if __name__ == "__main__":
    print_what_can_be_printed()
    exit_with(main, CANNOT)
