"""What GPUs of one host sustain under load: each alone, and all at once. They share power and cooling."""

import subprocess
import sys
from collections.abc import Sequence

from roofline.records.memory import Loaded

SECONDS = 3.0


def together(names: Sequence[str], program: str) -> list[Loaded]:
    """`program` puts a card under load (workflow/scripts/loaded.py): a process for each."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", program, name, str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for worker in workers:
            worker.stdout.readline()
        alone = [_tflops([worker])[0] for worker in workers]
        rates = zip(names, alone, _tflops(workers), strict=True)
        return [Loaded(device=name, alone_tflops=own, together_tflops=shared) for name, own, shared in rates]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _tflops(workers: Sequence[subprocess.Popen]) -> list[float]:
    """Of one load on each of these, all at once."""
    for worker in workers:
        print(file=worker.stdin, flush=True)
    return [float(worker.stdout.readline()) for worker in workers]
