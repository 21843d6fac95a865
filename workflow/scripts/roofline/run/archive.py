"""One file that holds a run whole: packed, unpacked safely, and held against its own manifest.

Everything lies in one folder named after the archive, as in the working directory, so that the workflow goes on
from there. The pax format keeps modification times below the second; with whole seconds all would seem stale.
"""

import contextlib
import gzip
import hashlib
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath

from roofline.analysis.results import read_results, read_table
from roofline.core.device_kinds import in_order
from roofline.records.base import CorruptRecord, read
from roofline.records.files import file_sha256
from roofline.records.manifest import Device, Manifest
from roofline.report.tables import fail_lines
from roofline.run.manifest import broken_seals, differing_files, hashes, is_result, unlisted_files
from roofline.run.paths import RESULTS

MANIFEST = f"{RESULTS}/manifest.json"
ARCHIVES = Path(RESULTS, "archive")
RENDERED = Path(RESULTS, "rendered")
ENDING = ".tar.gz"
CHECKSUMS = "provenance/SHA256SUMS"  # of every other file of an archive, as sha256sum -c reads it


MADE_AGAIN = f"remove {MANIFEST}, and run the workflow again: it is made from the files that are there"
LARGEST = 16 << 30  # bytes of an archive's files: more is not unpacked


class Refused(Exception):
    """Why there is no archive, or why one is not opened: one line."""


# ---------------------------------------------------------------- packing


def name_of(devices: list[Device], when: datetime) -> str:
    """The first GPU's name, else the CPU's, and the moment: nvidia-h200-20261105T093000Z."""
    first = in_order(devices, lambda device: device.kind)[0]
    slug = re.sub(r"[^a-z0-9]+", "-", first.name.lower()).strip("-")
    return f"{slug}-{when.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def contents(manifest: Manifest, sources: Iterable[str], kept: Iterable[str]) -> list[str]:
    """Paths to pack, relative to the working directory: manifest, outputs, logs, sources, what else is kept.

    A data file of the user's own, such as a checkpoint, stays where it is; the manifest has its hash.
    """
    logs = [output.log for output in manifest.outputs if output.log]
    own = {one.path for one in manifest.data if not is_result(one.path)}
    sources = [path for path in sources if path not in own]
    return list(dict.fromkeys([MANIFEST, *(output.path for output in manifest.outputs), *logs, *kept, *sources]))


def located(paths: Iterable[str], *roots: Path) -> dict[str, Path]:
    """The files that exist of these, each below the first root that has it: a run's folder may be apart from its
    sources. Raises Refused for a path that leads out."""
    found = {}
    for path in paths:
        _inside("", path)
        if file := next((root / path for root in roots if (root / path).is_file()), None):
            found[path] = file
    return found


def pack(root: Path, name: str, files: Mapping[str, Path], notes: Mapping[str, bytes]) -> Path:
    """Write results/archive/NAME.tar.gz beside its place and rename it; returns its path, relative to root.

    `files` are by their paths in the archive; `notes` are texts that are no files, by path. One more has all checksums.
    Raises Refused where what was written does not agree with its manifest.
    """
    target = ARCHIVES / f"{name}{ENDING}"
    (root / target).parent.mkdir(parents=True, exist_ok=True)
    beside = root / target.with_name(f".{name}.{os.getpid()}{ENDING}")
    try:
        with tarfile.open(beside, "w:gz", format=tarfile.PAX_FORMAT) as tar:
            sums = {path: hashlib.sha256(text).hexdigest() for path, text in notes.items()}
            for path, file in files.items():
                if path not in notes:
                    add_file(tar, file, _inside(name, path))
                    sums[path] = file_sha256(file)
            checksums = "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(sums.items()))
            for path, text in {**notes, CHECKSUMS: checksums.encode("utf-8", "surrogateescape")}.items():
                info = tarfile.TarInfo(_inside(name, path))
                info.size, info.mtime = len(text), int(datetime.now(UTC).timestamp())
                tar.addfile(info, BytesIO(text))
        with opened(beside) as (_, _, faults):
            if faults:
                raise Refused(f"not archived: {faults[0]}; {MADE_AGAIN}")
        os.replace(beside, root / target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def _inside(name: str, path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise Refused(f"{path} leads out of the working directory")
    return f"{name}/{parts}"


def add_file(tar: tarfile.TarFile, path: Path, member: str) -> None:
    """A regular file, whatever links lead to it, without its owner's name and with its time to the nanosecond."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        info = tarfile.TarInfo(member)
        info.size, info.mode = status.st_size, status.st_mode & 0o777
        seconds, rest = divmod(status.st_mtime_ns, 10**9)
        info.mtime, info.pax_headers = seconds, {"mtime": f"{seconds}.{rest:09d}"}
        tar.addfile(info, file)


# ---------------------------------------------------------------- opening


@contextlib.contextmanager
def opened(archive: Path) -> Iterator[tuple[Path, Manifest, list[str]]]:
    """An archive unpacked for a while: its folder, its manifest and everything that is wrong. Raises Refused."""
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        root = unpack(archive, Path(folder))
        manifest = manifest_of(root)
        yield root, manifest, problems(root, manifest)


def newest(root: Path) -> Path:
    """The last archive that was made here. Raises Refused where there is none."""
    archives = sorted((root / ARCHIVES).glob(f"[!.]*{ENDING}"), key=lambda path: path.stat().st_mtime)
    if not archives:
        raise Refused(f"no archive is in {ARCHIVES}/: make one with `make archive`, or name one")
    return archives[-1]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into an empty folder and return the one that the archive holds.

    Raises Refused, before anything is written, for a file that is truncated, damaged or no archive, and for
    members that lead outside, are links or devices, or are there twice, and for more than LARGEST bytes of files.
    """
    if archive.is_dir():
        raise Refused(f"{archive}: a folder; an archive is needed (make archive packs one)")
    try:
        _read_through(archive)
        with tarfile.open(archive, "r:gz") as tar:
            tops = _safe_tops(archive, tar.getmembers())
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
            tar.extractall(folder)
    except FileNotFoundError:
        raise Refused(f"{archive}: no such file") from None
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise Refused(f"{archive}: truncated, damaged or no archive ({error})") from None
    if len(tops) != 1 or not (folder / (top := tops.pop()) / MANIFEST).is_file():
        raise Refused(f"{archive}: no archive of this workflow, {MANIFEST} is not in it")
    return folder / top


def _read_through(archive: Path) -> None:
    """To the end of the compressed stream, where its checksum stands: reading members stops before."""
    if archive.exists() and not archive.is_file():
        raise OSError("not a regular file")
    read = 0
    with gzip.open(archive) as stream:
        while part := stream.read(1 << 20):
            read += len(part)
            _require_at_most_the_largest(archive, read)


def _require_at_most_the_largest(archive: Path, size: int) -> None:
    if size > LARGEST:
        raise Refused(f"{archive}: refused, it unpacks to more than {LARGEST >> 30} GiB")


def _safe_tops(archive: Path, members: list[tarfile.TarInfo]) -> set[str]:
    _require_at_most_the_largest(archive, sum(member.size for member in members))
    seen: set[str] = set()
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise Refused(f"{archive}: refused, its member {member.name!r} leads outside")
        if not (member.isfile() or member.isdir()):
            raise Refused(f"{archive}: refused, its member {member.name!r} is a link or a device")
        if member.isfile() and str(path) in seen:
            raise Refused(f"{archive}: refused, its member {member.name!r} is there twice")
        seen.add(str(path))
    return {PurePosixPath(name).parts[0] for name in seen}


def manifest_of(root: Path) -> Manifest:
    """The manifest of a working directory. Raises Refused."""
    try:
        return read(Manifest, root / MANIFEST)
    except FileNotFoundError:
        raise Refused(f"{MANIFEST} is missing: run the workflow first (make run, or snakemake --cores 1)") from None
    except (CorruptRecord, OSError) as error:
        raise Refused(f"{MANIFEST} cannot be read: {error}") from None


def failed(root: Path) -> list[str]:
    """What makes a run's figures doubtful, a line each. Raises CorruptRecord or OSError."""
    return fail_lines(read_table(root / RESULTS / "roofline.json").faults)


def problems(root: Path, manifest: Manifest) -> list[str]:
    """Everything that is wrong with an unpacked archive, a line each."""
    told = differing_files(root, manifest)
    told += [f"{path}: not listed in the manifest" for path in unlisted_files(root, manifest)]
    told += differing_sources(root)
    if told:
        return told
    try:
        found = read_results(root / RESULTS, [root / output.path for output in manifest.outputs])
    except CorruptRecord as error:
        return [str(error).replace(f"{root}/", "")]
    return broken_seals(found, hashes(manifest.outputs))


def is_listed(path: str) -> bool:
    """In the archive's own checksums, and not in the manifest: what is outside results/, and the manifest."""
    return not is_result(path) or path == MANIFEST


def differing_sources(root: Path) -> list[str]:
    """A line for every file that the manifest does not list and that is not as the archive's checksums have it."""
    try:
        lines = (root / CHECKSUMS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return [f"{CHECKSUMS}: missing"]
    sums = {path: sha256 for sha256, _, path in (line.partition("  ") for line in lines) if is_listed(path)}
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    told = [f"{path}: missing, and {CHECKSUMS} lists it" for path in sorted(sums.keys() - there)]
    for path in sorted(path for path in there - {CHECKSUMS} if is_listed(path)):
        if path not in sums:
            told.append(f"{path}: not listed in {CHECKSUMS}")
        elif file_sha256(root / path) != sums[path]:
            told.append(f"{path}: its checksum is not the one in {CHECKSUMS}")
    return told
