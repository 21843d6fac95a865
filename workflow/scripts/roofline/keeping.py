"""What becomes of results that are there already: kept, set aside, never overwritten with another card's."""

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import filelock

from roofline import provenance, records
from roofline.consistency import contradictions
from roofline.settings import Faults

PREVIOUS = "previous"
ENGINE = ".snakemake"
RUN_LOCK = Path(ENGINE, "roofline-run.lock")
OF_ALL_DEVICES = ("roofline.json", "roofline.png", "roofline.svg", "interpretation.md", "acceptance.json")
OF_ALL_DEVICES += ("attention.png",)
OF_ALL_DEVICES += ("verification.json", "verification.md", "sweep.png", "load.png", "summary.html", "manifest.json")
KINDS = {
    "device_query.json": records.DeviceRecord,
    "prediction.json": records.PredictionRecord,
    "peak_flops": records.PeakFlopsRecord,
    "peak_flops.json": records.Collection,
    "bandwidth": records.BandwidthRecord,
    "bandwidth.json": records.Collection,
    "decode_attn": records.DecodeAttnRecord,
    "roofline.json": records.Roofline,
    "acceptance.json": records.Acceptance,
    "verification.json": records.Verification,
    "manifest.json": provenance.Manifest,
}


def hold_run_lock() -> None:
    """Show for as long as this process lives that a run is going on here; the kernel lets go when it dies."""
    global _held
    _held = filelock.FileLock(RUN_LOCK)
    try:
        _held.acquire(blocking=False)
    except filelock.Timeout:
        sys.exit("another run is going on in this folder: wait for it to end")


def run_is_going_on() -> bool:
    """Whether a living run holds this folder."""
    if not RUN_LOCK.exists():
        return False
    lock = filelock.FileLock(RUN_LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        return True
    lock.release()
    return False


def require_writable(outputs: Iterable[str]) -> None:
    """Raises Faults, before anything is measured, where an output or its log could not be written."""
    parents = {parent for path in outputs for parent in Path(path).parents if parent != Path()}
    logs = {Path("logs", *parent.parts[1:]) for parent in parents}
    folders = sorted({_nearest_there(path) for path in {*parents, *logs, Path(ENGINE)}})
    faults = [f"{path} is no folder, and one is needed there: move it away" for path in folders if not path.is_dir()]
    faults += [
        f"{path.absolute()}/ cannot be written: make it a folder of yours (chown, chmod u+w)"
        for path in folders
        if path.is_dir() and not os.access(path, os.W_OK | os.X_OK)
    ]
    faults += [
        f"{path} is a folder, and a file is needed there: move it away" for path in outputs if Path(path).is_dir()
    ]
    if faults:
        raise Faults(faults)


def _nearest_there(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def set_aside_corrupt(paths: Iterable[str], results: Path) -> None:
    """Move what cannot be read back out of the way, naming each file: the run makes it again."""
    for path in map(Path, paths):
        kind = KINDS.get(_part_of(path, results))
        if not kind or not path.exists():
            continue
        try:
            record = records.read(kind, path)
            false = contradictions(record) if isinstance(record, records.JobRecord) else []
            if false:
                raise records.CorruptRecord(f"{path}: {'; '.join(false)}")
        except (records.CorruptRecord, OSError) as error:
            aside = _free_name(results / PREVIOUS / f"corrupt-{_stamp()}" / path.relative_to(results))
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.rename(aside)
            _say(f"{error}")
            _say(f"{path} was corrupt and is set aside as {aside}; it is made again")


def set_aside_other_cards(present: Mapping, results: Path) -> None:
    """Move the results of a device whose UUID or name is not today's to results/previous/, whole."""
    for device, identity in present.items():
        was = _recorded(device, results)
        if was and (was.uuid, was.name) != (identity.uuid, identity.name):
            aside = _free_name(results / PREVIOUS / f"{device}-{_slug(was.name)}-{_slug(was.uuid)[-8:]}-{_stamp()}")
            aside.mkdir(parents=True)
            shutil.move(results / device, aside / device)
            for name in OF_ALL_DEVICES:
                if (results / name).exists():
                    shutil.move(results / name, aside / name)
            _say(f"{device} was {was.name} ({was.uuid}) and is {identity.name} now: its results are in {aside}")


def set_aside_cards_that_seem_todays(present: Mapping, results: Path) -> None:
    """The same where the workflow engine would not find the results stale: it forgot them, or they are no longer
    those that it remembers. At once, so that it plans to make them."""
    set_aside_other_cards({device: card for device, card in present.items() if _seems_todays(card, results)}, results)


def _seems_todays(identity, results: Path) -> bool:
    """Whether Snakemake takes a device's record for one of today's. It keeps the params, as Python writes them."""
    output = str(results / identity.device / "device_query.json")
    kept = Path(ENGINE, "metadata", base64.urlsafe_b64encode(output.encode()).decode())
    try:
        return repr(identity.fingerprint()) in json.loads(kept.read_text(encoding="utf-8"))["params"]
    except (OSError, ValueError, LookupError, TypeError):
        return True


def _recorded(device: str, results: Path) -> records.DeviceRecord | None:
    try:
        return records.read(records.DeviceRecord, results / device / "device_query.json")
    except (OSError, records.CorruptRecord):
        return None


def _part_of(path: Path, results: Path) -> str:
    """What stands next to the device's name, or the file's own name where it is of all devices."""
    inside = path.relative_to(results).parts
    return inside[min(1, len(inside) - 1)]


def _free_name(path: Path) -> Path:
    names = (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, 1000)))
    return next(name for name in names if not name.exists())


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
