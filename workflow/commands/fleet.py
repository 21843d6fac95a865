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
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Timer

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.contention import RUN_PROCESS
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
GRACE_S = 300  # beyond all time limits, until jobs are taken for lost
# Lines of Snakemake's: a job that was submitted, one that ended, and one that failed with the output that it was for.
SUBMITTED = re.compile(r"^Job (\d+) has been submitted with SLURM jobid (\d+) \(log: .*/rule_measure/(.+)_(\d+)/")
FINISHED = re.compile(r"^Finished jobid: (\d+)")
MESSAGE, OUTPUT = re.compile(r"^    message: (.*)"), re.compile(r"^    output: (\S+)")
STATE = re.compile(r"SLURM status is: '(\w+)|The error message was '(?:sbatch: )?(?:error: )?(.*)")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, default=Path("fleet"))
    asked, options = parser.parse_known_args(arguments)
    try:
        config = settings.read_file(CONFIG)
        if asked.folder.exists() and not asked.folder.is_dir():
            raise Refused(f"FLEET: {asked.folder} is no folder")
        asked.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(asked.folder):
            return measure(config, options, asked.folder)
    except settings.Faults as faults:
        named = (line if line.startswith(str(CONFIG)) else f"config/fleet.yaml: {line}" for line in faults.lines)
        print("\n".join(named))
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
    wanted = fleet.wanted(planned, HERE)
    missing = absent(wanted)
    for one in planned.nodes:
        if one.unavailable:
            print(f"{one.node} is not available: {one.unavailable}", flush=True)
    if plan.DRY.intersection(options):
        jobs, _ = plan.plan([*SNAKEMAKE, *wanted, *fleet.repeats(planned, HERE)])
        print("\n".join([*map(reason, jobs), f"{counted(len(planned.nodes), 'node')}, {counted(len(jobs), 'job')}"]))
        return 0
    print(f"{counted(len(planned.nodes), 'node')}, {counted(len(missing), 'first run')} to make", flush=True)
    run_lock.hold()
    Path(".gitignore").write_text("*\n")  # else a node's archive would hold the others' as its sources
    for path in missing:
        Path(path.replace(".tar.gz", ".log")).unlink(missing_ok=True)
    limit_s = 60 * (planned.fleet.minutes + planned.fleet.wait_minutes) + GRACE_S
    failures = submitted(wanted, options, limit_s)
    planned = fleet.refreshed(planned, HERE)
    again = [path for path in absent(fleet.wanted(planned, HERE)) if failures.get(path) not in fleet.NEVER_STARTED]
    if again:
        print(f"tried once more: {listed(again)}", flush=True)
        failures |= submitted(again, options, limit_s)
    found = fleet.report(planned, HERE, failures)
    second = fleet.repeats(planned, HERE, found.again)
    if repeated := [path for path in second if Path(path).with_name("run1.tar.gz").exists()]:
        print(f"measuring a second time: {listed(repeated)}", flush=True)
        submitted(repeated, options, limit_s)
        found = fleet.report(planned, HERE, failures)
    print(fleet_page.screen(found))
    print(f"{folder}/: {', '.join(FILES)}")
    if not found.cards:
        return CANNOT
    return FAILING if found.failing else 0


def reason(job: plan.Planned) -> str:
    changed = job.reason.startswith("settings, device or software have changed")
    return f"{job.output}: {'settings have changed' if changed else job.reason}"


def absent(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not Path(path).exists()]


def submitted(targets: Sequence[str], options: Sequence[str], limit_s: float) -> dict[str, str]:
    """Have Snakemake make these archives; Slurm's states or errors of those that it could not make.

    What Snakemake says goes to fleet.log; a line for each job that is submitted or fails is shown. Jobs that have not
    ended when all time limits are over are given up. Raises Refused where Snakemake does not get as far as submitting.
    """
    status = [] if slurm.accounting() else ["--slurm-status-command", "squeue"]
    command = [sys.executable, "-P", "-m", "snakemake", *SNAKEMAKE, *status, *options, *targets]
    environment = dict(os.environ)
    if environment.get(RUN_PROCESS) == str(os.getpid()):
        del environment[RUN_PROCESS]  # which is none on the node: each run there has its own
    jobs, failures, message, line = {}, {}, None, ""
    with open(LOG, "a", encoding="utf-8") as log:
        workflow = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        timer = Timer(limit_s, workflow.send_signal, [signal.SIGINT])
        timer.daemon = True
        timer.start()
        for line in workflow.stdout:
            log.write(line)
            log.flush()
            if found := SUBMITTED.search(line):
                jobs[found[1]] = found[3]
                print(f"{found[3]}: submitted as Slurm job {found[2]}", flush=True)
            elif (found := FINISHED.match(line)) and found[1] in jobs:
                print(f"{jobs[found[1]]}: measured", flush=True)
            elif found := MESSAGE.match(line):
                message = found[1]
            elif (found := OUTPUT.match(line)) and message is not None:
                state, message = STATE.search(message), None
                failures[found[1]] = (state[1] or state[2].rstrip("'")) if state else "its job failed"
                print(f"{found[1]}: {failures[found[1]]}", flush=True)
        status = workflow.wait()
        timer.cancel()
    if status and not jobs and not failures:
        raise Refused(line.strip() or f"snakemake ended with status {status}; fleet.log has the rest")
    return failures


if __name__ == "__main__":
    print_what_can_be_printed()
    exit_with(main, CANNOT)
