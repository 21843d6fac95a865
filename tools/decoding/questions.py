"""What is asked about a model beyond its decode steps: first tokens, whole requests, speculation and training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
from architecture import Matrix, Model
from bound import LARGEST_BATCH, Bound, CardLimits, DecodeStepBound, Steps, bound_step, find_batch, sustained_step_s
from config_fields import BadModel, Fields
from operations import ModelOperation, Operations, prefill_operations, step_operations, verification_operations

from roofline.api import UserError, count_words, duration, join_words, number

TRAINING_DTYPE = "bf16"
TRAINING_FLOPS = 6  # of a multiply-add: two forward, two for each of the two gradients
MFU_COUNT = "6 N + 12 L H Q T"  # that of PaLM
# Layers for multi-token prediction.
MTP_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules")


@dataclass(frozen=True)
class GenerationRequest:
    """Tokens of a prompt, of its start that is cached, and of the answer; none where no request was asked for."""

    prompt: int = 0
    prefix: int = 0
    answer: int = 0

    @property
    def longest_context(self) -> int:
        """The tokens that the last step attends to."""
        return self.prompt + max(0, self.answer - 1)


@dataclass(frozen=True)
class Speculation:
    """Tokens drafted for each verification, and those that it gives: one, and the drafts that are accepted.

    `drafts` is 0 where speculation was not asked for.
    """

    drafts: int = 0
    accepted: float = 1
    draft_parameters: float | None = None  # of a draft model; None: the layer for multi-token prediction


def add_answers(steps: Steps, request: GenerationRequest, speculation: Speculation) -> list[DecodeStepBound]:
    """Return the steps of a card, with the answers on a request and on speculation that are asked for.

    The prefill is of a prompt that is alone on the card, the output rate of a batch of such requests.
    """
    split, card, first_token, first_token_sustained_s = steps[0].split, steps[0].card, None, None
    if request.prompt:
        prefill = prefill_operations(split.shard, request.prompt, request.prefix, steps[0].cache_format)
        exchange_s = split.exchange_s(card.link, request.prompt - request.prefix, 1)
        first_token = bound_step(prefill, card.burst, exchange_s)
        first_token_sustained_s = sustained_step_s(prefill, card, exchange_s)
    answers: dict[str, Any] = {"first_token": first_token, "first_token_sustained_s": first_token_sustained_s}
    answered: list[DecodeStepBound] = []
    for step in steps:
        if first_token and request.answer:
            answers["output_tokens_per_s"] = _output_rate(step, request, first_token.seconds)
        if speculation.drafts:
            answers["speculative_tokens_per_s"] = _speculative_rate(step, speculation, step.batch)
            if not answered or answered[-1].context != step.context:
                answers |= _find_gaining_batches(step, speculation)
        answered.append(replace(step, **answers))
    return answered


# ---------------------------------------------------------------- first tokens and whole requests


def describe_first_token(step: DecodeStepBound, request: GenerationRequest) -> str:
    """Return a sentence on the time to the first token; "" without a prompt."""
    if not step.first_token:
        return ""
    cached = f" ({request.prefix} cached)" if request.prefix else ""
    experts = ", experts by uniform routing" if step.model.has_routed_experts else ""
    limit = f"{step.first_token.limited_by}-bound{experts}"
    at_least, sustained_s = f"at least {duration(step.first_token.seconds)} ({limit})", step.first_token_sustained_s
    about = f"; at the sustained rate about {duration(sustained_s)}" if sustained_s else ""
    return f" First token of a prompt of {count_words(request.prompt, 'token')}{cached}: {at_least}{about}."


def _output_rate(step: DecodeStepBound, request: GenerationRequest, prompt_s: float) -> float:
    """Return the output tokens per second of a batch: one prompt after another, each with its first token, then steps.

    A step makes a token of every answer. Its bytes and FLOPs are linear in the context between the sizes of windows.
    """
    first, last = request.prompt, request.longest_context
    attentions = {layer.attention for layer in step.model.layers}
    knots = sorted({first, last}.union(*(attention.list_knots(first, last) for attention in attentions)))
    bounds = [_bound_plain_step(step, step.batch, context) for context in knots]
    contexts = numpy.arange(first + 1, last + 1)
    memory_times = numpy.interp(contexts, knots, [bound.memory_s for bound in bounds])
    compute_times = numpy.interp(contexts, knots, [bound.compute_s for bound in bounds])
    steps_s = float((numpy.maximum(memory_times, compute_times) + step.exchange_s).sum())
    return step.batch * request.answer / (step.batch * prompt_s + steps_s)


def _bound_plain_step(step: DecodeStepBound, batch: int, context: int) -> Bound:
    operations = step_operations(step.split.shard, batch, context, step.cache_format, expected=True)
    return bound_step(operations, step.card.burst)


# ---------------------------------------------------------------- speculation


def require_draft(model: Model, config: Mapping[str, Any], speculation: Speculation) -> None:
    """Raise BadModel if the draft is neither a model of a known size nor a layer of the config."""
    fields = Fields({**config, **(config.get("text_config") or {})}, {})  # of a model that sees or hears as well
    counts = [fields.read_optional_whole(name, minimum=0) for name in MTP_FIELDS]
    if not speculation.draft_parameters and not any(counts):
        raise BadModel(f"DRAFT: {model.name} has no {' or '.join(MTP_FIELDS)}; allowed: with DRAFT_PARAMS")


def draft_operations(step: DecodeStepBound, speculation: Speculation, batch: int) -> Operations:
    """Return the operations that draft one token of each sequence, the head among them.

    The layer for multi-token prediction is one like the last, after a matrix that joins the embedding of a token and
    the state before it (DeepSeek-V3, 2412.19437, 2.2). Of a draft model the K/V are not known, and left out.
    """
    model, plain, hidden = step.model, step.model.tables[0].format, step.model.head.inputs
    if parameters := speculation.draft_parameters:
        read_bytes, flops = parameters * plain.bits / 8, 2 * parameters * batch
        return [ModelOperation("draft model", "MLP", read_bytes, flops, plain.product_dtype)]
    joint = Matrix("eh_proj", "MLP", hidden, 2 * hidden, plain)
    norms = Matrix("enorm and hnorm", "MLP", 2 * hidden, 1, plain)
    last = model.layers[-1]
    layer = replace(last, linears=(joint, *last.linears), vectors=(norms, *last.vectors))
    return step_operations(replace(model, layers=(layer,)), batch, step.context, step.cache_format, expected=True)


def _speculative_rate(step: DecodeStepBound, speculation: Speculation, batch: int) -> float:
    """Return the tokens per second of a batch: a token drafted after another, then a verification of them all."""
    draft, positions = draft_operations(step, speculation, batch), speculation.drafts + 1
    verification = verification_operations(step.model, batch, positions, step.context, step.cache_format)
    draft_s, verification_s = (bound_step(operations, step.card.burst).seconds for operations in (draft, verification))
    return batch * speculation.accepted / (speculation.drafts * draft_s + verification_s)


def _find_gaining_batches(step: DecodeStepBound, speculation: Speculation) -> dict[str, int | None]:
    """Return the batch from which speculation is faster and that from which it is slower again, of those that fit.

    Few sequences may lose too, if their further positions read further experts.
    """

    def loses(batch: int) -> bool:
        plain_rate = batch / _bound_plain_step(step, batch, step.context).seconds
        return _speculative_rate(step, speculation, batch) < plain_rate

    last = LARGEST_BATCH if step.largest_batch is None else step.largest_batch
    batches = [*(1 << power for power in range(last.bit_length())), last] if last else []
    gaining = [batch for batch in batches if not loses(batch)] or [0]
    gains_from = find_batch(lambda batch: not loses(batch), gaining[0] // 2 + 1, gaining[0])
    return {"speculation_gains_from": gains_from, "speculation_loses_from": find_batch(loses, gaining[-1] + 1, last)}


def describe_speculation(steps: Steps, speculation: Speculation) -> str:
    """Return sentences on the rate of the first step, and on where speculation is faster; "" without it."""
    first = steps[0]
    if not (rate := first.speculative_tokens_per_s):
        return ""
    given = f"{count_words(speculation.drafts, 'draft')}; tokens per verification: {number(speculation.accepted)}"
    speed = f"{number(rate)} tokens/s"
    speed = f"{speed} expected by uniform routing" if first.model.has_routed_experts else f"at most {speed}"
    lines = f" Speculation ({given}): {speed}, {number(rate / first.tokens_per_s)} times as many."
    ranges: dict[str, None] = {}
    fitting = [step for step in steps if step.largest_batch != 0]
    for step in (step for step in fitting if step.speculation_gains_from):
        last = f"to {step.speculation_loses_from - 1}" if step.speculation_loses_from else "or more"
        ranges[f"batch {step.speculation_gains_from} {last} (context {step.context})"] = None
    gains = f"it is faster at {join_words(ranges)}" if ranges else "it is faster at none"
    return f"{lines} Of the batches that fit, {gains}." if fitting else lines


# ---------------------------------------------------------------- training


def rate_training(model: Model, card: CardLimits, sequence: int, tokens_per_s: float | None) -> list[dict[str, Any]]:
    """Return a row for each count of a token's FLOPs: their share of the peaks of a card, if it trains at a rate.

    PaLM's count (2204.02311, appendix B) has every parameter that a token uses, and attention to all tokens of the
    sequence. The bound has the products alone: no embedding table, and attention within windows to tokens before.
    Raises NoCeiling, and UserError for a rate above the bound.
    """
    causal, full, products = 0.0, 0.0, [model.head]
    for layer in model.layers:
        attention = layer.attention
        multiply_adds = attention.unabsorbed_multiply_adds or attention.multiply_adds
        causal += attention.state_multiply_adds + multiply_adds * attention.attended_pairs(sequence) / sequence
        full += attention.state_multiply_adds + multiply_adds * sequence
        products += layer.linears
    parameters = model.active_parameters
    counts = {"6 N": parameters, MFU_COUNT: parameters + full, "6 N, causal attention": parameters + causal}
    multiplied = sum(matrix.outputs * matrix.inputs * matrix.per_token for matrix in products)
    least_flops = TRAINING_FLOPS * (multiplied + causal)
    dtype = card.burst.substitute_dtype(TRAINING_DTYPE)
    most = card.burst.tflops[dtype] * 1e12 / least_flops
    if tokens_per_s and tokens_per_s > most:
        allowed = f"{number(most)} or less, the bound of one {card.name}; is it of several cards?"
        raise UserError(f"TOKENS_PER_S: {tokens_per_s:g}; allowed: {allowed}")
    sustained = card.sustained.tflops.get(dtype) if card.sustained else None
    peaks = {"share_of_datasheet": card.datasheet_tflops.get(dtype), "share_of_sustained": sustained}
    common = {"model": model.name, "card": card.title, "sequence": sequence, "dtype": dtype}
    common |= {"trained_tokens_per_s": tokens_per_s, "most_tokens_per_s": most}
    common["sustained_tokens_per_s"] = sustained * 1e12 / least_flops if sustained else None
    rows = []
    for name, multiply_adds in counts.items():
        flops = TRAINING_FLOPS * multiply_adds
        shares = {of: flops * (tokens_per_s or 0) / (peak * 1e12) if peak else None for of, peak in peaks.items()}
        rows.append({**common, "flops_counted": name, "flops_per_token": flops, **shares})
    return rows


def describe_training(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return sentences on MFU, on the bound of a card, and on what N is, from the rows of `rate_training`."""
    row, mfu = rows[0], next(row["share_of_datasheet"] for row in rows if row["flops_counted"] == MFU_COUNT)
    lines = f"MFU {100 * mfu:.1f} % ({MFU_COUNT}). " if mfu else ""
    lines += f"Training on {row['card']}, sequences of {count_words(row['sequence'], 'token')}: at most "
    lines += f"{number(row['most_tokens_per_s'])} tokens/s per card in {row['dtype']}"
    if row["sustained_tokens_per_s"]:
        lines += f", about {number(row['sustained_tokens_per_s'])} at the sustained rate"
    lines += f". N is {number(row['flops_per_token'] / TRAINING_FLOPS / 1e9)} G, the parameters that a token uses. "
    return f"{lines}Recomputing all activations adds a third to the work; MFU does not count it."
