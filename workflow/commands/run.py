"""make: run the workflow, and show where the results are.

    python workflow/commands/run.py [options of snakemake]

With --dry-run it says what would be done, and why, in a line for each job. With --cell gpu0/row_norm/fp32 it measures
that record with what it needs and is missing, and prints its line. With --again it first measures the records again
that other load disturbed.
A run that was killed is gone on with: its lock dies with it, and so do its jobs (roofline/run/run_lock.py).
"""

import os
import signal
import sys

INTERRUPTED, PARENT = 130, os.getppid()
# Imports take a second. An exception would be shown: pydantic wraps what is raised while it builds a model.
signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))

import argparse
import contextlib
import ctypes
import multiprocessing
import select
import shlex
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.formatting import join_words
from roofline.core.terms import UserError
from roofline.devices import discovery
from roofline.plan import settings, targets
from roofline.records.base import read
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS
from roofline.report import job_lines
from roofline.run import again, console, dry_run, folder, machine_checks, run_lock
from roofline.run.jobs import RUN_STARTED, now, print_what_can_be_printed
from roofline.table.run_records import read_record

PR_SET_PDEATHSIG = 1
MANIFEST = RESULTS / "manifest.json"
CORES_PER_GPU = 2  # of Snakemake's: for a measurement, and for the next one's imports


def main(arguments: list[str]) -> int:
    """Run the workflow with these options of Snakemake, or print its plan. Return the exit status."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cell")
    parser.add_argument("--again", action="store_true")
    options, arguments = parser.parse_known_args(arguments)
    config, chosen_by = folder.read_run_config(arguments)
    names = list_measured_records(config) if options.cell is not None or options.again else []
    record_name = None if options.cell is None else targets.find_record(options.cell, names)
    disturbed = again.list_disturbed_records(RESULTS, names) if options.again else []
    if options.again and not disturbed:
        print(again.NOTHING_DISTURBED)
        return 0
    arguments = ["--cores", str(CORES_PER_GPU * count_wanted_gpus(config)), *arguments]
    arguments = folder.with_targets(arguments, [record_path(record_name)] if record_name else [])
    if dry_run.DRY.intersection(arguments):
        forced = ["--forcerun", *disturbed] if disturbed else []
        jobs, notes = dry_run.plan_jobs(folder.insert_options(arguments, forced))
        print("\n".join([*notes, *dry_run.format_plan(jobs)]))
        return 0
    if run_lock.is_held():
        print(run_lock.refusal())
        return 1
    restore_records()
    before = modified_ns(MANIFEST)
    os.environ[console.ARGUMENTS] = shlex.join(chosen_by)
    os.environ[RUN_STARTED] = now()
    status = measure_again(arguments, disturbed) if disturbed else run_workflow(arguments)
    if status == 0 and record_name:
        print(describe_record(record_name))
    elif status == 0 and before and modified_ns(MANIFEST) == before:
        print(dry_run.UP_TO_DATE)
        console.print_summary(RESULTS)
    return status


def measure_again(arguments: list[str], disturbed: list[str]) -> int:
    """Run the workflow, with the jobs of disturbed records, each of which keeps its less disturbed record. Return the
    exit status."""
    stale = {path for job in dry_run.plan_jobs(arguments)[0] for path in job.outputs}
    records = [path for path in disturbed if path not in stale]
    again.copy_aside(RESULTS, records, stale)
    try:
        return run_workflow(folder.insert_options(arguments, ["--forcerun", *records] if records else []))
    finally:
        restore_records()


def restore_records() -> None:
    """Put back the records whose measurement was to be repeated and failed, and print which."""
    if restored := again.restore_missing(RESULTS):
        print(f"earlier record kept, since the new one is missing: {join_words(restored)}", flush=True)


def run_workflow(arguments: list[str]) -> int:
    """Run Snakemake to its end in a fork of this process, which saves imports. Return its exit status."""
    workflow = multiprocessing.get_context("fork").Process(target=run_snakemake, args=(arguments,))
    workflow.start()
    set_end_handlers(signal.default_int_handler)
    Thread(target=end_when_unread, args=(workflow,), daemon=True).start()
    try:
        workflow.join()
        assert workflow.exitcode is not None, "it has ended"
        return workflow.exitcode
    except KeyboardInterrupt:
        set_end_handlers(signal.SIG_IGN)
        end_processes(workflow)
        workflow.join()
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""  # the line of the job in progress
        print(f"{clear}stopped: what was finished is kept, and {console.format_make_command()} goes on from there")
        return INTERRUPTED


def run_snakemake(arguments: list[str]) -> None:
    """Run Snakemake in its own process group, which does not receive the Ctrl-C of the terminal."""
    os.setpgid(0, 0)
    end_with_parent(signal.SIGKILL)
    set_end_handlers(signal.SIG_DFL)
    from snakemake.cli import args_to_api, parse_args
    from snakemake.exceptions import print_exception

    sys.argv = ["snakemake", *arguments]  # the Snakefile's process reads the options that choose the settings from here
    try:
        parser, options = parse_args(arguments)
        # A limit of jobs a second wakes the scheduler once a second for every job that has ended, and delays the exit.
        options.max_jobs_per_timespan = None
        succeeded = args_to_api(options, parser)
    except Exception as error:
        print_exception(error)
        succeeded = False
    sys.exit(0 if succeeded else 1)


def list_measured_records(config: dict) -> list[str]:
    """Return the names of the records that a run with these settings measures. Raises UserError."""
    return machine_checks.find_cells(settings.complete(config), discovery.discover()).measured()


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends, however that ends, `kill -9` included."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_processes(workflow: BaseProcess) -> None:
    """End every process of a run. Snakemake is killed: it would print the trace of a Ctrl-C, and its next run does what
    is left to do."""
    with contextlib.suppress(psutil.Error):  # it may have ended
        children = psutil.Process(workflow.pid).children(recursive=True)
        workflow.kill()
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.terminate()


def end_when_unread(workflow: BaseProcess) -> None:
    """End the run once nobody reads what it prints, as after `make | head`: Snakemake would wait for ever."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # errors alone are reported
    watch.poll()
    end_processes(workflow)


def set_end_handlers(handler: Callable | signal.Handlers) -> None:
    """Handle the signals that end a run; those that the caller ignores, as nohup does, stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def count_wanted_gpus(config: dict) -> int:
    """Return how many GPUs the configuration asks for, at least 1."""
    devices = config.get("devices", "auto")
    if isinstance(devices, list):  # names that are not valid are refused later
        return max(1, sum(str(name).startswith("gpu") for name in devices))
    return max(1, len(discovery.discover()) - 1) if devices == "all" else 1


def record_path(name: str) -> str:
    """Return the path of a record from its name."""
    return f"{RESULTS}/{name}.json"


def describe_record(name: str) -> str:
    """Return the line that the job of a record printed. Raises UserError and OSError."""
    device, rule, case = name.split("/", 2)
    query = read(DeviceRecord, record_path(f"{device}/device_query"))
    return job_lines.format_job_line(read_record(Path(record_path(name))), f"{rule} {device} {case}", query)


def modified_ns(path: Path) -> int | None:
    """Return when a file was modified, in nanoseconds; None if it does not exist."""
    return path.stat().st_mtime_ns if path.exists() else None


if __name__ == "__main__":
    print_what_can_be_printed()
    if "MAKELEVEL" in os.environ:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != PARENT:
            sys.exit(INTERRUPTED)
    try:
        sys.exit(main(sys.argv[1:]))
    except (UserError, OSError) as error:
        sys.exit(str(error))
