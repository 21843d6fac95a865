"""Two sides of runs compared, quantity by quantity: docs/comparing.md has the rule, its assumptions and its errors."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from roofline.analysis import comparison_error, conditions
from roofline.analysis.checks.conditions import ALONE, QUIET
from roofline.analysis.comparison_error import Cards, Error, cards_of
from roofline.analysis.known_variation import Stored, by_family, shrunk, stored, wider
from roofline.analysis.pairing import Incomparable, Measured, Pair, paired
from roofline.analysis.quantities import TIMES, Quantity, Run
from roofline.core.equivalence import ERROR, Difference, holm, smallest_change, verdict
from roofline.core.formatting import listed, percent
from roofline.core.run_spread import Spread
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.core.terms import QuantityKind
from roofline.records.comparison import ComparedQuantity, ComparedRun, Comparison, Subject

# A change within the margin is none that matters. What each rests on stands in docs/comparing.md.
MARGINS: dict[QuantityKind, float] = {
    "burst": 0.02,
    "sustained": 0.03,
    "issue": 0.02,
    "memory": 0.01,
    "cache": 0.02,
    "link": 0.02,
    "pageable": 0.10,
    "device_time": 0.03,
    "caller_time": 0.05,
    "operator_time": 0.01,
}
# The largest variation among the GPUs of five clusters (Sinha et al., SC22, arXiv 2208.11035): where the spread between
# cards of this model is not known, less than that says nothing of anything but the card.
BETWEEN_CARDS = 0.22
APART = 5  # spreads between runs that a change has to exceed: the runs of a side share a sitting, which moves them too
FEWEST_CELLS = 3  # of an operator whose mean is compared
LARGEST = 50.0  # of ln(B / A): an interval that wide says nothing, and must stay a number
UNAFFECTED = {"device_time", "sustained"}  # kinds that a busy host does not disturb
MODAL = "launch-bound: host overhead settles at a different level in each process, so no verdict is given"


class Judged(NamedTuple):
    """A quantity of a pair, before correction for their number."""

    pair: Pair
    figure: Quantity
    a: Cards
    b: Cards
    reason: str | None  # why nothing is concluded, whatever the figures
    error: Error | None
    difference: Difference | None  # None where nothing is tested
    least: float  # the smallest change that is called one


def compare(
    a: Sequence[Run], b: Sequence[Run], force: bool = False, known: Callable[[str], Mapping[str, Stored]] = stored
) -> Comparison:
    """Every quantity that both sides have; `known` has the stored spreads of a model of card, by quantity.

    Raises Incomparable where no device of the one side is like one of the other; `force` compares other models too.
    Raises CorruptRecord for a stored spread that cannot be read.
    """
    identical = {run.fingerprint for run in a} == {run.fingerprint for run in b}
    twice = [run.source for run in b if run.fingerprint in {one.fingerprint for one in a}]
    if twice and not identical:
        raise Incomparable("\n".join(f"{source}: on both sides; leave it out of one" for source in twice))
    pairs, left_out, told = paired(a, b, force)
    judged = [one for pair in pairs for one in judge(pair, stored_of(pair, known))]
    return Comparison(
        identical=identical,
        runs=[_run("A", run) for run in a] + [_run("B", run) for run in b],
        subjects=[_subject(pair) for pair in pairs],
        conditions=[] if identical else told + conditions.of_runs(a, b),
        left_out=left_out,
        tests=sum(one.difference is not None for one in judged),
        quantities=[_same(one) for one in judged] if identical else conclude(judged),
    )


def stored_of(pair: Pair, known: Callable[[str], Mapping[str, Stored]]) -> dict[str, Stored]:
    """Of the model; of two models what is stored for either, and the wider where both are."""
    models = dict.fromkeys(one.device.name for one in (*pair.a, *pair.b))
    figures = {key: figure for one in (*pair.b, *pair.a) for key, figure in one.figures.items()}
    found: dict[str, Stored] = {}
    for model in models:
        for key, one in shrunk(known(model), figures.values()).items():
            have = found.get(key, one)
            found[key] = Stored(wider(have.runs, one.runs), wider(have.cards, one.cards), one.source)
    return found


# ---------------------------------------------------------------- one pair


def judge(pair: Pair, known: Mapping[str, Stored]) -> list[Judged]:
    """Every quantity that both sides have, in the order of side A."""
    keys = dict.fromkeys(key for one in pair.a for key in one.figures)
    theirs = {key for one in pair.b for key in one.figures}
    used = [_used(pair, key) for key in keys if key in theirs]
    used += operator_means(used)
    spreads = {one.figure.key: comparison_error.given(one.a, one.b) for one in used}
    families = by_family(spreads, [one.figure for one in used])
    return [_judge(pair, one, known.get(one.figure.key), families.get(one.figure.family)) for one in used]


def operator_means(cells: Sequence["Used"]) -> list["Used"]:
    """Of each operator the geometric mean of its times over the cells that count and that every run has, as one more
    figure: what moves all of its cells alike shows in it, and its error is by run.

    By the device's time, on a CPU the caller's.
    """
    found = []
    times = [one for one in cells if one.figure.kind in TIMES and not one.reason]
    kind = next((kind for kind in TIMES if any(one.figure.kind == kind for one in times)), None)
    runs = [{measured.run.fingerprint for one in times for measured, _ in one.sides[side]} for side in (0, 1)]
    mine = [one for one in times if one.figure.kind == kind and one.runs == runs]
    for operator in dict.fromkeys(one.figure.operator for one in mine):
        some = [one for one in mine if one.figure.operator == operator]
        if len(some) < FEWEST_CELLS:
            continue
        figure = some[0].figure._replace(
            key=f"{operator}/operator_time",
            name=f"{operator.replace('_', ' ')}, geometric mean of {len(some)} cells",
            kind="operator_time",
        )

        def mean_of(side: int, run: int, cells=some) -> float:
            return comparison_error.mean([one.sides[side][run][1].value for one in cells])

        sides = [
            [
                (measured, figure._replace(value=mean_of(side, run)))
                for run, (measured, _) in enumerate(some[0].sides[side])
            ]
            for side in (0, 1)
        ]
        found.append(Used(figure._replace(value=sides[0][0][1].value), sides, None))
    return found


class Used(NamedTuple):
    """The values of a quantity that count, and why nothing is concluded from them, if so."""

    figure: Quantity
    sides: list[list[tuple[Measured, Quantity]]]
    reason: str | None

    @property
    def runs(self) -> list[set[str]]:
        return [{measured.run.fingerprint for measured, _ in side} for side in self.sides]

    @property
    def a(self) -> Cards:
        return cards_of((one.card, figure.value) for one, figure in self.sides[0])

    @property
    def b(self) -> Cards:
        return cards_of((one.card, figure.value) for one, figure in self.sides[1])


def _used(pair: Pair, key: str) -> Used:
    sides = [[(one, one.figures[key]) for one in side if key in one.figures] for side in (pair.a, pair.b)]
    sound = [[(one, figure) for one, figure in side if not doubt(one, figure)] for side in sides]
    reasons = [doubt(*side[0]) for side, kept in zip(sides, sound, strict=True) if not kept]
    used = [kept or side for kept, side in zip(sound, sides, strict=True)]
    modal = any(figure.modal for side in used for _, figure in side)
    inputs = [listed(dict.fromkeys(one.inputs or "not reported" for _, one in side)) for side in used]
    if inputs[0] != inputs[1] and "not reported" not in inputs:
        reasons.append(f"other operands: {inputs[0]} in A, {inputs[1]} in B")
    return Used(used[0][0][1]._replace(modal=modal), used, next(iter([*reasons, *([MODAL] if modal else [])]), None))


def _judge(pair: Pair, used: Used, known: Stored | None, family: Spread | None) -> Judged:
    figure, a, b = used.figure, used.a, used.b
    spread, source = comparison_error.between_runs(a, b, known, family) or (None, "these runs")
    if pair.same_cards:
        error = spread and comparison_error.of_runs(a, b, spread, source)
    else:
        error = comparison_error.of_cards(a, b, spread, source, known)
    if error and not pair.same_cards and not error.cards:
        least = BETWEEN_CARDS
    else:
        least = max(MARGINS[figure.kind], APART * (error.runs.sd if error and error.runs else 0.0))
    estimate = comparison_error.change(a, b, figure.higher_is_better)
    difference = Difference(estimate, error.se, error.df) if error and not used.reason else None
    return Judged(pair, figure, a, b, used.reason, error, difference, least)


def doubt(measured: Measured, figure: Quantity) -> str | None:
    """Why nothing is concluded from a figure; None where it is sound."""
    if few(figure.samples):
        return f"rests on fewer than {FEWEST_SAMPLES} samples"
    for fault in measured.run.roofline.faults:
        disturbs = fault.check == ALONE or (fault.check == QUIET and figure.kind not in UNAFFECTED)
        if disturbs and figure.record in fault.records:
            return f"disturbed in {PurePath(measured.run.source).name}, which fails: {fault.check}"
    return None


# ---------------------------------------------------------------- conclusions


def conclude(judged: Sequence[Judged]) -> list[ComparedQuantity]:
    """Verdicts, corrected for the number of quantities."""
    adjusted, tests = corrected([one.figure.kind for one in judged], [one.difference for one in judged])
    return [_concluded(*each) for each in zip(judged, adjusted, tests, strict=True)]


def corrected(kinds: Sequence[str], of: Sequence[Difference | None]) -> tuple[list[float | None], list[int]]:
    """Adjusted p values of differences by their kinds, and how many tests each stands for.

    Ceilings, the times of cells and the means of operators are families of their own, which share the error by Holm's
    rule each: else hundreds of cells would hide a change of a ceiling.
    """
    families = [
        [place for place, one in enumerate(of) if one and family_of(kinds[place]) == family] for family in range(3)
    ]
    families = [family for family in families if family]
    adjusted, tests = [None] * len(of), [1] * len(of)
    for family in families:
        p_values = holm([of[place].p_value for place in family])
        for place, p_value in zip(family, p_values, strict=True):
            adjusted[place] = min(1.0, len(families) * p_value)
            tests[place] = len(families) * len(family)
    return adjusted, tests


def family_of(kind: str) -> int:
    return 2 if kind == "operator_time" else int(kind in TIMES)


def _concluded(one: Judged, p_value: float | None, tests: int) -> ComparedQuantity:
    error = one.error
    change = _change(one, p_value)
    return ComparedQuantity(
        **change,
        **_facts(one),
        modal=one.figure.modal,
        spread=error and error.runs and error.runs.sd,
        spread_df=error and error.runs and error.runs.df,
        spread_from=error and error.source,
        card_spread=error and error.cards and error.cards.sd,
        smallest_change=one.difference and smallest_change(error.se, error.df, tests, one.least),
        reason=_reason(one, change),
    )


def _facts(one: Judged) -> dict:
    """What is known of a quantity before any error."""
    figure = one.figure
    return {
        "subject": one.pair.name,
        "key": figure.key,
        "name": figure.name,
        "kind": figure.kind,
        "unit": figure.unit,
        "higher_is_better": figure.higher_is_better,
        "a": [value for values in one.a.values() for value in values],
        "b": [value for values in one.b.values() for value in values],
        "margin": MARGINS[figure.kind],
    }


def _change(one: Judged, p_value: float | None) -> dict:
    """A performance's ln(B / A) as the ratio of the figure itself, and what that says."""
    sign, difference = 1 if one.figure.higher_is_better else -1, one.difference
    if difference is None:
        ratio = comparison_error.middle(one.b) / comparison_error.middle(one.a)
        return {"ratio": ratio, "ci95": None, "p_value": None, "verdict": "UNCLEAR"}
    low, high = sorted(math.exp(min(sign * end, LARGEST)) for end in difference.interval)
    return {
        "ratio": math.exp(sign * difference.estimate),
        "ci95": (low, high),
        "p_value": p_value,
        "verdict": verdict(difference, p_value, MARGINS[one.figure.kind], one.least),
    }


def _reason(one: Judged, change: dict) -> str | None:
    """Why it is UNCLEAR, where that is more than an interval beyond the margin."""
    if one.reason or change["verdict"] != "UNCLEAR":
        return one.reason
    if one.error is None:
        return "the spread between runs is not known; two or more runs a side would tell it"
    if change["p_value"] <= ERROR and abs(math.log(change["ratio"])) <= one.least:
        return f"beyond chance, but only a change of more than {percent(one.least)} gets a verdict"
    if not one.pair.same_cards and not one.error.cards:
        return f"other cards, whose spread is not known: only a change of more than {percent(one.least)} is called one"
    return None


def _same(one: Judged) -> ComparedQuantity:
    unknown = ("spread", "spread_df", "spread_from", "card_spread", "smallest_change")
    change = {"ratio": 1.0, "ci95": None, "p_value": None, "verdict": "SAME", "reason": "the same run"}
    return ComparedQuantity(**_facts(one), **change, modal=one.figure.modal, **dict.fromkeys(unknown))


def _run(side: str, run: Run) -> ComparedRun:
    return ComparedRun(
        side=side,
        source=run.source,
        fingerprint=run.fingerprint,
        measured_at=min(record.queried_at for record in run.devices.values()),
        commit=run.commit,
        devices={key: f"{record.name}, {record.uuid}" for key, record in run.devices.items()},
    )


def _subject(pair: Pair) -> Subject:
    keys = [{key for one in side for key in one.figures} for side in (pair.a, pair.b)]
    return Subject(
        name=pair.name,
        same_cards=pair.same_cards,
        a_cards=list(dict.fromkeys(one.card for one in pair.a)),
        b_cards=list(dict.fromkeys(one.card for one in pair.b)),
        only_a=sorted(keys[0] - keys[1]),
        only_b=sorted(keys[1] - keys[0]),
    )
