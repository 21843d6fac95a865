"""make model: an upper bound on the decode speed of a model, by the measured ceilings of a card.

    python tools/decoding/decoding.py MODEL [--card CARD...] [--batch 1,8] [--in 1024 --out 256] [--price 2.5] [--help]

MODEL is a config.json of Hugging Face or a name of shipped.yaml, CARD a run or a card of config/datasheets.yaml.
"""

import contextlib
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workflow" / "scripts"))
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

import config_file
import decode_step
import questions
import speed_picture
import speed_tables
import split_step
from architecture import Model
from bound import CardLimits, DecodeStepBound, NoCeiling, Steps, bound_steps
from card_limits import load_card, set_prices
from config_file import BadModel
from dense import NotDense, read_dense
from families import MODEL_TYPES
from number_formats import CACHE_DTYPES, PLAIN_FORMATS, NumberFormat
from questions import GenerationRequest, Speculation
from speed_tables import MeasuredStep, MeasuredSteps
from split import MOST_CARDS, START_S

import roofline.api as api

FOLDER = api.RESULTS / "decoding"  # of the picture and of what is measured
DEFAULT_BATCHES, DEFAULT_CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
DEFAULT_MEASURED_BATCHES = [1, 32]
SHOWN_CARDS = (1, 2, 4, 8)  # next to those asked for, wherever a model is split
LARGEST_WHOLE = 1 << 30
RANGES = {int: (1, LARGEST_WHOLE), float: (1e-9, 1e15)}  # of counts, and of other numbers
DPI = 160
FP8_CACHE = "fp8"  # as CACHE names it
SKIPPED = " skipped: "  # in a note of a record, between an implementation and the reason
LOAD_S = 3.0  # of steps without a pause: a second to settle, and 16 ticks of the energy counter


def main(argv: list[str]) -> int:
    """Print the answers on a model, or the models that have a name. Raises UserError and OSError."""
    arguments = parse_arguments(argv)
    try:
        paragraphs = answer(arguments) if arguments.model else list_models(arguments)
    except (BadModel, NoCeiling) as error:
        raise api.UserError(str(error)) from None
    print("\n\n".join(paragraphs))
    return 0


def list_models(arguments: Namespace) -> list[str]:
    """Return the paragraphs on the models that have a name; write them as data. Raises UserError."""
    measured_here = [str(api.RESULTS)] if (api.RESULTS / "manifest.json").exists() else []
    rows = speed_tables.list_models([load_card(name) for name in arguments.card or measured_here])
    written = speed_tables.write_answers({"models": rows}, FOLDER / "models")
    table = speed_tables.format_narrow(speed_tables.build_model_table(rows))
    types = f"MODEL is one of these, or the path of a config.json of one of these types: {', '.join(MODEL_TYPES)}."
    return [table, api.wrap_for_terminal(types), f"Written in {FOLDER}: {written}"]


def answer(arguments: Namespace) -> list[str]:
    """Return the paragraphs that answer the questions; draw and write them.

    Raises BadModel, NoCeiling and UserError.
    """
    entry = config_file.find_model(arguments.model)
    model = config_file.read_model(entry)
    request, speculation = arguments.request, arguments.speculation
    if speculation.drafts:
        questions.require_draft(model, entry["config"], speculation)
    contexts = choose_contexts(arguments, model)
    cache_format = PLAIN_FORMATS[arguments.cache or model.cache_dtype]
    cards = set_prices([load_card(name) for name in arguments.card or [str(api.RESULTS)]], arguments.price)
    batches = arguments.batch or DEFAULT_BATCHES
    require_links(cards, arguments.cards)
    splits = [(card, count) for card in cards for count in arguments.cards or [1]]
    bounds = [bound_steps(model, card, batches, contexts, cache_format, count) for card, count in splits]
    steps = [questions.add_answers(card_bounds, request, speculation) for card_bounds in bounds]
    rate = arguments.train, arguments.tokens_per_s
    training = [questions.rate_training(model, card, *rate) for card in cards if arguments.train]
    measured, measured_lines = measure_steps(entry, cards, arguments, contexts, cache_format.name)
    picture = FOLDER / f"{config_file.file_name(model.name)}.png"
    step_rows = speed_tables.list_steps(steps, measured, asdict(request) | asdict(speculation))
    answers = {"steps": step_rows, "training": [row for rows in training for row in rows]}
    written = speed_tables.write_answers(answers, picture)  # makes the folder
    api.figure_style.save(speed_picture.draw_speeds(steps, measured), [picture], DPI)
    lines = [*map(questions.describe_training, training)]
    for on_card in steps:
        line = describe_speed(on_card) + questions.describe_first_token(on_card[0], request)
        lines.append(line + questions.describe_speculation(on_card, speculation))
    lines += measured_lines
    lines += [describe_model(on_card[0]) for on_card in steps]
    tables = [speed_tables.build_training_table(training)] if training else []
    compare = speed_tables.build_comparison_table
    tables.append(compare(steps) if len(steps) > 1 else speed_tables.build_card_table(steps[0], measured))
    if arguments.cards:
        for card in cards:
            by_cards = bound_by_cards(model, card, batches[0], contexts[0], cache_format)
            lines += [describe_split(by_cards)] if card.link else []
            shown = {*SHOWN_CARDS, *arguments.cards}
            tables.append(speed_tables.build_split_table([step for step in by_cards if step.cards in shown]))
    paragraphs = map(api.wrap_for_terminal, dict.fromkeys(lines))  # cards may share a line
    return [*paragraphs, *map(speed_tables.format_narrow, tables), f"Written: {picture}, {written}"]


# ---------------------------------------------------------------- arguments


def parse_arguments(argv: list[str]) -> Namespace:
    """Return the arguments, with the `request` and the `speculation` that they describe. Raises UserError."""
    parser = ArgumentParser(prog="make model", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", metavar="MODEL", nargs="?", help="without it, those with a name are listed")
    parser.add_argument("--card", action="extend", type=partial(str.split, sep=","), default=[], metavar="CARD")
    parser.add_argument("--batch", type=partial(parse_numbers, "BATCH", int), help="sequences decoded at once: 1,8,32")
    parser.add_argument("--context", type=partial(parse_numbers, "CONTEXT", int), help="tokens of each: 1024,8192")
    parser.add_argument("--cache", help=", ".join(CACHE_DTYPES))
    parser.add_argument("--cards", type=partial(parse_numbers, "CARDS", int), help="of one host, that it is split over")
    parser.add_argument("--measure", action="store_true", help="time the step on this machine first")
    parser.add_argument("--price", type=partial(parse_numbers, "PRICE", float), help="dollars per card and hour")
    parser.add_argument("--in", type=partial(parse_number, "IN", int), dest="prompt", help="tokens of a prompt")
    parser.add_argument("--prefix", type=partial(parse_number, "PREFIX", int), help="those of it that are cached")
    parser.add_argument("--out", type=partial(parse_number, "OUT", int), dest="answer", help="tokens of its answer")
    parser.add_argument("--draft", type=partial(parse_number, "DRAFT", int), help="tokens drafted at a time")
    parser.add_argument("--accept", type=partial(parse_number, "ACCEPT", float), help="tokens per verification")
    parser.add_argument("--draft-params", type=partial(parse_number, "DRAFT_PARAMS", float), help="of a draft model")
    parser.add_argument("--train", type=partial(parse_number, "TRAIN", int), help="tokens of a sequence in training")
    parser.add_argument("--tokens-per-s", type=partial(parse_number, "TOKENS_PER_S", float), help="of each card")
    arguments = parser.parse_args(argv)
    arguments.card = [name for name in arguments.card if name]
    if not arguments.model and any(value for name, value in vars(arguments).items() if name != "card"):
        raise api.UserError("MODEL is missing; without it, only CARD is allowed")
    if arguments.cache not in (None, *CACHE_DTYPES):
        raise api.UserError(f"CACHE: {arguments.cache!r} is unknown; allowed: {', '.join(CACHE_DTYPES)}")
    request = GenerationRequest(arguments.prompt or 0, arguments.prefix or 0, arguments.answer or 0)
    if request.prefix and request.prefix >= request.prompt:
        raise api.UserError(f"PREFIX: {request.prefix}; allowed: fewer tokens than IN ({request.prompt})")
    if request.answer and (arguments.context or arguments.draft or not request.prompt):
        raise api.UserError(f"OUT: {request.answer}; allowed: with IN, and without CONTEXT and DRAFT")
    if arguments.tokens_per_s and (not arguments.train or len(arguments.card) > 1):
        raise api.UserError(f"TOKENS_PER_S: {arguments.tokens_per_s:g}; allowed: with TRAIN, and one CARD")
    if arguments.measure and arguments.cards not in (None, [1], [split_step.SPLIT_CARDS]):
        given = ",".join(map(str, arguments.cards))
        raise api.UserError(f"MEASURE=1: CARDS is {given}; allowed: 1 or {split_step.SPLIT_CARDS}")
    if arguments.cards and (max(arguments.cards) > MOST_CARDS or arguments.draft or arguments.train):
        given = ",".join(map(str, arguments.cards))
        raise api.UserError(f"CARDS: {given}; allowed: 1 to {MOST_CARDS}, without DRAFT and TRAIN")
    drafts, accepted = arguments.draft or 0, arguments.accept or 0
    if not drafts and (accepted or arguments.draft_params):
        raise api.UserError("ACCEPT and DRAFT_PARAMS; allowed: with DRAFT")
    if drafts and not 1 <= accepted <= drafts + 1:
        allowed = f"tokens per verification, from 1 to DRAFT + 1 ({drafts + 1})"
        raise api.UserError(f"ACCEPT: {accepted or 'missing'}; allowed: {allowed}")
    arguments.request, arguments.speculation = request, Speculation(drafts, accepted or 1, arguments.draft_params)
    return arguments


def parse_numbers(variable: str, kind: type, text: str, example: str = "1,8,32") -> list:
    """Return the numbers of a list such as 1,8,32, whole ones once each. Raises UserError with the variable of make."""
    lowest, highest = RANGES[kind]
    try:
        numbers = [kind(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(lowest <= number <= highest for number in numbers):
        allowed = f"whole numbers from 1 to {LARGEST_WHOLE}" if kind is int else "numbers above 0"
        raise api.UserError(f"{variable}: {text!r}; allowed: {allowed}, such as {example}")
    return list(dict.fromkeys(numbers)) if kind is int else numbers


def parse_number(variable: str, kind: type, text: str) -> int | float:
    """Return a number of a kind. Raises UserError with the variable of make."""
    if "," in text:
        raise api.UserError(f"{variable}: {text!r}; allowed: one number")
    return parse_numbers(variable, kind, text, "8")[0]


def choose_contexts(arguments: Namespace, model: Model) -> list[int]:
    """Return the contexts of the decode steps: the user's, that of the request, or those of the defaults that fit.

    Raises BadModel for a context or a request that is longer than the model can attend to.
    """
    request_contexts = [arguments.request.longest_context] if arguments.request.prompt else []
    longest = max(1, model.longest_context - arguments.speculation.drafts)  # a verification attends to the drafts too
    fitting = [context for context in DEFAULT_CONTEXTS if context <= longest] or [longest]
    contexts = arguments.context or request_contexts or fitting
    tokens = max([*contexts, *request_contexts]) + arguments.speculation.drafts, arguments.train or 0
    if max(tokens) > model.longest_context:
        allowed = f"{model.longest_context} or fewer"
        raise BadModel(f"{model.name}: {max(tokens)} tokens (CONTEXT or IN, OUT and DRAFT; TRAIN); allowed: {allowed}")
    return contexts


# ---------------------------------------------------------------- several cards


def require_links(cards: Sequence[CardLimits], counts: Sequence[int] | None) -> None:
    """Raise UserError for a card without a known link, if a model is to be split."""
    missing = [card.title for card in cards if not card.link]
    if counts and max(counts) > 1 and missing:
        allowed = "a run of several cards, or a card with NVLink in config/datasheets.yaml"
        raise api.UserError(f"CARDS: no link between cards is known for {missing[0]}; allowed: {allowed}")


def bound_by_cards(
    model: Model, card: CardLimits, batch: int, context: int, cache_format: NumberFormat
) -> list[DecodeStepBound]:
    """Return one step on each number of cards that the model can be split over, one card first."""
    steps = []
    for count in range(1, MOST_CARDS + 1 if card.link else 2):
        with contextlib.suppress(BadModel):  # a number that does not divide it
            steps += bound_steps(model, card, [batch], [context], cache_format, count)
    return steps


# ---------------------------------------------------------------- the measured step


def measure_steps(
    entry: Mapping[str, Any], cards: Sequence[CardLimits], arguments: Namespace, contexts: list[int], cache_dtype: str
) -> tuple[MeasuredSteps, list[str]]:
    """Time steps on this machine if MEASURE=1 asks for it. Returns them, and lines on what was not timed, or disturbed.

    Raises UserError without a GPU, or if CARD is of another one.
    """
    if not arguments.measure:
        return {}, []
    devices = choose_devices(cards, *(arguments.cards or [1]))
    operator: type[decode_step.DecodeStep] = split_step.SplitStep if len(devices) > 1 else decode_step.DecodeStep
    try:
        read_dense(entry)
    except NotDense as error:
        return {}, [f"Not measured: {error}."]
    model_dtype = decode_step.dtype_of(entry)
    if cache_dtype not in (model_dtype, FP8_CACHE):
        allowed = f"the step keeps them in {model_dtype} or {FP8_CACHE}"
        return {}, [f"Not measured: keys and values in {cache_dtype}; {allowed}."]
    kv_dtype = PLAIN_FORMATS[FP8_CACHE].product_dtype if cache_dtype == FP8_CACHE else None
    path = Path(arguments.model)
    model = str(path.resolve()) if path.exists() else arguments.model
    batches, contexts = arguments.batch or DEFAULT_MEASURED_BATCHES, arguments.context or contexts[:1]
    idle_operators = [operator for operator in api.builtin_operators() if not operator.measured_with_ceilings]
    config: dict[str, Any] = {operator.rule: {"enabled": False} for operator in idle_operators}
    config |= {"devices": devices, "operators": [sys.modules[operator.__module__].__file__], "counters": "off"}
    config[operator.rule] = {"models": [model], "batch_sizes": batches, "contexts": contexts, "kv_dtype": kv_dtype}
    print(f"measuring steps of {entry['name']} in {FOLDER}/", flush=True)
    target = f"{api.RESULTS}/{devices[0]}/{operator.rule}/{decode_step.job_path(entry, kv_dtype)}.json"
    failed = api.measure([target], config, FOLDER)
    if failed:
        return {}, [f"Not measured: {failed[target].why}."]
    record = api.read_record(api.OperatorRecord, FOLDER / target)
    timings = {(row.shape["batch"], row.shape["context"]): row.gpu_time or row.cpu_time for row in record.measurements}
    measured = {size: MeasuredStep(timing.median_s) for size, timing in timings.items()}
    if len(devices) == 1:
        with api.open_device(devices[0]) as device:
            measured = {size: time_step(device, entry, *size, timings[size].median_s, kv_dtype) for size in timings}
    lines = [f"Not measured: {note.partition(SKIPPED)[2]}." for note in record.notes if SKIPPED in note]
    if any(timing.contention and timing.contention.other_processes for timing in timings.values()):
        lines.append("Do not rely on the measured steps: another program used a card meanwhile.")
    return measured, lines


def choose_devices(cards: Sequence[CardLimits], count: int) -> list[str]:
    """Return the names of `count` GPUs of this machine to measure on. Raises UserError if CARD is of another one."""
    gpus = [identity for identity in api.discover().values() if identity.kind == "gpu"]
    if not gpus:
        raise api.UserError("MEASURE=1: this machine has no GPU to measure on")
    names = [card.name for card in cards]
    if names != [gpus[0].name]:
        raise api.UserError(f"MEASURE=1: CARD is of {api.join_words(names)}; allowed: this machine's {gpus[0].name}")
    devices = [gpu.device for gpu in gpus if gpu.name == gpus[0].name]
    if count > len(devices):
        raise api.UserError(f"MEASURE=1: CARDS is {count}; this machine has {len(devices)} of {gpus[0].name}")
    return devices[:count]


def time_step(
    device: api.Device, entry: Mapping[str, Any], batch: int, context: int, seconds: float, kv_dtype: str | None = None
) -> MeasuredStep:
    """Return a step that takes so long, and its joules, for which it is repeated without a pause."""
    operator, case = decode_step.DecodeStep(), decode_step.make_case(entry, batch, context, kv_dtype)
    chain = decode_step.Chain.make_prepared(operator, device, case, {}, [operator.inputs(device, case, seed=1)])
    # A load whose work is tokens: its joules are per token.
    load = api.measure_memory_load(device, chain.step(None), batch, seconds, LOAD_S)
    return MeasuredStep(seconds, load.energy.joules_per_work if load and load.energy else None)


# ---------------------------------------------------------------- words


def describe_speed(steps: Steps) -> str:
    """Return sentences on the speed of the first step, its limit, what fits, and where compute takes over."""
    first, step_by_context = steps[0], {step.context: step for step in steps}
    model, weights = first.model, api.capacity(first.card_weight_bytes)
    weights += " of each card" if first.cards > 1 else ""
    parts = ", ".join(f"{part} {api.percent(share)}" for part, share in speed_tables.find_largest_parts(first, 2))
    speed = f"at most {api.number(first.most_tokens_per_s)} tokens/s"
    if model.has_routed_experts:
        speed = f"{api.number(first.tokens_per_s)} tokens/s expected by uniform routing, {speed},"
    limit = f"{first.expected.limited_by}-bound: {parts}"
    lines = f"{model.name} on {first.title}: {speed} at batch {first.batch}, context {first.context} ({limit}). "
    if first.largest_batch is None:
        lines += "The memory size of the card is unknown. "
    elif not any(step.largest_batch for step in step_by_context.values()):
        sequence = "K/V and state" if model.state_bytes else "K/V"
        sequence += f" of one sequence {api.capacity(first.card_cache_bytes // first.batch)}"
        return f"{lines}It does not fit: weights take {weights}, and {sequence}."
    else:
        batches = {api.count_words(at, "token"): step.largest_batch or 0 for at, step in step_by_context.items()}
        rooms = [f"{api.count_words(batch, 'sequence')} of {tokens}" for tokens, batch in batches.items()]
        lines += f"Weights take {weights} and leave room for {' or '.join(rooms)}; an engine needs a few GB of it. "
    compute_bound = [step for step in step_by_context.values() if step.compute_bound_batch]
    if not compute_bound:
        return f"{lines}Not compute-bound at any batch that fits."
    starts = [f"batch {step.compute_bound_batch} (context {step.context})" for step in compute_bound]
    return f"{lines}Compute-bound from {api.join_words(starts)}."


def describe_split(by_cards: Steps) -> str:
    """Return sentences on the fewest cards that hold a batch, on the exchanges of a step, and on their estimates."""
    first = by_cards[0]
    size = f"batch {first.batch} at context {first.context}"
    fewest = next((step.cards for step in by_cards if step.fits), None)
    lines = f"No number of {first.card.name} up to {MOST_CARDS} holds {size}. "
    if fewest:
        lines = f"{api.count_words(fewest, 'card')} of {first.card.name} {'hold' if fewest > 1 else 'holds'} {size}. "
    elif first.fits is None:
        lines = ""
    all_reduces, all_reduce_bytes, gather_bytes = first.split.exchange_bytes(first.batch, first.batch)
    lines += f"In a step, the cards exchange {all_reduces} all-reduces of {api.capacity(all_reduce_bytes)} and "
    lines += f"{api.capacity(gather_bytes)} of logits, and do nothing else meanwhile."
    if link := first.card.link:
        rate = f"{api.number(link.gb_per_s)} GB/s, {link.origin}"
        lines += f" Estimates of all-reduces: {START_S * 1e6:g} us, and {rate}."
    return lines


def describe_model(step: DecodeStepBound) -> str:
    """Return a sentence on the model's size and what was assumed, and one on the source of its config."""
    model, card, cache_format = step.model, step.card, step.cache_format
    parameters, active = map(speed_tables.format_parameters, (model.parameters, model.active_parameters))
    lines = f"{parameters} parameters" + (f", {active} active" if active != parameters else "")
    sequence = api.capacity(model.cache_bytes(step.context, cache_format))
    lines += f"; K/V in {cache_format.name}, {sequence} per sequence of {api.count_words(step.context, 'token')}"
    if model.state_bytes:
        lines += f"; a state of {api.capacity(model.state_bytes)} per sequence, whatever its context"
    lines += f"; reads limited by {card.memory_ceiling}"
    formats = [*(linear.format for linear in model.linears), model.head.format, cache_format]
    for dtype in dict.fromkeys(number_format.product_dtype for number_format in formats):
        if (substitute := card.burst.substitute_dtype(dtype)) != dtype:
            lines += f"; {dtype} products limited by {substitute}"
    if any(number_format.name == "fp4" for number_format in formats):
        lines += "; fp4 is multiplied in 16 bits, so tensor cores for fp4 may be faster"
    if model.assumed_defaults:
        lines += f"; defaults taken: {', '.join(f'{key} {value}' for key, value in model.assumed_defaults.items())}"
    return f"{lines}. Source: {model.source}."


if __name__ == "__main__":
    api.exit_with(main)
