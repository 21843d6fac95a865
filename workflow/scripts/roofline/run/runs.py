"""Reading a whole run, from an archive or a results folder, for comparison: its records, no pictures and no pages."""

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from roofline.analysis.quantities import Run, fingerprint, quantities
from roofline.analysis.results import read_table
from roofline.analysis.table import SCHEMA_VERSION, Roofline
from roofline.records.base import CorruptRecord, read
from roofline.records.device import DeviceRecord
from roofline.records.files import RESULTS, file_sha256
from roofline.records.manifest import Manifest
from roofline.run.archive import ENDING, Refused, unpack


def read_run(path: Path | str) -> Run:
    """A run from its archive, its results folder, or a folder that holds one of them.

    roofline.json, manifest.json and each device's device_query.json must be there. Raises Refused, in one line, for
    what is no run, is of another schema version, or is not what its manifest lists.
    """
    with _results(Path(path)) as results:
        return _read(results, str(path))


@contextlib.contextmanager
def _results(path: Path) -> Iterator[Path]:
    """The results folder that a path is, holds or has packed. Raises Refused."""
    if path.is_dir():
        results = path / RESULTS if (path / RESULTS).is_dir() else path
        packed = sorted(results.glob(f"*{ENDING}"))
        if (results / "roofline.json").exists() or not packed:
            yield results
            return
        if len(packed) > 1:
            raise Refused(f"{path}: {len(packed)} archives of runs; name one, such as {packed[0]}")
        path = packed[0]
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        yield unpack(path, Path(folder)) / RESULTS


def records(roofline: Roofline) -> list[str]:
    """The files below a results folder from which a run is read, in order."""
    return ["manifest.json", "roofline.json", *(entry.record for entry in roofline.devices.values())]


def _read(results: Path, source: str) -> Run:
    try:
        roofline = _roofline(results, source)
        manifest = read(Manifest, results / "manifest.json")
        outside = [one.record for one in roofline.devices.values() if not _below(results, one.record)]
        if outside:
            raise Refused(f"{source}: refused, its roofline.json names {outside[0]!r}, which leads outside")
        devices = {name: read(DeviceRecord, results / one.record) for name, one in roofline.devices.items()}
        paths = records(roofline)
    except FileNotFoundError as error:
        missing = Path(error.filename)
        name = missing.relative_to(results) if missing.is_relative_to(results) else missing
        raise Refused(f"{source}: no run, {name} is not in it") from None
    except (CorruptRecord, OSError) as error:
        raise Refused(f"{source}: {str(error).replace(f'{results}/', '')}") from None
    _require_as_listed(results, paths, manifest, source)
    found = quantities(roofline)
    return Run(source, devices, roofline, manifest, found, fingerprint(found, devices))


def _below(results: Path, path: str) -> bool:
    return (results / path).resolve().is_relative_to(results.resolve())


def _roofline(results: Path, source: str) -> Roofline:
    """Raises Refused where its schema version is another: whoever reads on would misread it."""
    path = results / "roofline.json"
    content = _json(path)
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise Refused(f"{source}: roofline.json is of version {version}, and this code reads version {SCHEMA_VERSION}")
    return read_table(path)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptRecord(f"{path}: {str(error).splitlines()[0]}") from None


def _require_as_listed(results: Path, paths: Iterable[str], manifest: Manifest, source: str) -> None:
    listed = {output.path.removeprefix(f"{RESULTS.as_posix()}/"): output.sha256 for output in manifest.outputs}
    for path in paths:
        if path in listed and file_sha256(results / path) != listed[path]:
            raise Refused(f"{source}: {path} is not the file that its manifest lists")
