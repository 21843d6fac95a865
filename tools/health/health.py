"""make health: whether a GPU is sound, in a minute each. Status 0: every card is healthy, 1: one is not, 2: unknown.

    python tools/health/health.py [--devices gpu0 gpu1] [--heat SECONDS] [--add ARCHIVE]

Measures a few ceilings and repeats one GEMM on every GPU, and writes results/health.json. --add measures nothing.
"""

import argparse
import json
import shutil
import subprocess
import sys
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
HEAT_S, MOST_HEAT_S = 3, 600  # of sustained load, by default and at most
REPEAT_S = 5  # of repeated GEMMs, at least
LIMIT_S, START_S = 55, 60  # for the measurements of each card; for a process to start and to wait for locks
PRODUCTS = ("bf16", "fp16")  # on tensor cores: the first that a card supports, else fp32
SIZE = 4096  # of the GEMM that is repeated
LEVELS = ["hbm", "h2d", "d2h"]
SETTINGS: dict = {"effort": "default", "counters": "off", "peak_flops": {}, "bandwidth": {"levels": LEVELS}}
SETTINGS |= {operator: {"enabled": False} for operator in ("decode_attn", "row_norm", "rmsnorm_matmul")}
RATES = (api.READS, api.REGISTERS, api.MATMULS, against_known.NEAR)
STATUS = {"not healthy": 1, "cannot tell": 2, "healthy": 0}  # the first that a card has is that of all
MARKS = {"fail": "FAIL", "note": "note", "not_applicable": "?", "pass": "ok"}  # in the order in which they are shown


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make health", usage=argparse.SUPPRESS, description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--devices", nargs="*", default=[])
    parser.add_argument("--heat", type=float, default=HEAT_S)
    parser.add_argument("--add", metavar="ARCHIVE")
    asked = parser.parse_args(arguments)
    if not HEAT_S <= asked.heat <= MOST_HEAT_S:
        parser.error(f"HEAT is {HEAT_S} to {MOST_HEAT_S} seconds")
    try:
        if asked.add:
            print("\n".join(add(asked.add)))
            return 0
        found = examine(chosen(asked.devices), asked.heat)
    except (api.UserError, OSError) as error:
        print(error)
        return STATUS["cannot tell"]
    except KeyboardInterrupt:
        print("stopped")
        return 130
    status = next(one for one in STATUS if one in [card["status"] for card in found])
    content = {"ended_at": datetime.now(UTC).isoformat(), "status": status, "cards": found}
    api.write_text(json.dumps(content, indent=1), WRITTEN)
    print(f"\n{screen(found)}\nnumbers: {WRITTEN}")
    return STATUS[status]


def chosen(named: Sequence[str]) -> dict:
    """The GPUs that are named, or all. Raises UserError."""
    present = {name: one for name, one in api.discover().items() if one.kind == "gpu"}
    if not present:
        raise api.UserError(
            "no NVIDIA GPU is visible: check nvidia-smi, the options of the container and CUDA_VISIBLE_DEVICES"
        )
    if unknown := [name for name in named if name not in present]:
        raise api.UserError(
            f"DEVICES: {', '.join(unknown)} is not a GPU of this machine; allowed: {', '.join(present)}"
        )
    cards = {name: present[name] for name in named or present}
    if errors := {one.fault for one in cards.values() if one.fault}:
        raise api.UserError("\n".join(sorted(errors)))
    return cards


def examine(cards: Mapping, heat_s: float) -> list[dict]:
    """What was found of each card. A card in use is not measured. Raises UserError and OSError."""
    api.require_no_living_run(FOLDER)
    watch = Watch({name: one.uuid for name, one in cards.items()})
    with api.hold_locks([api.lock_of(one.uuid) for one in cards.values()]):
        used = {name: verdict.unused(*seen) for name, seen in watch.users().items()}
    shutil.rmtree(FOLDER, ignore_errors=True)
    WRITTEN.unlink(missing_ok=True)
    products = {
        name: next((p for p in PRODUCTS if not api.unsupported_reason(one, p)), "fp32") for name, one in cards.items()
    }
    free = {name: product for name, product in products.items() if used[name].result != "fail"}
    failed, repeated = {}, {}
    if free:
        print(f"measuring {', '.join(f'{name} ({cards[name].name})' for name in free)}", flush=True)
        failed, repeated = measure(free, heat_s), repeat(free, max(REPEAT_S, heat_s))
    xids, later = watch.errors(), {name: one.get("memory_errors", {}) for name, one in repeated.items()}
    facts, found = api.card_facts(FOLDER / api.RESULTS, later), []
    for name, one in cards.items():
        rows, again = [used[name], verdict.xids(xids[name], watch.reads_log)], repeated.get(name)
        failures = {what: failed[path] for what, path in targets(name, products[name]).items() if path in failed}
        if name not in free:
            failures["everything"] = ("others use the GPU", "")
        if again and "why" in again:
            failures["repeat"], again = api.Failure(**again), None
        found.append(judged(one, products[name], facts.get(name), rows, failures, again))
    return found


def judged(one, product: str, facts, rows: Sequence, failures: Mapping, repeated) -> dict:
    """A card, as written in health.json; the rows are of what was seen while nothing of ours ran."""
    known = api.cards(one.name)
    ceilings = against_known.ceilings(facts.record, facts.figures, SETTINGS["effort"], known) if facts else []
    watts = against_known.watts(facts.roofline, one.device) if facts else []
    watts = against_known.ranked(facts.record, watts, SETTINGS["effort"], known) if watts else []
    ranked = {one.key for one in ceilings if one.median is not None}
    rows = [*rows, verdict.measured(failures), verdict.repeatable(repeated), against_known.near(ceilings)]
    rows += verdict.of_library(facts.checks, product, ranked) if facts else []
    shown = {"device": one.device, "name": one.name, "uuid": one.uuid, "status": verdict.status(rows, RATES)}
    tables = {"checks": rows, "ceilings": ceilings, "watts": watts}
    return shown | {name: [row._asdict() for row in table] for name, table in tables.items()}


def targets(device: str, product: str) -> dict[str, str]:
    """By the names of what is measured; the others need the first three."""
    names = ["device_query", "prediction", "peak_flops/prediction", f"peak_flops/{product}", "peak_flops/fp32_fma"]
    names += [f"bandwidth/{level}" for level in LEVELS]
    return {name: f"{api.RESULTS}/{device}/{name}.json" for name in names}


def measure(products: Mapping[str, str], heat_s: float) -> dict[str, api.Failure]:
    """Why each target is missing. Raises UserError if nothing was begun."""
    config = {**SETTINGS, "devices": list(products)}
    dtypes = [*dict.fromkeys(products.values()), "fp32_fma"]
    config["peak_flops"] = {**SETTINGS["peak_flops"], "dtypes": dtypes, "sustained_s": heat_s}
    wanted = [one for name, product in products.items() for one in targets(name, product).values()]
    limit_s = (LIMIT_S + 3 * (heat_s - HEAT_S)) * len(products)  # a GEMM, reads and copies
    return api.measure(wanted, config, FOLDER, limit_s, ["--cores", str(len(products))])


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
    """Everything of one card; of several cards what did not pass."""
    lines, order = [], list(MARKS)
    for card in cards:
        lines.append(f"{card['device']} {card['name']} ({card['uuid']}): {card['status']}")
        lines += [f"  {against_known.Ceiling(**one)}" for one in card["ceilings"] + card["watts"]]
        for one in sorted(card["checks"], key=lambda one: order.index(one["result"])):
            if len(cards) == 1 or one["result"] != "pass":
                lines.append(f"  {MARKS[one['result']]:<4}  {one['name']}: {one['reason']}")
                lines += [f"        -> {one['action']}"] if one["action"] else []
    return "\n".join(lines)


if __name__ == "__main__":
    api.exit_with(main, STATUS["cannot tell"])
