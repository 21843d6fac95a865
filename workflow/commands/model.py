"""make model: what decoding a model costs at least, under ceilings that were measured; nothing is measured for it.

    python workflow/commands/model.py MODEL [--card CARD...] [--batch 1,8] [--context 1024] [--cache bf16]

MODEL is the path of a Hugging Face config.json, or a name of docs/decoding.md. CARD is a run (a results folder, or a
folder or an archive with one), or a card of config/datasheets.yaml, whose ceilings are the vendor's promises; several
are shown side by side. Without it, this folder's results.
"""

import argparse
import shutil
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.analysis import decoding
from roofline.analysis.decoding import Card
from roofline.analysis.table import DecodedModel
from roofline.core.device_kinds import in_order
from roofline.devices import datasheets
from roofline.models import config_file
from roofline.models.architecture import Model
from roofline.models.config_file import BadModel
from roofline.models.number_formats import CACHES
from roofline.models.published import of_datasheet
from roofline.report import decoding as words
from roofline.run.archive import Refused
from roofline.run.jobs import print_what_can_be_printed
from roofline.run.paths import RESULTS
from roofline.run.runs import read_run

DATASHEETS = Path(__file__).absolute().parents[2] / "config" / "datasheets.yaml"
BATCHES, CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
MOST = 1 << 30


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    try:
        model = config_file.read(config_file.find(given.model))
        contexts = given.context or [one for one in CONTEXTS if one <= model.longest_context] or [model.longest_context]
        config_file.require_contexts(model, contexts)
        cards = [found(name) for name in given.card or [str(RESULTS)]]
        rows = [row_of(model, card, given.batch, contexts, given.cache) for _, card in cards]
    except (BadModel, Refused, OSError) as error:
        print(error)
        return 1
    names = [name for name, _ in cards]
    told = [wrapped(words.verdict(row, name)) for row, name in zip(rows, names, strict=True)]
    table = words.steps(rows[0]) if len(rows) == 1 else words.side_by_side(rows, names)
    print("\n\n".join([*told, *dict.fromkeys(wrapped(words.remarks(row)) for row in rows), str(table)]))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make model", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL", help="a config.json, or a name of docs/decoding.md")
    parser.add_argument("--card", action="extend", type=lambda text: text.split(","), default=[], metavar="CARD")
    parser.add_argument("--batch", type=wholes, default=BATCHES, help="sequences decoded at once: 1,8,32")
    parser.add_argument("--context", type=wholes, default=None, help="tokens of each sequence: 1024,8192")
    parser.add_argument("--cache", choices=CACHES, default=CACHES[0], help="the dtype of keys and values")
    return parser.parse_args(arguments)


def wholes(text: str) -> list[int]:
    try:
        numbers = [int(one) for one in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= one <= MOST for one in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: whole numbers of 1 or more, such as 1,8,32")
    return list(dict.fromkeys(numbers))


def found(name: str) -> tuple[str, Card]:
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
            return f"{record.name} (measured, {name})", card
    raise Refused(f"{name}: it has no device with the ceilings of memory and of products")


def promised(name: str) -> tuple[str, Card]:
    """Raises Refused for a name that is neither a run's nor a card's."""
    cards = {one: card for card in datasheets.load(DATASHEETS)["cards"].values() for one in card["device_names"]}
    near = [one for one in cards if name.lower() in one.lower()]
    if name not in cards and len(near) != 1:
        known = f"did you mean {' or '.join(near)}? " if near else ""
        raise Refused(f"{name}: no run, and no card of config/datasheets.yaml; {known}allowed: a path or such a name")
    name = name if name in cards else near[0]
    memory_bytes = int(cards[name]["memory_gb"] * 1e9)
    return f"{name} (by its datasheet, not measured)", Card(
        name, memory_bytes, "the datasheet's bandwidth", of_datasheet(cards[name]), sustained=None
    )


def row_of(model: Model, card: Card, batches: list[int], contexts: list[int], cache: str) -> DecodedModel:
    row = decoding.decode(model, card, batches, contexts, cache)
    if row is None:
        raise Refused(f"{card.name}: it has no ceiling of the products of {model.name}")
    return row


def wrapped(text: str) -> str:
    return textwrap.fill(text, min(shutil.get_terminal_size((100, 24)).columns, 120))


if __name__ == "__main__":
    print_what_can_be_printed()
    sys.exit(main(sys.argv[1:]))
