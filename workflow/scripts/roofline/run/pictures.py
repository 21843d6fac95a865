"""All pictures of a run, each drawn in a process of its own: one after another takes several times as long."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from roofline.report import instruction_figure, load_figure, operator_figure, roofline_figure, sweep_figure
from roofline.report.figure_style import headline, save, styled
from roofline.report.tables import fail_lines
from roofline.run import run_lock
from roofline.table.rows import CheckResult, Roofline


def draw(folder: Path, roofline: Roofline, operators: Mapping[str, str], dpi: float, instructions: bool) -> None:
    """Write every picture into a folder; `operators` has those that have one of their own, by the picture's name.

    `instructions` says whether there is one of the instruction roofline.
    """
    failed, compute = fail_lines(roofline.faults), [one for one in roofline.ceilings if one.kind == "compute"]
    loaded = {one.device for one in compute if one.load}
    counted = {one.device for one in roofline.instructions}
    pictures = [
        (roofline_figure.draw, (roofline,), ["roofline.png", "roofline.svg"], []),  # which tells what failed by panel
        (load_figure.draw, (roofline,), ["load.png"], fail_lines(_on(loaded, roofline))),
        (sweep_figure.draw, (roofline,), ["sweep.png"], failed),
        *((operator_figure.draw, (roofline, name), [f"{picture}.png"], failed) for picture, name in operators.items()),
    ]
    if instructions:
        failed_there = fail_lines(_on(counted, roofline))
        pictures.append((instruction_figure.draw, (roofline,), ["instruction_roofline.png"], failed_there))
    workers = min(len(pictures), len(os.sched_getaffinity(0)))
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=fork, initializer=_end_with_the_job) as pool:
        drawn = [
            pool.submit(_draw, how, of, [folder / name for name in names], lines, dpi)
            for how, of, names, lines in pictures
        ]
        for picture in drawn:
            picture.result()


def _on(devices: Collection[str], roofline: Roofline) -> list[CheckResult]:
    return [fault for fault in roofline.faults if fault.device in devices]


def _draw(how: Callable, of: tuple, paths: Sequence[Path], lines: Sequence[str], dpi: float) -> None:
    with styled():
        figure = headline(how(*of), lines)
    save(figure, paths, dpi)


def _end_with_the_job() -> None:
    """Ctrl-C reaches the job itself, and a run that was killed leaves nobody behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_lock.end_with_run()
