"""Hold a run against its own manifest, on any machine: checksums, seals, nothing missing; then draw it again from its
records, into results/rendered/. Nothing is measured, and no code of the archive is run.

python workflow/commands/verify.py [ARCHIVE]      (a folder too; without one, the newest in results/archive/)
"""

import json
import os
import shutil
import signal
import sys
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

from roofline.core.formatting import count_words
from roofline.core.terms import UserError, shorten_lines
from roofline.records.base import read, shared_fields
from roofline.records.files import RESULTS
from roofline.records.manifest_record import Manifest
from roofline.records.operator_record import SealedOwnPrediction
from roofline.report import pictures
from roofline.report.derived import write_derived
from roofline.report.report_model import Source
from roofline.report.words import format_failures
from roofline.run.archive import ENDING, describe_contradiction, newest, opened
from roofline.run.ending import end_with_parent, exit_with
from roofline.run.make_manifest import describe_amendments, first_hash, hashes
from roofline.table.known_cards import find_known_cards
from roofline.table.rows import CellRow, Roofline
from roofline.table.run_records import Results, read_results
from roofline.table.seals import count_recomputed, count_redrawn

RENDERED = RESULTS / "rendered"
FIGURES: tuple[str, ...] = ("burst_tflops", "sustained_tflops", "gb_per_s", "cpu_time_s", "gpu_time_s")
FIGURES += ("time_s", "sealed_time_s", "nccl_graph_time_s", "nccl_eager_time_s")  # of all-reduces
MOST_SHOWN = 10  # problems or changed figures
FIRST_HASHES = "first_hashes.json"  # in reference/: of each archive there, as it was first committed


def list_replaced(run: Path, manifest: Manifest) -> list[str]:
    """Return a line if a committed archive holds files that differ from those of its run, and no amendment says so."""
    listed = next((folder / FIRST_HASHES for folder in run.parents if (folder / FIRST_HASHES).is_file()), None)
    if listed is None:
        return []
    name = (run.parent if run.is_file() else run).relative_to(listed.parent).as_posix()
    first = first_hash(manifest)
    if json.loads(listed.read_text(encoding="utf-8")).get(name, first) == first:  # a run of one's own is not listed
        return []
    return [f"{name}: not the files that were first archived, by {listed.name}; `amended` in the manifest says no more"]


def verify(run: Path) -> int:
    """Print a line for each problem of a run, or where it is drawn. Return the exit status. Raises UserError and
    OSError."""
    folder = RENDERED / run.resolve().name.removesuffix(ENDING)
    with opened(run) as (root, manifest, problems):
        problems += list_replaced(run.resolve(), manifest)
        if problems:
            print("\n".join(shorten_lines(problems, MOST_SHOWN)))
            print(f"{count_words(len(problems), 'problem')} in {run}")
            return 1
        results = read_results(root / RESULTS, [root / output.path for output in manifest.outputs])
        archived = read_table(root)
    roofline = redraw_run(results, manifest, folder)
    print(f"ok: {len(manifest.outputs)} results agree with the manifest")
    for line in [*describe_seals(results, manifest), *shorten_lines(describe_amendments(manifest))]:
        print(line)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    print(f"drawn again from the records: {folder}/ ({names})")
    changed = list_changed_figures(archived, roofline)
    for line in shorten_lines([*format_failures(roofline.doubting_failures)]) + shorten_lines(changed, MOST_SHOWN):
        print(line)
    if changed:
        print(f"{count_words(len(changed), 'figure')} not as the records have them")
    return 1 if changed else 0


def read_table(root: Path) -> Roofline:
    """Return the table of an unpacked run. Raises UserError and OSError."""
    try:
        return read(Roofline, root / RESULTS / "roofline.json")
    except UserError as error:
        raise UserError(str(error).replace(f"{root}/", "")) from None


def describe_seals(results: Results, manifest: Manifest) -> list[str]:
    """Return how many predictions were recomputed from what was sealed, and how many sets of shapes drawn again."""
    recomputed, others = count_recomputed(results)
    commit = (manifest.sources.commit or "unknown")[:8]
    sealed_by = f"; {others} not recomputed: without entry, or by other code ({commit})" if others else ""
    lines = [f"{count_words(recomputed, 'prediction')} recomputed from what was sealed{sealed_by}"]
    redrawn, other_sets = count_redrawn(results)
    if redrawn or other_sets:
        by_others = f"; {other_sets} not: other code drew them" if other_sets else ""
        lines.append(f"{count_words(redrawn, 'set')} of shapes drawn again from the seals{by_others}")
    return shorten_lines(lines)


def list_changed_figures(archived: Roofline, derived: Roofline) -> list[str]:
    """Return a line for each measured rate and time of an archived table that its records do not give, for each cell
    with another prediction than theirs, and one if it has other predictions of the user's."""
    before, now = _figures(archived), _figures(derived)
    changed = [name for name in now if not isclose(before.get(name, 0.0), now[name], rel_tol=1e-9)]
    cells, own_cells = _name_cells(derived), _name_cells(archived)
    unlike = [name for name, row in cells.items() if name in own_cells and row.sealed != own_cells[name].sealed]
    own_before, own_now = (
        [shared_fields(row, SealedOwnPrediction) for row in table.own_predictions] for table in (archived, derived)
    )
    lines = ["roofline.json: predictions of the user's are not as sealed"] if own_before != own_now else []
    lines += [f"roofline.json: {name}: another prediction than sealed" for name in unlike]
    return lines + [f"roofline.json: {name} {before.get(name)}, by the records {now[name]}" for name in changed]


def _name_cells(roofline: Roofline) -> dict[str, CellRow]:
    rows = [*roofline.measured_cells, *roofline.drawn]
    return {f"{row.device} {roofline.full_name(row)}, {row.record}": row for row in rows}


def _figures(roofline: Roofline) -> dict[str, float]:
    rows: dict[str, Any] = {f"{row.device} {row.name}": row for row in roofline.ceilings}
    rows |= _name_cells(roofline)
    for row in roofline.all_reduces:
        name = f"{row.device} all-reduce with {row.peer}"
        rows |= {f"{name}, {size.size_bytes} bytes": size for size in row.sizes}
    figures = {f"{name} {figure}": getattr(row, figure, None) for name, row in rows.items() for figure in FIGURES}
    return {name: value for name, value in figures.items() if value is not None}


def redraw_run(results: Results, manifest: Manifest, folder: Path) -> Roofline:
    """Write the words, numbers and pictures that follow from records into a folder, the card among all that are known
    now. Return the table."""
    results.known_cards = find_known_cards(results)
    sources = manifest.sources
    source = Source(sources.commit, sources.url, describe_amendments(manifest), sources.changed_files or ())
    shutil.rmtree(folder, ignore_errors=True)
    roofline = write_derived(results, manifest.asked, hashes(manifest.outputs), folder, source)
    end_with_this = partial(end_with_parent, os.getpid())
    pictures.draw(folder, roofline, manifest.config["plot"]["dpi"], start_worker=end_with_this)
    return roofline


def main(arguments: list[str]) -> int:
    """Verify the run that is named, or the newest archive, and return the exit status. Raises UserError and OSError."""
    if len(arguments) > 1:
        raise UserError((__doc__ or "").splitlines())
    run = Path(arguments[0]) if arguments else newest(Path())
    try:
        return verify(run)
    except (UserError, OSError):
        raise
    except Exception as error:
        raise UserError(f"{run}: {describe_contradiction(error)}") from None


if __name__ == "__main__":
    exit_with(main)
