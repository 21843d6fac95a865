"""Two checkouts of this project measured in turns on this machine, A B B A, each run in a folder of its own."""

import time
from datetime import UTC, datetime
from pathlib import Path

from roofline import devices
from roofline.analysis.quantities import Run
from roofline.run import checkout, folder, run_lock, settings
from roofline.run.archive import Refused
from roofline.run.paths import RESULTS
from roofline.run.runs import of_records

TURNS = ("a1", "b1", "b2", "a2")  # so that a machine that warms up steadily slows both sides alike


def alternate(other: Path, arguments: list[str]) -> tuple[list[Run], list[Run]]:
    """The runs of this checkout and of the other. What each is, is printed as it begins.

    Raises Refused and Failed of run/folder.py in a line, settings.Faults, CorruptRecord and OSError.
    """
    roots = {"a": settings.CHECKOUT, "b": checkout_at(other)}
    config, options = folder.called_with(arguments)
    checked = settings.complete(config)
    settings.choose_devices(checked, devices.discover())
    where = RESULTS / "checkouts" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    sources = {side: checkout.describe(root) for side, root in roots.items()}
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    if run_lock.is_held():
        raise Refused(run_lock.refusal())
    run_lock.hold()
    for number, turn in enumerate(TURNS, 1):
        side, start = turn[0], time.monotonic()
        who = f"{side.upper()} is {told(roots[side], sources[side])}"
        print(f"run {number} of {len(TURNS)}: {who}; into {where / turn}/", flush=True)
        folder.prepare(where / turn, config, roots[side])
        folder.run_logged(where / turn, options, roots[side])
        print(f"run {number} of {len(TURNS)}: {time.monotonic() - start:.0f} s", flush=True)
        runs[side].append(of_records(where / turn, checked.as_dict, sources[side]))
    return runs["a"], runs["b"]


def checkout_at(path: Path) -> Path:
    """The root of a checkout. Raises Refused."""
    for name in ("Snakefile", "workflow/scripts/roofline"):
        if not (path / name).exists():
            raise Refused(f"RUN: {path} is no checkout of this project, {name} is not in it")
    return path.resolve()


def told(root: Path, sources: checkout.Sources) -> str:
    commit = f"commit {sources.commit[:7]}" if sources.commit else "commit not known"
    return f"{root} ({commit}{', with changes' if sources.dirty else ''})"
