"""One measuring job at a time on a host: a job that waits for its turn only waits, and ends with its run."""

import sys

from roofline.measure.lock import take_host_lock
from roofline.run.run_lock import end_with_run


def take_turn() -> None:
    """Call before anything else is imported: imports and an opened device would disturb who measures now."""
    end_with_run()
    try:
        take_host_lock()
    except PermissionError as error:
        sys.exit(str(error))
