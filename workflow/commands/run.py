"""make: run the workflow, go on after a run that was killed, and show where the results are.

A killed Snakemake leaves its lock, which names no process, and the job that was running. A living run's lock is
never touched: a run is known by its process, and by a lock of ours that the kernel drops when it dies.
"""

import contextlib
import itertools
import select
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import psutil

from roofline.run import announcement, previous_results, settings

RESULTS = Path("results")
LOCKS = Path(".snakemake/locks")
SNAKEMAKE = [sys.executable, "-m", "snakemake"]
PATIENCE_S = 30
LOOK_EVERY_S = 2
INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    try:
        settings.require_readable(_named_configurations(arguments))
    except settings.Faults as faults:
        print("\n".join(faults.lines))
        return 1
    here = Path.cwd()
    living = [process.pid for process in _processes_in(here) if _is_workflow(process)]
    if living or previous_results.run_is_going_on():
        who = f" (process {living[0]})" if living else ""
        print(f"another run is going on in this folder{who}: wait for it to end")
        return 1
    orphans = [process for process in _processes_in(here) if _is_job(process)]
    if orphans:
        print(f"ending {len(orphans)} job of a run that was killed; what it was measuring is measured again")
        _end(orphans)
    if LOCKS.is_dir() and any(LOCKS.iterdir()):
        print("a run was killed here: going on from what it had finished")
        # Where even this fails, the run below says why in one line.
        subprocess.run([*SNAKEMAKE, "--unlock", "--quiet", "all"], stderr=subprocess.DEVNULL)
    before = _made_at()
    status = _run(arguments)
    if status == 0 and before and _made_at() == before:
        print("nothing to be done: every result is up to date")
        announcement.summarise(RESULTS)
    return status


def _run(arguments: list[str]) -> int:
    """Snakemake's exit status. On Ctrl-C, which reaches it too, wait until it has ended its job.

    Where nobody reads what it prints any more, as after `make | head`, it would wait for ever: it is interrupted.
    """
    workflow = subprocess.Popen([*SNAKEMAKE, "--cores", "1", *arguments])
    try:
        while workflow.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return workflow.wait(LOOK_EVERY_S)
            if unread(sys.stdout.fileno(), sys.stderr.fileno()):
                _interrupt(workflow)
                return INTERRUPTED
        return workflow.returncode
    except KeyboardInterrupt:
        workflow.wait()
        print("stopped: what was finished is kept, and the next make goes on from there")
        return INTERRUPTED


def unread(*descriptors: int) -> bool:
    """Whether one of them leads into a pipe whose reader is gone."""
    watch = select.poll()
    for descriptor in descriptors:
        watch.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def _interrupt(workflow: subprocess.Popen) -> None:
    workflow.send_signal(signal.SIGINT)
    try:
        workflow.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        workflow.kill()
        workflow.wait()


def _named_configurations(arguments: list[str]) -> list[str]:
    """Files behind --configfile, which Snakemake itself reads without a kind word about their faults."""
    places = [i for i, argument in enumerate(arguments) if argument in ("--configfile", "--configfiles")]
    named = [argument.partition("=")[2] for argument in arguments if argument.startswith("--configfile=")]
    for place in places:
        named += itertools.takewhile(lambda argument: not argument.startswith("-"), arguments[place + 1 :])
    return named


def _made_at() -> int | None:
    manifest = RESULTS / "manifest.json"
    return manifest.stat().st_mtime_ns if manifest.exists() else None


def _processes_in(folder: Path) -> list[psutil.Process]:
    """Processes of this user that work in a folder, but for this one and its parents."""
    mine = {process.pid for process in [psutil.Process(), *psutil.Process().parents()]}
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in mine and Path(process.cwd()) == folder:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_job(process: psutil.Process) -> bool:
    return any("/.snakemake/scripts/" in part for part in _command(process))


def _is_workflow(process: psutil.Process) -> bool:
    command = _command(process)
    named = any(Path(part).name == "snakemake" for part in command[:3]) or "snakemake" in command[1:3]
    return named and not _is_job(process)


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.terminate()
    for process in psutil.wait_procs(processes, PATIENCE_S)[1]:
        process.kill()
    psutil.wait_procs(processes, PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
