"""fleet.html, FLEET.md and what the terminal shows of a fleet: slow cards, then every card, then drift."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roofline.core.formatting import counted, listed, number, percent
from roofline.records.fleet import Finding, Fleet, FleetCard, FleetFigure, Load
from roofline.report.markdown import Table, filled
from roofline.report.rendering import HTML, STYLE, TEXT, part

ORDER = ("confirmed", "flagged", "not confirmed", "not judged", "passed")
RANK = {status: place for place, status in enumerate(ORDER)}
STEPS = (0.5, 1, 2, 3)  # margins from the median, at which a cell's colour changes
NAMED = 8  # names in a sentence
MOST_ROWS = 64  # cards whose figures FLEET.md has
CAUSES = {"clock": "low clock", "same clock": "slow at the same clock"}
FROM = {"fleet": "this fleet", "stored": "stored for the model", "both": "both"}
EXPECTED_FROM = {"Slurm": "Slurm", "majority": "the majority of nodes"}
WHY_NOT = "That needs other cards and a known spread: one stored for the model, or one from at least eight cards."
TAILS = "The faster cards scatter more widely than normal errors would, so p-values are those of Student's t"


class Cell(NamedTuple):
    text: str
    colour: str  # a class of fleet.html.j2
    flagged: bool
    title: str


class Row(NamedTuple):
    card: FleetCard
    name: str
    cells: list[Cell]
    more: list[str]  # power, temperature, PCIe


class Page:
    """What fleet.html.j2 and FLEET.md.j2 show."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        several = Counter(card.node for card in fleet.cards)
        self.names = {
            card.id: card.node if several[card.node] == 1 else f"{card.node} {card.device}" for card in fleet.cards
        }
        self.by_key = {one.key: one for one in fleet.figures}
        self.by_id = {card.id: card for card in fleet.cards}
        self.flagged = {(one.card, one.figure) for one in fleet.findings if one.status != "not confirmed"}
        self.lost = [one for one in fleet.nodes if one.status != "measured" or one.node not in several]

    @property
    def title(self) -> str:
        return f"{len(self.fleet.cards)} × {self.fleet.model or 'no card'}"

    @property
    def facts(self) -> list[tuple[str, str]]:
        one = self.fleet
        when = [moment[:16].replace("T", " ") for moment in (one.measured_from, one.measured_to) if moment]
        moments = " to ".join(dict.fromkeys(when))
        found = {"nodes": str(len(one.nodes)), "effort": one.effort, "measured, UTC": moments}
        return [(name, value) for name, value in found.items() if value]

    @property
    def verdicts(self) -> Iterator[str]:
        """What there is to say, in a few sentences."""
        cards = self.fleet.cards
        by = {status: [self.names[card.id] for card in cards if card.status == status] for status in ORDER}
        if slow := by["confirmed"]:
            yield f"Slow, and slow again in another run: {_names(slow)} ({counted(len(slow), 'card')})."
        if once := by["flagged"]:
            yield f"Slow in its only run: {_names(once)} ({counted(len(once), 'card')}). Re-run to confirm."
        if other := by["not confirmed"]:
            yield f"Slow in one run only: {_names(other)} ({counted(len(other), 'card')})."
        if unknown := by["not judged"]:
            yield f"Not judged: {counted(len(unknown), 'card')}. {WHY_NOT}"
        if by["passed"] and not slow and not once:
            yield f"No slow card among {len(by['passed'])}: every shortfall is within chance or its margin."
        if lost := [one.node for one in self.lost]:
            yield f"Failed or not measured: {_names(lost)} ({counted(len(lost), 'node')})."
        if missing := [f"{one.node} ({one.gpus} of {one.expected})" for one in self.fleet.missing_gpus]:
            yield f"GPUs missing: {_names(missing)}."
        if incomplete := self.notes.rows:
            names = _names(row[0] for row in incomplete)
            yield f"Failed checks or missing figures: {names} ({counted(len(incomplete), 'card')})."
        if drift := self.fleet.drift:
            yield f"Configuration drift: {_names(one.what.replace('_', ' ') for one in drift)}."
        if df := self.fleet.tail_df:
            yield f"{TAILS} with {df:g} degrees of freedom."

    @property
    def findings(self) -> Table:
        """A row for each card and kind of figure, by the lowest of these."""
        columns = ["card", "figure", "verdict", "of the median", "margin", "z"]
        columns += ["at equal clock", "cause", "load (fleet median)", "PCIe"]
        groups: dict[tuple[str, str], list[Finding]] = {}
        for one in self.fleet.findings:
            groups.setdefault((one.card, self.by_key[one.figure].kind), []).append(one)
        found = [sorted(group, key=lambda one: (RANK[one.status], one.z)) for group in groups.values()]
        found.sort(key=lambda group: RANK[group[0].status])
        return filled(columns, map(self._finding, found), left=3)

    def _finding(self, group: list[Finding]) -> list[str]:
        one, more = group[0], len(group) - 1
        figure, card = self.by_key[one.figure], self.by_id[one.card]
        loaded = next((each for each in group if each.load), one)
        return [
            self.names[one.card],
            figure.name + (f" and {more} more" if more else ""),
            one.status,
            " and ".join(map(_share, one.of_median)),
            percent(figure.margin),
            f"{one.z:.1f}",
            _share(one.at_equal_clock) if one.at_equal_clock else "",
            CAUSES[one.cause] if one.cause else "",
            _loads(loaded.load, loaded.fleet_load),
            _link(card) if figure.kind == "link" else "",
        ]

    @property
    def unmeasured(self) -> Table:
        rows = [
            [one.node, one.status if one.status != "measured" else "no such card in its archive", one.reason or ""]
            for one in self.lost
        ]
        return Table(["node", "status", "reason"], rows, left=3)

    @property
    def missing_gpus(self) -> Table:
        rows = [
            [one.node, str(one.gpus), str(one.expected), EXPECTED_FROM[one.expected_from]]
            for one in self.fleet.missing_gpus
        ]
        return Table(["node", "GPUs measured", "expected", "expected by"], rows, left=1)

    @property
    def columns(self) -> list[str]:
        loads = [card.load for card in self.fleet.cards if card.load.power_w or card.load.temperature_c is not None]
        more = (["W under load", "°C under load"] if loads else []) + (["PCIe"] if self._links else [])
        return [*(one.name for one in self.fleet.figures), *more]

    @property
    def _links(self) -> bool:
        return any(card.pcie_width for card in self.fleet.cards)

    @property
    def rows(self) -> list[Row]:
        """Of the heat map: slow cards first."""
        cards = sorted(self.fleet.cards, key=lambda card: (RANK[card.status], card.node, card.device))
        size = len(self.columns) - len(self.fleet.figures)
        return [self._row(card, size) for card in cards]

    def _row(self, card: FleetCard, size: int) -> Row:
        load = [f"{card.load.power_w:.0f}" if card.load.power_w else "-", _degrees(card.load)] if size > 1 else []
        link = [_link(card)] if size % 2 else []
        return Row(card, self.names[card.id], [self._cell(card, one) for one in self.fleet.figures], load + link)

    def _cell(self, card: FleetCard, figure: FleetFigure) -> Cell:
        one = card.values.get(figure.key)
        if not one:
            return Cell("-", "", False, "")
        title = number(one.value) + ("" if one.z is None else f", z {one.z:.1f}")
        shade = colour(one.of_median, figure.margin)
        return Cell(f"{100 * one.of_median:.1f}", shade, (card.id, figure.key) in self.flagged, title)

    @property
    def heat_table(self) -> Table:
        """As text: of a large fleet of those alone that did not pass."""
        rows = self.rows
        rows = rows if len(rows) <= MOST_ROWS else [row for row in rows if row.card.status != "passed"]
        return Table(["card", "verdict", *self.columns], [_as_text(row) for row in rows], left=2)

    @property
    def figures(self) -> Table:
        columns = ["figure", "unit", "cards", "median", "margin", "between cards (df)", "between runs (df)"]
        columns += ["cards judged by", "runs from"]
        return filled(columns, map(_figure, self.fleet.figures), left=2)

    @property
    def drift(self) -> Table:
        rows = [
            [one.what.replace("_", " "), one.majority or "no majority", value, _names(who), f"{len(who)} of {one.of}"]
            for one in self.fleet.drift
            for value, who in one.others.items()
        ]
        return Table(["setting", "majority", "differs", "nodes", "how many"], rows, left=4)

    @property
    def notes(self) -> Table:
        """Cards with checks that failed, or without figures that most have."""
        rows = [
            [self.names[card.id], "; ".join(card.failed_checks), ", ".join(card.missing)]
            for card in self.fleet.cards
            if card.failed_checks or card.missing
        ]
        return filled(["card", "failed checks", "missing figures that most cards have"], rows, left=3)


def html(fleet: Fleet) -> str:
    """The whole page: plain tables, without scripts, since plotly.js alone is larger than 1000 cards."""
    return HTML.get_template("fleet.html.j2").render(page=Page(fleet), style=part(STYLE))


def markdown(fleet: Fleet) -> str:
    return TEXT.get_template("FLEET.md.j2").render(page=Page(fleet))


def screen(fleet: Fleet) -> str:
    page = Page(fleet)
    parts = [f"{page.title}, {counted(len(fleet.nodes), 'node')}", *page.verdicts]
    for table in (page.findings, page.unmeasured, page.missing_gpus):
        parts += ["", str(table)] if table.rows else []
    return "\n".join(parts)


def colour(of_median: float, margin: float) -> str:
    """A class by how many margins a value lies from the median: l1 to l4 below it, h1 to h4 above."""
    off = abs(1 - of_median) / margin
    step = sum(off > one for one in STEPS)
    return f"{'l' if of_median < 1 else 'h'}{step}" if step else ""


def _as_text(row: Row) -> list[str]:
    cells = [f"**{cell.text}**" if cell.flagged else cell.text for cell in row.cells]
    return [row.name, row.card.status, *cells, *row.more]


def _figure(one: FleetFigure) -> list[str]:
    spreads = [_spread(one.card_spread, one.card_spread_df), _spread(one.run_spread, one.run_spread_df)]
    sources = [FROM.get(one.spread_from, "not judged"), FROM.get(one.run_spread_from, "")]
    return [one.name, one.unit, str(one.cards), number(one.median), percent(one.margin), *spreads, *sources]


def _spread(sd: float | None, df: float | None) -> str:
    """0.92 % (7.3)"""
    if sd is None:
        return "not known"
    return percent(sd) + (f" ({round(df, 1):g})" if df is not None else "")


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _loads(one: Load | None, fleet: Load | None) -> str:
    """683 W (694), 81 °C (64)"""
    if not one or not fleet:
        return ""
    power = f"{one.power_w:.0f} W ({fleet.power_w:.0f})" if one.power_w and fleet.power_w else ""
    heat = f"{_degrees(one)} °C ({_degrees(fleet)})" if one.temperature_c is not None else ""
    return ", ".join(filter(None, [power, heat]))


def _degrees(load: Load) -> str:
    return f"{load.temperature_c:.0f}" if load.temperature_c is not None else "-"


def _link(card: FleetCard) -> str:
    """5 x16"""
    return f"{card.pcie_generation or '?'} x{card.pcie_width}" if card.pcie_width else "-"


def _names(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - NAMED
    return listed([*names[:NAMED], *([f"{more} more"] if more > 0 else [])])
