"""make health: whether a GPU is sound, in a minute each. Status 0: every card is healthy, 1: one is not, 2: unknown.

    python tools/health/health.py [--devices gpu0 gpu1] [--heat SECONDS] [--add ARCHIVE]

Measures a few ceilings and repeats one GEMM on every GPU, and writes results/health.json. --add measures nothing.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

import against_known
import verdict
from add_card import add_run
from xids import Watch

import roofline.api as api

FOLDER, WRITTEN = api.RESULTS / "health", api.RESULTS / "health.json"
REPEAT_LOG = FOLDER / "repeat.log"
HEAT_S, MOST_HEAT_S = 3, 600  # of sustained load, by default and at most
REPEAT_S = 5  # of repeated GEMMs, at least
LIMIT_S, START_S = 55, 60  # for the measurements of each card; for a process to start and to wait for locks
PRODUCTS = ("bf16", "fp16")  # on tensor cores: the first that a card supports, else fp32
SIZE = 4096  # of the GEMM that is repeated
LEVELS = [api.MAIN_MEMORY["gpu"], *api.TRANSFER_TARGETS]
SETTINGS: dict = {"effort": "default", "counters": "off", "peak_flops": {}, "bandwidth": {"levels": LEVELS}}
SETTINGS |= {
    operator.rule: {"enabled": False} for operator in api.builtin_operators() if not operator.measured_with_ceilings
}
NO_GPU = "no NVIDIA GPU is visible: check nvidia-smi, the options of the container and CUDA_VISIBLE_DEVICES"
RATES = (api.READS, api.REGISTERS, api.MATMULS, against_known.NEAR)
STATUS = {"not healthy": 1, "cannot tell": 2, "healthy": 0}  # the first that a card has is that of all
MARKS = {"fail": "FAIL", "note": "note", "not_applicable": "?", "pass": "ok"}  # in the order in which they are shown


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its status. Raises UserError and OSError."""
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog="make health", usage=argparse.SUPPRESS, description=description)
    parser.add_argument("--devices", nargs="*", default=[])
    parser.add_argument("--heat", type=float, default=HEAT_S)
    parser.add_argument("--add", metavar="ARCHIVE")
    options = parser.parse_args(arguments)
    if not HEAT_S <= options.heat <= MOST_HEAT_S:
        parser.error(f"HEAT is {HEAT_S} to {MOST_HEAT_S} seconds")
    if options.add:
        print("\n".join(add_run(options.add)))
        return 0
    cards = examine(select_gpus(options.devices), options.heat)
    lost = api.list_lost_gpus()
    status = min((*(card["status"] for card in cards), *["not healthy"] * len(lost)), key=list(STATUS).index)
    content = {"ended_at": datetime.now(UTC).isoformat(), "status": status, "cards": cards, "lost": lost}
    api.write_text(json.dumps(content, indent=1), WRITTEN)
    print("\n".join(["", format_screen(cards), *(f"not healthy: {line}" for line in lost), f"numbers: {WRITTEN}"]))
    return STATUS[status]


def select_gpus(names: Sequence[str]) -> dict[str, Any]:
    """Return the identities of the GPUs of these names, or of all. Raises UserError for another name or a fault."""
    present = {name: identity for name, identity in api.discover().items() if identity.kind == "gpu"}
    if not present:
        raise api.UserError(NO_GPU)
    if unknown := [name for name in names if name not in present]:
        allowed = ", ".join(present)
        raise api.UserError(f"DEVICES: {', '.join(unknown)} is not a GPU of this machine; allowed: {allowed}")
    cards = {name: present[name] for name in names or present}
    if errors := {card.fault for card in cards.values() if card.fault}:
        raise api.UserError(sorted(errors))
    return cards


def examine(cards: Mapping[str, Any], heat_s: float) -> list[dict]:
    """Measure the cards, by their identities, and return each as health.json holds it.

    A card in use is not measured. Raises UserError and OSError.
    """
    api.require_no_living_run(FOLDER)
    watch = Watch({name: card.uuid for name, card in cards.items()})
    with api.hold_locks([api.lock_of(card.uuid) for card in cards.values()]):
        unused = {name: verdict.check_unused(*users) for name, users in watch.read_users().items()}
    shutil.rmtree(FOLDER, ignore_errors=True)
    WRITTEN.unlink(missing_ok=True)
    products = {name: select_product(card) for name, card in cards.items()}
    free = {name: product for name, product in products.items() if unused[name].result != "fail"}
    failed, repeated = {}, {}
    if free:
        print(f"measuring {', '.join(f'{name} ({cards[name].name})' for name in free)}", flush=True)
        failed, repeated = measure_cards(free, heat_s), repeat_products(free, max(REPEAT_S, heat_s))
    xids, later = watch.read_errors(), {name: output.get("memory_errors", {}) for name, output in repeated.items()}
    facts, judged = api.card_facts(FOLDER / api.RESULTS, later), []
    for name, card in cards.items():
        paths, repetition = target_paths(name, products[name]), repeated.get(name)
        failures = {target: failed[path] for target, path in paths.items() if path in failed}
        if name not in free:
            failures["everything"] = ("others use the GPU", "")
        if repetition and "why" in repetition:
            failures["repeat"], repetition = api.Failure(**repetition), None
        rows = [unused[name], verdict.check_xids(xids[name], watch.reads_log)]
        rows += [verdict.check_measured(failures), verdict.check_repeatable(repetition)]
        judged.append(judge_card(card, products[name], facts.get(name), rows))
    return judged


def select_product(card: Any) -> str:
    """Return the dtype of the GEMMs: the first on tensor cores that the card of an identity supports, else fp32."""
    return next((product for product in PRODUCTS if not api.unsupported_reason(card, product)), "fp32")


def judge_card(card: Any, product: str, facts: api.CardFacts | None, rows: Sequence[verdict.HealthRow]) -> dict:
    """Return a card as health.json holds it; `rows` are the checks that need none of its ceilings."""
    ceilings, watts, library_checks, limits = [], [], [], {}
    if facts:
        stored = api.cards(card.name)
        runs = api.select_comparable_runs(facts.record, stored.runs, SETTINGS["effort"]).of_others if stored else []
        ceilings = against_known.rank_ceilings(facts.figures, runs)
        limits = against_known.describe_limits(facts.roofline, card.device)
        watts = against_known.rank_figures(against_known.power_figures(facts.roofline, card.device), runs)
        ranked = {ceiling.key for ceiling in ceilings if ceiling.median is not None}
        library_checks = verdict.library_rows(facts.checks, product, ranked)
    rows = [*rows, against_known.check_near(ceilings, limits), *library_checks]
    judged = {"device": card.device, "name": card.name, "uuid": card.uuid, "status": verdict.card_status(rows, RATES)}
    tables = {"checks": rows, "ceilings": ceilings, "watts": watts}
    return judged | {name: [row._asdict() for row in table] for name, table in tables.items()}


def target_paths(device: str, product: str) -> dict[str, str]:
    """Return the paths of the measured records by their names; the others need the first three."""
    names = ["device_query", "prediction", "peak_flops/prediction", f"peak_flops/{product}", "peak_flops/fp32_fma"]
    names += [f"bandwidth/{level}" for level in LEVELS]
    return {name: f"{api.RESULTS}/{device}/{name}.json" for name in names}


def measure_cards(products: Mapping[str, str], heat_s: float) -> dict[str, api.Failure]:
    """Measure cards, by their dtypes of GEMMs, and return the failure of each missing record by its path.

    Raises UserError if nothing was begun.
    """
    config = {**SETTINGS, "devices": list(products)}
    dtypes = [*dict.fromkeys(products.values()), "fp32_fma"]
    config["peak_flops"] = {**SETTINGS["peak_flops"], "dtypes": dtypes, "sustained_s": heat_s}
    targets = [path for name, product in products.items() for path in target_paths(name, product).values()]
    limit_s = (LIMIT_S + 3 * (heat_s - HEAT_S)) * len(products)  # a GEMM, reads and copies
    return api.measure(targets, config, FOLDER, limit_s, ["--cores", str(len(products))])


def repeat_products(products: Mapping[str, str], repeat_s: float) -> dict[str, dict]:
    """Run repeat.py on all cards at the same time and return what it printed for each."""
    script, running, outputs = str(Path(__file__).resolve().with_name("repeat.py")), {}, {}
    with open(REPEAT_LOG, "wb") as log:
        for name, product in products.items():
            command = [sys.executable, "-P", script, name, product, str(SIZE), str(repeat_s)]
            running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    for name, process in running.items():
        try:
            printed, reason = process.communicate(timeout=repeat_s + START_S)[0], "its process died"
        except subprocess.TimeoutExpired:
            process.kill()
            printed, reason = "", "there was no time for it"
        failure = {"why": f"{reason} (log: {REPEAT_LOG})", "error": ""}
        outputs[name] = json.loads(printed.splitlines()[-1]) if printed else failure
    return outputs


def format_screen(cards: Sequence[dict]) -> str:
    """Return the lines of the terminal: everything of one card; of several cards only what did not pass."""
    lines, order = [], list(MARKS)
    for card in cards:
        lines.append(f"{card['device']} {card['name']} ({card['uuid']}): {card['status']}")
        lines += [f"  {against_known.RankedQuantity(**fields)}" for fields in card["ceilings"] + card["watts"]]
        for check in sorted(card["checks"], key=lambda check: order.index(check["result"])):
            if len(cards) == 1 or check["result"] != "pass":
                lines.append(f"  {MARKS[check['result']]:<4}  {check['name']}: {check['reason']}")
                if check["action"]:
                    lines.append(f"        -> {check['action']}")
    return "\n".join(lines)


if __name__ == "__main__":
    api.exit_with(main, STATUS["cannot tell"])
