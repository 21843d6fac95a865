"""make health: whether a GPU is sound, in a minute each. Status 0: every card is healthy, 1: one is not, 2: unknown.

    python tools/health/health.py [--devices gpu0 gpu1] [--heat SECONDS] [--repeat SECONDS] [--add ARCHIVE]

Measures a few ceilings in results/health/ with the default settings, then one GEMM again and again, and writes
results/health.json. By default every GPU of this machine. --add only adds the runs of an archive to reference/cards/.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

import against_known
import verdict
from add_card import add
from xids import Watch

import roofline.api as api

FOLDER, WRITTEN = api.RESULTS / "health", api.RESULTS / "health.json"
REPEAT_LOG = FOLDER / "repeat.log"
USUAL_HEAT_S, MOST_HEAT_S, USUAL_REPEAT_S, MOST_REPEAT_S = 3, 600, 5, 86400
LIMIT_S, START_S = 55, 60  # for the measurements of each card; for a process to start and to wait for locks
PRODUCTS = ("bf16", "fp16")  # on tensor cores: the first that a card supports, else fp32
SIZE = 4096  # of the GEMM that is repeated
LEVELS = ["hbm", "h2d", "d2h"]
BEFORE = ("device_query", "prediction", "peak_flops/prediction")  # what measurements need
SETTINGS: dict = {"effort": "default", "counters": "off", "peak_flops": {}, "bandwidth": {"levels": LEVELS}}
SETTINGS |= {operator: {"enabled": False} for operator in ("decode_attn", "row_norm", "rmsnorm_matmul")}
STATUS = {"healthy": 0, "not healthy": 1, "cannot tell": 2}
MARKS = {"fail": "FAIL", "note": "note", "not known": "?", "pass": "ok"}  # in the order in which they are shown


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make health", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--devices", nargs="*", default=[])
    parser.add_argument("--heat", type=float, default=USUAL_HEAT_S)
    parser.add_argument("--repeat", type=float, default=USUAL_REPEAT_S)
    parser.add_argument("--add", metavar="ARCHIVE")
    asked, began = parser.parse_args(arguments), time.monotonic()
    if not (USUAL_HEAT_S <= asked.heat <= MOST_HEAT_S and 0 < asked.repeat <= MOST_REPEAT_S):
        parser.error(f"HEAT is {USUAL_HEAT_S} to {MOST_HEAT_S} seconds, REPEAT up to {MOST_REPEAT_S}")
    try:
        if asked.add:
            print("\n".join(add(asked.add)))
            return 0
        found = examine(chosen(asked.devices), asked.heat, asked.repeat)
    except (api.Refused, api.CorruptRecord, OSError) as error:
        print(error)
        return STATUS["cannot tell"]
    except KeyboardInterrupt:
        print("stopped")
        return 130
    elapsed_s, statuses = round(time.monotonic() - began, 1), [card["status"] for card in found]
    status = next(one for one in ("not healthy", "cannot tell", "healthy") if one in statuses)
    content = {"ended_at": datetime.now(UTC).isoformat(), "elapsed_s": elapsed_s, "status": status, "cards": found}
    api.write_text(json.dumps(content, indent=1) + "\n", WRITTEN)
    print(f"\n{screen(found)}\n{elapsed_s:.0f} s · numbers {WRITTEN} · log {FOLDER / 'run.log'}")
    return STATUS[status]


def chosen(named: Sequence[str]) -> dict:
    """The GPUs that are named, or all. Raises Refused."""
    present = {name: one for name, one in api.discover().items() if one.kind == "gpu"}
    if not present:
        raise api.Refused("no NVIDIA GPU is visible on this machine")
    if unknown := [name for name in named if name not in present]:
        raise api.Refused(f"DEVICES: {', '.join(unknown)} is not a GPU of this machine; allowed: {', '.join(present)}")
    cards = {name: present[name] for name in named or present}
    if errors := {one.fault for one in cards.values() if one.fault}:
        raise api.Refused("\n".join(sorted(errors)))
    return cards


def examine(cards: Mapping, heat_s: float, repeat_s: float) -> list[dict]:
    """What was found of each card, as written in health.json. Raises CorruptRecord and OSError."""
    api.require_no_living_run(FOLDER)
    watch = Watch({name: one.uuid for name, one in cards.items()})
    with api.measuring(api.lock_of(one.uuid) for one in cards.values()):
        used = watch.unused()
    products = {name: next((p for p in PRODUCTS if not api.unsupported(one, p)), "fp32") for name, one in cards.items()}
    shutil.rmtree(FOLDER, ignore_errors=True)
    print(f"measuring {', '.join(f'{name} ({one.name})' for name, one in cards.items())}", flush=True)
    failed, repeated, xids = measure(products, heat_s), repeat(products, repeat_s), watch.errors()
    facts = api.card_facts(FOLDER / api.RESULTS, {name: one.get("memory_errors", {}) for name, one in repeated.items()})
    found = []
    for name, one in cards.items():
        failures, again = lacking(name, products[name], failed), repeated[name]
        if "why" in again and not failures.keys() & set(BEFORE):
            failures["repeat"] = (again["why"], again["error"])
        seen = {"used": used[name], "xids": xids[name], "reads_log": watch.reads_log, "failures": failures}
        seen["repeated"] = None if "why" in again else again
        found.append(judged(one, products[name], facts.get(name), **seen))
    return found


def judged(one, product: str, facts, *, failures, used, xids, reads_log: bool, repeated) -> dict:
    """A card, as written in health.json."""
    rows = [verdict.measured(failures, len(targets(one.device, product)) - len(BEFORE) + 1), verdict.unused(used)]
    rows += [verdict.xids(xids, reads_log), verdict.corrected(repeated), verdict.repeatable(repeated)]
    known = api.cards(one.name)
    ceilings = against_known.ceilings(facts.record, facts.figures, SETTINGS["effort"], known) if facts else []
    ranked = {"product" if one.key == product else one.key for one in ceilings if one.median is not None}
    rows += [against_known.near(ceilings), *(verdict.of_library(facts.checks, ranked) if facts else [])]
    status = verdict.status(rows, (verdict.READS, verdict.REGISTERS, verdict.MATMULS, against_known.NEAR))
    told = {"checks": [row._asdict() for row in rows], "ceilings": [ceiling._asdict() for ceiling in ceilings]}
    return {"device": one.device, "name": one.name, "uuid": one.uuid, "status": status, **told}


def targets(device: str, product: str) -> dict[str, str]:
    """By the names of what is measured."""
    names = [*BEFORE, f"peak_flops/{product}", "peak_flops/fp32_fma", *(f"bandwidth/{level}" for level in LEVELS)]
    return {name: f"{api.RESULTS}/{device}/{name}.json" for name in names}


def measure(products: Mapping[str, str], heat_s: float) -> dict:
    """Why each target is missing. What keeps one card from being measured does not keep others."""
    dtypes, limit_s = [*dict.fromkeys(products.values()), "fp32_fma"], LIMIT_S + heat_s - USUAL_HEAT_S
    config = {**SETTINGS, "devices": list(products)}
    config["peak_flops"] = {**SETTINGS["peak_flops"], "dtypes": dtypes, "sustained_s": heat_s}
    wanted = [one for name, product in products.items() for one in targets(name, product).values()]
    try:
        return api.measure(wanted, config, FOLDER, limit_s * len(products), ["--cores", str(len(products))])
    except api.Failed as error:
        if len(products) > 1:
            return {k: why for name, one in products.items() for k, why in measure({name: one}, heat_s).items()}
        print(error)
        return {wanted[0]: api.Failure(str(error).splitlines()[-1], "")}


def lacking(device: str, product: str, failed: Mapping) -> dict[str, tuple[str, str]]:
    """What was not measured on a card, by name; if a job that all others need failed, that job alone."""
    found = {name: tuple(failed[path]) for name, path in targets(device, product).items() if path in failed}
    first = next((name for name in BEFORE if name in found), None)
    return {first: found[first]} if first else found


def repeat(products: Mapping[str, str], repeat_s: float) -> dict[str, dict]:
    """What repeat.py printed for each card; all at the same time."""
    script, running, found = str(Path(__file__).resolve().with_name("repeat.py")), {}, {}
    with open(REPEAT_LOG, "wb") as log:
        for name, product in products.items():
            command = [sys.executable, "-P", script, name, product, str(SIZE), str(repeat_s)]
            running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    for name, one in running.items():
        try:
            printed, why = one.communicate(timeout=repeat_s + START_S)[0], "its process died"
        except subprocess.TimeoutExpired:
            one.kill()
            printed, why = "", "there was no time for it"
        died = {"why": f"{why} (log: {REPEAT_LOG})", "error": ""}
        found[name] = json.loads(printed.splitlines()[-1]) if printed else died
    return found


def screen(cards: Sequence[dict]) -> str:
    """Everything of one card; of several cards what is not as it should be."""
    lines, order = [], list(MARKS)
    for card in cards:
        lines.append(f"{card['device']} {card['name']} ({card['uuid']}): {card['status']}")
        lines += [f"  {against_known.Ceiling(**one).words}" for one in card["ceilings"]]
        shown = order[: 4 if len(cards) == 1 else 3 if card["status"] == "cannot tell" else 2]
        for one in sorted(card["checks"], key=lambda one: order.index(one["result"])):
            action = f"\n        -> {one['action']}" if one["action"] else ""
            line = f"  {MARKS[one['result']]:<4}  {one['name']}: {one['reason']}{action}"
            lines += [line] if one["result"] in shown else []
    return "\n".join(lines)


if __name__ == "__main__":
    api.print_what_can_be_printed()
    api.exit_with(main, STATUS["cannot tell"])
