"""What GPUs of one host sustain under load: each alone, and all at once. They share power and cooling."""

import time
from collections.abc import Sequence
from subprocess import PIPE, Popen
from sys import executable

from roofline.core.terms import UnsupportedError
from roofline.records.bandwidth_record import Loaded

PAUSE_S = 1.0  # after the last card alone, before all at once


def measure_together(names: Sequence[str], program: str) -> list[Loaded]:
    """Return the TFLOPS of each named GPU, under load alone and with all others.

    `program` (workflow/scripts/load_server.py) runs in a process for each. Raises UnsupportedError if a process ends.
    Call it before a device is opened: that hides the other cards from this process and its children.
    """
    workers = [Popen([executable, program, name], stdin=PIPE, stdout=PIPE, text=True) for name in names]
    try:
        for worker in workers:
            _read_line(worker)  # it is ready
        alone_rates = [_run_loads([worker])[0] for worker in workers]
        time.sleep(PAUSE_S)  # the last card was under load until now
        together_rates = _run_loads(workers)
        return [
            Loaded(device=name, alone_tflops=alone_rate, together_tflops=together_rate)
            for name, alone_rate, together_rate in zip(names, alone_rates, together_rates, strict=True)
        ]
    except (BrokenPipeError, ValueError):
        raise UnsupportedError("the load of a card ended") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _run_loads(workers: Sequence[Popen[str]]) -> list[float]:
    """Run a load on the GPU of each worker, all at once, and return their TFLOPS."""
    for worker in workers:
        print(file=worker.stdin, flush=True)
    return [float(_read_line(worker)) for worker in workers]


def _read_line(worker: Popen[str]) -> str:
    assert worker.stdout, "it is a pipe"
    return worker.stdout.readline()
