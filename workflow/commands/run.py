"""make: run the workflow, and show where the results are.

    python workflow/commands/run.py [options of snakemake]

This is Snakemake with the cores of this machine, and two options of its own. With --cell gpu0/row_norm/fp32 it
measures that record with what it needs and is missing, and prints its line. With --again it also measures the records
again that other load disturbed. What is shown is in roofline/run/console.py.
A run that was killed is gone on with: its lock dies with it, and so do its jobs (roofline/run/run_lock.py).
"""

import os
import signal
import sys

INTERRUPTED, PARENT = 130, os.getppid()
# Imports take a second. An exception would be shown: pydantic wraps what is raised while it builds a model.
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))

import argparse
import contextlib
import difflib
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.run.packages import describe_missing_packages

if __name__ == "__main__" and (missing := describe_missing_packages(Path(__file__).parents[2] / "envs")):
    sys.exit(missing)

from snakemake.cli import args_to_api, parse_args, parse_config
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.utils import update_config

from roofline.core.formatting import join_words
from roofline.core.terms import UserError
from roofline.devices import discovery
from roofline.plan import machine_checks, settings
from roofline.plan.targets import RunPlan, files
from roofline.records.files import RESULTS
from roofline.run import again, console, folder, run_lock
from roofline.run.ending import end_with_parent, show_error
from roofline.run.jobs import AGAIN, format_line, print_what_can_be_printed
from roofline.table.run_records import read_record


def main(arguments: list[str]) -> int:
    """Run the workflow with these options of Snakemake. Return the exit status. Raises UserError and OSError."""
    started_at = time.time()
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--cell")
    own.add_argument("--again", action="store_true")
    options, arguments = own.parse_known_args(arguments)
    parser, args = parse_args(["--cores", "all", *arguments])
    # A limit of jobs a second wakes the scheduler once a second for every job that has ended, and delays the exit.
    args.max_jobs_per_timespan = None
    config = read_config(args)
    console.started_by = ["make", *(["AGAIN=1"] if options.again else [])]
    record_name = None
    if options.cell is not None:
        plan = plan_run(config)
        record_name = find_record(options.cell, plan.measured())
        args.targets = [*args.targets, *files([*plan.own_seals(), record_name])]
        console.started_by = ["make", "cell", f"CELL={record_name}"]
    if not args.dryrun:
        with contextlib.suppress(PermissionError):  # the Snakefile names all that cannot be written
            run_lock.hold()
        restore_records()
    # The scheduler takes SIGTERM, to wait for its jobs, until they are announced and the console takes it.
    JobScheduler.exit_gracefully = lambda *_: os._exit(INTERRUPTED)
    try:
        if options.again and not choose_again(args, config):
            print("nothing to measure again: no record was disturbed, calibrations aside")
            return 0
        succeeded = args_to_api(args, parser)
    finally:
        if not args.dryrun:
            restore_records()
    if succeeded and record_name and not args.dryrun:
        path = RESULTS / f"{record_name}.json"
        device, rule, case = record_name.split("/", 2)
        print(format_line(read_record(path), f"{rule} {device} {case}"))
        if path.stat().st_mtime < started_at:
            print(f"It was measured before. To measure it again: rm {path}, and the same command.")
    return 0 if succeeded else 1


def read_config(args: argparse.Namespace) -> dict:
    """Return the configuration of a run with these parsed options of Snakemake. Raises UserError.

    The file of this folder comes first, if it exists or if the options name none.
    """
    if args.directory is not None:
        raise UserError(f"--directory: make measures in this folder; cd {args.directory} first")
    config: dict = {}
    default = [folder.CONFIG_FILE] if folder.CONFIG_FILE.exists() or not args.configfile else []
    for path in [*default, *args.configfile]:
        update_config(config, settings.read_file(path))
    for entry in args.config or []:
        try:
            update_config(config, parse_config([entry]))
        except ValueError:
            advice = "put a section into a file, such as mine.yaml, and give --configfile mine.yaml"
            raise UserError(f"--config {entry}: should be KEY=VALUE; {advice}") from None
    return config


def choose_again(args: argparse.Namespace, config: dict) -> bool:
    """Have Snakemake make the records again that were disturbed, each of which keeps its less disturbed record. Return
    whether there are any.

    A new calibration is a new seal: with it all operators of its device are predicted and measured again."""
    plan = plan_run(config)
    disturbed = again.list_disturbed_records(RESULTS, [*plan.measured(), *plan.calibrations()])
    if disturbed and not args.dryrun:
        stale = folder.list_stale_outputs(args)
        again.copy_aside(RESULTS, set(disturbed) - set(stale), stale)
        os.environ[AGAIN] = "1"
    args.forcerun = {*args.forcerun, *disturbed}
    return bool(disturbed)


def restore_records() -> None:
    """Put back the records whose measurement was to be repeated and failed, and print which."""
    if restored := again.restore_missing(RESULTS):
        print(f"earlier record kept, since the new one is missing: {join_words(restored)}", flush=True)


def plan_run(config: dict) -> RunPlan:
    """Return what a run with these settings measures. Raises UserError."""
    return machine_checks.plan_run(settings.complete(config), discovery.discover())


def find_record(text: str, record_names: Sequence[str]) -> str:
    """Return the record name that a text means, with or without results/ and .json. Raises UserError."""
    name = text.strip().removeprefix(f"{RESULTS}/").removesuffix(".json")
    if not name:
        known = [f"  {known}" for known in record_names]
        raise UserError(["CELL names no record (`make plan ARGS=--forceall` lists all); some of them:", *known])
    if name not in record_names:
        suggestions = difflib.get_close_matches(name, record_names)
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
        device, devices = name.partition("/")[0], dict.fromkeys(known.partition("/")[0] for known in record_names)
        if device and device not in devices:  # the records of another device are no suggestion
            hint = f"; measured here: {', '.join(devices)}"
        raise UserError(f"CELL: {text!r} is unknown{hint} (`make plan ARGS=--forceall` lists every record)")
    return name


if __name__ == "__main__":
    print_what_can_be_printed()
    if "MAKELEVEL" in os.environ:
        end_with_parent(PARENT, signal.SIGTERM)
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
        if console.unwritten:
            raise console.unwritten[0]
    except (UserError, OSError) as error:
        show_error(error)
        status = 1
    os._exit(status)  # an end with all that Python takes apart would last 0.1 s longer
