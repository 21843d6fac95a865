"""make model: an upper bound on the decode speed of a model, by the measured ceilings of a card.

    python tools/decoding/decoding.py MODEL [--card CARD...] [--batch 1,8] [--in 1024 --out 256] [--price 2.5] [--help]

MODEL is a config.json of Hugging Face or a name of shipped.yaml, CARD a run or a card of config/datasheets.yaml.
"""

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
from architecture import Model
from bound import CardLimits, DecodeStepBound, NoCeiling, Steps, bound_steps
from card_limits import load_card, set_prices
from config_file import BadModel
from dense import NotDense, read_dense
from families import MODEL_TYPES
from number_formats import CACHE_DTYPES, PLAIN_FORMATS
from questions import GenerationRequest, Speculation
from speed_tables import MeasuredStep, MeasuredSteps

import roofline.api as api

FOLDER = api.RESULTS / "decoding"  # of the picture and of what is measured
DEFAULT_BATCHES, DEFAULT_CONTEXTS = [1, 8, 32, 128, 512], [1024, 8192]
DEFAULT_MEASURED_BATCHES = [1, 32]
LARGEST_WHOLE = 1 << 30
RANGES = {int: (1, LARGEST_WHOLE), float: (1e-9, 1e15)}  # of counts, and of other numbers
DPI = 160
SKIPPED = " skipped: "  # in a note of a record, between an implementation and the reason
LOAD_S = 3.0  # of steps without a pause: a second to settle, and 16 ticks of the energy counter


def main(argv: list[str]) -> int:
    """Print the answers on a model, or the models that have a name. Returns 1, after one line, for a user's error."""
    try:
        arguments = parse_arguments(argv)
        paragraphs = answer(arguments) if arguments.model else list_models(arguments)
    except (BadModel, NoCeiling, api.UserError, OSError) as error:
        print(api.describe_error(error))
        return 1
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
    bounds = [bound_steps(model, card, batches, contexts, cache_format) for card in cards]
    steps = [questions.add_answers(card_bounds, request, speculation) for card_bounds in bounds]
    rate = arguments.train, arguments.tokens_per_s
    training = [questions.rate_training(model, card, *rate) for card in cards if arguments.train]
    measured, reason = measure_steps(entry, cards, arguments, contexts, cache_format.name)
    picture = FOLDER / f"{config_file.file_name(model.name)}.png"
    step_rows = speed_tables.list_steps(steps, measured, asdict(request) | asdict(speculation))
    answers = {"steps": step_rows, "training": [row for rows in training for row in rows]}
    written = speed_tables.write_answers(answers, picture)  # makes the folder
    api.figure_style.save(speed_picture.draw_speeds(steps, measured), [picture], DPI)
    lines = [*map(questions.describe_training, training)]
    for on_card in steps:
        line = describe_speed(on_card) + questions.describe_first_token(on_card[0], request)
        lines.append(line + questions.describe_speculation(on_card, speculation))
    if reason:
        lines.append(f"Not measured: {reason}.")
    lines += [describe_model(on_card[0]) for on_card in steps]
    tables = [speed_tables.build_training_table(training)] if training else []
    compare = speed_tables.build_comparison_table
    tables.append(compare(steps) if len(cards) > 1 else speed_tables.build_card_table(steps[0], measured))
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


def describe_speed(steps: Steps) -> str:
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
        batches = {api.count_words(at, "token"): step.largest_batch or 0 for at, step in step_by_context.items()}
        rooms = [f"{api.count_words(batch, 'sequence')} of {tokens}" for tokens, batch in batches.items()]
        lines += f"Weights take {weights} and leave room for {' or '.join(rooms)}; an engine needs a few GB of it. "
    compute_bound = [step for step in step_by_context.values() if step.compute_bound_batch]
    if not compute_bound:
        return f"{lines}Memory-bound at every batch that fits."
    starts = [f"batch {step.compute_bound_batch} (context {step.context})" for step in compute_bound]
    return f"{lines}Compute-bound from {api.join_words(starts)}."


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
    if model.assumed_defaults:
        lines += f"; defaults taken: {', '.join(f'{key} {value}' for key, value in model.assumed_defaults.items())}"
    return f"{lines}. Source: {model.source}."


if __name__ == "__main__":
    api.exit_with(main, 1)
