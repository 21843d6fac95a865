"""One file that holds a whole run: packed, unpacked, and checked against its manifest.

It has one folder, laid out as the working directory, so that the workflow goes on from there. The pax format keeps
fractions of a second in modification times: without them everything would seem stale.
"""

import contextlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from roofline.core.terms import UserError
from roofline.records.base import read
from roofline.records.files import RESULTS
from roofline.records.manifest_record import Manifest
from roofline.run.make_manifest import broken_seals, differing_files, hashes, is_result, unlisted_files
from roofline.table.run_records import read_results

MANIFEST = f"{RESULTS}/manifest.json"
ARCHIVES = Path(RESULTS, "archive")
RENDERED = Path(RESULTS, "rendered")
ENDING = ".tar.gz"
MADE_AGAIN = f"remove {MANIFEST}, and run the workflow again: it is made from the files that are there"


# ---------------------------------------------------------------- packing


def contents(manifest: Manifest, sources: Iterable[str], kept: Iterable[str]) -> list[str]:
    """Paths to pack, relative to the working directory: manifest, outputs, logs, sources, what else is kept.

    A data file of the user's own, such as a checkpoint, stays where it is; the manifest has its hash.
    """
    logs = [output.log for output in manifest.outputs if output.log]
    own = {one.path for one in manifest.data if not is_result(one.path)}
    paths = [MANIFEST, *(output.path for output in manifest.outputs), *logs, *kept, *sources]
    return [path for path in dict.fromkeys(paths) if path not in own]


def pack(name: str, paths: Iterable[str], roots: Sequence[Path], notes: Mapping[str, bytes]) -> Path:
    """Write results/archive/NAME.tar.gz in the first root; returns its path, relative to it.

    Each path is packed from the first root that has the file. `notes` are texts that are not files, by path. Raises
    UserError if what was written disagrees with its manifest.
    """
    target = ARCHIVES / f"{name}{ENDING}"
    (roots[0] / target).parent.mkdir(parents=True, exist_ok=True)
    temporary = roots[0] / target.with_name(f".{name}.{os.getpid()}{ENDING}")
    try:
        with tarfile.open(temporary, "w:gz", format=tarfile.PAX_FORMAT, dereference=True) as tar:
            for path in paths:
                file = next((root / path for root in roots if (root / path).is_file()), None)
                if file and path not in notes:
                    tar.add(file, f"{name}/{path}", filter=_without_owner)
            for path, text in notes.items():
                info = tarfile.TarInfo(f"{name}/{path}")
                info.size, info.mtime = len(text), int(datetime.now(UTC).timestamp())
                tar.addfile(info, BytesIO(text))
        with opened(temporary) as (_, _, faults):
            if faults:
                raise UserError(f"not archived: {faults[0]}; {MADE_AGAIN}")
        os.replace(temporary, roots[0] / target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid, info.gid, info.uname, info.gname = 0, 0, "", ""
    return info


# ---------------------------------------------------------------- opening


@contextlib.contextmanager
def opened(run: Path) -> Iterator[tuple[Path, Manifest, list[str]]]:
    """A run for a while: a folder with results/, its manifest, and every error. Raises UserError.

    A folder may hold files that the manifest does not list.
    """
    with unpacked(run) as root:
        manifest = manifest_of(root)
        yield root, manifest, problems(root, manifest, whole=run.is_file())


@contextlib.contextmanager
def unpacked(run: Path) -> Iterator[Path]:
    """A folder with the results/ of a run, which may be packed. Raises UserError."""
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        results = run / RESULTS if (run / RESULTS).is_dir() else run
        packed = sorted(run.glob(f"*{ENDING}"))
        if (results / "manifest.json").is_file():
            (Path(folder) / RESULTS).symlink_to(results.absolute())
            yield Path(folder)
        elif run.is_dir() and len(packed) != 1:
            raise UserError(f"{run}: it has no manifest.json, and {len(packed)} archives; name one")
        else:
            yield unpack(packed[0] if packed else run, Path(folder))


def newest(root: Path) -> Path:
    """The last archive that was made here. Raises UserError where there is none."""
    archives = sorted((root / ARCHIVES).glob(f"[!.]*{ENDING}"), key=lambda path: path.stat().st_mtime)
    if not archives:
        raise UserError(f"no archive is in {ARCHIVES}/: make one with `make archive`, or name one")
    return archives[-1]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into an empty folder; returns the folder in the archive.

    Raises UserError if the file is damaged or not an archive, or has members outside.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except FileNotFoundError:
        raise UserError(f"{archive}: no such file") from None
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UserError(f"{archive}: damaged or not an archive ({error})") from None
    tops = list(folder.iterdir())
    if len(tops) != 1 or not (tops[0] / MANIFEST).is_file():
        raise UserError(f"{archive}: not an archive of this workflow, no {MANIFEST} in it")
    return tops[0]


def manifest_of(root: Path) -> Manifest:
    """The manifest of a working directory. Raises UserError."""
    try:
        return read(Manifest, root / MANIFEST)
    except FileNotFoundError:
        raise UserError(f"{MANIFEST} is missing: run the workflow first (make run, or snakemake --cores 1)") from None
    except (UserError, OSError) as error:
        raise UserError(f"{MANIFEST} cannot be read: {str(error).replace(f'{root}/', '')}") from None


def problems(root: Path, manifest: Manifest, whole: bool = True) -> list[str]:
    """Everything that is wrong with an unpacked archive, a line each; what is not `whole` may hold other files too."""
    lines = differing_files(root, manifest.outputs)
    if whole:
        lines += [f"{path}: not listed in the manifest" for path in unlisted_files(root, manifest)]
    try:
        return lines or broken_seals(
            read_results(root / RESULTS, [root / output.path for output in manifest.outputs]), hashes(manifest.outputs)
        )
    except UserError as error:
        return [str(error).replace(f"{root}/", "")]
