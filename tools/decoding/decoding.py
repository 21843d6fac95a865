"""make model: an upper bound on the decode speed of a model, by the measured ceilings of a card.

    python tools/decoding/decoding.py MODEL [--card CARD...] [--batch 1,8] [--in 1024 --out 256] [--price 2.5] [--help]

MODEL is a config.json of Hugging Face or a name of README.md, CARD a run or a card of config/datasheets.yaml.
"""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

import bound
import config_file
import decode_step
import serving
import speed_picture
import speed_tables
from architecture import Model
from bound import CardCeilings, CardLimits, DecodeStepBound, NoCeiling
from config_file import BadModel
from dense import NotDense, dense
from number_formats import CACHES, PLAIN
from serving import Request
from speed_tables import MeasuredStep, Times

import roofline.api as api

DATASHEETS = Path(__file__).resolve().parents[2] / "config" / "datasheets.yaml"
FOLDER = api.RESULTS / "decoding"  # of the picture and of what is measured
BATCHES, CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
MEASURED_BATCHES = [1, 32]
MOST = 1 << 30
MOST_NEAR = 5  # names that an unknown one is answered with
DPI = 160
SKIPPED = " skipped: "  # in a note of a record, between an implementation and the reason
LOAD_S = 3.0  # of steps without a pause: a second to settle, and 16 ticks of the energy counter


def main(arguments: list[str]) -> int:
    try:
        given = parsed(arguments)
        found = config_file.find(given.model)
        model = config_file.read(found)
        contexts = contexts_of(given, model)
        given.cache = given.cache or model.cache
        cards = priced([card_of(name) for name in filter(None, given.card)] or [card_of(str(api.RESULTS))], given.price)
        asked, every = (given.request, given.cache), (given.batch or BATCHES, contexts, given.cache)
        steps = [serving.served(model, one, *asked, bound.steps(model, one, *every)) for one in cards]
        times, why = measured(found, cards, given, contexts) if given.measure else ({}, "")
        FOLDER.mkdir(parents=True, exist_ok=True)
        picture = FOLDER / f"{config_file.file_name(model.name)}.png"
        api.figure_style.save(speed_picture.draw(model.name, cards, steps, times), [picture], DPI)
    except (BadModel, NoCeiling, api.UserError, OSError) as error:
        print(error)
        return 1
    lines = [verdict(model, card, of_card) for card, of_card in zip(cards, steps, strict=True)]
    lines = [line + serving.first_token(model, card, *asked) for line, card in zip(lines, cards, strict=True)]
    lines += [f"Not measured: {why}."] if why else []
    lines += [remarks(model, card, given.cache, of_card) for card, of_card in zip(cards, steps, strict=True)]
    table = speed_tables.one_card(steps[0], times) if len(cards) == 1 else speed_tables.side_by_side(cards, steps)
    print("\n\n".join([*dict.fromkeys(map(wrapped, lines)), speed_tables.narrow(table), f"Written: {picture}"]))
    return 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Raises UserError for a bad value."""
    parser = argparse.ArgumentParser(prog="make model", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL", help="a config.json, or a name of tools/decoding/README.md")
    cards, batches, contexts = partial(str.split, sep=","), partial(wholes, "BATCH"), partial(wholes, "CONTEXT")
    parser.add_argument("--card", action="extend", type=cards, default=[], metavar="CARD")
    parser.add_argument("--batch", type=batches, default=None, help="sequences decoded at once: 1,8,32")
    parser.add_argument("--context", type=contexts, default=None, help="tokens of each sequence: 1024,8192")
    parser.add_argument("--cache", type=cache_dtype, default=None, help=", ".join(CACHES))
    parser.add_argument("--measure", action="store_true", help="time the step on this machine first")
    parser.add_argument("--price", type=prices, default=[], help="dollars per card and hour: one, or one for each card")
    whole, none = partial(wholes, single=True), [0]
    parser.add_argument("--in", type=partial(whole, "IN"), default=none, dest="prompt", help="tokens of a prompt")
    parser.add_argument("--prefix", type=partial(whole, "PREFIX"), default=none, help="those of it that are cached")
    parser.add_argument("--out", type=partial(whole, "OUT"), default=none, dest="answer", help="tokens of its answer")
    given = parser.parse_args(arguments)
    given.request = asked = Request(*given.prompt, *given.prefix, *given.answer)
    if asked.cached and asked.cached >= asked.prompt:
        raise api.UserError(f"PREFIX: {asked.cached}; allowed: fewer tokens than IN ({asked.prompt})")
    if asked.answer and (given.context or not asked.prompt):
        raise api.UserError(f"OUT: {asked.answer}; allowed: with IN, and without CONTEXT")
    return given


def cache_dtype(text: str) -> str:
    if text not in CACHES:
        raise api.UserError(f"CACHE: {text!r} is unknown; allowed: {', '.join(CACHES)}")
    return text


def wholes(variable: str, text: str, *, single: bool = False) -> list[int]:
    found = numbers(int, text)
    if not found or not all(1 <= one <= MOST for one in found) or (single and len(found) > 1):
        which = f"a whole number from 1 to {MOST}" if single else f"whole numbers from 1 to {MOST}, such as 1,8,32"
        raise api.UserError(f"{variable}: {text!r}; allowed: {which}")
    return list(dict.fromkeys(found))


def prices(text: str) -> list[float]:
    found = numbers(float, text)
    if not found or not all(1e-9 <= one <= 1e9 for one in found):  # as in the config
        raise api.UserError(f"PRICE: {text!r}; allowed: dollars per card and hour, such as 2.5, or one for each card")
    return found


def numbers(kind: type, text: str) -> list:
    try:
        return [kind(one) for one in text.split(",")]
    except ValueError:
        return []


def contexts_of(given: argparse.Namespace, model: Model) -> list[int]:
    """Raises BadModel for what is longer than the model can attend to."""
    asked = [given.request.longest] if given.request.prompt else []
    usual = asked or [one for one in CONTEXTS if one <= model.longest_context] or [model.longest_context]
    config_file.require_contexts(model, [*(given.context or usual), *asked])
    return given.context or usual


# ---------------------------------------------------------------- cards


def priced(cards: list[CardLimits], given: list[float]) -> list[CardLimits]:
    """With one price for all or one for each; without, as each run was configured. Raises UserError."""
    if len(given) not in (0, 1, len(cards)):
        raise api.UserError(
            f"PRICE: {len(given)} for {api.count_words(len(cards), 'card')}; allowed: one, or one for each"
        )
    each = given * len(cards) if len(given) == 1 else given or [one.usd_per_hour for one in cards]
    return [replace(card, usd_per_hour=price) for card, price in zip(cards, each, strict=True)]


def card_of(name: str) -> CardLimits:
    """The first device of a run that has the ceilings, or a card of the datasheets. Raises UserError."""
    if not Path(name).exists():
        if name == str(api.RESULTS):
            raise api.UserError("no results here yet: run make first, or name a card: CARD=reference/nvidia-h200")
        return promised(name)
    run = api.open_run(name)
    for device, record in sorted(run.devices.items(), key=lambda item: item[1].device_kind != "gpu"):
        mine = {one.name: one for one in run.roofline.ceilings if one.device == device}
        read = next((mine[one] for one in api.memory_ceilings(record.device_kind, "read") if one in mine), None)
        products = {key: one for key, one in mine.items() if one.kind == "compute" and one.workload == "gemm"}
        if read and products:
            burst = {key: one.burst_tflops or one.tflops for key, one in products.items()}
            sustained = {key: one.sustained_tflops for key, one in products.items() if one.sustained_tflops}
            ceilings = (
                CardCeilings(read.gb_per_s, burst),
                CardCeilings(read.sustained_gb_per_s or read.gb_per_s, sustained),
            )
            doubted = api.join_words(one.name for one in (read, *products.values()) if one.doubt)
            how = f"measured, {name}{f'; do not rely on {doubted}' if doubted else ''}"
            gpus = sum(one.device_kind == "gpu" for one in run.devices.values()) or 1
            price = (run.manifest.times.usd_per_hour or 0) / gpus or None  # it is that of the machine
            watts = read.energy.power_w if read.energy and not read.energy.reason else None
            return CardLimits(record.name, how, record.memory_total_bytes, read.name, *ceilings, price, watts)
    raise api.UserError(f"{name}: no device there has both memory and GEMM ceilings")


def promised(name: str) -> CardLimits:
    """By the datasheet. Raises UserError for a name that is neither a run nor a card."""
    cards = {
        one: card
        for card in api.datasheets.read_datasheets(DATASHEETS)["cards"].values()
        for one in card["device_names"]
    }
    near = [one for one in cards if name.lower() in one.lower()]
    if name not in cards and len(near) != 1:
        known = f"did you mean {' or '.join(near)}? " if 0 < len(near) <= MOST_NEAR else ""
        raise api.UserError(f"{name}: not a run, nor in config/datasheets.yaml; {known}allowed: a path or such a name")
    name = name if name in cards else near[0]
    memory_bytes, ceilings = api.datasheets.nominal_memory_bytes(cards[name]), bound.of_datasheet(cards[name])
    return CardLimits(name, "by its datasheet, not measured", memory_bytes, "the bandwidth of the datasheet", ceilings)


# ---------------------------------------------------------------- the measured step


def measured(
    found: dict, cards: Sequence[CardLimits], given: argparse.Namespace, contexts: list[int]
) -> tuple[Times, str]:
    """Steps on this machine, and why others were not measured. Raises UserError."""
    gpu = next((one for one in api.discover().values() if one.kind == "gpu"), None)
    if not gpu or [one.name for one in cards] != [gpu.name]:
        here = gpu.name if gpu else "no GPU"
        raise api.UserError(f"MEASURE=1: this machine has {here}, and CARD is {', '.join(given.card)}: not one model")
    try:
        dense(found)
    except NotDense as error:
        return {}, str(error)
    if given.cache != decode_step.dtype_of(found):
        return {}, f"keys and values in {given.cache}; the step keeps them in the dtype of the model"
    named = str(Path(given.model).resolve()) if Path(given.model).exists() else given.model
    sizes = {"batch_sizes": given.batch or MEASURED_BATCHES, "contexts": given.context or contexts[:1]}
    config = {one.rule: {"enabled": False} for one in api.builtin_operators() if not one.measured_with_ceilings}
    config |= {"devices": [gpu.device], "operators": [decode_step.__file__], "counters": "off"}
    print(f"measuring steps of {found['name']} in {FOLDER}/", flush=True)
    target = f"{api.RESULTS}/{gpu.device}/{decode_step.DecodeStep.rule}/{decode_step.job_path(found)}.json"
    failed = api.measure([target], {**config, "decode_step": {"models": [named], **sizes}}, FOLDER)
    if failed:
        return {}, failed[target].why
    record = api.read_record(api.OperatorRecord, FOLDER / target)
    with api.open_device(gpu.device) as device:
        times = {(one.shape["batch"], one.shape["context"]): timed(device, found, one) for one in record.measurements}
    return times, "; ".join(note.partition(SKIPPED)[2] for note in record.notes if SKIPPED in note)


def timed(device, found: dict, one) -> MeasuredStep:
    """A measured step; for its joules it is repeated without a pause."""
    seconds = (one.device_latency or one.latency).median_s
    operator, case = decode_step.DecodeStep(), decode_step.case_of(found, **one.shape)
    chain = decode_step.Chain.make_prepared(operator, device, case, {}, [operator.inputs(device, case, seed=1)])
    load = api.measure_memory_load(device, chain.step(None), one.shape["batch"], seconds, LOAD_S)
    return MeasuredStep(seconds, load and load.energy and load.energy.each)


# ---------------------------------------------------------------- words


def verdict(model: Model, card: CardLimits, steps: Sequence[DecodeStepBound]) -> str:
    """Speed at the smallest batch, its limit, what fits, and where compute takes over."""
    first, of_context = steps[0], list({one.context: one for one in steps}.values())
    parts = ", ".join(f"{part} {api.percent(share)}" for part, share in speed_tables.largest_parts(first, 2))
    at = f"at batch {first.batch}, context {first.context}"
    speed = f"at most {api.number(first.most_per_s)} tokens/s"
    if first.routed:
        speed = f"{api.number(first.tokens_per_s)} tokens/s expected by uniform routing, {speed},"
    lines = f"{model.name} on {card.title}: {speed} {at} ({first.expected.limited_by}-bound: {parts}). "
    if first.largest_batch is None:
        lines += "The memory size of the card is unknown. "
    elif not any(one.largest_batch for one in of_context):
        return f"{lines}It does not fit: the weights alone take {api.capacity(model.weight_bytes)}."
    else:
        room = " or ".join(f"{one.largest_batch} sequences of {one.context} tokens" for one in of_context)
        lines += f"Weights take {api.capacity(model.weight_bytes)} and leave room for {room}. "
    found = [f"batch {one.compute_bound_from} (context {one.context})" for one in of_context if one.compute_bound_from]
    where = f"Compute-bound from {api.join_words(found)}" if found else "Memory-bound at every batch that fits"
    return f"{lines}{where}."


def remarks(model: Model, card: CardLimits, cache: str, steps: Sequence[DecodeStepBound]) -> str:
    lines = f"{_count(model.parameters)} parameters"
    if model.active_parameters != model.parameters:
        lines += f", {_count(model.active_parameters)} active"
    context, stored = steps[0].context, PLAIN[cache]
    lines += f"; K/V in {cache}, {api.capacity(model.cache_bytes(context, stored))} per sequence of {context} tokens"
    lines += f"; reads limited by {card.memory_ceiling}"
    wanted = dict.fromkeys(one.stored.arithmetic for one in (*model.linears, model.head))
    replaced = {one: card.burst.dtype(one) for one in (*wanted, stored.arithmetic)}
    lines += "".join(f"; {one} products limited by {other}" for one, other in replaced.items() if one != other)
    if model.assumed:
        lines += f"; defaults taken: {', '.join(f'{key} {value}' for key, value in model.assumed.items())}"
    return f"{lines}. Source: {model.source}."


def _count(parameters: int) -> str:
    return f"{api.number(parameters / 1e9)} G" if parameters >= 1e9 else f"{api.number(parameters / 1e6)} M"


def wrapped(text: str) -> str:
    return textwrap.fill(text, min(shutil.get_terminal_size((100, 24)).columns, 120), break_on_hyphens=False)


if __name__ == "__main__":
    api.exit_with(main, 1)
