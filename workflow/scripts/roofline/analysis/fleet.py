"""How the cards of a fleet stand among one another: the table behind fleet.json. docs/fleet.md has the rules."""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from roofline.analysis.comparison import MARGINS
from roofline.analysis.distribution import BETWEEN_CARDS, OF_CARD, known, sound
from roofline.analysis.known_variation import Stored, shrunk, stored
from roofline.analysis.quantities import Quantity, Run
from roofline.core import outliers
from roofline.core.device_kinds import KINDS, accelerators
from roofline.core.equivalence import standard_error
from roofline.core.formatting import capacity
from roofline.core.run_spread import Spread, of_most, pooled, within
from roofline.core.statistics import median
from roofline.records.device import DeviceRecord
from roofline.records.fleet import (
    Drift,
    Finding,
    Fleet,
    FleetCard,
    FleetFigure,
    FleetNode,
    FleetValue,
    Load,
    MissingGpus,
)

STORED_DF = 8  # degrees of freedom that a stored spread counts for at most: it is of other days, hosts and cards
MOST = 0.5  # of the cards: a figure that more have is missing where one has not
# What a device or host reports that is no setting: readings of the moment, and what differs by itself.
READINGS = {
    "sm_clock_now_mhz",
    "memory_clock_now_mhz",
    "pcie_generation_now",
    "clock_mhz",
    "clock_source",
}
PER_CLOCK = {"burst", "sustained", "issue", "cache"}  # kinds whose pace the multiprocessors' clock sets


class Measured(NamedTuple):
    """A run of a node."""

    node: str
    run: Run
    loads: Mapping[str, Mapping[str, Load]]  # by device and ceiling, under sustained load, where its records are there


class CardRun(NamedTuple):
    record: DeviceRecord
    figures: Mapping[str, Quantity]
    loads: Mapping[str, Load]
    failed: list[str]  # checks


@dataclass
class Card:
    id: str
    node: str
    runs: list[CardRun] = field(default_factory=list)  # the oldest first

    @property
    def newest(self) -> DeviceRecord:
        return self.runs[-1].record

    def of(self, key: str) -> list[Quantity]:
        """A figure in each run that has it."""
        return [run.figures[key] for run in self.runs if key in run.figures]


def fleet(nodes: Sequence[FleetNode], measured: Iterable[Measured]) -> Fleet:
    """Of runs of one model of card and one effort. Raises CorruptRecord where what is stored of it cannot be read."""
    measured = sorted(measured, key=lambda one: min(record.queried_at for record in one.run.devices.values()))
    cards = cards_of(measured)
    model = cards[0].newest.name if cards else None
    first = _figures(cards)
    before = spreads(model, first) if model else {}
    runs = _logs(cards, first)
    margins = [MARGINS[one.kind] for one in first]
    screen = outliers.screen(runs[0], margins, [total(before[one.key]) for one in first]) if cards else None
    told = outliers.verdicts(screen, runs) if cards else {}
    findings = [_finding(cards, first, screen, runs, *place, status) for place, status in told.items()]
    findings.sort(key=lambda one: min(one.of_median))
    made = [_card(card, i, first, screen, runs, findings) for i, card in enumerate(cards)]
    missing = list(_missing_gpus(nodes, measured))
    failing = _failing(nodes, made) | {one.node for one in missing}
    moments = sorted(card.record.queried_at for one in cards for card in one.runs)
    return Fleet(
        model=model,
        effort=next((one.run.effort for one in measured), None),
        measured_from=moments[0] if moments else None,
        measured_to=moments[-1] if moments else None,
        tail_df=screen.tails.df if screen and screen.tails is not outliers.NORMAL else None,
        nodes=list(nodes),
        figures=[_figure(one, j, screen, runs, before[one.key], told) for j, one in enumerate(first)],
        cards=made,
        findings=findings,
        missing_gpus=missing,
        drift=list(_drift(cards, measured)),
        again=sorted({card.node for card in made if card.status == "flagged"}),
        passing=[one.node for one in nodes if one.node not in failing],
        failing=[one.node for one in nodes if one.node in failing],
    )


# ---------------------------------------------------------------- cards and their figures


def any_gpu(runs: Iterable[Run]) -> bool:
    """Whether GPUs are judged, as where any run has one; else CPUs are."""
    return any(accelerators(run.devices.values(), lambda one: one.device_kind) for run in runs)


def cards_of(measured: Sequence[Measured]) -> list[Card]:
    """The cards by node, each with its runs in the order of `measured`. A MIG slice is no card."""
    gpus = any_gpu(one.run for one in measured)
    cards: dict[str, Card] = {}
    for one in measured:
        for device, record in one.run.devices.items():
            if not _is_card(record, gpus):
                continue
            name = card_id(record, one.node)
            cards.setdefault(name, Card(name, one.node)).runs.append(_run(one, device, record))
    return sorted(cards.values(), key=lambda card: (card.node, card.newest.device))


def _is_card(record: DeviceRecord, gpus: bool) -> bool:
    return KINDS[record.device_kind].accelerator is gpus and not record.hardware.get("mig_slice")


def card_id(record: DeviceRecord, node: str) -> str:
    """A GPU's UUID. What a CPU reports does not tell one host from another: there is one per node."""
    if not KINDS[record.device_kind].accelerator:
        return node
    return record.uuid if record.uuid != "unknown" else f"{node} {record.device}"


def _run(one: Measured, device: str, record: DeviceRecord) -> CardRun:
    run = one.run
    kept = {
        each.key: each
        for each in sound(run.quantities, run.roofline, device)
        if each.kind in OF_CARD and not each.key.startswith(BETWEEN_CARDS)
    }
    failed = [check.check for check in run.roofline.checks if check.device == device and check.result == "fail"]
    return CardRun(record, kept, one.loads.get(device, {}), failed)


def _figures(cards: Iterable[Card]) -> list[Quantity]:
    """One of each, by kinds and within them in the order of the records; by their keys where names are shared."""
    told = {key: one for card in cards for run in card.runs for key, one in run.figures.items()}
    order = {kind: place for place, kind in enumerate(OF_CARD)}
    found = sorted(told.values(), key=lambda one: order[one.kind])
    names = Counter(one.name for one in found)
    return [one._replace(name=one.key) if names[one.name] > 1 else one for one in found]


def _logs(cards: Sequence[Card], figures: Sequence[Quantity], per_clock: bool = False) -> np.ndarray:
    """Logarithms of performances, of shape (runs, cards, figures); the first run of a card that has a figure comes
    first. With `per_clock` over the clock that was counted under that very load."""
    most = max((len(card.runs) for card in cards), default=0)
    logs = np.full((most, len(cards), len(figures)), np.nan)
    for i, card in enumerate(cards):
        for j, figure in enumerate(figures):
            for place, one in enumerate(card.of(figure.key)):
                logs[place, i, j] = _log(one, per_clock)
    return logs


def _log(one: Quantity, per_clock: bool) -> float:
    if per_clock and (not one.clock_mhz or one.kind not in PER_CLOCK):
        return math.nan
    log = math.log(one.value) if one.higher_is_better else -math.log(one.value)
    return log - math.log(one.clock_mhz) if per_clock else log


def spreads(model: str, figures: Sequence[Quantity]) -> dict[str, Stored]:
    """What is stored of a model's spreads, by key; where a figure itself is not stored, what is of its kind, as of
    sustained rates, whose rule changed. Raises CorruptRecord."""
    found, keys = known(model), {one.key for one in figures}
    others = [
        Quantity("", one.key, one.name, one.kind, one.median, one.unit, one.higher_is_better, None, None, None, None)
        for one in (found.quantities if found else ())
        if one.kind in OF_CARD and one.key not in keys
    ]
    return shrunk(stored(model), [*figures, *others])


def total(known: Stored) -> Spread | None:
    """What is stored of cards and runs together; None where either is not known."""
    if not known.runs or not known.cards:
        return None
    return of_most(Spread(*standard_error((known.runs, 1), (known.cards, 1))), STORED_DF)


# ---------------------------------------------------------------- rows


def _figure(
    one: Quantity,
    place: int,
    screen: outliers.Screen,
    runs: np.ndarray,
    known: Stored,
    told: Container[tuple[int, int]],
) -> FleetFigure:
    """`told` has the cards and figures with a finding."""
    middle, judged = float(screen.middle[place]), screen.basis[place] is not None
    whole = Spread(float(screen.sd[place]), float(screen.df[place])) if judged else None
    groups = [[math.exp(value) for value in group if not math.isnan(value)] for group in runs[:, :, place].T]
    between_runs, source = _between_runs([group for i, group in enumerate(groups) if (i, place) not in told], known)
    between_cards, cards_df = _beyond(whole, between_runs)
    return FleetFigure(
        key=one.key,
        name=one.name,
        kind=one.kind,
        unit=one.unit,
        higher_is_better=one.higher_is_better,
        cards=sum(map(bool, groups)),
        median=math.exp(middle if one.higher_is_better else -middle),
        margin=MARGINS[one.kind],
        spread=whole and whole.sd,
        spread_df=whole and whole.df,
        spread_from=screen.basis[place],
        run_spread=between_runs and between_runs.sd,
        run_spread_df=between_runs and between_runs.df,
        run_spread_from=source,
        card_spread=between_cards,
        card_spread_df=cards_df,
    )


def _between_runs(groups: Sequence[Sequence[float]], known: Stored) -> tuple[Spread | None, outliers.Basis | None]:
    """Of one card: the fleet's repeats pooled with what is stored, and never less than the repeats alone.

    The groups are cards without a finding: of a slow card the lowest run was selected for being low.
    """
    own = within(groups)
    if not own or not known.runs:
        return (own, "fleet") if own else (known.runs, "stored" if known.runs else None)
    both = pooled([own, known.runs])
    return both._replace(sd=max(both.sd, own.sd)), "both"


def _beyond(whole: Spread | None, runs: Spread | None) -> tuple[float | None, float | None]:
    """Between cards, of the spread of cards and runs together and that of runs; with its degrees of freedom."""
    if not whole or not runs:
        return None, None
    return standard_error((whole, 1), (runs, -1)) if whole.sd > runs.sd else (0.0, None)


def _card(
    card: Card,
    place: int,
    figures: Sequence[Quantity],
    screen: outliers.Screen,
    runs: np.ndarray,
    findings: Iterable[Finding],
) -> FleetCard:
    logs = runs[0, place]
    z = screen.z(logs)
    values = {
        one.key: FleetValue(
            value=card.of(one.key)[0].value,
            of_median=math.exp(logs[j] - screen.middle[j]),
            z=None if math.isnan(z[j]) else round(float(z[j]), 2),
        )
        for j, one in enumerate(figures)
        if not math.isnan(logs[j])
    }
    mine = {one.status for one in findings if one.card == card.id}
    judged = any(one.z is not None for one in values.values())
    status = next((one for one in ("confirmed", "flagged", "not confirmed") if one in mine), None)
    shares = np.mean(~np.isnan(runs[0]), axis=0)
    hardware, loads = card.newest.hardware, [load for run in card.runs for load in run.loads.values()]
    return FleetCard(
        id=card.id,
        node=card.node,
        device=card.newest.device,
        status=status or ("passed" if judged else "not judged"),
        runs=len(card.runs),
        values=values,
        missing=[one.key for j, one in enumerate(figures) if math.isnan(logs[j]) and shares[j] > MOST],
        failed_checks=card.runs[-1].failed,
        load=Load(
            power_w=max((load.power_w for load in loads if load.power_w), default=None),
            temperature_c=max((load.temperature_c for load in loads if load.temperature_c is not None), default=None),
        ),
        pcie_generation=hardware.get("pcie_generation_max"),
        pcie_width=hardware.get("pcie_width_now"),
    )


def _finding(
    cards: Sequence[Card],
    figures: Sequence[Quantity],
    screen: outliers.Screen,
    runs: np.ndarray,
    i: int,
    j: int,
    status: outliers.Status,
) -> Finding:
    """Of the card i and the figure j."""
    card, figure = cards[i], figures[j]
    logs = [float(value) for value in runs[:, i, j] if not math.isnan(value)]
    lowest = int(np.argmin(logs))
    row = np.full(len(figures), np.nan)
    row[j] = logs[lowest]
    of_card = [run for run in card.runs if figure.key in run.figures][lowest]
    mine = of_card.figures[figure.key]
    clock, equal = None, None
    if mine.clock_mhz and mine.kind in PER_CLOCK:
        firsts = [
            next((run.figures[figure.key] for run in one.runs if figure.key in run.figures), None) for one in cards
        ]
        clocked = [one for one in firsts if one and one.clock_mhz]
        clock = mine.clock_mhz / median([one.clock_mhz for one in clocked])
        equal = math.exp(_log(mine, True) - median([_log(one, True) for one in clocked]))
    sustained = mine.kind == "sustained"
    name = figure.key.partition("/")[0]
    everywhere = [run.loads[name] for one in cards for run in one.runs[:1] if name in run.loads]
    return Finding(
        card=card.id,
        figure=figure.key,
        status=status,
        of_median=[math.exp(value - screen.middle[j]) for value in logs],
        z=round(float(screen.z(row)[j]), 2),
        p_value=float(screen.p_values(row)[j]),
        critical_p=float(screen.critical[i, 0]),
        clock_of_median=clock,
        at_equal_clock=equal,
        cause=None if equal is None else "same clock" if 1 - equal > MARGINS[mine.kind] else "clock",
        load=of_card.loads.get(name) if sustained else None,
        fleet_load=_middle_load(everywhere) if sustained and everywhere else None,
    )


def _middle_load(loads: Sequence[Load]) -> Load:
    power = [one.power_w for one in loads if one.power_w]
    heat = [one.temperature_c for one in loads if one.temperature_c is not None]
    return Load(power_w=median(power) if power else None, temperature_c=median(heat) if heat else None)


def _failing(nodes: Iterable[FleetNode], cards: Iterable[FleetCard]) -> set[str]:
    slow = {card.node for card in cards if card.status in ("confirmed", "flagged")}
    with_card = {card.node for card in cards}
    return slow | {one.node for one in nodes if one.status != "measured" or one.node not in with_card}


def _missing_gpus(nodes: Iterable[FleetNode], measured: Iterable[Measured]) -> Iterator[MissingGpus]:
    """By the newest run of each node. Slurm's number counts where a run was to measure all GPUs of its node."""
    newest = {one.node: one.run for one in measured}
    counts = {node: sum(_is_card(one, gpus=True) for one in run.devices.values()) for node, run in newest.items()}
    usual = next((gpus for gpus, times in Counter(counts.values()).items() if 2 * times > len(counts)), 0)
    for node in nodes:
        if node.node not in counts:
            continue
        known = node.gpus is not None and newest[node.node].manifest.config.get("devices") == "all"
        expected, source = (node.gpus, "Slurm") if known else (usual, "majority")
        if counts[node.node] < expected:
            yield MissingGpus(node=node.node, gpus=counts[node.node], expected=expected, expected_from=source)


# ---------------------------------------------------------------- drift


def _drift(cards: Sequence[Card], measured: Iterable[Measured]) -> Iterator[Drift]:
    """What differs among the nodes, of software, host, number of cards and the workflow, and among the cards. What an
    older driver or an older run does not report is no difference."""
    newest = {one.node: one.run for one in measured}
    several = Counter(card.node for card in cards)
    of_nodes, of_cards = {}, {}
    for card in cards:
        record = card.newest
        host = {key: value for key, value in record.host.items() if key != "memory_total_bytes"}
        host |= {"memory": capacity(record.host.get("memory_total_bytes") or 0)}
        of_nodes[card.node] = _told(
            record.software
            | {f"host {key}": value for key, value in host.items()}
            | {"cards per node": several[card.node], "workflow commit": (newest[card.node].commit or "unknown")[:10]}
        )
        name = card.node if several[card.node] == 1 else f"{card.node} {record.device}"
        of_cards[name] = _told(record.hardware | {"memory": capacity(record.memory_total_bytes)})
    yield from _differing(of_nodes)
    yield from _differing(of_cards)


def _told(facts: Mapping[str, Any]) -> dict[str, str]:
    """Settings and versions as text."""
    plain = {key: value for key, value in facts.items() if key not in READINGS and not isinstance(value, dict | list)}
    return {key: _text(value) for key, value in plain.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _differing(told: Mapping[str, Mapping[str, str]]) -> Iterator[Drift]:
    for what in dict.fromkeys(key for facts in told.values() for key in facts):
        values = {name: facts[what] for name, facts in told.items() if what in facts}
        counts = Counter(values.values())
        if len(counts) < 2:
            continue
        first, count = counts.most_common(1)[0]
        majority = first if 2 * count > len(values) else None
        who = {value: [name for name, one in values.items() if one == value] for value in counts}
        yield Drift(what=what, majority=majority, of=len(values), others=_without(who, majority))


def _without(groups: dict[str, list[str]], majority: str | None) -> dict[str, list[str]]:
    return {value: names for value, names in groups.items() if value != majority}
