"""What becomes of results that are there already: kept, set aside, never overwritten with another card's."""

import atexit
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from roofline.analysis.consistency import contradictions
from roofline.analysis.results import read_any
from roofline.analysis.table import Acceptance, Roofline
from roofline.records.base import CorruptRecord, Record, read
from roofline.records.counters import CountersRecord, ProfilerRecord
from roofline.records.device import DeviceRecord
from roofline.records.files import file_sha256
from roofline.records.manifest import Manifest
from roofline.records.operator import DataFile
from roofline.run.settings import Faults

PREVIOUS = "previous"
ENGINE = ".snakemake"
OF_ALL_DEVICES: dict[str, type[Record]] = {
    "roofline.json": Roofline,
    "acceptance.json": Acceptance,
    "manifest.json": Manifest,
}


def require_writable(outputs: Iterable[str]) -> None:
    """Raises Faults, before anything is measured, where an output or its log could not be written."""
    parents = {parent for path in outputs for parent in Path(path).parents if parent != Path()}
    logs = {Path("logs", *parent.parts[1:]) for parent in parents}
    folders = sorted({_nearest_there(path) for path in {*parents, *logs, Path(ENGINE)}})
    faults = [
        f"{path} is no folder, and one is needed there: move it away" for path in folders if not os.path.isdir(path)
    ]
    faults += [
        f"{path.absolute()}/ cannot be written: make it a folder of yours (chown, chmod u+w)"
        for path in folders
        if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK)
    ]
    faults += [
        f"{path} is a folder, and a file is needed there: move it away" for path in outputs if os.path.isdir(path)
    ]
    if faults:
        raise Faults(faults)


def _nearest_there(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def set_aside_corrupt(paths: Iterable[str], results: Path, dry: bool = False, counters: bool = False) -> None:
    """Move what cannot be read back out of the way, naming each file: the run makes it again. Where counters are
    required, so is what says that they were refused.

    A dry run, which is to plan just that, puts all of it back when it ends.
    """
    folder = results / PREVIOUS / f"corrupt-{_stamp()}"
    for path in (Path(path) for path in paths if path.endswith(".json") and os.path.exists(path)):
        try:
            _require_sound(path, results, counters)
        except (CorruptRecord, OSError) as error:
            aside = _free_name(folder / path.relative_to(results))
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.rename(aside)
            _say(f"{error}")
            if dry:
                atexit.register(_put_back, aside, path)
                _say(f"{path} is corrupt: a run sets it aside and makes it again")
            else:
                _say(f"{path} was corrupt and is set aside as {aside}; it is made again")


def _put_back(aside: Path, path: Path) -> None:
    aside.rename(path)
    for folder in aside.parents:
        try:
            folder.rmdir()
        except OSError:  # others are in it
            return


def _require_sound(path: Path, results: Path, counters: bool) -> None:
    """Raises CorruptRecord for what cannot be read, for figures that do not follow from their own samples, and for
    refused counters where they are required."""
    kind = OF_ALL_DEVICES.get(path.relative_to(results).as_posix())
    record = read(kind, path) if kind else read_any(path)
    if kind is None and (false := contradictions(path.relative_to(results).as_posix(), record)):
        raise CorruptRecord(f"{path}: {'; '.join(false)}")
    if isinstance(record, CountersRecord) and (bad := [one.path for one in record.reports if not _is_whole(one)]):
        raise CorruptRecord(f"{path}: {bad[0]} is not the whole report that it was read from")
    if counters and isinstance(record, ProfilerRecord | CountersRecord) and record.refused:
        raise CorruptRecord(f"{path}: counters are required, and were refused: {record.refused}")


def _is_whole(report: DataFile) -> bool:
    try:
        return file_sha256(report.path) == report.sha256
    except OSError:
        return False


def set_aside_other_cards(present: Mapping, results: Path) -> None:
    """Move the results of a device whose UUID or name is not today's to results/previous/, whole."""
    for device, identity in present.items():
        was = _recorded(device, results)
        if was and (was.uuid, was.name) != (identity.uuid, identity.name):
            aside = _free_name(results / PREVIOUS / f"{device}-{_slug(was.name)}-{_slug(was.uuid)[-8:]}-{_stamp()}")
            aside.mkdir(parents=True)
            shutil.move(results / device, aside / device)
            for path in sorted(results.iterdir()):
                if path.is_file():
                    shutil.move(path, aside / path.name)
            now = f"{identity.name} ({identity.uuid})"
            _say(f"{device} was {was.name} ({was.uuid}) and is {now} now: its results are in {aside}")


def _recorded(device: str, results: Path) -> DeviceRecord | None:
    try:
        return read(DeviceRecord, results / device / "device_query.json")
    except (OSError, CorruptRecord):
        return None


def _free_name(path: Path) -> Path:
    names = (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, 1000)))
    return next(name for name in names if not name.exists())


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
