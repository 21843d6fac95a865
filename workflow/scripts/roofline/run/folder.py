"""A run in another folder, and what a run in this folder would make."""

import argparse
import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from roofline.core.terms import UserError
from roofline.plan import settings
from roofline.records.files import write_text
from roofline.run import run_lock
from roofline.run.ending import end_with_parent
from roofline.run.jobs import JOBS, Failure, failures

CONFIG_FILE, LOG = Path("config/config.yaml"), "run.log"
LAST_LINES = 20


def list_stale_outputs(args: argparse.Namespace) -> list[str]:
    """Return the files that a run for the targets and settings of these parsed options of Snakemake would make, without
    those that options force. Raises UserError if it would fail."""
    from snakemake.api import SnakemakeApi  # here, because measuring jobs import the API of tools
    from snakemake.cli import parse_config
    from snakemake.settings.enums import Quietness
    from snakemake.settings.types import ConfigSettings, DAGSettings, OutputSettings, ResourceSettings

    planned = DAGSettings(
        targets=args.targets, rerun_triggers=args.rerun_triggers, force_incomplete=args.rerun_incomplete
    )
    stale: list[str] = []
    try:
        config = ConfigSettings(parse_config(args.config), configfiles=args.configfile, config_args=args.config)
        silent = OutputSettings(dryrun=True, quiet={Quietness.ALL}, log_level_override=logging.CRITICAL)
        with SnakemakeApi(silent) as api:
            workflow = api.workflow(ResourceSettings(cores=1), config_settings=config, snakefile=args.snakefile)
            workflow.dag(planned).execute_workflow(executor="dryrun", updated_files=stale)
    except (Exception, SystemExit) as error:  # of the Snakefile too
        raise UserError(str(error).splitlines()[-LAST_LINES:]) from None
    return stale


def require_no_living_run(folder: Path) -> None:
    """Raise OSError while another run is going on in the folder, which must not be changed under it."""
    with contextlib.suppress(FileNotFoundError), open(folder / run_lock.LOCK, encoding="utf-8") as file:
        run_lock.take(file.fileno(), fcntl.LOCK_SH)


def measure(
    targets: Sequence[str], config: dict, folder: Path, limit_s: float | None = None, options: Sequence[str] = ()
) -> dict[str, Failure]:
    """Make files of a run, such as results/gpu0/bandwidth/hbm.json, in a folder, and return why each missing one is
    missing, by its path. `config` are settings, with defaults for the others, whose paths are absolute. `options` are
    Snakemake's, which is ended after `limit_s` seconds. The output of Snakemake goes to run.log in the folder.

    Raises UserError if nothing was begun, and OSError while another run is going on in the folder.
    """
    settings.complete(config)
    require_no_living_run(folder)
    write_text(yaml.safe_dump(config, sort_keys=False), folder / CONFIG_FILE)
    log, reason, failed, started = folder / LOG, "its process died", True, time.time()
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "2", "--snakefile", f"{settings.CHECKOUT}/Snakefile"]
    command += ["--directory", str(folder), *options, "--keep-going", "--", *targets]
    with open(log, "wb") as output:
        try:
            end_with_this = partial(end_with_parent, os.getpid())
            done = subprocess.run(
                command, stdout=output, stderr=output, timeout=limit_s, check=False, preexec_fn=end_with_this
            )
            failed = done.returncode != 0
        except subprocess.TimeoutExpired:
            reason = "there was no time for it"
    missing = [target for target in targets if failed and _written_at(folder / target) < started]
    if missing and not any(_written_at(path) >= started for path in (folder / "logs").rglob("*.log")):
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise UserError([*last, f"nothing was measured (log: {log})"])
    failed_jobs = failures(folder / JOBS)
    return {target: failed_jobs.get(target, Failure(f"{reason} (log: {log})", "")) for target in missing}


def _written_at(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0
