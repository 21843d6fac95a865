"""How a run ends that is ended from outside: at once, with all its processes, and in one line."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable

import psutil

INTERRUPTED = 130  # the exit status, as a shell gives it after Ctrl-C
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PATIENCE_S = 2.0  # for jobs to leave nothing half-written
BEGUN = threading.Event()  # set when the run begins to end


def end_on_signals(last_words: Callable[[], str]) -> None:
    """From now on end the run at a signal, and at the next line that it prints once nobody reads them, as after
    `make | head`.

    Signals that the caller ignores, as nohup does, stay ignored. Replaces what Snakemake does at SIGTERM: it would wait
    for its jobs.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: _end_run(last_words))
    signal.signal(signal.SIGPIPE, lambda *_: _end_run(last_words))  # Python itself ignores it


def _end_run(last_words: Callable[[], str]) -> None:
    """End this process and those that it started. Not by an exception: Snakemake would print its trace."""
    for number in (*SIGNALS, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    BEGUN.set()
    started = psutil.Process().children(recursive=True)
    for process in started:
        with contextlib.suppress(psutil.Error):  # it may have ended
            process.terminate()
    psutil.wait_procs(started, timeout=PATIENCE_S)  # what lives longer ends with the run's lock
    words = f"{last_words()}\n".encode(errors="replace")
    for number in SIGNALS:  # for a reader that stalls
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # the terminal may be gone. Not by print: it may have been interrupted itself
        os.write(sys.stdout.fileno(), words)
    os._exit(INTERRUPTED)
