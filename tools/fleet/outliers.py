"""Which cards of a fleet are slow: every figure against its median over the cards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from roofline.api import CARD_QUANTITY_KINDS, PEER_KEY_PREFIX, Run, card_id

FEWEST_CARDS = 5  # of which a figure is judged
MADS, LEAST = 3 * 1.4826, 0.03  # below the median by more than the larger of both is slow


@dataclass
class FleetRow:
    """A run of a card."""

    node: str
    device: str
    card: str  # hash of the UUID; of a CPU the node
    run: int  # of this card: 1, 2..., the oldest first
    values: dict[str, float]  # by the keys of the figures
    not_judged: list[str]  # keys of figures that are not to be relied on
    of_median: dict[str, float] = field(default_factory=dict)  # performance over the median: below 1 is worse

    @property
    def name(self) -> str:
        return f"{self.node} {self.device}" + (f" run {self.run}" if self.run > 1 else "")


@dataclass
class Figure:
    key: str
    name: str
    kind: str
    unit: str
    cards: int = 0  # that it is judged by
    median: float | None = None
    limit: float | None = None  # share of the median that a card may be below it; None: too few cards


@dataclass
class Outlier:
    card: str
    rows: list[str]  # the names of its runs
    figure: str
    below: float  # share of the median, by the median of its runs
    limit: float


@dataclass
class Fleet:
    model: str
    effort: str
    figures: list[Figure]
    rows: list[FleetRow]
    outliers: list[Outlier]  # the slowest first
    failing: dict[str, str]  # nodes, with the reason
    passing: list[str]

    @property
    def judged(self) -> bool:
        return any(one.limit for one in self.figures)

    @property
    def cards(self) -> int:
        return len({row.card for row in self.rows})


def fleet(runs: Mapping[str, Run], missing: Mapping[str, str]) -> Fleet:
    """Of runs of one model and one effort by their nodes; `missing` are nodes without a run, with the reason."""
    rows = rows_of(runs)
    figures = figures_of(runs, rows)
    outliers = [one for figure in figures for one in judged(figure, rows)]
    outliers.sort(key=lambda one: -one.below)
    failing = dict(missing)
    cards = {node: sum(row.node == node for row in rows) for node in runs}
    most = median_low(cards.values())
    for node in runs:
        mine = {row.card for row in rows if row.node == node}
        slow = list(dict.fromkeys(one.figure for one in outliers if one.card in mine))
        reasons = [f"slow in {', '.join(slow)}"] if slow else []
        reasons += [f"{cards[node]} cards, and most nodes have {most}"] if cards[node] < most else []
        failing |= {node: "; ".join(reasons)} if reasons else {}
    passing = [node for node in runs if node not in failing]
    model, effort = model_of(runs), str(next(iter(runs.values())).effort)
    return Fleet(model, effort, figures, rows, outliers, dict(sorted(failing.items())), passing)


def cards_of(run: Run, gpus: bool) -> list[str]:
    """The devices of a run that are judged: GPUs, or the CPU where no run has one. MIG slices are left out."""
    kind = "gpu" if gpus else "cpu"
    return [name for name, one in run.devices.items() if one.device_kind == kind and not one.hardware.get("mig_slice")]


def any_gpu(runs: Iterable[Run]) -> bool:
    return any(cards_of(run, gpus=True) for run in runs)


def model_of(runs: Mapping[str, Run]) -> str:
    gpus = any_gpu(runs.values())
    return next(run.devices[name].name for run in runs.values() for name in cards_of(run, gpus))


def rows_of(runs: Mapping[str, Run]) -> list[FleetRow]:
    gpus, count, found = any_gpu(runs.values()), {}, []
    measured = [(runs[node].devices[name], node) for node in runs for name in cards_of(runs[node], gpus)]
    for record, node in sorted(measured, key=lambda one: one[0].queried_at):
        known = gpus and record.uuid != "unknown"
        card = card_id(record.uuid) if known else f"{node} {record.device}"
        count[card] = count.get(card, 0) + 1
        run = runs[node]
        mine = [one for key, one in run.of_device(record.device).items() if of_card(one.kind, key)]
        doubtful = [one.key for one in mine if one.doubt]
        values = {one.key: one.value for one in mine}
        found.append(FleetRow(node, record.device, card, count[card], values, doubtful))
    return sorted(found, key=lambda row: (row.node, row.device))


def of_card(kind: str, key: str) -> bool:
    return kind in CARD_QUANTITY_KINDS and not key.startswith(PEER_KEY_PREFIX)


def figures_of(runs: Mapping[str, Run], rows: Sequence[FleetRow]) -> list[Figure]:
    """Those of the cards, by kinds and within them in the order of the records."""
    there = {key for row in rows for key in row.values}
    lines = {one.key: one for run in runs.values() for one in run.quantities if one.key in there}
    return [
        Figure(one.key, one.name, one.kind, one.unit)
        for one in sorted(lines.values(), key=lambda one: CARD_QUANTITY_KINDS.index(one.kind))
    ]


def judged(figure: Figure, rows: Sequence[FleetRow]) -> list[Outlier]:
    """The cards that are slow in a figure; fills in its median and limit, and the share of each row."""
    having = [row for row in rows if figure.key in row.values]
    runs: dict[str, list[float]] = {}
    for row in having:
        if figure.key not in row.not_judged:
            runs.setdefault(row.card, []).append(row.values[figure.key])
    cards = {card: median(values) for card, values in runs.items()}
    middle = median(list(cards.values()) or [row.values[figure.key] for row in having])
    figure.cards, figure.median = len(cards), middle
    for row in having:
        row.of_median[figure.key] = of_median(row.values[figure.key], figure)
    if len(cards) < FEWEST_CARDS:
        return []
    figure.limit = max(MADS * median(abs(value - middle) for value in cards.values()) / middle, LEAST)
    below = {card: 1 - of_median(value, figure) for card, value in cards.items()}
    return [
        Outlier(card, [row.name for row in having if row.card == card], figure.key, share, figure.limit)
        for card, share in below.items()
        if share > figure.limit
    ]


def of_median(value: float, figure: Figure) -> float:
    return value / figure.median
