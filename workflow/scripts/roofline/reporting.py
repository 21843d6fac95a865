"""What a job says: a line on the screen when it ends, everything else in its log."""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

TOTAL, COUNTER = "ROOFLINE_JOBS", "ROOFLINE_JOBS_ENDED"


@contextlib.contextmanager
def job(name: str, log_path: Path | str) -> Iterator[None]:
    """Run a job's body: what it prints goes to the screen and the log, a traceback to the log alone.

    A failure ends the process with status 1 after one line that names the job, the fault and the log.
    """
    path = Path(log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if sys.stdout.isatty():
        print(f"  … {name}", end="\r", flush=True)
    with open(path, "w", encoding="utf-8") as log, contextlib.redirect_stdout(_Tee(sys.stdout, log)):
        log.write(f"{name}, begun {now()}\n")
        try:
            yield
        except KeyboardInterrupt:
            log.write("interrupted\n")
            sys.exit(130)
        except Exception as error:
            traceback.print_exc(file=log)
            what = (str(error).splitlines() or [""])[0] or type(error).__name__
            print(f"{name} failed: {what} (log: {path})", file=sys.stderr, flush=True)
            sys.exit(1)
        log.write(f"{name}, ended {now()}\n")


def say(line: str) -> None:
    """One line on the screen when a job ends, with its place in the run."""
    print(f"{_progress()}{line}", flush=True)


def count_jobs(total: int, counter: Path) -> None:
    """Have the jobs of this run, which inherit the environment, tell their place among so many."""
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_bytes(b"")
    os.environ |= {TOTAL: str(total), COUNTER: str(counter.absolute())}


def _progress() -> str:
    counter, total = os.environ.get(COUNTER), os.environ.get(TOTAL)
    if not counter or not total:
        return ""
    with contextlib.suppress(OSError), open(counter, "ab") as ended:
        ended.write(b".")  # appending one byte is atomic, so that jobs at once do not miscount
        ended.flush()
        return f"[{ended.tell():>{len(total)}}/{total}] "
    return ""


def now() -> str:
    """The moment in UTC, ISO 8601, to the microsecond: the order of seal and measurements is read from it."""
    return datetime.now(UTC).isoformat()


class Stopwatch:
    def __init__(self):
        self.started_at = now()
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._start, 3)


def number(value: float) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 12.3, 123, 1234."""
    if value == 0:
        return "0"
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text or abs(value) >= 100 else f"{float(text):f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """A share in per cent with a space: 77 %, 0.31 %."""
    return f"{number(100 * share)} %" if share < 0.095 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """A time in the unit that reads best: 12.3 us, 4.56 ms, 7.89 s."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


class _Tee:
    def __init__(self, *files):
        self._files = files

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()
