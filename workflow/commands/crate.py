"""Make a run crate of an archive for WorkflowHub and Zenodo: results/archive/NAME.crate.zip.

    python workflow/commands/crate.py [ARCHIVE]      (without one, the newest in results/archive/)

The metadata are those in the archive; one that was made before archives had any gets them from its manifest.
"""

import os
import shutil
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.records.files import file_sha256
from roofline.run import crate
from roofline.run.archive import ARCHIVES, Refused, newest, opened
from roofline.run.crate_facts import METADATA, NoCrate, gather
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.runs import PACK


def make(archive: Path, folder: Path) -> list[str]:
    """Write the zip into a folder; returns what to say. Raises Refused."""
    with opened(archive) as (root, manifest, problems):
        if root.name.endswith(PACK):
            raise Refused(f"{archive}: no crate, it holds records alone; name the archive that they are from")
        if problems:
            raise Refused(f"{archive}: no crate, {problems[0]} (`make verify` lists all)")
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        spaced = next((path for path in paths if " " in path), None)
        if spaced:
            raise Refused(f"{archive}: no crate, {spaced!r} has a space in its name, which WorkflowHub refuses")
        try:
            facts = gather({path: root / path for path in paths}, manifest)
        except NoCrate as reason:
            raise Refused(f"{archive}: no crate, {reason}") from None
        # What was written with the archive knows the author too.
        text = (root / METADATA).read_bytes() if METADATA in paths else crate.metadata(facts)
        target = write_zip(root, paths, text, folder / f"{root.name}.crate.zip", manifest.created_at)
    lines = crate.remarks(facts)
    if b'"agent"' not in text:
        lines.append("no agent recorded: author.name was not set when the archive was made")
    return [*lines, str(target), f"{target.stat().st_size / 1e6:.1f} MB, SHA-256 {file_sha256(target)}"]


def write_zip(root: Path, paths: list[str], text: bytes, target: Path, made_at: str) -> Path:
    """A zip of files below root and of the metadata, with no folder around them; the same bytes at every call."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    date = datetime.fromisoformat(made_at).astimezone(UTC).timetuple()[:6]
    try:
        with zipfile.ZipFile(beside, "w") as made:
            made.writestr(member(METADATA, date, len(text)), text)
            for folder in crate.tops(paths):  # validators look for an entry of each folder that the metadata name
                made.writestr(zipfile.ZipInfo(folder, date), b"")
            for path in paths:
                if path != METADATA:
                    info = member(path, date, (root / path).stat().st_size)
                    with open(root / path, "rb") as file, made.open(info, "w") as within:
                        shutil.copyfileobj(file, within)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    return target


def member(path: str, date: tuple[int, ...], size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, date)
    info.compress_type, info.external_attr, info.file_size = zipfile.ZIP_DEFLATED, 0o644 << 16, size
    return info


if __name__ == "__main__":
    print_what_can_be_printed()
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    try:
        print("\n".join(make(Path(sys.argv[1]) if sys.argv[1:] else newest(Path()), ARCHIVES)))
    except (Refused, OSError) as error:
        sys.exit(str(error))
