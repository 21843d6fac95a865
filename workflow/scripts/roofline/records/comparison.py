"""comparison.json: two sides of one or more runs each, quantity by quantity."""

from typing import Literal

from pydantic import Field

from roofline.core.equivalence import Verdict
from roofline.core.terms import QuantityKind
from roofline.records.base import NotNegative, Positive, Record

Side = Literal["A", "B"]


class ComparedRun(Record):
    side: Side
    source: str
    fingerprint: str = Field(description="SHA-256 of the run's figures: the same for a run and its copies")
    measured_at: str
    commit: str | None
    devices: dict[str, str] = Field(description="name and UUID by device")


class Condition(Record):
    """Something that differs between the sides, so that it may be the cause."""

    subject: str | None = Field(description="null where it is of the whole run")
    what: str
    a: str
    b: str


class ComparedQuantity(Record):
    subject: str
    key: str
    name: str
    kind: QuantityKind
    unit: str
    higher_is_better: bool
    a: list[Positive] = Field(description="of each run of side A that found it")
    b: list[Positive]
    modal: bool = Field(default=False, description="set by the host's pace, so with modes: nothing is concluded")
    ratio: Positive
    ci95: tuple[NotNegative, float] | None = Field(description="by the spread between runs; null where that is unknown")
    p_value: NotNegative | None = Field(description="of no change, adjusted for all quantities compared (Holm)")
    verdict: Verdict
    margin: Positive = Field(description="within which a change is none that matters, as a share")
    spread: NotNegative | None = Field(description="between runs: the standard deviation of ln(value)")
    spread_df: NotNegative | None = Field(description="its degrees of freedom")
    spread_from: str | None
    card_spread: NotNegative | None = Field(description="that between cards, where the sides are of different ones")
    smallest_change: NotNegative | None = Field(
        description="the smallest slowing, as a share, that would have been found in nine of ten such comparisons"
    )
    reason: str | None = Field(description="why it is UNCLEAR, or the same by identity")


class Subject(Record):
    """One card against itself, or the cards of one side against those of the other."""

    name: str
    same_cards: bool
    a_cards: list[str]
    b_cards: list[str]
    only_a: list[str] = Field(description="keys of quantities that the other side lacks")
    only_b: list[str]


class Comparison(Record):
    """results/comparison/comparison.json"""

    schema_version: Literal[1] = 1
    kind: Literal["comparison"] = "comparison"
    identical: bool = Field(description="both sides are the same run")
    runs: list[ComparedRun]
    subjects: list[Subject]
    conditions: list[Condition]
    left_out: list[str] = Field(description="devices that were not compared, with the reason")
    tests: int = Field(description="quantities that were tested; p is adjusted among ceilings, and among times")
    quantities: list[ComparedQuantity]
