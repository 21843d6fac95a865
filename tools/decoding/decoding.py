"""make model: what decoding a model costs at least, under ceilings that were measured, beside steps that were timed.

    python workflow/commands/model.py MODEL [--card CARD...] [--batch 1,8] [--context 1024] [--cache bf16]

MODEL is the path of a Hugging Face config.json, or a name of docs/decoding.md. CARD is a run (a results folder, or a
folder or an archive with one), or a card of config/datasheets.yaml, whose ceilings are the vendor's promises; several
are shown side by side. Without it, this folder's results; and where a chain of kernels can run the model on the card
that they are of, which must be in this machine, steps of it are measured in cell/ first.
"""

import argparse
import shutil
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline import devices
from roofline.analysis import decoding
from roofline.analysis.decoding import Card
from roofline.analysis.load import load
from roofline.analysis.results import Results, read_results
from roofline.analysis.table import DecodedModel, Operator
from roofline.core.device_kinds import in_order
from roofline.devices import datasheets
from roofline.devices.gpu.kernel_compiler import HOPPER
from roofline.models import config_file
from roofline.models.architecture import Model
from roofline.models.config_file import BadModel
from roofline.models.floor import of_datasheet
from roofline.models.number_formats import CACHES
from roofline.operators.model_decode import ModelDecode
from roofline.operators.registry import builtin
from roofline.records.base import CorruptRecord, read
from roofline.records.operator import OperatorRecord
from roofline.report import decoding as words
from roofline.run import folder, settings
from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run

DATASHEETS = Path(__file__).absolute().parents[2] / "config" / "datasheets.yaml"
BATCHES, CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
FOLDER = Path("cell")  # where steps are measured
TIMED = [1, 32], [1024]  # batches and contexts that are measured where none are named
MOST = 1 << 30
MOST_NEAR = 5  # names that an unknown one is answered with


@dataclass(frozen=True)
class Found:
    """A card, what to call it, what was timed on it, and why other steps of the model were not."""

    name: str
    card: Card
    model: str  # of card
    timed: tuple[Operator, ...] = ()
    not_measured: str | None = None


def main(arguments: list[str]) -> int:
    try:
        given = parsed(arguments)
        model = config_file.read(config_file.find(given.model))
        contexts = given.context or [one for one in CONTEXTS if one <= model.longest_context] or [model.longest_context]
        config_file.require_contexts(model, contexts)
        cards = [found(name) for name in filter(None, given.card)] or [found(str(RESULTS))]
        if not given.card:
            cards = [timed_here(cards[0], given, contexts)]
        rows = [row_of(model, one, given.batch or BATCHES, contexts, given.cache) for one in cards]
    except (BadModel, Refused, settings.Faults, folder.Failed, CorruptRecord, OSError) as error:
        print(error)
        return 1
    names = [one.name for one in cards]
    told = [wrapped(words.verdict(row, name)) for row, name in zip(rows, names, strict=True)]
    measured = {name: text for row, name in zip(rows, names, strict=True) if (text := words.measured(row))}
    told += [wrapped(f"{name}: {text}" if len(rows) > 1 else text) for name, text in measured.items()]
    table = words.steps(rows[0]) if len(rows) == 1 else words.side_by_side(rows, names)
    print("\n\n".join([*told, *dict.fromkeys(wrapped(words.remarks(row)) for row in rows), str(table)]))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Raises Refused for a value that is none."""
    parser = argparse.ArgumentParser(prog="make model", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL", help="a config.json, or a name of docs/decoding.md")
    cards, batches, contexts = partial(str.split, sep=","), partial(wholes, "BATCH"), partial(wholes, "CONTEXT")
    parser.add_argument("--card", action="extend", type=cards, default=[], metavar="CARD")
    parser.add_argument("--batch", type=batches, default=None, help="sequences decoded at once: 1,8,32")
    parser.add_argument("--context", type=contexts, default=None, help="tokens of each sequence: 1024,8192")
    parser.add_argument("--cache", type=cache_dtype, default=CACHES[0], help=", ".join(CACHES))
    return parser.parse_args(arguments)


def cache_dtype(text: str) -> str:
    if text not in CACHES:
        raise Refused(f"CACHE: {text!r} is unknown; allowed: {', '.join(CACHES)}")
    return text


def wholes(variable: str, text: str) -> list[int]:
    try:
        numbers = [int(one) for one in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= one <= MOST for one in numbers):
        raise Refused(f"{variable}: {text!r}; allowed: whole numbers from 1 to {MOST}, such as 1,8,32")
    return list(dict.fromkeys(numbers))


def timed_here(on: Found, given: argparse.Namespace, contexts: list[int]) -> Found:
    """With steps of the model that a chain of kernels takes now, where this machine has such a card. Raises Faults of
    settings, folder.Failed and CorruptRecord."""
    identity = devices.discover().get(on.card.name)
    if identity is None or identity.name != on.model or identity.kind != "gpu":
        return on
    batches, timed_contexts = given.batch or TIMED[0], given.context or [min(*contexts, *TIMED[1])]
    others = [one for one in builtin() if not (one.measured_with_ceilings or isinstance(one, ModelDecode))]
    config = {
        **{one.rule: {"enabled": False} for one in others},
        "devices": [on.card.name],
        "counters": "off",
        "models": [given.model],
        "decoding": {"contexts": timed_contexts},
        ModelDecode.rule: {"batch_sizes": batches, "contexts": timed_contexts},
    }
    operator, checked = ModelDecode(), settings.complete(config)
    if why := "; ".join(operator.left_out(checked.config).values()):
        return replace(on, not_measured=why)
    if identity.compute_capability != ".".join(map(str, HOPPER)):
        return replace(on, not_measured=f"compute capability {identity.compute_capability}; its kernels are for 9.0")
    if given.cache not in operator.tolerance:
        return replace(on, not_measured=f"keys and values in {given.cache}; its kernels keep them in the model's dtype")
    (job,) = operator.jobs(checked.config)
    record = f"{on.card.name}/{operator.rule}/{job.path}"
    print(f"measuring {len(job.cases)} steps of {given.model} in {FOLDER}/", flush=True)
    path = f"{RESULTS}/{record}.json"
    folder.require_no_living_run(FOLDER)
    folder.prepare(FOLDER, config)
    try:
        folder.run_logged(FOLDER, ["--forcerun", path, "--", path])
    except folder.Failed as error:  # the floor needs no step
        return replace(on, not_measured=str(error))
    records = with_seals(on.card.name, FOLDER / path)
    why = [reason for _, one in records.of_kind(OperatorRecord) for reason in decoding.skipped(one)]
    return replace(on, timed=tuple(load(records).operators), not_measured="; ".join(why) or None)


def with_seals(device: str, path: Path) -> Results:
    """A record with its device and the seals that it carries. Raises CorruptRecord and OSError."""
    results = FOLDER / RESULTS
    seals = [results / seal for seal in read(OperatorRecord, path).seals]
    return read_results(results, [results / device / "device_query.json", *seals, path])


def found(name: str) -> Found:
    """A card and what to call it: of a run the first device that has the ceilings, GPUs first, or of the datasheets.

    Raises Refused.
    """
    if not Path(name).exists():
        if name == str(RESULTS):
            raise Refused("no results here yet: run make first, or name a card, such as CARD=reference/nvidia-h200")
        return promised(name)
    run = read_run(name)
    for device in in_order(run.devices, lambda one: run.devices[one].device_kind):
        record = run.devices[device]
        card = decoding.card(device, record.memory_total_bytes, record.device_kind, run.roofline.ceilings)
        if card:
            timed = tuple(decoding.timed_steps(run.roofline.operators, device))
            return Found(f"{record.name} (measured, {name})", card, record.name, timed)
    raise Refused(f"{name}: it has no device with the ceilings of memory and of products")


def promised(name: str) -> Found:
    """Raises Refused for a name that is neither a run's nor a card's."""
    cards = {one: card for card in datasheets.load(DATASHEETS)["cards"].values() for one in card["device_names"]}
    near = [one for one in cards if name.lower() in one.lower()]
    if name not in cards and len(near) != 1:
        known = f"did you mean {' or '.join(near)}? " if 0 < len(near) <= MOST_NEAR else ""
        raise Refused(f"{name}: no run, and no card of config/datasheets.yaml; {known}allowed: a path or such a name")
    name = name if name in cards else near[0]
    memory_bytes, ceilings = datasheets.nominal_bytes(cards[name]), of_datasheet(cards[name])
    card = Card(name, memory_bytes, "the datasheet's bandwidth", ceilings, sustained=None)
    return Found(f"{name} (by its datasheet, not measured)", card, name)


def row_of(model: Model, on: Found, batches: list[int], contexts: list[int], cache: str) -> DecodedModel:
    row = decoding.decode(model, on.card, batches, contexts, cache, on.timed)
    if row is None:
        raise Refused(f"{on.card.name}: it has no ceiling of the products of {model.name}")
    return row.model_copy(update={"not_measured": on.not_measured})


def wrapped(text: str) -> str:
    return textwrap.fill(text, min(shutil.get_terminal_size((100, 24)).columns, 120))


if __name__ == "__main__":
    print_what_can_be_printed()
    sys.exit(main(sys.argv[1:]))
