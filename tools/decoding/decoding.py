"""make model: an upper bound on the decode speed of a model, by the measured ceilings of a card.

    python tools/decoding/decoding.py MODEL [--card CARD...] [--batch 1,8] [--in 1024 --out 256] [--price 2.5] [--help]

MODEL is a config.json of Hugging Face or a name of README.md, CARD a run or a card of config/datasheets.yaml.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))

import config_file
import decode_step
import serving
import speed_picture
import speed_tables
from architecture import Model
from bound import CardCeilings, CardLimits, DecodeStepBound, NoCeiling, bound_steps, datasheet_ceilings
from config_file import BadModel
from dense import NotDense, read_dense
from number_formats import CACHE_DTYPES, PLAIN_FORMATS
from serving import GenerationRequest
from speed_tables import MeasuredStep, MeasuredSteps

import roofline.api as api

DATASHEETS = Path(__file__).resolve().parents[2] / "config" / "datasheets.yaml"
FOLDER = api.RESULTS / "decoding"  # of the picture and of what is measured
DEFAULT_BATCHES, DEFAULT_CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
DEFAULT_MEASURED_BATCHES = [1, 32]
LARGEST_WHOLE = 1 << 30
RANGES = {int: (1, LARGEST_WHOLE), float: (1e-9, 1e9)}  # of counts, and of prices as in the config
MOST_SUGGESTIONS = 5  # names that an unknown one is answered with
DPI = 160
SCHEMA_VERSION = 1  # of MODEL.json
SKIPPED = " skipped: "  # in a note of a record, between an implementation and the reason
LOAD_S = 3.0  # of steps without a pause: a second to settle, and 16 ticks of the energy counter


def main(argv: list[str]) -> int:
    """Print the bound of a model and draw its picture. Returns 1, after one line, for what a user can mend."""
    try:
        arguments = parse_arguments(argv)
        entry = config_file.find_model(arguments.model)
        model = config_file.read_model(entry)
        contexts = choose_contexts(arguments, model)
        batches = arguments.batch or DEFAULT_BATCHES
        request, cache_format = arguments.request, PLAIN_FORMATS[arguments.cache or model.cache_dtype]
        names = [name for name in arguments.card if name] or [str(api.RESULTS)]
        cards = set_prices([load_card(name) for name in names], arguments.price)
        bounds = [bound_steps(model, card, batches, contexts, cache_format) for card in cards]
        steps = [serving.add_request_rates(on_card, request) for on_card in bounds]
        measured, reason = measure_steps(entry, cards, arguments, contexts, cache_format.name)
        FOLDER.mkdir(parents=True, exist_ok=True)
        picture = FOLDER / f"{config_file.file_name(model.name)}.png"
        api.figure_style.save(speed_picture.draw_speeds(steps, measured), [picture], DPI)
        table_file = picture.with_suffix(".json")
        data = {"schema_version": SCHEMA_VERSION, "steps": speed_tables.list_steps(steps, measured)}
        api.write_text(json.dumps(data, indent=1) + "\n", table_file)
    except (BadModel, NoCeiling, api.UserError, OSError) as error:
        print(error)
        return 1
    lines = [describe_speed(on_card) + serving.describe_first_token(on_card[0], request) for on_card in steps]
    if reason:
        lines.append(f"Not measured: {reason}.")
    lines += [describe_model(on_card[0]) for on_card in steps]
    if len(cards) == 1:
        table = speed_tables.build_card_table(steps[0], measured)
    else:
        table = speed_tables.build_comparison_table(steps)
    paragraphs = map(api.wrap_for_terminal, dict.fromkeys(lines))  # cards may share a line
    print("\n\n".join([*paragraphs, speed_tables.format_narrow(table), f"Written: {picture}, {table_file.name}"]))
    return 0


# ---------------------------------------------------------------- arguments


def parse_arguments(argv: list[str]) -> Namespace:
    """Return the arguments, with the `request` that they describe. Raises UserError for a bad value."""
    parser = ArgumentParser(prog="make model", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL", help="a config.json, or a name of tools/decoding/README.md")
    parser.add_argument("--card", action="extend", type=partial(str.split, sep=","), default=[], metavar="CARD")
    parser.add_argument("--batch", type=partial(parse_counts, "BATCH"), help="sequences decoded at once: 1,8,32")
    parser.add_argument("--context", type=partial(parse_counts, "CONTEXT"), help="tokens of each sequence: 1024,8192")
    parser.add_argument("--cache", help=", ".join(CACHE_DTYPES))
    parser.add_argument("--measure", action="store_true", help="time the step on this machine first")
    parser.add_argument("--price", type=parse_prices, help="dollars per card and hour: one, or one for each card")
    parser.add_argument("--in", type=partial(parse_count, "IN"), dest="prompt", help="tokens of a prompt")
    parser.add_argument("--prefix", type=partial(parse_count, "PREFIX"), help="those of it that are cached")
    parser.add_argument("--out", type=partial(parse_count, "OUT"), dest="answer", help="tokens of its answer")
    arguments = parser.parse_args(argv)
    if arguments.cache not in (None, *CACHE_DTYPES):
        raise api.UserError(f"CACHE: {arguments.cache!r} is unknown; allowed: {', '.join(CACHE_DTYPES)}")
    request = GenerationRequest(arguments.prompt or 0, arguments.prefix or 0, arguments.answer or 0)
    if request.cached and request.cached >= request.prompt:
        raise api.UserError(f"PREFIX: {request.cached}; allowed: fewer tokens than IN ({request.prompt})")
    if request.answer and (arguments.context or not request.prompt):
        raise api.UserError(f"OUT: {request.answer}; allowed: with IN, and without CONTEXT")
    arguments.request = request
    return arguments


def parse_counts(variable: str, text: str) -> list[int]:
    """Return the different numbers of a list such as 1,8,32. Raises UserError with the variable of make."""
    allowed = f"whole numbers from 1 to {LARGEST_WHOLE}, such as 1,8,32"
    return list(dict.fromkeys(parse_numbers(variable, text.split(","), int, allowed)))


def parse_count(variable: str, text: str) -> int:
    """Return a number. Raises UserError with the variable of make."""
    (number,) = parse_numbers(variable, [text], int, f"a whole number from 1 to {LARGEST_WHOLE}")
    return number


def parse_prices(text: str) -> list[float]:
    """Return the dollars per hour of each card, or one price for all. Raises UserError."""
    allowed = "dollars per card and hour, such as 2.5, or one for each card"
    return parse_numbers("PRICE", text.split(","), float, allowed)


def parse_numbers(variable: str, texts: list[str], kind: type, allowed: str) -> list:
    """Return numbers of a kind. Raises UserError if a text is none, or not within the range of its kind."""
    lowest, highest = RANGES[kind]
    try:
        numbers = [kind(text) for text in texts]
    except ValueError:
        numbers = []
    if not numbers or not all(lowest <= number <= highest for number in numbers):
        raise api.UserError(f"{variable}: {','.join(texts)!r}; allowed: {allowed}")
    return numbers


def choose_contexts(arguments: Namespace, model: Model) -> list[int]:
    """Return the contexts of the decode steps: the user's, that of the request, or those of the defaults that fit.

    Raises BadModel for a context or a request that is longer than the model can attend to.
    """
    request_contexts = [arguments.request.longest_context] if arguments.request.prompt else []
    fitting = [context for context in DEFAULT_CONTEXTS if context <= model.longest_context]
    contexts = arguments.context or request_contexts or fitting or [model.longest_context]
    if beyond := [context for context in [*contexts, *request_contexts] if context > model.longest_context]:
        allowed = f"{model.longest_context} or fewer"
        raise BadModel(f"{model.name}: {max(beyond)} tokens (CONTEXT, or IN and OUT); allowed: {allowed}")
    return contexts


# ---------------------------------------------------------------- cards


def set_prices(cards: list[CardLimits], prices: list[float] | None) -> list[CardLimits]:
    """Return the cards with one price for all, or with one each; without prices, as they are. Raises UserError."""
    if not prices:
        return cards
    if len(prices) not in (1, len(cards)):
        count = api.count_words(len(cards), "card")
        raise api.UserError(f"PRICE: {len(prices)} for {count}; allowed: one, or one for each")
    # Repeated often enough that one price is that of every card.
    return [replace(card, usd_per_hour=price) for card, price in zip(cards, prices * len(cards), strict=False)]


def load_card(name: str) -> CardLimits:
    """Return the first device of a run that has the ceilings, or a card of the datasheets. Raises UserError."""
    if not Path(name).exists():
        if name == str(api.RESULTS):
            raise api.UserError("no results here yet: run make first, or name a card: CARD=reference/nvidia-h200")
        return load_datasheet_card(name)
    run = api.open_run(name)
    for device, record in sorted(run.devices.items(), key=lambda item: item[1].device_kind != "gpu"):
        ceilings = {ceiling.name: ceiling for ceiling in run.roofline.ceilings if ceiling.device == device}
        read_names = [level for level in api.memory_ceilings(record.device_kind, "read") if level in ceilings]
        products = {name: ceiling for name, ceiling in ceilings.items() if name in api.datasheets.PRODUCT_DTYPES}
        if not read_names or not products:
            continue
        read = ceilings[read_names[0]]
        burst = {dtype: product.burst_tflops or product.tflops for dtype, product in products.items()}
        loads = {dtype: product.sustained_tflops for dtype, product in products.items() if product.sustained_tflops}
        sustained = {dtype: min(rate, burst[dtype]) for dtype, rate in loads.items()}  # above the burst is noise
        doubted = api.join_words(ceiling.name for ceiling in (read, *products.values()) if ceiling.doubt)
        gpus = sum(device_record.device_kind == "gpu" for device_record in run.devices.values()) or 1
        return CardLimits(
            name=record.name,
            origin=f"measured, {name}{f'; do not rely on {doubted}' if doubted else ''}",
            memory_bytes=record.memory_total_bytes,
            memory_ceiling=read.name,
            burst=CardCeilings(read.gb_per_s, burst),
            sustained=CardCeilings(min(read.sustained_gb_per_s or read.gb_per_s, read.gb_per_s), sustained),
            usd_per_hour=(run.manifest.times.usd_per_hour or 0) / gpus or None,  # the manifest's is of the machine
            read_power_w=read.energy.power_w if read.energy and not read.energy.reason else None,
        )
    raise api.UserError(f"{name}: no device there has both memory and GEMM ceilings")


def load_datasheet_card(name: str) -> CardLimits:
    """Return a card by its datasheet; a part of its name will do. Raises UserError for an unknown name."""
    sheets = api.datasheets.read_datasheets(DATASHEETS)["cards"].values()
    cards = {device_name: card for card in sheets for device_name in card["device_names"]}
    similar = [device_name for device_name in cards if name.lower() in device_name.lower()]
    if name not in cards and len(similar) != 1:
        hint = f"did you mean {' or '.join(similar)}? " if 0 < len(similar) <= MOST_SUGGESTIONS else ""
        raise api.UserError(f"{name}: not a run, nor in config/datasheets.yaml; {hint}allowed: a path or such a name")
    name = name if name in cards else similar[0]
    origin, memory_ceiling = "by its datasheet, not measured", "the bandwidth of the datasheet"
    memory_bytes = api.datasheets.nominal_memory_bytes(cards[name])
    return CardLimits(name, origin, memory_bytes, memory_ceiling, datasheet_ceilings(cards[name]))


# ---------------------------------------------------------------- the measured step


def measure_steps(
    entry: Mapping[str, Any], cards: Sequence[CardLimits], arguments: Namespace, contexts: list[int], cache_dtype: str
) -> tuple[MeasuredSteps, str]:
    """Time steps on this machine if MEASURE=1 asks for it. Returns them, and why others were not timed, "" if all were.

    Raises UserError without a GPU, or if CARD is of another one.
    """
    if not arguments.measure:
        return {}, ""
    gpu = next((identity for identity in api.discover().values() if identity.kind == "gpu"), None)
    if not gpu:
        raise api.UserError("MEASURE=1: this machine has no GPU to measure on")
    names = [card.name for card in cards]
    if names != [gpu.name]:
        raise api.UserError(f"MEASURE=1: CARD is of {api.join_words(names)}; allowed: this machine's {gpu.name}")
    try:
        read_dense(entry)
    except NotDense as error:
        return {}, str(error)
    if cache_dtype != decode_step.dtype_of(entry):
        return {}, f"keys and values in {cache_dtype}; the step keeps them in the dtype of the model"
    path = Path(arguments.model)
    model = str(path.resolve()) if path.exists() else arguments.model
    batches, contexts = arguments.batch or DEFAULT_MEASURED_BATCHES, arguments.context or contexts[:1]
    idle_operators = [operator for operator in api.builtin_operators() if not operator.measured_with_ceilings]
    config: dict[str, Any] = {operator.rule: {"enabled": False} for operator in idle_operators}
    config |= {"devices": [gpu.device], "operators": [decode_step.__file__], "counters": "off"}
    config["decode_step"] = {"models": [model], "batch_sizes": batches, "contexts": contexts}
    print(f"measuring steps of {entry['name']} in {FOLDER}/", flush=True)
    target = f"{api.RESULTS}/{gpu.device}/{decode_step.DecodeStep.rule}/{decode_step.job_path(entry)}.json"
    failed = api.measure([target], config, FOLDER)
    if failed:
        return {}, failed[target].why
    record = api.read_record(api.OperatorRecord, FOLDER / target)
    measured = {}
    with api.open_device(gpu.device) as device:
        for measurement in record.measurements:
            size = measurement.shape["batch"], measurement.shape["context"]
            measured[size] = time_step(device, entry, measurement)
    return measured, "; ".join(note.partition(SKIPPED)[2] for note in record.notes if SKIPPED in note)


def time_step(device: api.Device, entry: Mapping[str, Any], measurement: Any) -> MeasuredStep:
    """Return the time of a Measurement of a record, and its joules, for which the step is repeated without a pause."""
    seconds = (measurement.gpu_time or measurement.cpu_time).median_s
    operator, case = decode_step.DecodeStep(), decode_step.make_case(entry, **measurement.shape)
    chain = decode_step.Chain.make_prepared(operator, device, case, {}, [operator.inputs(device, case, seed=1)])
    # A load whose work is tokens: its joules are per token.
    load = api.measure_memory_load(device, chain.step(None), case.shape["batch"], seconds, LOAD_S)
    return MeasuredStep(seconds, load.energy.joules_per_work if load and load.energy else None)


# ---------------------------------------------------------------- words


def describe_speed(steps: Sequence[DecodeStepBound]) -> str:
    """Return sentences on the speed of the first step, its limit, what fits, and where compute takes over."""
    first, step_by_context = steps[0], {step.context: step for step in steps}
    model, weights = first.model, api.capacity(first.model.weight_bytes)
    parts = ", ".join(f"{part} {api.percent(share)}" for part, share in speed_tables.find_largest_parts(first, 2))
    speed = f"at most {api.number(first.most_tokens_per_s)} tokens/s"
    if model.has_routed_experts:
        speed = f"{api.number(first.tokens_per_s)} tokens/s expected by uniform routing, {speed},"
    limit = f"{first.expected.limited_by}-bound: {parts}"
    lines = f"{model.name} on {first.card.title}: {speed} at batch {first.batch}, context {first.context} ({limit}). "
    if first.largest_batch is None:
        lines += "The memory size of the card is unknown. "
    elif not any(step.largest_batch for step in step_by_context.values()):
        return f"{lines}It does not fit: the weights alone take {weights}."
    else:
        rooms = [f"{step.largest_batch} sequences of {context} tokens" for context, step in step_by_context.items()]
        lines += f"Weights take {weights} and leave room for {' or '.join(rooms)}; an engine needs a few GB of it. "
    compute_bound = [step for step in step_by_context.values() if step.compute_bound_batch]
    if not compute_bound:
        return f"{lines}Memory-bound at every batch that fits."
    starts = [f"batch {step.compute_bound_batch} (context {step.context})" for step in compute_bound]
    return f"{lines}Compute-bound from {api.join_words(starts)}."


def describe_model(step: DecodeStepBound) -> str:
    """Return a sentence on the model's size and what was assumed, and one on the source of its config."""
    model, card, cache_format = step.model, step.card, step.cache_format
    lines = f"{_format_count(model.parameters)} parameters"
    if model.active_parameters != model.parameters:
        lines += f", {_format_count(model.active_parameters)} active"
    sequence = api.capacity(model.cache_bytes(step.context, cache_format))
    lines += f"; K/V in {cache_format.name}, {sequence} per sequence of {step.context} tokens"
    if model.state_bytes:
        lines += f"; a state of {api.capacity(model.state_bytes)} per sequence, whatever its context"
    lines += f"; reads limited by {card.memory_ceiling}"
    formats = [*(linear.format for linear in model.linears), model.head.format, cache_format]
    for dtype in dict.fromkeys(number_format.product_dtype for number_format in formats):
        if (substitute := card.burst.substitute_dtype(dtype)) != dtype:
            lines += f"; {dtype} products limited by {substitute}"
    if model.assumed_defaults:
        lines += f"; defaults taken: {', '.join(f'{key} {value}' for key, value in model.assumed_defaults.items())}"
    return f"{lines}. Source: {model.source}."


def _format_count(parameters: int) -> str:
    return f"{api.number(parameters / 1e9)} G" if parameters >= 1e9 else f"{api.number(parameters / 1e6)} M"


if __name__ == "__main__":
    api.exit_with(main, 1)
