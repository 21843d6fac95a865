"""Pack this run into results/archive/: results, logs, settings, sources and what Snakemake remembers of them.

    python workflow/commands/archive.py [options of snakemake that the run was given, such as --configfile]

Refuses while anything is stale or differs from the manifest.
"""

import re
import shlex
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

from snakemake.cli import parse_args

from roofline.core.formatting import count_words
from roofline.core.terms import UserError, order_devices
from roofline.plan.settings import CHECKOUT
from roofline.records.base import read
from roofline.records.files import RESULTS, file_sha256
from roofline.records.manifest_record import Manifest, ManifestDevice
from roofline.report.words import format_failures
from roofline.run import checkout, folder
from roofline.run.archive import MADE_AGAIN, list_packed_paths, manifest_of, pack
from roofline.run.ending import exit_with
from roofline.run.jobs import JOBS
from roofline.run.make_manifest import describe_spending, differing_files, unlisted_files
from roofline.table.rows import Roofline

METADATA = Path(".snakemake", "metadata")
AGAIN = "run the workflow first (make run, or snakemake --cores 1), or give the options that it was run with"
# What of the committed runs of other cards no page of this one is made with: 16 MB.
OF_OTHER_RUNS = re.compile(r"reference/(?!cards/)")
NEVER_LISTED = ("results/archive/", "results/comparison/", "results/previous/", "results/rendered/")


def describe_stale_outputs(options: list[str]) -> str | None:
    """Return what a run with these options of Snakemake would make; None if that is nothing. Raises UserError if it
    would fail."""
    _, args = parse_args(options)
    try:
        stale = folder.list_stale_outputs(args)
    except UserError as failed:
        reason = (str(failed).splitlines() or ["no reason given"])[-1]
        raise UserError(f"not archived, the workflow cannot be planned: {reason}") from None
    deepest_first = sorted(stale, key=lambda path: (-path.count("/"), path))  # records, then what follows from them
    return f"{count_words(len(stale), 'file')} would be made again, such as {deepest_first[0]}" if stale else None


def archive(root: Path, options: list[str], sources_at: Path | None = None) -> Path:
    """Check the run in a folder and pack it, with the sources of `sources_at`, by default of the folder itself. Return
    the path of the archive, relative to the folder. Raises UserError and OSError, in one line."""
    sources_at = sources_at or root
    folder.require_no_living_run(root)
    manifest = manifest_of(root)
    if stale := describe_stale_outputs(options):
        raise UserError(f"not archived: {stale}; {AGAIN}")
    if differing := differing_files(root, manifest.outputs):
        more = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise UserError(f"not archived: {differing[0]}{more}; {MADE_AGAIN}")
    metadata_paths = [str(path) for path in sorted((root / METADATA).rglob("*")) if path.is_file()]
    sources = [path for path in checkout.list_sources(sources_at) if not OF_OTHER_RUNS.match(path)]
    paths = list_packed_paths(manifest, sources, [*metadata_paths, "logs/manifest.log", str(JOBS)])
    name, notes = name_archive(manifest.devices, datetime.now(UTC)), collect_provenance(root, manifest, sources_at)
    return pack(name, paths, [root, sources_at], notes)


def name_archive(devices: list[ManifestDevice], when: datetime) -> str:
    """Return the name of the first GPU, else of the CPU, with the time: nvidia-h200-20261105T093000Z."""
    first = order_devices(devices, lambda device: device.device_kind)[0]
    slug = re.sub(r"[^a-z0-9]+", "-", first.name.lower()).strip("-")
    return f"{slug}-{when.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def collect_provenance(root: Path, manifest: Manifest, sources_at: Path) -> dict[str, bytes]:
    """Return texts by path: the commit of the packed sources, what differs from it, and the user's own operators."""
    sources, difference = checkout.describe(sources_at), checkout.diff_sources(sources_at)
    lines = [f"commit of these sources: {sources.commit or 'unknown, ' + str(sources.reason)}"]
    if sources.commit != manifest.sources.commit:
        lines.append(f"commit when the manifest was made: {manifest.sources.commit or 'unknown'}")
    lines += [f"changed since: {name}" for name in sources.changed_files or []]
    files = {"provenance/commit.txt": ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")}
    for path, sha256 in manifest.operators.items():
        if file_sha256(root / path) != sha256:
            raise UserError(f"not archived: {path} is not the file that was measured with; {AGAIN}")
        name = f"operators/{Path(path).name}"
        files[name if name not in files else f"operators/{sha256[:8]}-{Path(path).name}"] = (root / path).read_bytes()
    return files if difference is None else {**files, "provenance/uncommitted.diff": difference}


def main(options: list[str]) -> int:
    """Archive the run in this folder, and return the exit status. Raises UserError and OSError."""
    print_summary(Path(), archive(Path(), options, CHECKOUT))
    return 0


def print_summary(root: Path, path: Path) -> None:
    """Print what the archive at `path` leaves out, the checks of the run that failed, and how to copy it."""
    manifest = manifest_of(root)
    unlisted = [name for name in unlisted_files(root, manifest) if not name.startswith(NEVER_LISTED)]
    if unlisted:
        more = f" and {len(unlisted) - 1} more" if unlisted[1:] else ""
        print(f"left out, because no job of this config makes them: {unlisted[0]}{more}")
    for file in manifest.data:
        if not Path(file.path).is_relative_to(RESULTS):
            print(f"left out: {file.path}, a file of your own; its SHA-256 is in the manifest")
    for line in format_failures(read(Roofline, root / RESULTS / "roofline.json").doubting_failures):
        print(line)
    if spending := describe_spending(manifest.times):
        print(spending)
    print(path)
    print(f"{path.stat().st_size / 1e6:.1f} MB, SHA-256 {file_sha256(path)}")
    print("Copy it off a rented machine before you terminate it; on a machine of yours:")
    print(f"  scp USER@THIS-MACHINE:{shlex.quote(str(path.absolute()))} .")


if __name__ == "__main__":
    exit_with(main)
