"""Whole requests: the time to the first token of a prompt, and output tokens per second, prefill included."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
from bound import DecodeStepBound, bound_step, sustained_step_s
from operations import prefill_operations, step_operations

from roofline.api import duration


@dataclass(frozen=True)
class GenerationRequest:
    """Tokens of a prompt, of its start that is cached, and of the answer. Without a prompt there is no request."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0

    @property
    def longest_context(self) -> int:
        """The tokens that the last step attends to."""
        return self.prompt + max(0, self.answer - 1)


def describe_first_token(step: DecodeStepBound, request: GenerationRequest) -> str:
    """Return a sentence on the time to the first token of a prompt that is alone on the card; "" without a prompt."""
    if not request.prompt:
        return ""
    operations = prefill_operations(step.model, request.prompt, request.cached, step.cache_format)
    bound, sustained_s = bound_step(operations, step.card.burst), sustained_step_s(operations, step.card)
    cached = f" ({request.cached} cached)" if request.cached else ""
    limit = f"{bound.limited_by}-bound"
    if step.model.has_routed_experts:
        limit += ", experts by uniform routing"
    at_least = f"at least {duration(bound.seconds)} ({limit})"
    about = f"; at the sustained rate about {duration(sustained_s)}" if sustained_s else ""
    return f" First token of a prompt of {request.prompt} tokens{cached}: {at_least}{about}."


def add_request_rates(steps: Sequence[DecodeStepBound], request: GenerationRequest) -> list[DecodeStepBound]:
    """Return the steps, with the output rate of a batch of such requests if an answer is asked for."""
    if not request.answer:
        return [*steps]
    return [replace(step, output_tokens_per_s=_output_rate(step, request)) for step in steps]


def _output_rate(step: DecodeStepBound, request: GenerationRequest) -> float:
    """Return the output tokens per second of a batch: one prompt after another, each with its first token, then steps.

    A step makes a token of every answer. Its bytes and FLOPs are linear in the context between the sizes of windows.
    """
    model, burst, batch = step.model, step.card.burst, step.batch
    prefill = prefill_operations(model, request.prompt, request.cached, step.cache_format)
    first, last = request.prompt, request.longest_context
    attentions = {layer.attention for layer in model.layers}
    knots = sorted({first, last}.union(*(attention.list_knots(first, last) for attention in attentions)))
    steps = [step_operations(model, batch, context, step.cache_format, expected=True) for context in knots]
    bounds = [bound_step(operations, burst) for operations in steps]
    contexts = numpy.arange(first + 1, last + 1)
    memory_times = numpy.interp(contexts, knots, [bound.memory_s for bound in bounds])
    compute_times = numpy.interp(contexts, knots, [bound.compute_s for bound in bounds])
    prompt_s = bound_step(prefill, burst).seconds
    return batch * request.answer / (batch * prompt_s + float(numpy.maximum(memory_times, compute_times).sum()))
