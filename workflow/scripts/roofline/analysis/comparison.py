"""Two sides of runs compared, quantity by quantity: docs/comparing.md has the rule, its assumptions and its errors."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from roofline.analysis import conditions
from roofline.analysis.checks.conditions import ALONE, QUIET
from roofline.analysis.known_variation import Stored, at_least_its_kinds, stored, typical
from roofline.analysis.quantities import Quantity, Run
from roofline.core.device_kinds import KINDS, accelerators
from roofline.core.equivalence import (
    MOST_RUNS,
    Difference,
    holm,
    runs_to_decide,
    smallest_change,
    standard_error,
    verdict,
)
from roofline.core.formatting import counted, listed, percent
from roofline.core.run_spread import Spread, within
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.core.terms import QuantityKind
from roofline.records.comparison import Change, ComparedQuantity, ComparedRun, Comparison, PerClock, Subject
from roofline.records.device import DeviceRecord

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
}
TIMES = {"device_time", "caller_time"}  # kinds of an operator's cell; the others are of ceilings
PER_CLOCK = {"burst", "sustained", "issue", "cache"}  # kinds whose pace the multiprocessors' clock sets
# The largest variation among the GPUs of five clusters (Sinha et al., SC22, arXiv 2208.11035): where the spread between
# cards of this model is not known, less than that says nothing of anything but the card.
BETWEEN_CARDS = 0.22
FEWEST_DF = 2  # of the runs given, or of a spread between cards: fewer degrees of freedom tell too little
LARGEST = 50.0  # of ln(B / A): an interval that wide says nothing, and must stay a number
UNAFFECTED = {"device_time", "sustained"}  # kinds that a busy host does not disturb

Cards = dict[str, list[float]]  # a quantity's values on one side, by card


class Incomparable(Exception):
    """Why two sides are not compared: a line per reason."""


class Measured(NamedTuple):
    """A device in one run."""

    run: Run
    device: DeviceRecord
    card: str  # the same for one card in several runs
    figures: Mapping[str, Quantity]


class Pair(NamedTuple):
    """What is compared with what: one card with itself, or cards of one side with cards of the other."""

    name: str
    a: list[Measured]
    b: list[Measured]

    @property
    def same_cards(self) -> bool:
        return {one.card for one in self.a} == {one.card for one in self.b}


class Error(NamedTuple):
    """Of ln(B / A), and where it is from."""

    se: float
    df: float
    runs: Spread
    cards: Spread | None
    source: str


class Judged(NamedTuple):
    """A quantity of a pair before correction for their number."""

    pair: Pair
    figure: Quantity
    a: Cards
    b: Cards
    reason: str | None  # why nothing is concluded, whatever the figures
    error: Error | None
    difference: Difference | None
    least: float  # the smallest change that is called one
    per_clock: Difference | None
    clocks_mhz: tuple[float, float] | None


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
    kinds = {one.figure.key: one.figure.kind for one in judged}
    return Comparison(
        identical=identical,
        runs=[_run("A", run) for run in a] + [_run("B", run) for run in b],
        subjects=[_subject(pair) for pair in pairs],
        conditions=[] if identical else told + conditions.of_runs(a, b),
        left_out=left_out,
        tests=sum(one.difference is not None for one in judged),
        quantities=[_same(one) for one in judged] if identical else conclude(judged, typical(kinds)),
    )


# ---------------------------------------------------------------- what with what


def paired(a: Sequence[Run], b: Sequence[Run], force: bool) -> tuple[list[Pair], list[str], list]:
    """Devices of one model, or where forced of one kind; what is left out and why; and the conditions that differ.

    A card that is on both sides is compared with itself; of the others those of one side with those of the other.
    Raises Incomparable.
    """
    sides = [_by_name(runs) for runs in (a, b)]
    matches = [(name, name) for name in sides[0] if name in sides[1]]
    rest = [[name for name in side if (name, name) not in matches] for side in sides]
    others = [(one, other) for one in rest[0] for other in rest[1] if _kind(sides[0][one]) == _kind(sides[1][other])]
    matches += others if force else []
    pairs, left_out, told = [], [], []
    forcible = bool(others)
    for one, other in matches:
        cards = _by_card(Pair(one if one == other else f"{one} and {other}", sides[0][one], sides[1][other]))
        left_out += [f"{m.device.device}, {m.card}: only in A" for pair in cards if not pair.b for m in pair.a]
        left_out += [f"{m.device.device}, {m.card}: only in B" for pair in cards if not pair.a for m in pair.b]
        for pair in (pair for pair in cards if pair.a and pair.b):
            differing = conditions.of_devices(pair.name, *([m.device for m in side] for side in (pair.a, pair.b)))
            reasons = [f"{pair.name}: {c.what} {c.a} in A, {c.b} in B" for c in conditions.blocking(differing)]
            if reasons and not force:
                left_out += reasons
                forcible = True
            else:
                pairs.append(pair)
                told += differing
    if not force:
        left_out += [f"{one} in A, {other} in B: another model" for one, other in others]
    alone = [set(rest[side]) - {names[side] for names in others} for side in (0, 1)]
    left_out += [f"{name}: only in {'AB'[side]}" for side in (0, 1) for name in rest[side] if name in alone[side]]
    if not pairs:
        hint = "; FORCE=1 compares them all the same" if forcible and not force else ""
        raise Incomparable("\n".join(f"not compared: {line}{hint}" for line in left_out))
    return pairs, left_out, told


def _by_name(runs: Sequence[Run]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for run in runs:
        gpus = sorted(one.uuid for one in accelerators(run.devices.values(), lambda one: one.device_kind))
        for record in run.devices.values():
            # What a CPU reports does not tell one host from another; the cards beside it do.
            beside = f" beside {', '.join(gpus)}" if gpus and not KINDS[record.device_kind].accelerator else ""
            card = record.uuid if record.uuid != "unknown" else f"unknown, of {run.source}"
            found.setdefault(record.name, []).append(
                Measured(run, record, f"{card}{beside}", run.of_device(record.device))
            )
    return found


def _kind(measured: Sequence[Measured]) -> str:
    return measured[0].device.device_kind


def _by_card(pair: Pair) -> list[Pair]:
    """A pair for each card that is on both sides, and one of all others, of which a side may have none."""
    a, b = ({one.card for one in side} for side in (pair.a, pair.b))
    common = [card for card in dict.fromkeys(one.card for one in pair.a) if card in b]
    alone = len(common) == 1 and a == b
    found = []
    for card in common:
        mine, other = ([one for one in side if one.card == card] for side in (pair.a, pair.b))
        found.append(Pair(pair.name if alone else f"{pair.name}, {card}", mine, other))
    rest = [[one for one in side if one.card not in common] for side in (pair.a, pair.b)]
    return [*found, Pair(f"other cards, {pair.name}" if common else pair.name, *rest)] if any(rest) else found


def stored_of(pair: Pair, known: Callable[[str], Mapping[str, Stored]]) -> dict[str, Stored]:
    """Of the model; of two models what is stored for either, and the wider where both are."""
    models = dict.fromkeys(one.device.name for one in (*pair.a, *pair.b))
    kinds = {key: figure.kind for one in (*pair.a, *pair.b) for key, figure in one.figures.items()}
    found: dict[str, Stored] = {}
    for model in models:
        for key, one in at_least_its_kinds(known(model), kinds).items():
            have = found.get(key, one)
            found[key] = Stored(_wider(have.runs, one.runs), _wider(have.cards, one.cards), one.source)
    return found


def _wider(*spreads: Spread | None) -> Spread | None:
    return max((one for one in spreads if one), key=lambda one: one.sd, default=None)


# ---------------------------------------------------------------- one pair


def judge(pair: Pair, known: Mapping[str, Stored]) -> list[Judged]:
    """Every quantity that both sides have, in the order of side A."""
    keys = dict.fromkeys(key for one in pair.a for key in one.figures)
    theirs = {key for one in pair.b for key in one.figures}
    return [_judge(pair, key, known.get(key)) for key in keys if key in theirs]


def _judge(pair: Pair, key: str, known: Stored | None) -> Judged:
    sides = [[(one, one.figures[key]) for one in side if key in one.figures] for side in (pair.a, pair.b)]
    sound = [[(one, figure) for one, figure in side if not doubt(one, figure)] for side in sides]
    reasons = [doubt(*side[0]) for side, kept in zip(sides, sound, strict=True) if not kept]
    used = [kept or side for kept, side in zip(sound, sides, strict=True)]
    figure = used[0][0][1]
    inputs = [listed(dict.fromkeys(one.inputs or "not reported" for _, one in side)) for side in used]
    if not reasons and inputs[0] != inputs[1] and "not reported" not in inputs:
        reasons = [f"other operands: {inputs[0]} in A, {inputs[1]} in B"]
    a, b = (_cards((one.card, figure.value) for one, figure in side) for side in used)
    error = error_of(a, b, pair.same_cards, known)
    difference = error and Difference(_change(a, b, figure), error.se, error.df)
    apart = not pair.same_cards and error and not error.cards
    return Judged(
        pair,
        figure,
        a,
        b,
        next(iter(reasons), None),
        error,
        None if reasons else difference,
        BETWEEN_CARDS if apart else MARGINS[figure.kind],
        *(_per_clock(used, pair, known) if difference and not reasons else (None, None)),
    )


def doubt(measured: Measured, figure: Quantity) -> str | None:
    """Why nothing is concluded from a figure; None where it is sound."""
    if few(figure.samples):
        return f"rests on fewer than {FEWEST_SAMPLES} samples"
    for fault in measured.run.roofline.faults:
        disturbs = fault.check == ALONE or (fault.check == QUIET and figure.kind not in UNAFFECTED)
        if disturbs and figure.record in fault.records:
            return f"disturbed in {PurePath(measured.run.source).name}, which fails: {fault.check}"
    return None


def error_of(a: Cards, b: Cards, same_cards: bool, known: Stored | None) -> Error | None:
    """The error of ln(B / A) by the spread between runs of a card; between cards, where these differ, by theirs too.

    By the runs given, where they leave FEWEST_DF degrees of freedom, else by what is stored. Cards: with several a side
    each card is one observation; a stored spread between two cards alone tells nothing. None where the spread between
    runs is not known.
    """
    factors = [sum(1 / len(runs) for runs in side.values()) / len(side) ** 2 for side in (a, b)]
    given = within([*a.values(), *b.values()])
    stored_runs = known and known.runs
    runs, source = (given, "these runs") if given and given.df >= FEWEST_DF else (stored_runs, known and known.source)
    if runs is None:
        runs, source = given, "these runs"
    if same_cards:
        return runs and Error(*standard_error((runs, sum(factors))), runs, None, source)
    cards = within([[_mean(runs) for runs in side.values()] for side in (a, b)])
    both = 1 / len(a) + 1 / len(b)
    if cards and cards.df >= FEWEST_DF:
        return Error(*standard_error((cards, both)), runs or cards, cards, "these cards")
    if runs is None:
        return None
    between = known.cards if known and known.cards and known.cards.df >= FEWEST_DF else None
    parts = [(runs, sum(factors))] + ([(between, both)] if between else [])
    return Error(*standard_error(*parts), runs, between, source)


def _per_clock(
    used: Sequence[Sequence[tuple[Measured, Quantity]]], pair: Pair, known: Stored | None
) -> tuple[Difference | None, tuple[float, float] | None]:
    """The same per clock, and the sides' clocks."""
    figures = [figure for side in used for _, figure in side]
    if figures[0].kind not in PER_CLOCK or not all(figure.clock_mhz for figure in figures):
        return None, None
    a, b = (_cards((one.card, figure.value / figure.clock_mhz) for one, figure in side) for side in used)
    clocks = [_mean([figure.clock_mhz for _, figure in side]) for side in used]
    error = error_of(a, b, pair.same_cards, known)
    return error and Difference(_change(a, b, figures[0]), error.se, error.df), (clocks[0], clocks[1])


def _cards(values: Iterable[tuple[str, float]]) -> Cards:
    found: Cards = {}
    for card, value in values:
        found.setdefault(card, []).append(value)
    return found


def _change(a: Cards, b: Cards, figure: Quantity) -> float:
    """ln(B / A) of the performance: of a time, turned round."""
    return math.log(_middle(b) / _middle(a)) * (1 if figure.higher_is_better else -1)


def _middle(cards: Cards) -> float:
    return _mean([_mean(runs) for runs in cards.values()])


def _mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


# ---------------------------------------------------------------- conclusions


def conclude(judged: Sequence[Judged], usual: Mapping[str, float]) -> list[ComparedQuantity]:
    """Verdicts, corrected for the number of quantities; per clock by a correction of its own."""
    adjusted, tests = corrected([(one.figure.kind, one.difference) for one in judged])
    per_clock, _ = corrected([(one.figure.kind, one.per_clock) for one in judged])
    parts = zip(judged, adjusted, per_clock, tests, strict=True)
    return [_concluded(one, p, again, count, _usual(one, usual)) for one, p, again, count in parts]


def _usual(one: Judged, usual: Mapping[str, float]) -> float | None:
    """What is known of such quantities is of GPUs."""
    return usual.get(one.figure.kind) if KINDS[_kind(one.pair.a)].accelerator else None


def corrected(of: Sequence[tuple[str, Difference | None]]) -> tuple[list[float | None], list[int]]:
    """Adjusted p values of differences by their kinds, and how many tests each stands for.

    Ceilings and the times of operators are two families, each by Holm's rule at half of the error: else hundreds of
    cells would hide a change of a ceiling.
    """
    families = [[place for place, (kind, one) in enumerate(of) if one and (kind in TIMES) == times] for times in (0, 1)]
    families = [family for family in families if family]
    adjusted, tests = [None] * len(of), [1] * len(of)
    for family in families:
        p_values = holm([of[place][1].p_value for place in family])
        for place, p_value in zip(family, p_values, strict=True):
            adjusted[place] = min(1.0, len(families) * p_value)
            tests[place] = len(families) * len(family)
    return adjusted, tests


def _concluded(
    one: Judged, p_value: float | None, clock_p_value: float | None, tests: int, usual: float | None
) -> ComparedQuantity:
    margin, error = MARGINS[one.figure.kind], one.error
    change = _as_change(one, one.difference, p_value)
    clock = None
    if one.per_clock:
        a_mhz, b_mhz = one.clocks_mhz
        per = _as_change(one, one.per_clock, clock_p_value)
        clock = PerClock(**per.model_dump(), a_clock_mhz=a_mhz, b_clock_mhz=b_mhz)
    decide = None
    if change.verdict == "UNCLEAR" and not one.reason:
        between = error.cards.sd if error and error.cards else 0.0
        sd = math.hypot(error.runs.sd, between) if error else usual
        estimate = _change(one.a, one.b, one.figure)
        decide = None if sd is None else runs_to_decide(estimate, sd, tests, margin, margin)
    return ComparedQuantity(
        **change.model_dump(),
        **_facts(one),
        spread=error and error.runs.sd,
        spread_df=error and error.runs.df,
        spread_from=error and error.source,
        card_spread=error.cards.sd if error and error.cards else None,
        smallest_change=error and one.difference and smallest_change(error.se, error.df, tests, one.least),
        runs_to_decide=decide,
        reason=_reason(one, change, usual, decide),
        per_clock=clock,
        by_clock=clock and _by_clock(change, clock, margin),
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


def _as_change(one: Judged, difference: Difference | None, p_value: float | None) -> Change:
    """A performance's ln(B / A) as the ratio of the figure itself."""
    sign = 1 if one.figure.higher_is_better else -1
    if difference is None:
        return Change(ratio=_middle(one.b) / _middle(one.a), ci95=None, p_value=None, verdict="UNCLEAR")
    low, high = sorted(math.exp(min(sign * end, LARGEST)) for end in difference.interval)
    return Change(
        ratio=math.exp(sign * difference.estimate),
        ci95=(low, high),
        p_value=p_value,
        verdict=verdict(difference, p_value, MARGINS[one.figure.kind], one.least),
    )


def _reason(one: Judged, change: Change, usual: float | None, decide: int | None) -> str | None:
    """Why it is UNCLEAR."""
    if one.reason or change.verdict != "UNCLEAR":
        return one.reason
    what = "card" if not one.pair.same_cards else "run"
    enough = (
        f"{counted(decide, what)} a side would decide"
        if decide
        else f"{counted(MOST_RUNS, what)} a side would not decide"
    )
    if one.error is None:
        if usual is None:
            return "the spread between runs is not known; two or more runs a side would tell it"
        return f"the spread between runs is not known; {enough}, if it is the {percent(usual)} of such quantities"
    if one.least > MARGINS[one.figure.kind]:
        return f"other cards, whose spread is not known: only a change of more than {percent(one.least)} is called one"
    return enough


def _by_clock(change: Change, clock: PerClock, margin: float) -> str | None:
    """Whether the clock accounts for a change of more than the margin; None where there is none."""
    if abs(math.log(change.ratio)) <= margin:
        return None
    slower, lower = change.ratio < 1, clock.b_clock_mhz < clock.a_clock_mhz
    clocks = f"{clock.b_clock_mhz:.0f} MHz against {clock.a_clock_mhz:.0f}"
    explained = slower == lower and abs(math.log(clock.ratio)) <= margin
    if change.verdict == "UNCLEAR":  # there may be nothing to explain
        return f"a {'lower' if lower else 'higher'} clock would explain it: {clocks}" if explained else None
    if explained:
        return f"explained by a {'lower' if lower else 'higher'} clock: {clocks}"
    return f"not explained by the clock: {clocks}"


def _same(one: Judged) -> ComparedQuantity:
    unknown = ("spread", "spread_df", "spread_from", "card_spread", "smallest_change", "runs_to_decide")
    unknown += ("per_clock", "by_clock")
    change = {"ratio": 1.0, "ci95": None, "p_value": None, "verdict": "SAME", "reason": "the same run"}
    return ComparedQuantity(**_facts(one), **change, **dict.fromkeys(unknown))


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
