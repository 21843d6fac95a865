"""One file that holds a whole run: packed, unpacked, and checked against its manifest.

It has one folder, laid out as the working directory, so that the workflow goes on from there. The pax format keeps
fractions of a second in modification times: without them everything would seem stale.
"""

import contextlib
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from roofline.core.terms import UserError
from roofline.records.base import read
from roofline.records.files import RESULTS, temporary
from roofline.records.manifest_record import Manifest
from roofline.run.make_manifest import broken_seals, differing_files, hashes, unlisted_files
from roofline.table.run_records import read_results

MANIFEST = f"{RESULTS}/manifest.json"
ARCHIVES = Path(RESULTS, "archive")
ENDING = ".tar.gz"
MOST_LEVELS = 100  # of folders within one another; those of a run are 6
MADE_AGAIN = f"remove {MANIFEST}, and run the workflow again: it is made from the files that are there"


# ---------------------------------------------------------------- packing


def list_packed_paths(manifest: Manifest, sources: Iterable[str], more_paths: Iterable[str]) -> list[str]:
    """Return the paths to pack, relative to the working directory: manifest, outputs, logs, `more_paths`, sources.

    Data files outside results/, such as a checkpoint, are left out; the manifest has their hashes.
    """
    logs = [output.log for output in manifest.outputs if output.log]
    user_files = {file.path for file in manifest.data if not Path(file.path).is_relative_to(RESULTS)}
    paths = [MANIFEST, *(output.path for output in manifest.outputs), *logs, *more_paths, *sources]
    return [path for path in dict.fromkeys(paths) if path not in user_files]


def pack(name: str, paths: Iterable[str], roots: Sequence[Path], notes: Mapping[str, bytes]) -> Path:
    """Write results/archive/NAME.tar.gz in the first root, and return its path, relative to that root.

    Each path is packed from the first root that has the file. `notes` are texts that are not files, by path. Raises
    UserError if what was written disagrees with its manifest.
    """
    target = ARCHIVES / f"{name}{ENDING}"
    (roots[0] / target).parent.mkdir(parents=True, exist_ok=True)
    with temporary(roots[0] / target.with_name(f".{name}.{os.getpid()}{ENDING}")) as unfinished:
        with tarfile.open(unfinished, "w:gz", format=tarfile.PAX_FORMAT, dereference=True) as tar:
            for path in paths:
                file = next((root / path for root in roots if (root / path).is_file()), None)
                if file and path not in notes:
                    tar.add(file, f"{name}/{path}", filter=_without_owner)
            for path, text in notes.items():
                info = tarfile.TarInfo(f"{name}/{path}")
                info.size, info.mtime = len(text), int(datetime.now(UTC).timestamp())
                tar.addfile(info, BytesIO(text))
        with opened(unfinished) as (_, _, faults):
            if faults:
                raise UserError(f"not archived: {faults[0]}; {MADE_AGAIN}")
        os.replace(unfinished, roots[0] / target)
    return target


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid, info.gid, info.uname, info.gname = 0, 0, "", ""
    return info


# ---------------------------------------------------------------- opening


@contextlib.contextmanager
def opened(run: Path) -> Iterator[tuple[Path, Manifest, list[str]]]:
    """Yield a folder with the results/ of a run, its manifest, and a line for each problem. Raises UserError.

    If `run` is a folder, it may hold files that the manifest does not list.
    """
    with unpacked(run) as root:
        manifest = manifest_of(root)
        yield root, manifest, list_problems(root, manifest, complete=run.is_file())


@contextlib.contextmanager
def unpacked(run: Path) -> Iterator[Path]:
    """Yield a folder with the results/ of a run, which may be packed. Raises UserError."""
    with temporary(Path(tempfile.mkdtemp(prefix="roofline-"))) as folder:
        results = run / RESULTS if (run / RESULTS).is_dir() else run
        packed = sorted(run.glob(f"*{ENDING}"))
        if (results / "manifest.json").is_file():
            (folder / RESULTS).symlink_to(results.absolute())
            yield folder
        elif run.is_dir() and len(packed) != 1:
            raise UserError(f"{run}: it has no manifest.json, and {len(packed)} archives; name one")
        else:
            yield unpack(packed[0] if packed else run, folder)


def newest(root: Path) -> Path:
    """Return the newest archive below `root`. Raises UserError if there is none."""
    archives = sorted((root / ARCHIVES).glob(f"[!.]*{ENDING}"), key=lambda path: path.stat().st_mtime)
    if not archives:
        raise UserError(f"no archive is in {ARCHIVES}/: make one with `make archive`, or name one")
    return archives[-1]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into an empty folder, and return the folder that the archive holds.

    Raises UserError if the file is damaged or not an archive, or has members outside.
    """
    if not archive.exists():
        raise UserError(f"{archive}: no such file")
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter=_require_shallow)
    except Exception as error:  # odd headers raise ValueError, OverflowError, RecursionError and more
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
            reason = f"cannot be unpacked in {folder.parent} ({str(error) or 'out of memory'})"
            raise UserError(f"{archive}: {reason}; TMPDIR names another folder") from None
        raise UserError(f"{archive}: damaged or not an archive ({error})") from None
    tops = list(folder.iterdir())
    if len(tops) != 1 or not (tops[0] / MANIFEST).is_file():
        raise UserError(f"{archive}: not an archive of this workflow, no {MANIFEST} in it")
    return tops[0]


def _require_shallow(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Return what tarfile's own filter makes of a member. Raises TarError for one that could not be removed again."""
    if member.name.count("/") > MOST_LEVELS:
        raise tarfile.TarError(f"a member lies in more than {MOST_LEVELS} folders")
    return tarfile.data_filter(member, folder)


def manifest_of(root: Path) -> Manifest:
    """Return the manifest of a working directory. Raises UserError if it is missing or unreadable."""
    try:
        return read(Manifest, root / MANIFEST)
    except FileNotFoundError:
        raise UserError(f"{MANIFEST} is missing: run the workflow first (make run, or snakemake --cores 1)") from None
    except (UserError, OSError) as error:
        raise UserError(f"{MANIFEST} cannot be read: {str(error).replace(f'{root}/', '')}") from None


def list_problems(root: Path, manifest: Manifest, complete: bool = True) -> list[str]:
    """Return a line for each problem of an unpacked archive. If it is not `complete`, it may hold unlisted files."""
    lines = differing_files(root, manifest.outputs)
    if complete:
        lines += [f"{path}: not listed in the manifest" for path in unlisted_files(root, manifest)]
    outputs = [root / output.path for output in manifest.outputs]
    try:
        return lines or broken_seals(read_results(root / RESULTS, outputs), hashes(manifest.outputs))
    except UserError as error:
        return [str(error).replace(f"{root}/", "")]
    except Exception as error:
        return [describe_contradiction(error)]


def describe_contradiction(error: Exception) -> str:
    """Return the problem of records each of which is valid, but which together raise another error than UserError."""
    return f"{RESULTS}: the records contradict each other ({type(error).__name__}: {error})"
