"""A measuring job waits until what it uses is free: it only waits then, and ends with its run."""

import sys

from roofline.measure import lock
from roofline.run.run_lock import end_with_run


def take_turn(snakemake) -> None:
    """Call before anything else is imported: imports and an opened device would disturb who measures now."""
    end_with_run()
    try:
        lock.take(snakemake.resources.uses.split())
    except PermissionError as error:
        sys.exit(str(error))
