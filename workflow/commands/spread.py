"""make spread: measure the ceilings again in fresh processes, RUNS times, and report the spread between the runs.

    python workflow/commands/spread.py RUNS [options of snakemake that the run was given, such as --configfile]

Each run has a folder of its own, results/spread/run1 and so on. What they say side by side is in results/spread.md
and results/spread.json. An earlier spread is removed first, so that all figures are of one session.
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import yaml
from snakemake.utils import update_config

from roofline import devices
from roofline.analysis.spread import SpreadRecord, compare, figures, sound
from roofline.records.base import CorruptRecord, read, write
from roofline.records.collection import Collection
from roofline.records.device import DeviceRecord
from roofline.records.files import write_text
from roofline.report.spread_page import left_out, markdown, provenance
from roofline.run import checkout, run_lock, settings
from roofline.run.jobs import now

CHECKOUT = Path(__file__).absolute().parents[2]
CONFIG_FILE = Path("config/config.yaml")
RESULTS = Path("results")
SPREAD = RESULTS / "spread"
COLLECTIONS = ("peak_flops", "bandwidth")
FEWEST_RUNS = 2
LAST_LINES = 20
INTERRUPTED = 130


class Failed(Exception):
    """Why there is no spread, in words for the screen."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", type=Path, default=[])
    known, options = parser.parse_known_args(arguments[1:])
    try:
        runs = count_of_runs(arguments[0])
        files = config_files(known.configfile)
        settings.require_readable(files)
        checked = settings.complete(merged(files))
        chosen = devices_of_the_run(checked)
        require_no_living_run()
        run_lock.hold()
        measure(runs, chosen, files, checked.config.model.checkpoint, options)
    except settings.Faults as faults:
        print("\n".join(faults.lines))
        return 1
    except (Failed, CorruptRecord, OSError) as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        print("stopped: no spread was written")
        return INTERRUPTED
    return 0


def count_of_runs(text: str) -> int:
    """Raises Failed, in one line, for what is not a number of runs that can differ."""
    with contextlib.suppress(ValueError):
        if int(text) >= FEWEST_RUNS:
            return int(text)
    raise Failed(f"RUNS: {text!r} is not a number of runs; allowed: a whole number of {FEWEST_RUNS} or more")


def config_files(named: list[Path]) -> list[Path]:
    """The files that a run here would read, in its order, as they are called from anywhere."""
    files = [CONFIG_FILE, *named] if CONFIG_FILE.exists() or not named else named
    return [path.absolute() for path in files]


def merged(files: list[Path]) -> dict:
    config = {}
    for path in files:
        update_config(config, settings.read_file(path))
    return config


def devices_of_the_run(checked: settings.Checked) -> list[str]:
    """The devices that the settings choose on this machine. Raises settings.Faults."""
    return settings.choose_devices(checked, devices.discover())


def require_no_living_run() -> None:
    """Raises Failed where a run of an earlier spread outlived it: its folder must not be removed under it."""
    for folder in sorted(SPREAD.glob("run*/")):
        with contextlib.chdir(folder):
            alive = run_lock.is_held()
        if alive:
            raise Failed(f"another run is in progress in {folder}: wait for it to end")


def measure(runs: int, chosen: list[str], files: list[Path], checkpoint: str | None, options: list[str]) -> None:
    """Run the workflow so often, compare, write and print. Raises Failed where a run fails."""
    started_at = now()
    shutil.rmtree(SPREAD, ignore_errors=True)
    SPREAD.mkdir(parents=True)
    if checkpoint:
        files = [*files, write_checkpoint_setting(checkpoint)]
    print(f"{runs} runs, each of the ceilings of {', '.join(chosen)}", flush=True)
    found, doubtful = [], []
    for number in range(1, runs + 1):
        start = time.monotonic()
        folder = SPREAD / f"run{number}"
        run(folder, chosen, [*options, "--configfile", *map(str, files)])
        kept = []
        for collection in collections(folder, chosen):
            whole, failed = sound(collection, device_record(folder, collection.device))
            kept.append(whole)
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


def write_checkpoint_setting(checkpoint: str) -> Path:
    """No ceiling needs the checkpoint, but every run looks for it: a relative path is none from a run's folder."""
    path = (SPREAD / "checkpoint.yaml").absolute()
    write_text(yaml.safe_dump({"model": {"checkpoint": str(Path(checkpoint).absolute())}}), path)
    return path


def run(folder: Path, chosen: list[str], options: list[str]) -> None:
    """Measure the ceilings in a folder. Raises Failed with the last lines of what was said."""
    targets = [f"results/{device}/{what}.json" for device in chosen for what in COLLECTIONS]
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "1", "--snakefile", str(CHECKOUT / "Snakefile")]
    log = folder.with_suffix(".log")
    folder.mkdir()
    with open(log, "wb") as output:
        workflow = subprocess.Popen(
            [*command, "--directory", str(folder), *options, "--", *targets], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = workflow.wait()
        except KeyboardInterrupt:  # it reaches Snakemake too, which ends its job
            workflow.wait()
            raise
    if status:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise Failed("\n".join([*last, f"{folder} failed with status {status} (log: {log}); no spread was written"]))


def device_record(folder: Path, device: str) -> DeviceRecord:
    """Of one run. Raises CorruptRecord and OSError."""
    return read(DeviceRecord, folder / "results" / device / "device_query.json")


def collections(folder: Path, chosen: list[str]) -> list[Collection]:
    """What one run found. Raises CorruptRecord and OSError."""
    paths = [folder / "results" / device / f"{what}.json" for device in chosen for what in COLLECTIONS]
    return [read(Collection, path) for path in paths]


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
