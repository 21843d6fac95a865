"""nodes.json and fleet.json: the nodes of a fleet, and how their cards stand among one another."""

from typing import Literal

from pydantic import Field

from roofline.core.outliers import Basis, Status
from roofline.core.terms import QuantityKind
from roofline.records.base import NotNegative, Positive, Record

NodeStatus = Literal["measured", "failed", "unavailable", "pending too long"]
Cause = Literal["clock", "same clock"]


class FleetNode(Record):
    node: str
    status: NodeStatus
    reason: str | None = Field(description="why it was not measured; null where it was")
    archives: list[str] = Field(description="of its runs, the oldest first; paths relative to the fleet's folder")
    gpus: int | None = Field(default=None, description="that Slurm says the node has; null where not known")


class FleetNodes(Record):
    """nodes.json"""

    schema_version: Literal[1] = 1
    kind: Literal["fleet_nodes"] = "fleet_nodes"
    nodes: list[FleetNode]


class FleetFigure(Record):
    """One figure over the cards of a fleet. Spreads are standard deviations of ln(value)."""

    key: str
    name: str
    kind: QuantityKind
    unit: str
    higher_is_better: bool
    cards: int = Field(description="that have it")
    median: Positive
    margin: Positive = Field(description="a shortfall within it is none that matters, as a share of the median")
    spread: NotNegative | None = Field(description="that cards are held to, of cards and runs; null: nothing is judged")
    spread_df: NotNegative | None = Field(description="its degrees of freedom")
    spread_from: Basis | None
    run_spread: NotNegative | None = Field(description="between runs of one card; null where it is not known")
    run_spread_df: NotNegative | None = Field(description="its degrees of freedom")
    run_spread_from: Basis | None
    card_spread: NotNegative | None = Field(description="between cards, beyond what runs explain; null: not known")
    card_spread_df: NotNegative | None = Field(description="its degrees of freedom; null too where runs explain all")


class FleetValue(Record):
    """One figure of one card."""

    value: Positive = Field(description="of its first run")
    of_median: Positive = Field(description="performance over the fleet's median, so more than 1 is better")
    z: float | None = Field(description="spreads from the median, negative where worse; null where there is no spread")


class Load(Record):
    """A card under a sustained load."""

    power_w: Positive | None
    temperature_c: float | None


class FleetCard(Record):
    id: str = Field(description="the GPU's UUID; of a CPU its node")
    node: str
    device: str
    status: Literal["passed", "flagged", "confirmed", "not confirmed", "not judged"]
    runs: int
    values: dict[str, FleetValue] = Field(description="by the figures' keys")
    missing: list[str] = Field(description="keys of figures that most cards have and this one lacks")
    failed_checks: list[str] = Field(description="of its newest run")
    load: Load = Field(description="the most power and the highest temperature under its sustained loads")
    pcie_generation: int | None = Field(description="the highest of card and slot")
    pcie_width: int | None = Field(description="lanes in use")


class Finding(Record):
    """A figure of a card that is far below the fleet's median in one run or more."""

    card: str
    figure: str
    status: Status
    of_median: list[Positive] = Field(description="of each run that has it")
    z: float
    p_value: NotNegative = Field(description="of the lowest run, by chance, for this figure alone")
    critical_p: NotNegative = Field(description="up to which figures of this card are flagged")
    clock_of_median: Positive | None = Field(description="the clock of that run, over the fleet's median")
    at_equal_clock: Positive | None = Field(description="the same of the figure over its clock; null where unknown")
    cause: Cause | None = Field(description="clock: within the margin at equal clock; null where no clock was counted")
    load: Load | None = Field(description="under this very load, where it is a sustained one")
    fleet_load: Load | None = Field(description="the fleet's medians of that")


class Drift(Record):
    """A setting or version that is not the same everywhere."""

    what: str
    majority: str | None = Field(description="what more than half have; null where there is none")
    of: int = Field(description="cards or nodes that were asked")
    others: dict[str, list[str]] = Field(description="who has which other value")


class MissingGpus(Record):
    """A node with fewer GPUs in its newest run than it should have."""

    node: str
    gpus: int = Field(description="that were judged")
    expected: int
    expected_from: Literal["Slurm", "majority"] = Field(description="majority: what more than half of the nodes have")


class Fleet(Record):
    """fleet.json"""

    schema_version: Literal[1] = 1
    kind: Literal["fleet"] = "fleet"
    model: str | None = Field(description="of the cards; null where no node was measured")
    effort: str | None
    measured_from: str | None
    measured_to: str | None
    tail_df: Positive | None = Field(
        description="of Student's t, where the faster cards show tails that are heavier than normal"
    )
    nodes: list[FleetNode]
    figures: list[FleetFigure]
    cards: list[FleetCard]
    findings: list[Finding]
    missing_gpus: list[MissingGpus]
    drift: list[Drift]
    again: list[str] = Field(description="nodes of cards that are flagged and were measured once")
    passing: list[str] = Field(description="nodes")
    failing: list[str] = Field(description="nodes of confirmed or flagged cards, and those with missing or no cards")
