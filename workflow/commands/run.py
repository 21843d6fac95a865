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
signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))  # imports take a second

import argparse
import contextlib
import ctypes
import multiprocessing
import select
import shlex
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.formatting import join_words
from roofline.core.terms import DEVICE_TRAITS, UserError, select_accelerators
from roofline.devices import discovery
from roofline.records.base import read
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS
from roofline.report import job_lines
from roofline.run import again, console, dry_run, folder, run_lock, settings, targets
from roofline.run.jobs import RUN_STARTED, now, print_what_can_be_printed
from roofline.table.run_records import read_record

PR_SET_PDEATHSIG = 1
MANIFEST = RESULTS / "manifest.json"
CORES_PER_GPU = 2  # of Snakemake's: for a measurement, and for the next one's imports


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cell")
    parser.add_argument("--again", action="store_true")
    given, arguments = parser.parse_known_args(arguments)
    config, chosen_by = folder.called_with(arguments)
    wanted = asked(config) if given.cell is not None or given.again else []
    cell = None if given.cell is None else targets.find(given.cell, wanted)
    disturbed = again.list_disturbed_records(RESULTS, wanted) if given.again else []
    if given.again and not disturbed:
        print(again.NOTHING_DISTURBED)
        return 0
    arguments = ["--cores", str(CORES_PER_GPU * gpus_wanted(config)), *arguments]
    arguments = folder.with_targets(arguments, [path_of(cell)] if cell else [])
    if dry_run.DRY.intersection(arguments):
        jobs, notes = dry_run.plan(folder.with_options(arguments, ["--forcerun", *disturbed] if disturbed else []))
        print("\n".join([*notes, *dry_run.lines(jobs)]))
        return 0
    if run_lock.is_held():
        print(run_lock.refusal())
        return 1
    put_back()
    before = made_at(MANIFEST)
    os.environ[console.ARGUMENTS] = shlex.join(chosen_by)
    os.environ[RUN_STARTED] = now()  # of both passes of --again
    status = measure_again(arguments, disturbed) if disturbed else 0
    status = status or run_workflow(arguments)
    if status == 0 and cell:
        print(line_of(cell))
    elif status == 0 and before and made_at(MANIFEST) == before:
        print(dry_run.UP_TO_DATE)
        console.summarise(RESULTS)
    return status


def measure_again(arguments: list[str], disturbed: list[str]) -> int:
    """Measure records again with all that their jobs make, but for those that are stale, which the run measures in any
    case. Returns the status."""
    stale = {path for job in dry_run.plan(arguments)[0] for path in job.outputs}
    if not (records := [path for path in disturbed if path not in stale]):
        return 0
    jobs, _ = dry_run.plan(folder.with_options(arguments, ["--forcerun", *records]))
    records = [path for job in jobs if {*records} & {*job.outputs} for path in job.outputs]
    try:
        again.set_aside(RESULTS, records)
        return run_workflow(folder.with_targets(arguments, records))
    finally:
        put_back()


def put_back() -> None:
    if kept := again.restore_less_disturbed(RESULTS):
        print(f"earlier record kept, since the new one is missing or as disturbed: {join_words(kept)}", flush=True)


def run_workflow(arguments: list[str]) -> int:
    """Run Snakemake to its end in a fork of this process, which saves imports. Returns its status."""
    workflow = multiprocessing.get_context("fork").Process(target=snakemake, args=(arguments,))
    workflow.start()
    on_end(signal.default_int_handler)
    Thread(target=end_when_unread, args=(workflow,), daemon=True).start()
    try:
        workflow.join()
        return workflow.exitcode
    except KeyboardInterrupt:
        on_end(signal.SIG_IGN)
        interrupt(workflow)
        workflow.join()
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""  # the line of the job in progress
        print(f"{clear}stopped: what was finished is kept, and {console.make()} goes on from there")
        return INTERRUPTED


def snakemake(arguments: list[str]) -> None:
    """Run Snakemake in its own process group, which does not receive the Ctrl-C of the terminal."""
    os.setpgid(0, 0)
    end_with_parent(signal.SIGKILL)
    on_end(signal.SIG_DFL)
    from snakemake.cli import main
    from snakemake.settings.types import MaxJobsPerTimespan

    # Its default rate limit wakes the scheduler once a second for every job that has ended, and delays the exit.
    parse = MaxJobsPerTimespan.parse_choice
    MaxJobsPerTimespan.parse_choice = lambda limit: None if limit == "100/1s" else parse(limit)
    sys.argv = ["snakemake", *arguments]
    main()


def asked(config: dict) -> list[str]:
    """The cells that a run with these settings measures. Raises UserError."""
    return targets.Cells(settings.complete(config), discovery.discover()).measured()


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends, however that ends, `kill -9` included."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def interrupt(workflow: multiprocessing.Process) -> None:
    """End every process of a run. Snakemake at once: it would trace a Ctrl-C, and its next run does what it left."""
    with contextlib.suppress(psutil.Error):  # it may have ended
        children = psutil.Process(workflow.pid).children(recursive=True)
        workflow.kill()
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.terminate()


def end_when_unread(workflow: multiprocessing.Process) -> None:
    """As after `make | head`: Snakemake would wait for ever."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # errors alone are reported
    watch.poll()
    interrupt(workflow)


def on_end(do: Callable | signal.Handlers) -> None:
    """What signals that end a run do from now on; those that the caller ignores, as nohup does, stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, do)


def gpus_wanted(config: dict) -> int:
    """How many GPUs the configuration asks for, or 1."""
    wanted = config.get("devices", "auto")
    if isinstance(wanted, list):
        known = [
            name for name in map(str, wanted) if discovery.kind_from_name(name) in DEVICE_TRAITS
        ]  # others are refused later
        return max(1, len(select_accelerators(known, discovery.kind_from_name)))
    return max(1, len(discovery.discover()) - 1) if wanted == "all" else 1


def path_of(cell: str) -> str:
    return f"{RESULTS}/{cell}.json"


def line_of(cell: str) -> str:
    """The line that the job which measured it left. Raises UserError and OSError."""
    device, rule, case = cell.split("/", 2)
    query = read(DeviceRecord, path_of(f"{device}/device_query"))
    return job_lines.format_job_line(read_record(Path(path_of(cell))), f"{rule} {device} {case}", query)


def made_at(path: Path) -> int | None:
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
