"""What GPUs of one host sustain under load: each alone, and all at once. They share power and cooling."""

import time
from collections.abc import Sequence
from subprocess import PIPE, Popen
from sys import executable

from roofline.core.terms import UnsupportedError
from roofline.records.bandwidth_record import Loaded

REST_S = 1.0


def measure_together(names: Sequence[str], program: str) -> list[Loaded]:
    """`program` puts a card under load (workflow/scripts/load_server.py), in a process each. Raises Unsupported if one ends.

    Call it before a device is opened: that hides the other cards from this process and its children.
    """
    workers = [Popen([executable, program, name], stdin=PIPE, stdout=PIPE, text=True) for name in names]
    try:
        for worker in workers:
            worker.stdout.readline()  # it is ready
        alone = [_run_loads([worker])[0] for worker in workers]
        time.sleep(REST_S)  # the last one was under load until now
        rates = zip(names, alone, _run_loads(workers), strict=True)
        return [Loaded(device=name, alone_tflops=own, together_tflops=shared) for name, own, shared in rates]
    except (BrokenPipeError, ValueError):
        raise UnsupportedError("the load of a card ended") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _run_loads(workers: Sequence[Popen]) -> list[float]:
    """Of one load on each of these, all at once."""
    for worker in workers:
        print(file=worker.stdin, flush=True)
    return [float(worker.stdout.readline()) for worker in workers]
