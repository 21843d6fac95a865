"""make spread: measure the ceilings again in fresh processes, RUNS times, and report the spread between the runs.

    python workflow/commands/spread.py RUNS [options of snakemake that the run was given, such as --configfile]

Each run has a folder of its own, results/spread/run1 and so on. What they say side by side is in results/spread.md
and results/spread.json. An earlier spread is removed first, so that all figures are of one session.
"""

import contextlib
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline import devices
from roofline.analysis import checks
from roofline.analysis.results import read_any
from roofline.analysis.spread import SpreadRecord, compare, figures, widest
from roofline.records.base import CorruptRecord, read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.files import write_text
from roofline.records.memory import BandwidthRecord
from roofline.report.spread_page import left_out, markdown, provenance
from roofline.run import checkout, folder, plan, run_lock, settings
from roofline.run.jobs import now

CHECKOUT = Path(__file__).absolute().parents[2]
RESULTS = Path("results")
SPREAD = RESULTS / "spread"
FEWEST_RUNS = 2
LAST_LINES = 20
INTERRUPTED = 130
Ceilings = PeakFlopsRecord | BandwidthRecord


class Failed(Exception):
    """Why there is no spread, in words for the screen."""


def main(arguments: list[str]) -> int:
    try:
        runs = count_of_runs(arguments[0])
        config, options = folder.called_with(arguments[1:])
        chosen = settings.choose_devices(settings.complete(config), devices.discover())
        if plan.DRY.intersection(options):
            print(f"would measure {planned(runs, chosen)}")
            return 0
        require_no_living_run()
        run_lock.hold()
        return 0 if measure(runs, chosen, config, options) else 1
    except settings.Faults as faults:
        print("\n".join(faults.lines))
        return 1
    except (Failed, CorruptRecord, OSError) as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        print("stopped: no spread was written")
        return INTERRUPTED


def count_of_runs(text: str) -> int:
    """Raises Failed, in one line, for what is not a number of runs that can differ."""
    with contextlib.suppress(ValueError):
        if int(text) >= FEWEST_RUNS:
            return int(text)
    raise Failed(f"RUNS: {text!r} is not a number of runs; allowed: a whole number of {FEWEST_RUNS} or more")


def planned(runs: int, chosen: list[str]) -> str:
    return f"{runs} runs, each of the ceilings of {', '.join(chosen)}"


def require_no_living_run() -> None:
    """Raises Failed where a run of an earlier spread outlived it: its folder must not be removed under it."""
    for where in sorted(SPREAD.glob("run*/")):
        with contextlib.chdir(where):
            alive = run_lock.is_held()
        if alive:
            raise Failed(f"another run is in progress in {where}: wait for it to end")


def measure(runs: int, chosen: list[str], config: dict, options: list[str]) -> bool:
    """Run the workflow so often, compare, write, print; whether a spread was found. Raises Failed where a run fails."""
    started_at = now()
    shutil.rmtree(SPREAD, ignore_errors=True)
    SPREAD.mkdir(parents=True)
    print(planned(runs, chosen), flush=True)
    found, doubtful = [], []
    for number in range(1, runs + 1):
        start = time.monotonic()
        where = SPREAD / f"run{number}"
        folder.prepare(where, config)
        run(where, options)
        kept = []
        for device in chosen:
            whole, failed = sound(ceilings(where, device), device_record(where, device))
            kept += whole
            doubtful += [f"run {number}, {line}" for line in failed]
        found.append(figures(kept))
        print(f"run {number} of {runs}: {time.monotonic() - start:.0f} s", flush=True)
    record = SpreadRecord(
        started_at=started_at,
        ended_at=now(),
        devices={device: device_record(SPREAD / "run1", device).name for device in chosen},
        commit=checkout.describe(CHECKOUT).commit,
        left_out=doubtful,
        ceilings=compare(found),
    )
    told = "\n\n".join([*left_out(doubtful), markdown(record.ceilings)])
    write(record, RESULTS / "spread.json")
    write_text(f"# The spread between {runs} runs\n\n{provenance(record)}\n\n{told}", RESULTS / "spread.md")
    print(f"\n{told}\nnumbers {RESULTS}/spread.json · table {RESULTS}/spread.md")
    return widest(record.ceilings) is not None


def sound(records: list[Ceilings], device: DeviceRecord) -> tuple[list[Ceilings], list[str]]:
    """The records of one device in one run of which no check failed; a line for each of the others."""
    kept, lines = [], []
    for record in records:
        failed = checks.failed(device, [record])
        name = getattr(record, "dtype", None) or record.level
        lines += [f"{device.device} {name}: {one.reason}" for one in failed[:1]]
        kept += [] if failed else [record]
    return kept, lines


def run(where: Path, options: list[str]) -> None:
    """Measure the ceilings in a folder. Raises Failed with the last lines of what was said."""
    try:
        folder.run_logged(where, [*options, "--", "ceilings"])
    except folder.Failed as failed:
        last = failed.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise Failed("\n".join([*last, f"{failed}; no spread was written"])) from None


def device_record(where: Path, device: str) -> DeviceRecord:
    """Of one run. Raises CorruptRecord and OSError."""
    return read(DeviceRecord, where / "results" / device / "device_query.json")


def ceilings(where: Path, device: str) -> list[Ceilings]:
    """The records of a device's ceilings in one run. Raises CorruptRecord and OSError."""
    folders = [where / "results" / device / rule for rule in ("peak_flops", "bandwidth")]
    records = [read_any(path) for each in folders for path in sorted(each.glob("*.json"))]
    return [one for one in records if isinstance(one, Ceilings)]


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
