"""make health: whether a GPU is what was rented, in a minute for each.

    python workflow/commands/health.py [--devices gpu0 gpu1] [--heat SECONDS] [--config or --configfile of Snakemake]

Without devices: every GPU of this machine. In results/health/, by the rules of a run, it measures the few ceilings that
tell most, under load for three seconds or those of --heat, and one product again and again. What was found is in
results/health.json. Settings are the defaults, but for the section health of config/config.yaml. Ends with status 0
where every card is healthy, 1 where one is not, 2 where it cannot be told.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from snakemake.utils import update_config

from roofline import devices
from roofline.analysis import health
from roofline.analysis.checks.registry import Evidence, HealthEvidence
from roofline.analysis.distribution import OF_CARD, known
from roofline.analysis.load import load
from roofline.analysis.quantities import Quantity, quantities
from roofline.analysis.results import Results, read_results
from roofline.analysis.standing import standings
from roofline.analysis.table import Roofline
from roofline.core.device_kinds import accelerators
from roofline.devices.base import Identity
from roofline.devices.gpu.watch import Watch
from roofline.measure.lock import measuring, of_gpu
from roofline.operators.registry import registered
from roofline.records.base import CorruptRecord, read, write
from roofline.records.health import HealthRecord, RepeatabilityRecord
from roofline.report.health_page import screen
from roofline.run import checkout, folder, settings
from roofline.run.config import HealthSettings
from roofline.run.jobs import JOBS, Stopwatch, exit_with, failures, now, print_what_can_be_printed
from roofline.run.paths import RESULTS

CHECKOUT = Path(__file__).absolute().parents[2]
FOLDER = RESULTS / "health"
LOG = FOLDER / "health.log"
EFFORT = "default"
USUAL_LOAD_S, MOST_HEAT_S = 3, 600  # of load without a pause
LIMIT_S = 55  # for each card, so that all of it takes a minute at most
PRODUCTS = ("bf16", "fp16")  # on tensor cores: the first of them that a card has, else fp32
LEVELS = ("hbm", "h2d", "d2h")
BEFORE = ("device_query", "prediction", "peak_flops/prediction")  # what measurements need
REPEATED = "repeatability"
STATUS = {"healthy": 0, "not healthy": 1, "cannot tell": 2}
LAST_LINES = 20
# That tell of the card: a wrong result, or what CUDA and cuBLAS report. A full disk or a missing library does not.
OF_CARD_ERRORS = ("ArithmeticError", "CUDARuntimeError", "CUDADriverError", "CUBLASError", "cuBLASLtError")
INTERRUPTED = 130


class CannotTell(Exception):
    """Why, in a line or more."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--devices", nargs="*", default=[])
    parser.add_argument("--heat", type=seconds, default=USUAL_LOAD_S)
    try:
        asked, others = parser.parse_known_args(arguments)
        given, options = folder.called_with(others, files=[])
        edited = folder.called_with(others)[0]
        given |= {"health": edited["health"]} if "health" in edited else {}
        cards = chosen(asked.devices)
        folder.require_no_living_run(FOLDER)
        record = examine(cards, given, options, asked.heat)
    except settings.Faults as faults:
        print("\n".join(faults.lines))
        return STATUS["cannot tell"]
    except (CannotTell, CorruptRecord, OSError) as error:
        print(error)
        return STATUS["cannot tell"]
    except KeyboardInterrupt:
        print("stopped")
        return INTERRUPTED
    write(record, RESULTS / "health.json")
    print(f"\n{screen(record)}\n{record.elapsed_s:.0f} s · numbers {RESULTS}/health.json · log {LOG}")
    return STATUS[record.status]


def seconds(text: str) -> float:
    """Of load, by HEAT. Raises CannotTell."""
    try:
        if USUAL_LOAD_S <= float(text) <= MOST_HEAT_S:
            return float(text)
    except ValueError:
        pass
    raise CannotTell(f"HEAT: {text!r} is no number of seconds from {USUAL_LOAD_S} to {MOST_HEAT_S}")


def chosen(named: Sequence[str]) -> dict[str, Identity]:
    """The GPUs that are named, or all. Raises CannotTell."""
    found = devices.discover()
    present = {name: found[name] for name in accelerators(found, devices.kind_of)}
    if not present:
        raise CannotTell("no NVIDIA GPU is visible on this machine")
    if unknown := [name for name in named if name not in present]:
        raise CannotTell(f"DEVICES: {', '.join(unknown)} is no GPU of this machine; allowed: {', '.join(present)}")
    found = {name: present[name] for name in named or present}
    if faults := {one.fault for one in found.values() if one.fault}:
        raise CannotTell("\n".join(sorted(faults)))
    return found


def examine(cards: Mapping[str, Identity], given: dict, options: Sequence[str], load_s: float) -> HealthRecord:
    """Look at the cards, measure, with so many seconds of load, and judge.

    Raises settings.Faults, CannotTell, CorruptRecord and OSError.
    """
    clock, watch = Stopwatch(), Watch(cards.values())
    products = {device: product_of(identity) for device, identity in cards.items()}
    config = {rule: {"enabled": False} for rule, one in registered([]).items() if not one.measured_with_ceilings}
    config |= {"counters": "off", "devices": list(cards), "bandwidth": {"levels": list(LEVELS)}}
    dtypes = [*dict.fromkeys(products.values()), "fp32_fma"]
    config |= {"effort": EFFORT, "peak_flops": {"dtypes": dtypes, "sustained_s": load_s}}
    update_config(config, given)
    checked = settings.complete(config)
    with measuring(of_gpu(one.uuid) for one in cards.values()):
        unused = watch.unused()
    unfit = {device: unfit_for(checked, device, identity) for device, identity in cards.items()}
    wanted = {device: paths_of(device, product) for device, product in products.items() if not unfit[device]}
    shutil.rmtree(FOLDER, ignore_errors=True)
    folder.prepare(FOLDER, config | {"devices": list(wanted) or ["cpu"]})
    more_s = max(0, checked.config.health.repeat_s - HealthSettings().repeat_s) + load_s - USUAL_LOAD_S
    print(f"measuring {', '.join(f'{device} ({cards[device].name})' for device in wanted) or 'nothing'}", flush=True)
    in_time = measure(wanted, options, len(cards) * (LIMIT_S + more_s))
    xids = watch.errors()
    found = []
    for device, one in cards.items():
        records, repeated = measured_on(device)
        roofline = load(records)
        failed, not_measured = lacking(device, wanted.get(device, []), in_time)
        known = Evidence(
            device,
            records.device_records().get(device),
            records.measured_on(device),
            standing=standings(records, roofline, EFFORT).get(device),
            health=HealthEvidence(
                repeated=repeated,
                failures=failed,
                not_measured=unfit[device] | not_measured,
                unused=unused[device],
                xids=xids[device],
                earlier_xids=watch.reads_log,
            ),
        )
        found.append(health.card(one.name, one.uuid, known, ceilings_of(roofline)))
    return HealthRecord(
        started_at=clock.started_at,
        ended_at=now(),
        elapsed_s=clock.elapsed_s,
        commit=checkout.describe(CHECKOUT).commit,
        status=health.overall(card.status for card in found),
        cards=found,
    )


def product_of(identity: Identity) -> str:
    return next((one for one in PRODUCTS if not devices.unsupported(identity, one)), "fp32")


def paths_of(device: str, product: str) -> list[Path]:
    """Of the records that are measured, below the folder."""
    names = [f"peak_flops/{product}", "peak_flops/fp32_fma", *(f"bandwidth/{level}" for level in LEVELS)]
    return [RESULTS / device / f"{name}.json" for name in [*names, f"{REPEATED}/{product}"]]


def unfit_for(checked: settings.Checked, device: str, identity: Identity) -> dict[str, str]:
    """Why nothing can be measured on a card, such as too little free memory; empty where it can."""
    alone = checked.config.model_copy(update={"devices": [device]})
    try:
        settings.choose_devices(settings.Checked(alone, {}), {device: identity})
    except settings.Faults as faults:
        return {"not begun": "; ".join(faults.lines)}
    return {}


def measure(wanted: Mapping[str, Sequence[Path]], options: Sequence[str], limit_s: float) -> bool:
    """Whether it was over in time. Raises CannotTell where the workflow did not even begin."""
    if not wanted:
        return True
    targets = [str(path) for paths in wanted.values() for path in paths]
    with open(LOG, "wb") as output:
        try:
            folder.run(FOLDER, ["--cores", str(len(wanted)), *options, "--keep-going", "--", *targets], output, limit_s)
        except subprocess.TimeoutExpired:
            return False
    if not any((FOLDER / "logs").rglob("device_query.log")):
        last = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise CannotTell("\n".join([*last, f"nothing was measured (log: {LOG})"]))
    return True


def lacking(device: str, wanted: Sequence[Path], in_time: bool) -> tuple[dict[str, str], dict[str, str]]:
    """What was not measured, by name, and why: through a fault of the card, and for another reason."""
    told, failed, not_measured = failures(FOLDER / JOBS), {}, {}
    before = [RESULTS / device / f"{name}.json" for name in BEFORE] if wanted else []
    for path in [*before, *wanted]:
        name = path.relative_to(RESULTS / device).with_suffix("").as_posix()
        if (FOLDER / path).exists():
            continue
        if failure := told.get(str(path)):
            (failed if failure.error in OF_CARD_ERRORS else not_measured)[name] = failure.why
        else:
            not_measured[name] = f"{'its process died' if in_time else 'there was no time for it'} (log: {LOG})"
        if path in before:
            break  # the rest waits for it
    return failed, not_measured


def measured_on(device: str) -> tuple[Results, RepeatabilityRecord | None]:
    """Raises CorruptRecord and OSError."""
    results = FOLDER / RESULTS
    repeated = [read(RepeatabilityRecord, path) for path in (results / device / REPEATED).glob("*.json")]
    paths = [path for path in sorted((results / device).rglob("*.json")) if path.parent.name != REPEATED]
    found = read_results(results, paths)
    distributions = {name: known(record.name) for name, record in found.device_records().items()}
    found.distributions = {name: others for name, others in distributions.items() if others}
    return found, next(iter(repeated), None)


def ceilings_of(roofline: Roofline) -> list[Quantity]:
    """What the card itself gives: neither the host's copies of pageable memory nor operators."""
    return [one for one in quantities(roofline) if one.kind in OF_CARD]


if __name__ == "__main__":
    print_what_can_be_printed()
    exit_with(main, STATUS["cannot tell"])
