"""What is measured at the same time on a host: a lock for each GPU, and for what GPUs share.

    a GPU, by its UUID  one measurement on each
    HOST                cores and memory: exclusive for a measurement of the CPU, shared by those of GPUs
    HOST_PATH           from the host to a GPU: transfers, and calls whose latency is timed, one after another

A lock is the kernel's, on a file that every user may open, and ends with its process. The order GPUs by UUID, HOST,
HOST_PATH excludes deadlocks.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from roofline.core.disturbance import RUN_PROCESS_VARIABLE
from roofline.devices import host

LOCK_FOLDER = Path(os.environ.get(host.HOST_ROOT_VARIABLE, "/"), "tmp/roofline-locks")
HOST_LOCK, HOST_PATH_LOCK = "host", "host_path"
LOCKS_TAKEN_LAST = (HOST_LOCK, HOST_PATH_LOCK)  # in this order, after those of GPUs


def gpu_lock_name(uuid: str) -> str:
    """Return the name of a GPU's lock. MIG slices share the clock and power of their card, and have one lock."""
    return "MIG" if uuid.startswith("MIG-") else uuid


@contextlib.contextmanager
def hold_locks(lock_names: Collection[str]) -> Iterator[None]:
    """Hold the locks of what a measurement uses, while the block runs."""
    files = take_locks(lock_names)
    try:
        yield
    finally:
        for file in files:
            os.close(file)


def _print_waiting(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def take_locks(lock_names: Collection[str], say_waiting: Callable[[str], None] = _print_waiting) -> list[int]:
    """Take locks until the process ends or their files, which are returned, are closed.

    A line says that one is waited for, unless the run of this process itself holds it.

    The order is GPUs by UUID, HOST_LOCK, HOST_PATH_LOCK. With a GPU's lock HOST_LOCK is taken too, and shared. Raises
    PermissionError, in one line, if files of another user are in the way.
    """
    gpus = sorted({*lock_names} - {*LOCKS_TAKEN_LAST})
    files = [_take_lock(name, False, say_waiting) for name in gpus]
    if gpus or HOST_LOCK in lock_names:
        files.append(_take_lock(HOST_LOCK, bool(gpus), say_waiting))
    if HOST_PATH_LOCK in lock_names:
        files.append(_take_lock(HOST_PATH_LOCK, False, say_waiting))
    return files


def _take_lock(name: str, shared: bool, say_waiting: Callable[[str], None]) -> int:
    file, kind = open_lock_file(name), fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        if os.pread(file, 20, 0).decode() != _run_id():
            say_waiting(f"waiting for {name}: another run measures on this machine")
        fcntl.flock(file, kind)
    with contextlib.suppress(OSError):  # opened to read alone, where another user made it otherwise
        os.truncate(file, os.pwrite(file, _run_id().encode(), 0))
    return file


def open_lock_file(name: str) -> int:
    """Return the open file of a lock, which is made for all users where there is none.

    Raises PermissionError, in one line, where it cannot be opened.
    """
    path = LOCK_FOLDER / name
    try:
        with contextlib.suppress(FileExistsError):
            LOCK_FOLDER.mkdir()
            LOCK_FOLDER.chmod(0o1777)
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            os.fchmod(file, 0o666)
            return file
        try:
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except PermissionError:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)  # a lock needs no more
    except OSError as error:
        raise PermissionError(
            f"{path} cannot be opened ({error.strerror}): make {LOCK_FOLDER.parent} writable, or have the owner "
            f"of {LOCK_FOLDER} remove it, and run again"
        ) from None


def _run_id() -> str:
    """Return the number of the process that started this job, or of this process."""
    return os.environ.get(RUN_PROCESS_VARIABLE, str(os.getpid()))
