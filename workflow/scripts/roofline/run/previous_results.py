"""What becomes of results that are there already: kept, set aside, never overwritten with another card's."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

from roofline.core.formatting import count_words
from roofline.core.terms import UserError
from roofline.measure import lock
from roofline.records.base import Record, RunRecord, read
from roofline.records.cards import KnownCards
from roofline.records.counters_record import ProfilerRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.manifest_record import Manifest
from roofline.table.rows import Roofline
from roofline.table.run_records import KINDS, read_record

PREVIOUS = "previous"
RUNS_OWN: dict[str, type[Record]] = {
    "roofline.json": Roofline,
    "known_cards.json": KnownCards,
    "manifest.json": Manifest,
}


def require_writable(outputs: Iterable[str]) -> None:
    """Raises UserError or OSError, before anything is measured, if an output, a log or a lock could not be written."""
    os.close(lock.open_lock_file(lock.HOST_LOCK))
    parents = {parent for path in outputs for parent in Path(path).parents if parent != Path()}
    logs = {Path("logs", *parent.parts[1:]) for parent in parents}
    faults = [f"{path} is a folder, not a file: move it away" for path in outputs if os.path.isdir(path)]
    there = {next(filter(os.path.lexists, (path, *path.parents))) for path in {*parents, *logs, Path(".snakemake")}}
    faults += [f"{path} is not a folder: move it away" for path in sorted(there) if not os.path.isdir(path)]
    closed = [path for path in sorted(there) if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK)]
    if closed and not os.access(".", os.W_OK):
        closed = [Path()]
    outermost = [path.absolute() for path in closed if not set(closed) & set(path.parents)]
    faults += [f"{path}/ cannot be written: make it a folder of yours (chown, chmod u+w)" for path in outermost]
    if faults:
        raise UserError(faults)


def require_this_version(paths: Iterable[str], results: Path) -> None:
    """Raises UserError, in one line, if results were written by another version of this code."""
    for path in (Path(path) for path in paths if path.endswith(".json")):
        try:
            content = json.loads(path.read_bytes())
            found, kind = content["schema_version"], KINDS.get(content.get("kind"), RunRecord)
        except (OSError, ValueError, LookupError, TypeError):
            continue  # missing, or corrupt
        kind = RUNS_OWN.get(path.relative_to(results).as_posix(), kind)
        if found != (expected := kind.model_fields["schema_version"].default):
            aside = _free_name(results.with_name(f"{results.name}-version-{found}"))
            raise UserError(f"{path} is of version {found}; this code writes version {expected}: mv {results} {aside}")


def accept_future(results: Path) -> None:
    """Have what was written while the clock was ahead be as old as it can: Snakemake would refuse what follows."""
    now = time.time_ns()
    ahead = sorted((age, path) for path in results.rglob("*") if (age := path.lstat().st_mtime_ns) > now)
    for place, (_, path) in enumerate(ahead):
        os.utime(path, ns=(now, now - (len(ahead) - place) * 1000))
    if ahead:
        print(
            f"{count_words(len(ahead), 'file')} in {results}/ are from when the clock was ahead: kept", file=sys.stderr
        )


def set_aside_corrupt(paths: Iterable[str], results: Path, dry: bool = False, counters: bool = False) -> None:
    """Set aside what cannot be read, and refused counters if they are required. A dry run only names the files."""
    folder = results / PREVIOUS / f"corrupt-{_stamp()}"
    if not dry:
        accept_future(results)
    for path in (Path(path) for path in paths if path.endswith(".json") and os.path.exists(path)):
        try:
            _require_sound(path, results, counters)
        except (UserError, OSError) as error:
            aside = _free_name(folder / path.relative_to(results))
            print(f"{error}\n{path} is corrupt: a run sets it aside as {aside} and makes it again", file=sys.stderr)
            if not dry:
                aside.parent.mkdir(parents=True, exist_ok=True)
                path.rename(aside)


def _require_sound(path: Path, results: Path, counters: bool) -> None:
    """Raises UserError for what cannot be read, and for refused counters if they are required."""
    kind = RUNS_OWN.get(path.relative_to(results).as_posix())
    record = read(kind, path) if kind else read_record(path)
    if counters and isinstance(record, ProfilerRecord) and record.refused_reason:
        raise UserError(f"{path}: counters are required, and were refused: {record.refused_reason}")


def set_aside_other_cards(present: Mapping, results: Path) -> None:
    """Move the results of a device whose UUID or name is not today's to results/previous/, whole."""
    for device, identity in present.items():
        try:
            was = read(DeviceRecord, results / device / "device_query.json")
        except (OSError, UserError):
            continue
        if (was.uuid, was.name) != (identity.uuid, identity.name):
            slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{device}-{was.name}-{was.uuid[-8:]}")
            aside = _free_name(results / PREVIOUS / f"{slug}-{_stamp()}")
            aside.mkdir(parents=True)
            for path in (results / device, *filter(Path.is_file, sorted(results.iterdir()))):
                shutil.move(path, aside / path.name)
            now = f"{identity.name} ({identity.uuid})"
            print(f"{device} was {was.name} ({was.uuid}) and is {now} now: see {aside}", file=sys.stderr)


def _free_name(path: Path) -> Path:
    names = chain([path], (path.with_name(f"{path.name}.{number}") for number in count(1)))
    return next(name for name in names if not name.exists())


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
