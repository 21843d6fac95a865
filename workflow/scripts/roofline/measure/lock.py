"""One measurement at a time on a host, whatever the number of workflows: CPU work disturbs launch latencies."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

HOST_LOCK = Path("/tmp/roofline-measuring.lock")


@contextlib.contextmanager
def host_lock() -> Iterator[None]:
    """Hold the one lock of this host under which anything is timed. The kernel drops it when its process ends."""
    file = take_host_lock()
    try:
        yield
    finally:
        os.close(file)


def take_host_lock() -> int:
    """Take it for the rest of the process, or until the file that is returned is closed."""
    file = _opened()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another measurement on this machine to end", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _opened() -> int:
    """The lock's file, to read: a lock needs no more, and so it may be another user's."""
    try:
        with contextlib.suppress(FileNotFoundError):
            return os.open(HOST_LOCK, os.O_RDONLY)
        return os.open(HOST_LOCK, os.O_RDONLY | os.O_CREAT, 0o644)
    except PermissionError:
        raise PermissionError(
            f"{HOST_LOCK} belongs to another user: remove it, or have that user remove it, and run again"
        ) from None
