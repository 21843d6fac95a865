"""One run per folder, known by a lock that the kernel drops when the run dies, and no job that outlives its run."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from threading import Thread

from roofline.core.disturbance import RUN_PROCESS_VARIABLE
from roofline.measure import lock

LOCK = Path(".snakemake", "roofline-run.lock")
HELD = "ROOFLINE_RUN_LOCK"  # the path of the lock that a job's run holds; jobs inherit it
_held_files: list[int] = []  # open until this process ends


def hold() -> None:
    """Hold this folder for as long as this process lives. Raises OSError while another run is going on there."""
    if _held_files:
        return
    LOCK.parent.mkdir(exist_ok=True)
    file = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    take(file, fcntl.LOCK_EX)
    _held_files.append(file)
    os.truncate(file, 0)
    os.write(file, str(os.getpid()).encode())
    os.environ[HELD] = str(LOCK.absolute())
    os.environ.setdefault(RUN_PROCESS_VARIABLE, str(os.getpid()))  # a run within another is a part of it


def take(file: int, kind: int) -> None:
    """Take the lock of an open file, of this kind of fcntl. Raises OSError, in one line, while another run holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        number = os.pread(file, 20, 0).decode()
        raise OSError(f"another run is going on in this folder (process {number}): wait for it to end") from None


def end_with_run() -> None:
    """Have this job end when its run does, however that ends: its results would belong to no run."""
    if path := os.environ.get(HELD):
        Thread(target=_wait_for_the_lock, args=(path,), daemon=True).start()


def take_turn(devices: list[str], modules: Iterable[str], say_waiting: Callable[[str], None]) -> None:
    """Hold the devices that a job uses, once they are free; a GPU's next job imports modules while it waits.

    Raises PermissionError, in one line, if files of another user are in the way.
    """
    if devices and lock.HOST_LOCK not in devices:
        with contextlib.suppress(Exception):  # the device says why
            for name in ("cupy", "roofline.devices.gpu.gpu_device", "roofline.report.job_lines", *modules):
                import_module(name)
            import_module("roofline.devices.gpu.nvml").initialise()  # takes 0.05 s
    lock.take_locks(devices, say_waiting)


def _wait_for_the_lock(path: str) -> None:
    """Wait in the kernel, which takes no time from the measurement, and end this process."""
    with open(path, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os._exit(1)
