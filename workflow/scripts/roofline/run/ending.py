"""How a run or another command ends: at once, with all its processes, and in one line at most."""

import contextlib
import ctypes
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from roofline.core.terms import UserError, describe_error
from roofline.records.files import remove_temporary
from roofline.run.jobs import print_what_can_be_printed

INTERRUPTED = 130  # the exit status, as a shell gives it after Ctrl-C
PR_SET_PDEATHSIG = 1
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and ends of lines
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
            signal.signal(number, lambda *_: _end_all(last_words))
    signal.signal(signal.SIGPIPE, lambda *_: _end_all(last_words))  # Python itself ignores it


def _end_all(last_words: Callable[[], str] | None = None) -> NoReturn:
    """End this process and those that it started. Not by an exception: Snakemake would print its trace, and Python
    ignores what is raised in a callback."""
    for number in (*SIGNALS, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    BEGUN.set()
    _end_started()  # what lives longer ends with the run's lock
    remove_temporary()
    words = last_words() if last_words else ""
    for number in SIGNALS:  # for a reader that stalls
        signal.signal(number, signal.SIG_DFL)
    if words:  # not by print, which may be what was interrupted
        with contextlib.suppress(OSError):  # the terminal may be gone
            os.write(sys.stdout.fileno(), f"{words}\n".encode(errors="replace"))
    os._exit(INTERRUPTED)


def _end_started() -> None:
    """End the processes that this one started, and those that they started."""
    import psutil  # measuring jobs import the API of tools

    started = psutil.Process().children(recursive=True)
    for process in started:
        with contextlib.suppress(psutil.Error):  # it may have ended
            process.terminate()
    psutil.wait_procs(started, timeout=PATIENCE_S)


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends, however that ends, `kill -9` included."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it has ended already
        os._exit(INTERRUPTED)


class _PlainText(io.TextIOWrapper):
    """An output without control characters, by which a name in an archive or a trace could rule the terminal."""

    def write(self, text: str) -> int:
        """Write a text with a space for each control character."""
        return super().write(CONTROL.sub(" ", text))


def exit_with(main: Callable[[list[str]], int], failed: int = 1) -> NoReturn:
    """End the program with the status that `main` returns for its arguments.

    An error of the user or of the system is one line, and the status is `failed`; so it is after any other exception,
    of which the traceback is printed. At a signal, or where nobody reads what it prints, it ends without a word: what
    it unpacked is removed, and what it started ends too.
    """
    print_what_can_be_printed()
    if sys.__stdout__ and sys.stdout is sys.__stdout__:
        encoding = sys.__stdout__.encoding
        sys.stdout = _PlainText(sys.__stdout__.detach(), encoding, "replace", line_buffering=os.isatty(1))
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: _end_all())
    status = failed
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as of `| head`
        status = 128 + signal.SIGPIPE
    except (UserError, OSError) as error:
        status = failed
        show_error(error)
    except Exception:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would try again when it ends, and print that this failed
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


def show_error(error: Exception) -> None:
    """Print an error of the user or the system, unless stderr takes no more either."""
    with contextlib.suppress(OSError):
        print(describe_error(error), file=sys.stderr, flush=True)
