"""Whole requests: the time to the first token of a prompt, and output tokens per second, prefill included."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy
from architecture import Model
from bound import CardLimits, DecodeStepBound, bound, sustained
from number_formats import PLAIN
from operations import of_prompt, operations

from roofline.api import duration


@dataclass(frozen=True)
class Request:
    """Tokens of a prompt, of its start that is cached, and of the answer. No prompt: only decode steps are wanted."""

    prompt: int = 0
    cached: int = 0
    answer: int = 0

    @property
    def longest(self) -> int:
        """Tokens that the last step attends to."""
        return self.prompt + max(0, self.answer - 1)


def first_token(model: Model, card: CardLimits, request: Request, cache: str) -> str:
    """The time to the first token of a prompt alone on the card, in words."""
    if not request.prompt:
        return ""
    step = of_prompt(model, request.prompt, request.cached, PLAIN[cache])
    least, estimate = bound(step, card.burst), sustained(step, card)
    cached = f" ({request.cached} cached)" if request.cached else ""
    limit = f"{least.limited_by}-bound" + ", experts by uniform routing" * model.routed
    at_least = f"at least {duration(least.seconds)} ({limit})"
    about = f"; at the sustained rate about {duration(estimate)}" if estimate else ""
    return f" First token of a prompt of {request.prompt} tokens{cached}: {at_least}{about}."


def served(
    model: Model, card: CardLimits, request: Request, cache: str, steps: Sequence[DecodeStepBound]
) -> list[DecodeStepBound]:
    """The steps, with the output of their batch of such requests if an answer is wanted."""
    if not request.answer:
        return [*steps]
    rates = [one.batch * request.answer / _seconds(model, card, request, cache, one.batch) for one in steps]
    return [replace(one, output_per_s=rate) for one, rate in zip(steps, rates, strict=True)]


def _seconds(model: Model, card: CardLimits, request: Request, cache: str, batch: int) -> float:
    """One prompt after another, each with its first token, then a token of every answer at each step. Between windows,
    bytes and FLOPs of a step are linear in the context."""
    prompt_s = bound(of_prompt(model, request.prompt, request.cached, PLAIN[cache]), card.burst).seconds
    first, last = request.prompt, request.longest
    windows = {layer.attention.window or 0 for layer in model.layers}
    bends = sorted({first, last, *(one for one in windows if first < one < last)})
    at = [bound(operations(model, batch, one, PLAIN[cache], expected=True), card.burst) for one in bends]
    both = ([one.memory_s for one in at], [one.compute_s for one in at])
    contexts = numpy.arange(first + 1, last + 1)
    return batch * prompt_s + float(numpy.maximum(*(numpy.interp(contexts, bends, one) for one in both)).sum())
