"""One measurement at a time on a host, whatever the number of workflows: CPU work disturbs launch latencies."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

HOST_LOCK = Path("/tmp/roofline-measuring.lock")


@contextlib.contextmanager
def host_lock() -> Iterator[None]:
    """Hold the one lock of this host under which anything is timed."""
    import filelock

    lock = filelock.FileLock(HOST_LOCK, mode=0o666)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        print("waiting for another measurement on this machine to end", file=sys.stderr, flush=True)
        lock.acquire()
    except PermissionError:
        raise PermissionError(
            f"{HOST_LOCK} belongs to another user: remove it, or have that user remove it, and run again"
        ) from None
    try:
        yield
    finally:
        lock.release()
