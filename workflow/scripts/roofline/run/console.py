"""What the terminal shows of a run in place of Snakemake's own lines: its plan, its results, its summary."""

import contextlib
import logging
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from logging import LogRecord
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

from roofline.core.formatting import count_words
from roofline.core.terms import UserError, order_devices
from roofline.devices import host
from roofline.devices.discovery import kind_from_name
from roofline.plan.settings import CHECKOUT, Checked
from roofline.records.base import read
from roofline.records.files import RESULTS
from roofline.records.manifest_record import Manifest
from roofline.report import screen
from roofline.report.report_model import build_report
from roofline.run import again, ending, planned_jobs
from roofline.run.estimates import estimate_jobs, measures
from roofline.run.jobs import CONSOLE, RUN_CLOCK, RUN_STARTED, WAITING, count_bytes, find_entry, now, read_boot
from roofline.run.planned_jobs import PlannedJob
from roofline.table.rows import Roofline

UP_TO_DATE = "nothing to be done: all that was asked for is up to date"
STDERR = Path("logs/stderr.txt")  # what jobs write before they have a log, and Snakemake's own process
SNAKEMAKE_HANDLER = "DefaultStreamHandler"
OUT_OF_MEMORY = "killed by the system: out of memory, or over the limit of its container or Slurm job"
ENDED = f"its process was ended or crashed; its log or {STDERR} may say why"
REPEATED = {"RuleException", "CalledProcessError", "WorkflowError", None}  # errors that tell again of a failed job
LINE_COLUMNS = 120  # of a job's line, at most
LONG_JOB_S = 2.0  # a job of which progress is shown
INTERRUPT_S = 0.2  # at most, from the end of a job by Ctrl-C to that of the run
unwritten: list[OSError] = []  # of an output that takes no more, such as a file on a full disk: the run goes on
started_by: list[str] = []  # the words of make that started this run; [] for a plain `snakemake`


class Console(logging.Handler):
    """A handler of Snakemake's log that writes what users see; jobs leave their lines in logs/jobs.jsonl.

    A record of Snakemake is known by its event, never by its text. Warnings are left to Snakemake's own handler, and so
    are errors, at the end, but for those that tell again of a job that failed.
    """

    def __init__(self, workflow: Any, checked: Checked, corrupt: Sequence[str] = ()):
        super().__init__(logging.INFO)
        self.options = format_options(workflow)
        self._workflow, self._checked, self._corrupt = workflow, checked, corrupt
        self._snakemake: logging.Handler | None = None  # None: not installed
        self._early: list[LogRecord] = []  # from before anything is executed, as of --lint
        self._errors: list[LogRecord] = []
        self._executes, self._ended, self._failed = False, 0, 0
        self._planned: list[PlannedJob] | None = None
        self._running: dict[int, tuple[str, str]] = {}  # the output and the log of each job that has started
        self._in_front_since = time.monotonic()
        self._seconds: dict[str, float] = {}  # that each job is expected to take, by its first output
        self._noted_before, self._waited = count_bytes(), False
        self._oom_kills = host.count_oom_kills()
        self._stderr: TextIO | None = None  # the terminal's, once jobs write into a file

    def install(self, logger: logging.Logger) -> None:
        """Take the place of Snakemake's handler of the terminal; its log file stays as it is.

        That handler stays in a module of another workflow, and where users ask for more or less than usual of
        Snakemake, such as --verbose or --quiet all.
        """
        os.environ.setdefault(RUN_STARTED, now())
        os.environ.setdefault(RUN_CLOCK, f"{time.monotonic()} {read_boot()}")
        workflow, settings = self._workflow, self._workflow.output_settings
        quiet = {*(settings.quiet or ())}
        unusual = settings.verbose or settings.debug_dag or Quietness.ALL in quiet
        if not workflow.is_main_process or not workflow.modifier.is_main_snakefile() or unusual:
            return
        self._snakemake = next((one for one in logger.handlers if one.name == SNAKEMAKE_HANDLER), None)
        if self._snakemake:
            settings.quiet = quiet - {Quietness.PROGRESS, Quietness.RULES}  # needed to log finished jobs
            logger.removeHandler(self._snakemake)
            logger.addHandler(self)

    # ---------------------------------------------------------------- what Snakemake logs

    def emit(self, record: LogRecord) -> None:
        """Write what a record of Snakemake means for a user."""
        event, more = getattr(record, "event", None), vars(record)
        if event == LogEvent.WORKFLOW_STARTED:
            self._executes = True
        elif event == LogEvent.JOB_ERROR:
            self._show_failed(more["jobid"])
        elif record.levelno >= logging.ERROR:
            self._errors.append(record)
        elif not self._executes:
            self._early.append(record)
        elif record.levelno >= logging.WARNING:
            self._hand_over([record])
        elif event == LogEvent.RUN_INFO and self._planned is None:
            self._planned = planned = planned_jobs.list_planned_jobs(self._workflow, self._corrupt)
            if self._workflow.output_settings.dryrun:
                self._write("\n".join(planned_jobs.format_plan(planned)))
        elif event == LogEvent.JOB_INFO:
            output = next(iter(more["output"]), "").removesuffix(" (update)")  # which Snakemake adds
            self._running[more["jobid"]] = output, next(iter(more["log"]), "")
        elif event == LogEvent.JOB_FINISHED:
            self._show_finished(more["job_id"])

    def close(self) -> None:
        """Show at the end of Snakemake the errors that are left, or that there was nothing to be done."""
        if self._snakemake:
            undisturbed = self._executes and not self._errors and not sys.exc_info()[0]
            if undisturbed and self._planned is None and planned_jobs.is_complete(self._workflow):
                planned = planned_jobs.list_planned_jobs(self._workflow, self._corrupt)
                self._write("\n".join(planned_jobs.format_plan(planned)) if planned else UP_TO_DATE)
                if not self._workflow.output_settings.dryrun:
                    self.summarise(of_this_run=False)
            self._hand_over([] if self._executes else self._early)
            self._hand_over(self._errors)
        if self._stderr:
            os.dup2(self._stderr.fileno(), 2)
        self._executes, self._early, self._errors = False, [], []  # it is closed twice
        super().close()

    def _hand_over(self, records: list[LogRecord]) -> None:
        """Leave records to Snakemake's own handler, but errors that no more than repeat that a job has failed."""
        for record in records:
            repeated = record.levelno >= logging.ERROR and vars(record).get("exception") in REPEATED
            if self._snakemake and not (repeated and self._failed):
                self._clear()
                self._snakemake.handle(record)

    # ---------------------------------------------------------------- a run

    def announce(self) -> None:
        """Print how many measurements there are, about how long they take and what they cost. Start showing progress.

        From now on what is written to stderr goes to a file: jobs that are interrupted write traces there.
        """
        ending.end_on_signals(self._last_words)
        if not self._snakemake or self._workflow.touch:
            return
        os.environ[CONSOLE] = "1"
        planned, price = self._planned or [], self._checked.config.cost.usd_per_hour
        devices = [job.device for job in planned if job.device and measures(job.rule, self._checked)]
        total_s, self._seconds = estimate_jobs(planned, self._checked)
        cost = f", about ${price * total_s / 3600:.2f} at ${price:g} per hour" if price else ""
        devices_text = f" on {', '.join(order_devices(sorted({*devices}), kind_from_name))}" if devices else ""
        about = f"{max(5, round(total_s / 5) * 5)} s" if total_s < 100 else f"{total_s / 60:.1f} minutes"
        measurements, in_all = count_words(len(devices), "measurement"), count_words(len(planned), "job")
        self._write(f"{measurements}{devices_text}, about {about}{cost}; {in_all} in all.")
        WAITING.unlink(missing_ok=True)
        self._redirect_stderr()
        Thread(target=self._watch, daemon=True).start()

    def _redirect_stderr(self) -> None:
        STDERR.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # closed, as by 2>&-
            self._stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace")
            with open(STDERR, "w", encoding="utf-8") as file:
                os.dup2(file.fileno(), 2)
        if isinstance(self._snakemake, logging.StreamHandler) and self._stderr:
            self._snakemake.setStream(self._stderr)

    def _show_finished(self, job_id: int) -> None:
        output, _ = self._take(job_id)
        self._ended += 1
        total = len(self._planned or [])
        for line in find_entry(output, self._noted_before).get("lines", []):
            self._write(cut_to_width(f"[{self._ended:>{len(str(total))}}/{total}] {line}"))

    def _show_failed(self, job_id: int) -> None:
        output, log = self._take(job_id)
        self._ended, self._failed = self._ended + 1, self._failed + 1
        entry = find_entry(output, self._noted_before)
        if not entry and ending.BEGUN.wait(INTERRUPT_S):
            return
        oom_kills, self._oom_kills = self._oom_kills, host.count_oom_kills()
        why = entry.get("failed") or (OUT_OF_MEMORY if self._oom_kills > oom_kills else ENDED)
        self._write(f"{entry.get('name', output)} failed: {why} (log: {log})", self._stderr or sys.stderr)

    def _take(self, job_id: int) -> tuple[str, str]:
        if job_id == next(iter(self._running)):
            self._in_front_since = time.monotonic()
        return self._running.pop(job_id)

    def _watch(self) -> None:
        """Every second show the job in progress, on a terminal, and once that a job waits for another run."""
        while True:
            time.sleep(1)
            with self.lock or contextlib.nullcontext():
                if not self._waited and WAITING.exists():
                    self._waited = True
                    self._write(cut_to_width(WAITING.read_text(encoding="utf-8")))
                if os.isatty(1) and (line := self._describe_running_job()):
                    self._write(cut_to_width(line), end="")

    def _describe_running_job(self) -> str | None:
        """Return a line with the job that started first, its elapsed and its expected seconds; None for a short one.

        Jobs that started later wait for it, or run on another GPU.
        """
        elapsed = time.monotonic() - self._in_front_since
        if not self._running or elapsed < LONG_JOB_S:
            return None
        output, _ = next(iter(self._running.values()))
        expected = f" of about {max(1, self._seconds[output]):.0f}" if output in self._seconds else ""
        return f"  … {output.removeprefix(f'{RESULTS}/')}, {elapsed:.0f}{expected} s"

    def _write(self, text: str, file: TextIO | None = None, end: str = "\n") -> None:
        """Write a text in place of the line of the job in progress. Where nobody reads it, the run is about to end."""
        try:
            self._clear()
            print(text, file=file, end=end, flush=True)
        except BrokenPipeError:
            pass
        except OSError as error:
            unwritten.append(error)

    def _clear(self) -> None:
        if os.isatty(1):
            print("\r\x1b[K", end="", flush=True)

    # ---------------------------------------------------------------- its end

    def summarise(self, of_this_run: bool = True) -> None:
        """Print the summary of a run that has ended; nothing if it made no table, or if that cannot be read.

        Its time and cost are shown if they are `of_this_run`.
        """
        if not self._snakemake or self._workflow.touch or not planned_jobs.makes(self._workflow, "derive"):
            return
        try:
            roofline = read(Roofline, RESULTS / "roofline.json")
            times = read(Manifest, RESULTS / "manifest.json").times
        except (OSError, UserError):
            return
        width = shutil.get_terminal_size((screen.MOST_COLUMNS, 24)).columns if os.isatty(1) else None
        again_command = self.format_command("AGAIN=1")
        files = {"Report": "report.html", "picture": "roofline.png", "in words": "interpretation.md"}
        spent = (times.span_s, times.cost_usd) if of_this_run else (None, None)
        lines = [screen.format_summary(build_report(roofline), *spent, again_command, width)]
        lines.append(" · ".join(f"{what}: {RESULTS}/{name}" for what, name in files.items()))
        archive = self.format_command("archive")
        lines.append(f"Keep: {archive}, download {RESULTS}/archive/, then terminate the instance")
        self._write("\n".join(lines))

    def explain_failure(self) -> None:
        """Print what a failed run leaves."""
        self._hand_over(self._errors)
        self._errors = []
        if self._snakemake:
            named = "A job that failed is named above with its error and its log. " if self._failed else ""
            kept = f"Every finished record is kept: {self.format_command()} measures only what is missing."
            self._write(f"\nThe run did not finish. {named}{kept}")

    def _last_words(self) -> str:
        """Return what to say when the run is ended from outside. Puts back what was to be measured again."""
        again.restore_missing(RESULTS)
        clear = "\r\x1b[K" if os.isatty(1) else ""
        return f"{clear}stopped: what was finished is kept, and {self.format_command()} goes on from there"

    def format_command(self, target: str = "") -> str:
        """Return the command for `archive` or `AGAIN=1`, or to go on with this run, in the way in which it was started:
        by make, or by a plain `snakemake`, for which make may not be there."""
        if started_by:
            arguments = [f"ARGS={self.options.replace('$', '$$')}"] if self.options else []
            return shlex.join([*(["make", target] if target else started_by), *arguments])
        commands = CHECKOUT / "workflow" / "commands"
        programs = {"archive": f"python {commands}/archive.py", "AGAIN=1": f"python {commands}/run.py --again"}
        return " ".join(filter(None, [programs.get(target, "snakemake --cores 1"), self.options]))


def format_options(workflow: Any) -> str:
    """Return the options of Snakemake that choose the workflow and its settings, for the commands that follow."""
    settings, snakefile = workflow.config_settings, Path(workflow.main_snakefile)
    options = [] if snakefile.parent.samefile(".") else ["--snakefile", str(snakefile)]
    for name, values in (("--configfile", settings.configfiles), ("--config", settings.config_args)):
        options += [name, *map(str, values)] if values else []
    return shlex.join(options)


def cut_to_width(line: str) -> str:
    """Return the line, cut on a terminal to its width or to 120 columns, whichever is less, and unchanged elsewhere."""
    width = min(shutil.get_terminal_size().columns, LINE_COLUMNS)
    return line if len(line) <= width or not os.isatty(1) else f"{line[: width - 1]}…"
