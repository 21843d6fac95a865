"""Threads pinned to cores, and steps that time themselves."""

import contextlib
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread


class StepSeconds(float):
    """Seconds that a step measured itself and returns; they count instead of the time that its caller saw."""


class Workers:
    """One thread per core. Piece i of work always goes to worker i, so that it is in the caches and socket of its core.

    With `cpus`, each worker stays on one of them: for steps of milliseconds the kernel often woke two on one core.
    Queues take half the time of futures.
    """

    def __init__(self, count: int, cpus: Sequence[int] = ()):
        self.count = count
        self._queues: list[SimpleQueue] = [SimpleQueue() for _ in range(count)]
        for number, queue in enumerate(self._queues):
            Thread(target=_run_tasks, args=(number, queue, cpus[number : number + 1]), daemon=True).start()

    def __del__(self) -> None:
        for queue in self._queues:
            queue.put(None)

    def run(self, count: int, work: Callable[[int], object]) -> list:
        """Return the results of work(0), work(1), ... on the first `count` workers, once all are done.

        Raises the first error, by the number of the worker.
        """
        done: SimpleQueue = SimpleQueue()  # of the worker's number, the result, and an error in its place
        for queue in self._queues[:count]:
            queue.put((work, done))
        outcomes = sorted((done.get() for _ in range(count)), key=lambda outcome: outcome[0])
        for _, _, error in outcomes:
            if error:
                raise error
        return [result for _, result, _ in outcomes]


def _run_tasks(number: int, queue: SimpleQueue, cpus: Sequence[int]) -> None:
    """Run the tasks of a worker's queue until one is None."""
    if cpus:
        with contextlib.suppress(OSError):  # not every sandbox allows it
            os.sched_setaffinity(0, cpus)
    while task := queue.get():
        work, done = task
        try:
            done.put((number, work(number), None))
        except BaseException as error:
            done.put((number, None, error))
        del task, work, done  # they would keep arrays alive
