"""All pictures of a run, drawn in parallel processes."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from roofline.core.terms import BYTES_AXIS_KEY
from roofline.report import (
    all_reduce_figure,
    fit_figure,
    instruction_figure,
    load_figure,
    operator_figure,
    roofline_figure,
    sweep_figure,
)
from roofline.report.figure_style import add_failures, new_empty_figure, save, styled
from roofline.report.roofline_content import picture_names
from roofline.report.words import format_failures
from roofline.table.rows import Roofline

Drawing = tuple[Callable[[], Figure], set[str]]  # with the devices that it shows


def drawings(roofline: Roofline) -> dict[str, Drawing]:
    """Return a drawing of each picture of which something was measured, by the name of its file."""
    by_name: dict[str, Drawing] = {}
    kinds = {device: row.device_kind for device, row in roofline.devices.items()}
    for device, names in picture_names(kinds).items():
        by_name |= dict.fromkeys(names, (partial(roofline_figure.draw_roofline, roofline, device), {device}))
    for name, about in roofline.operator_info.items():
        devices = {cell.device for cell in roofline.operators if cell.operator == name and cell.fraction_of_roof}
        by_bytes = about.axis and about.axis.key == BYTES_AXIS_KEY  # its cases do not differ in intensity
        draw_operator = roofline_figure.draw_operator if by_bytes else operator_figure.draw_operator_shares
        if devices:
            by_name[f"{about.picture}.png"] = partial(draw_operator, roofline, name), devices
    loads = [ceiling for ceiling in roofline.ceilings if ceiling.kind == "compute" and ceiling.sustained]
    for name, rows, draw_rows in (
        ("sweep.png", roofline.sweeps, sweep_figure.draw_sweeps),
        ("energy.png", roofline.energy_fits, fit_figure.draw_energy_fits),
        ("load.png", loads, load_figure.draw_loads),
        ("all_reduce.png", roofline.all_reduces, all_reduce_figure.draw_all_reduces),
        ("instruction_roofline.png", roofline.instructions, instruction_figure.draw_instructions),
    ):
        if rows:
            by_name[name] = partial(draw_rows, roofline), {row.device for row in rows}
    return by_name


def draw(
    folder: Path,
    roofline: Roofline,
    dpi: float,
    names: Collection[str] = (),
    start_worker: Callable[[], None] = lambda: None,
) -> None:
    """Write the pictures of these names, or all of them, into a folder; one of nothing measured says so.

    `start_worker` is called first in each process that draws, to have it end with this one.
    """
    by_name, jobs = drawings(roofline), []
    for name in names or by_name:
        draw_figure, devices = by_name.get(name, (None, ()))
        failures = format_failures(check for check in roofline.doubting_failures if check.device in devices)
        jobs.append((draw_figure, folder / name, failures))
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    fork = multiprocessing.get_context("fork")
    try:
        pool: Executor = ProcessPoolExecutor(workers, mp_context=fork, initializer=_start, initargs=(start_worker,))
    except OSError:  # /dev/shm, where its semaphores belong, cannot be written
        pool = ThreadPoolExecutor(1)
    with pool:
        for job in [pool.submit(_draw, *job, dpi) for job in jobs]:
            job.result()


def _draw(draw_figure: Callable[[], Figure] | None, path: Path, failures: list[str], dpi: float) -> None:
    with styled():
        figure = draw_figure() if draw_figure else new_empty_figure(path.stem, "No cell with a roof in this run.")
        save(add_failures(figure, failures), [path], dpi)


def _start(start_worker: Callable[[], None]) -> None:
    """Ctrl-C reaches the process that waits for this one, and ends both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    start_worker()
