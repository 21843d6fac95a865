"""What becomes of results that are there already: kept, set aside, never overwritten with another card's."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from roofline.core.formatting import count_words
from roofline.core.terms import UserError
from roofline.devices.base import Identity
from roofline.measure import lock
from roofline.records.base import Record, RunRecord, read
from roofline.records.cards import KnownCards
from roofline.records.counters_record import ProfilerRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.files import below_results
from roofline.records.manifest_record import Manifest
from roofline.table.rows import Roofline
from roofline.table.run_records import KINDS, KNOWN_CARDS, read_record

PREVIOUS = "previous"
PICTURE_SUFFIXES = (".png", ".svg")
RUN_FILES: dict[str, type[Record]] = {"roofline.json": Roofline, KNOWN_CARDS: KnownCards, "manifest.json": Manifest}


def require_writable(outputs: Iterable[str]) -> None:
    """Raise UserError or OSError, before anything is measured, if an output, a log or a lock could not be written."""
    os.close(lock.open_lock_file(lock.HOST_LOCK))
    parents = {parent for path in outputs for parent in Path(path).parents if parent != Path()}
    logs = {Path("logs", *parent.parts[1:]) for parent in parents}
    faults = [f"{path} is a folder, not a file: move it away" for path in outputs if os.path.isdir(path)]
    existing = sorted({_nearest_existing(path) for path in {*parents, *logs, Path(".snakemake")}})
    faults += [f"{path} is not a folder: move it away" for path in existing if not os.path.isdir(path)]
    closed = [path for path in existing if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK)]
    if closed and not os.access(".", os.W_OK):
        closed = [Path()]
    outermost = [path.absolute() for path in closed if not set(closed) & set(path.parents)]
    faults += [f"{path}/ cannot be written: make it a folder of yours (chown, chmod u+w)" for path in outermost]
    if faults:
        raise UserError(faults)


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def require_this_version(paths: Iterable[str], results: Path) -> None:
    """Raise UserError, in one line, if results were written by another version of this code."""
    for path in (Path(path) for path in paths if _has_version(path)):
        try:
            content = json.loads(path.read_bytes())
            version, kind = content["schema_version"], KINDS.get(content.get("kind"), RunRecord)
        except (OSError, ValueError, LookupError, TypeError):
            continue  # missing, or corrupt
        kind = RUN_FILES.get(path.relative_to(results).as_posix(), kind)
        if version != (current := kind.model_fields["schema_version"].default):
            aside = results.with_name(f"{results.name}-version-{version}")
            aside = aside.with_name(f"{aside.name}-{_stamp()}") if aside.exists() else aside
            raise UserError(f"{path} is of version {version}; this code writes version {current}: mv {results} {aside}")


def accept_future(results: Path) -> None:
    """Set files from the future, written while the clock was ahead, to the present in their order: Snakemake would
    refuse to make files from them."""
    now = time.time_ns()
    ahead = sorted((age, path) for path in results.rglob("*") if (age := path.lstat().st_mtime_ns) > now)
    for place, (_, path) in enumerate(ahead):
        os.utime(path, ns=(now, now - (len(ahead) - place) * 1000))
    if ahead:
        files = count_words(len(ahead), "file")
        print(f"{files} in {results}/ are from when the clock was ahead: kept", file=sys.stderr)


def set_aside_corrupt(paths: Iterable[str], results: Path, dry: bool = False, counters: bool = False) -> list[str]:
    """Set aside files that cannot be read, and refused counters if they are required. A dry run only names them.

    Return their paths.
    """
    corrupt = []
    folder = results / PREVIOUS / f"corrupt-{_stamp()}"
    if not dry:
        accept_future(results)
    for path in (Path(path) for path in paths if _has_version(path) and os.path.exists(path)):
        try:
            _require_sound(path, results, counters)
        except (UserError, OSError) as error:
            corrupt.append(str(path))
            aside = folder / path.relative_to(results)
            print(f"{error}\n{path} is corrupt: a run sets it aside as {aside} and makes it again", file=sys.stderr)
            if not dry:
                aside.parent.mkdir(parents=True, exist_ok=True)
                path.rename(aside)
    return corrupt


def _has_version(path: str) -> bool:
    """Return whether a file is a record, the table or the manifest, which all carry their version."""
    return path.endswith(".json") and not path.endswith(".schema.json")


def _require_sound(path: Path, results: Path, counters: bool) -> None:
    """Raise UserError for what cannot be read, and for refused counters if they are required."""
    kind = RUN_FILES.get(path.relative_to(results).as_posix())
    record = read(kind, path) if kind else read_record(path)
    if counters and isinstance(record, ProfilerRecord) and record.refused_reason:
        raise UserError(f"{path}: counters are required, and were refused: {record.refused_reason}")


def set_aside_other_cards(present: Mapping[str, Identity], results: Path) -> None:
    """Move the results of a device whose UUID or name has changed to results/previous/, with the run's files."""
    for device, identity in present.items():
        try:
            earlier = read(DeviceRecord, results / device / "device_query.json")
        except (OSError, UserError):
            continue
        if (earlier.uuid, earlier.name) != (identity.uuid, identity.name):
            slug = re.sub(r"[^A-Za-z0-9]+", "-", f"{device}-{earlier.name}-{earlier.uuid[-8:]}")
            aside = results / PREVIOUS / f"{slug}-{_stamp()}"
            aside.mkdir(parents=True)
            for path in (results / device, *filter(Path.is_file, sorted(results.iterdir()))):
                shutil.move(path, aside / path.name)
            now = f"{identity.name} ({identity.uuid})"
            print(f"{device} was {earlier.name} ({earlier.uuid}) and is {now} now: see {aside}", file=sys.stderr)


def remove_old_pictures(results: Path, drawn: Collection[str]) -> None:
    """Remove the pictures that the last manifest lists and whose names are not among those `drawn` now."""
    try:
        outputs = read(Manifest, results / "manifest.json").outputs
    except (OSError, UserError):
        return
    for name in (below_results(output.path) for output in outputs):
        if name.endswith(PICTURE_SUFFIXES) and name not in drawn:
            (results / name).unlink(missing_ok=True)


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
