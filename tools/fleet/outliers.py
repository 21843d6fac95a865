"""Which cards of a fleet are slow: every figure against its median over the cards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from roofline.api import CARD_QUANTITY_KINDS, PAIR_KEY_PREFIXES, Run, card_id, count_words, group_by

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
    """A quantity that the cards are judged by."""

    key: str
    name: str
    kind: str
    unit: str
    cards: int = 0  # that it is judged by
    median: float | None = None
    limit: float | None = None  # share of the median that a card may be below it; None: too few cards


@dataclass
class Outlier:
    """A card that is slow in a figure."""

    card: str
    rows: list[str]  # the names of its runs
    figure: str
    below: float  # share of the median, by the median of its runs
    limit: float


@dataclass
class Fleet:
    """The content of fleet.json: runs of one model of card, judged."""

    model: str
    effort: str
    figures: list[Figure]
    rows: list[FleetRow]
    outliers: list[Outlier]  # the slowest first
    failing: dict[str, str]  # nodes, with the reason
    passing: list[str]

    @property
    def judged(self) -> bool:
        return any(figure.limit for figure in self.figures)

    @property
    def cards(self) -> int:
        return len({row.card for row in self.rows})


def build_fleet(runs: Mapping[str, Run], missing: Mapping[str, str]) -> Fleet:
    """Judge the runs of one model and one effort, by their nodes.

    `missing` has the nodes without a run, with the reason.
    """
    rows = build_rows(runs)
    figures = list_figures(runs, rows)
    outliers = [outlier for figure in figures for outlier in find_outliers(figure, rows)]
    outliers.sort(key=lambda outlier: -outlier.below)
    failing = dict(missing)
    card_counts = {node: sum(row.node == node for row in rows) for node in runs}
    usual_count = median_low(card_counts.values())
    for node, count in card_counts.items():
        cards = {row.card for row in rows if row.node == node}
        slow = list(dict.fromkeys(outlier.figure for outlier in outliers if outlier.card in cards))
        reasons = [f"slow in {', '.join(slow)}"] if slow else []
        if count < usual_count:
            reasons.append(f"{count_words(count, 'card')}, and most nodes have {usual_count}")
        if reasons:
            failing[node] = "; ".join(reasons)
    passing = [node for node in runs if node not in failing]
    model, effort = card_model(runs), str(next(iter(runs.values())).effort)
    return Fleet(model, effort, figures, rows, outliers, dict(sorted(failing.items())), passing)


def cards_of(run: Run, gpus: bool) -> list[str]:
    """Return the devices of a run that are judged: GPUs, or the CPU where no run has one. MIG slices are left out."""
    kind = "gpu" if gpus else "cpu"
    devices = run.devices.items()
    return [name for name, record in devices if record.device_kind == kind and not record.hardware.get("mig_slice")]


def any_gpu(runs: Iterable[Run]) -> bool:
    """Return whether a run has a GPU that is judged."""
    return any(cards_of(run, gpus=True) for run in runs)


def card_model(runs: Mapping[str, Run]) -> str:
    """Return the model of the first card that is judged."""
    gpus = any_gpu(runs.values())
    return next(run.devices[name].name for run in runs.values() for name in cards_of(run, gpus))


def build_rows(runs: Mapping[str, Run]) -> list[FleetRow]:
    """Return a row for each run of a card, by node and device; the runs of one card are numbered by their dates."""
    gpus, run_counts, rows = any_gpu(runs.values()), {}, []
    records = [(run.devices[name], node) for node, run in runs.items() for name in cards_of(run, gpus)]
    for record, node in sorted(records, key=lambda pair: pair[0].queried_at):
        has_uuid = gpus and record.uuid != "unknown"
        card = card_id(record.uuid) if has_uuid else f"{node} {record.device}"
        run_counts[card] = run_counts.get(card, 0) + 1
        quantities = [
            quantity for key, quantity in runs[node].of_device(record.device).items() if is_of_card(quantity.kind, key)
        ]
        doubtful = [quantity.key for quantity in quantities if quantity.doubt]
        values = {quantity.key: quantity.value for quantity in quantities}
        rows.append(FleetRow(node, record.device, card, run_counts[card], values, doubtful))
    return sorted(rows, key=lambda row: (row.node, row.device))


def is_of_card(kind: str, key: str) -> bool:
    """Return whether a quantity is set by the card alone, not by its host or a pair of cards."""
    return kind in CARD_QUANTITY_KINDS and not key.startswith(PAIR_KEY_PREFIXES)


def list_figures(runs: Mapping[str, Run], rows: Sequence[FleetRow]) -> list[Figure]:
    """Return the figures of the rows, by kinds and within them in the order of the records."""
    keys = {key for row in rows for key in row.values}
    quantities = {
        quantity.key: quantity for run in runs.values() for quantity in run.quantities if quantity.key in keys
    }
    return [
        Figure(quantity.key, quantity.name, quantity.kind, quantity.unit)
        for quantity in sorted(quantities.values(), key=lambda quantity: CARD_QUANTITY_KINDS.index(quantity.kind))
    ]


def find_outliers(figure: Figure, rows: Sequence[FleetRow]) -> list[Outlier]:
    """Return the cards that are slow in a figure; fill in its median and limit, and the share of each row."""
    measured = [row for row in rows if figure.key in row.values]
    rows_by_card = group_by((row for row in measured if figure.key not in row.not_judged), lambda row: row.card)
    cards = {card: median(row.values[figure.key] for row in of_card) for card, of_card in rows_by_card.items()}
    middle = median(list(cards.values()) or [row.values[figure.key] for row in measured])
    figure.cards, figure.median = len(cards), middle
    for row in measured:
        row.of_median[figure.key] = row.values[figure.key] / middle
    if len(cards) < FEWEST_CARDS:
        return []
    figure.limit = max(MADS * median(abs(value - middle) for value in cards.values()) / middle, LEAST)
    below = {card: 1 - value / middle for card, value in cards.items()}
    return [
        Outlier(card, [row.name for row in measured if row.card == card], figure.key, share, figure.limit)
        for card, share in below.items()
        if share > figure.limit
    ]
