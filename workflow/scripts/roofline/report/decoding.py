"""What decoding a model costs at least, in words and tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.analysis.table import DecodeContext, DecodedModel, DecodeStep
from roofline.core.formatting import capacity, duration, listed, number, percent
from roofline.report.markdown import Table

PARTS = {
    "attention": "attention's weights",
    "KV cache": "keys and values",
    "MLP": "the MLP's weights",
    "experts": "experts",
    "head": "embedding and head",
}
COLUMNS = ["batch", "context", "tokens/s at most", "step at least", "predicted", "measured", "floor / measured"]
COLUMNS += ["one by one", "sustained", "expected experts"]
COLUMNS += ["set by", "most of it", "memory", "fits"]


@dataclass(frozen=True)
class DecodingPart:
    """One model on one device."""

    title: str
    anchor: str
    verdict: str
    measured: str
    remarks: str
    steps: Table
    chart: dict | None


def verdict(row: DecodedModel, device: str) -> str:
    """Speed at the smallest batch, what sets it, and whether and how often it fits."""
    step = row.steps[0]
    what = "reading" if step.limited_by == "memory" else "multiplying"
    most = [f"{PARTS[part]} {percent(share)}" for part, share in _largest(step, 2)]
    speed = f"at most {tokens(step)} tokens/s at batch {step.batch} and a context of {step.context}"
    return f"{row.model} on {device}: {speed}, set by {what} ({', '.join(most)}). {fit(row)}"


def fit(row: DecodedModel) -> str:
    """Whether it fits, the largest batch, and from which one on computing sets the time."""
    if row.contexts[0].largest_batch is None:
        return "The card's memory is not known."
    if not any(one.largest_batch for one in row.contexts):
        return f"It does not fit: its weights are {capacity(row.weight_bytes)}."
    batches = listed(f"{one.largest_batch} sequences of {one.context}" for one in row.contexts)
    return f"Its weights, {capacity(row.weight_bytes)}, fit beside {batches} tokens. {_compute_bound(row.contexts)}"


def _compute_bound(contexts: Sequence[DecodeContext]) -> str:
    bound = [f"batch {one.compute_bound_from} at {one.context}" for one in contexts if one.compute_bound_from]
    never = [str(one.context) for one in contexts if not one.compute_bound_from]
    told = [f"Computing sets the time from {listed(bound)} on"] if bound else []
    told += [f"{'reading' if told else 'Reading'} sets it at every batch at {listed(never)}"] if never else []
    return f"{'; '.join(told)}."


def measured(row: DecodedModel) -> str:
    """The steps that were timed, beside their predictions and the floor, and why others were not."""
    told = [
        f"{duration(step.measured_s)} at batch {step.batch} and a context of {step.context}"
        f"{f' (predicted: {duration(step.predicted_s)})' if step.predicted_s else ''}, "
        f"{percent(step.floor_s / step.measured_s)} of the speed of its floor"
        for step in row.steps
        if step.measured_s
    ]
    words = [f"A step by a chain of kernels took {'; '.join(told)}."] if told else []
    return " ".join(words + ([f"Not measured: {row.not_measured}."] if row.not_measured else []))


def remarks(row: DecodedModel) -> str:
    """What stands for what, and which defaults were taken."""
    told = [f"{_parameters(row.parameters)} parameters"]
    if row.active_parameters != row.parameters:
        told.append(f"{_parameters(row.active_parameters)} of them for a token")
    told.append(f"keys and values in {row.cache_dtype}: {capacity(row.contexts[0].cache_bytes)} a sequence of "
                f"{row.contexts[0].context}")  # fmt: skip
    told += [f"{of} products under the ceiling of {by}" for of, by in row.arithmetic.items() if of != by]
    told.append(f"reads under {row.memory_ceiling}")
    if row.assumed:
        told.append("not in its config, so taken: " + ", ".join(f"{key} {value}" for key, value in row.assumed.items()))
    return f"{'; '.join(told)}. From {row.source}."


def _parameters(count: int) -> str:
    return f"{number(count / 1e9)} G" if count >= 1e9 else f"{number(count / 1e6)} M"


def steps(row: DecodedModel) -> Table:
    rows = [
        [
            str(step.batch),
            str(step.context),
            tokens(step),
            duration(step.floor_s),
            duration(step.predicted_s) if step.predicted_s else "-",
            duration(step.measured_s) if step.measured_s else "-",
            percent(step.floor_s / step.measured_s) if step.measured_s else "-",
            duration(step.one_by_one_s),
            duration(step.sustained_floor_s) if step.sustained_floor_s else "-",
            duration(step.expected_s) if step.expected_s else "-",
            step.limited_by,
            ", ".join(f"{part} {percent(share)}" for part, share in _largest(step, 1)),
            capacity(step.memory_bytes),
            {None: "not known", True: "yes", False: "no"}[step.fits],
        ]
        for step in row.steps
    ]
    kept = [place for place in range(len(COLUMNS)) if any(one[place] != "-" for one in rows)]
    return Table([COLUMNS[place] for place in kept], [[one[place] for place in kept] for one in rows], 0)


def side_by_side(rows: Sequence[DecodedModel], names: Sequence[str]) -> Table:
    """One model on several cards: tokens a second at most, and whether it fits."""
    found = []
    for steps_of_all in zip(*(row.steps for row in rows), strict=True):
        cells = [f"{tokens(one)}{_beside(one)}" for one in steps_of_all]
        found.append([str(steps_of_all[0].batch), str(steps_of_all[0].context), *cells])
    return Table(["batch", "context", *(f"tokens/s at most, {name}" for name in names)], found, 0)


def _beside(step: DecodeStep) -> str:
    told = [f"measured: {number(step.batch / step.measured_s)}"] if step.measured_s else []
    told += ["does not fit"] if step.fits is False else []
    return f" ({', '.join(told)})" if told else ""


def tokens(step: DecodeStep) -> str:
    """A second, of all sequences."""
    return number(step.batch / step.floor_s)


def _largest(step: DecodeStep, count: int) -> list[tuple[str, float]]:
    return sorted(step.share.items(), key=lambda item: -item[1])[:count]
