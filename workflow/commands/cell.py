"""make cell: measure one record in a folder of its own, beside its prediction and the reference of the same card.

    python workflow/commands/cell.py gpu0/decode_attn/minigpt/S1024_fp16 [options of snakemake, such as --configfile]

The record is measured every time; the ceilings of its roof only where cell/ has none that is current and undisturbed.
Nothing under results/ is read or written.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline import devices
from roofline.analysis.distribution import reference_of
from roofline.analysis.load import load
from roofline.analysis.results import Results, read_any, read_results, read_table
from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.core.device_kinds import KINDS
from roofline.core.formatting import flops_unit, number
from roofline.devices.base import Identity
from roofline.records.base import CorruptRecord, read
from roofline.records.operator import JobRecord, OperatorRecord
from roofline.report.cell_page import Figure, figures, page
from roofline.report.tables import fail_lines
from roofline.run import cells, folder, plan, previous_results, settings
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run

FOLDER = Path("cell")
INTERRUPTED = 130
PACKED = "run-records.tar.gz"  # of a reference whose pages were left out


class Failed(Exception):
    """The workflow's, which has said why."""

    def __init__(self, status: int):
        super().__init__(status)
        self.status = status


def main(arguments: list[str]) -> int:
    try:
        config, options = folder.called_with(arguments[1:])
        config["cpu"] = "all"
        checked = settings.complete(config)
        present = devices.discover()
        chosen = settings.choose_devices(checked, present)
        ceilings = cells.peaks(checked, present, chosen) + cells.bandwidths(checked, chosen)
        known = ceilings + cells.operators(checked, chosen)
        cell, part = cells.find(arguments[0], known, partial(cells.missing, checked, present))
        previous_results.require_writable([str(FOLDER / folder.CONFIG_FILE)])
        folder.require_no_living_run(FOLDER)
        folder.prepare(FOLDER, config)
        calibration = f"{device_of(cell)}/calibration"
        forced = [*options, "--forcerun", *map(path_of, [cell, *disturbed_of([calibration])])]
        if plan.DRY.intersection(options):
            jobs, notes = plan.plan(folder.options(FOLDER, [*forced, "--", path_of(cell)]))
            print("\n".join([*notes, *plan.lines(jobs)]))
            return 0
        measure([cell], forced)
        roof = [] if cell in ceilings else roof_of(cell, ceilings)
        if roof:
            measure(roof, [*options, "--forcerun", *map(path_of, disturbed_of(roof))])
        print(f"\n{shown(cell, part, roof, present[device_of(cell)])}")
    except settings.Faults as faults:
        print("\n".join(faults.lines))
        return 1
    except Failed as failed:
        return failed.status
    except (cells.Unknown, plan.Failed, CorruptRecord, OSError) as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        print("stopped")
        return INTERRUPTED
    return 0


def device_of(cell: str) -> str:
    return cell.partition("/")[0]


def path_of(cell: str) -> str:
    return f"{RESULTS}/{cell}.json"


def measure(wanted: list[str], options: list[str]) -> None:
    """Raises Failed."""
    if status := folder.run(FOLDER, [*options, "--", *map(path_of, wanted)]):
        raise Failed(status)


def roof_of(cell: str, measurable: list[str]) -> list[str]:
    """The ceilings that a measured cell is declared to stand under, of those that the settings ask for.

    Raises CorruptRecord.
    """
    found: dict[str, None] = {}
    for one in read(OperatorRecord, FOLDER / path_of(cell)).measurements:
        levels = [name.partition("_")[0] for name in one.memory_ceilings]
        memory = [path for level in levels if (path := f"{device_of(cell)}/bandwidth/{level}") in measurable]
        compute = f"{device_of(cell)}/peak_flops/{one.compute_ceiling}"
        found |= dict.fromkeys([compute, *memory[:1]])
    return [one for one in found if one in measurable]


def disturbed_of(records: list[str]) -> list[str]:
    """Those that an earlier call left and that something disturbed. Raises CorruptRecord and OSError."""
    there = [one for one in records if (FOLDER / path_of(one)).exists()]
    found = load(records_of(there)) if there else None
    failed = {record for fault in found.faults for record in fault.records} if found else set()
    return [one for one in there if f"{one}.json" in failed]


def records_of(measured: list[str]) -> Results:
    """With their device and the seals that they carry. Raises CorruptRecord and OSError."""
    results = FOLDER / RESULTS
    paths = [FOLDER / path_of(one) for one in measured]
    seals = {results / seal for path in paths if isinstance(one := read_any(path), JobRecord) for seal in one.seals}
    return read_results(results, [results / device_of(measured[0]) / "device_query.json", *seals, *paths])


def shown(cell: str, part: str | None, roof: list[str], identity: Identity) -> str:
    """Raises Unknown where a level has no such ceiling; CorruptRecord and OSError."""
    records = records_of([cell, *roof])
    found = load(records).shown()
    mine = figures(found, f"{cell}.json")
    if part and part not in (names := [one.name for one in mine]):
        raise cells.Unknown(f"CELL: {part!r} is unknown; allowed: {', '.join(names)}")
    there, told = reference(cell, identity.name)
    under = {name for one in found.operators for name in (one.compute_ceiling, one.memory_ceiling)}
    lines = [f"{cell} on {identity.name}; {told}"]
    if roof:
        lines += [f"roof: {', '.join(rate(one) for one in found.ceilings if one.name in under)}; caller's times"]
    lines += [note for _, record in records.of_kind(OperatorRecord) for note in record.notes]
    lines += fail_lines(found.faults)
    vendor = KINDS[identity.kind].peaks_by
    return "\n".join([*lines, page([one for one in mine if part in (None, one.name)], there, vendor)])


def reference(cell: str, card: str) -> tuple[list[Figure], str]:
    """What the committed run on a card of this name has of the same cell, and in words whether there is one.

    Raises CorruptRecord and OSError.
    """
    folder = reference_of(card)
    if (folder / "roofline.json").exists():
        roofline = read_table(folder / "roofline.json").shown()
    elif (folder / PACKED).exists():
        roofline = read_run(folder / PACKED).roofline.shown()
    else:
        return [], "reference/ has no run on this device"
    named = [key for key, one in roofline.devices.items() if one.name == card]
    found = [figure for key in named for figure in figures(roofline, f"{key}/{cell.partition('/')[2]}.json")]
    where = f"reference/{folder.name}"
    return found, f"reference: {where}, ratio: measured to that" if found else f"{where} has no such record"


def rate(ceiling: ComputeCeiling | MemoryCeiling) -> str:
    if isinstance(ceiling, MemoryCeiling):
        return f"{ceiling.name} {number(ceiling.gb_per_s)} GB/s"
    return f"{ceiling.name} {number(ceiling.tflops)} {flops_unit(ceiling.name)}"


if __name__ == "__main__":
    print_what_can_be_printed()
    sys.exit(main(sys.argv[1:] or [""]))
