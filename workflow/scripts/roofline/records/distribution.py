"""reference/{card}/distribution.json: what runs of several cards of one model reached, by quantity."""

from typing import Literal

from pydantic import Field

from roofline.core.terms import QuantityKind
from roofline.records.base import NotNegative, Positive, Record


class QuantityDistribution(Record):
    """One quantity over the cards and runs that were measured. A card counts once, however many runs it had."""

    key: str = Field(description="as analysis.quantities names it")
    name: str
    kind: QuantityKind
    unit: str
    higher_is_better: bool
    median: Positive = Field(description="of the cards' medians")
    cards: int
    runs: int
    run_spread: NotNegative | None = Field(
        description="standard deviation of ln(value) between runs of one card, pooled; null where no card has two"
    )
    run_spread_df: NotNegative = Field(description="its degrees of freedom")
    card_spread: NotNegative | None = Field(
        description="that between cards, beyond what runs explain; null for fewer than two cards"
    )
    card_spread_df: NotNegative = Field(description="its degrees of freedom")


class KindSpread(Record):
    """Of ceilings of one kind: standard deviations of ln(value) between runs of one card, pooled."""

    kind: QuantityKind
    back_to_back: NotNegative | None = Field(
        description="between runs less than an hour after one another; null where no card has two"
    )
    back_to_back_cards: int = Field(description="that it is known from")
    hours_apart: NotNegative | None = Field(
        description="between the first runs after pauses of an hour or more; null, so not known, where no card has two"
    )
    hours_apart_cards: int = Field(description="that it is known from")


class MeasuredRun(Record):
    """A run that the distribution is made from."""

    card_id: str = Field(
        description="the first 16 digits of the SHA-256 of the card's UUID: enough to know it again, and no more"
    )
    fingerprint: str = Field(description="of its figures: the same run is not counted twice")
    queried_at: str
    commit: str | None
    effort: str | None
    driver: str | None
    software: dict[str, str | None]
    power_limit_w: Positive | None
    values: dict[str, Positive] = Field(description="by the quantities' keys")


class Distribution(Record):
    schema_version: Literal[1] = 1
    kind: Literal["distribution"] = "distribution"
    card: str = Field(description="the exact name of the device")
    runs: list[MeasuredRun]
    quantities: list[QuantityDistribution]
    spreads: list[KindSpread] = Field(default=[], description="none in files of earlier versions")
