"""reference/cards/NAME.json: every known run of a model of card, one line each."""

import hashlib
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pydantic import Field

from roofline.core.dtypes import PRODUCT_DTYPES
from roofline.records.base import Positive, Rate, Record, RunRecord, read
from roofline.records.files import write_text

CARDS = Path(__file__).parents[4] / "reference" / "cards"
METHOD = 4  # of the present measuring protocol: figures of different methods are not compared
# From 3 to 4 other products became ceilings, and another rate is called the L2's; what else was measured is the same.
LIKE_METHODS, CHANGED_FAMILIES = {3, 4}, (*PRODUCT_DTYPES, "gemm")


class DrawnErrors(Record):
    """(predicted - measured) / measured of each undoubted cell of a run's drawn shapes, by operator and
    implementation."""

    constants_sha256: dict[str, str] = Field(description="by operator: of the fitted constants that predicted them")
    gpu_time: dict[str, list[float]]
    cpu_time: dict[str, list[float]]


class CardRun(Record):
    """One known run of a card: its ceilings, operator times and watts, and the conditions they depend on."""

    queried_at: str = Field(description="when the card was queried, ISO 8601, UTC")
    commit: str | None
    method: int
    card_id: str = Field(description="the first 16 digits of the SHA-256 of the card's UUID")
    effort: str | None
    driver: str | None
    cublas_loaded: str | None = Field(description="the version that was loaded")
    power_limit_w: Positive | None
    values: dict[str, Positive] = Field(
        description="undisturbed, by the keys of Run.quantities; also */power_w (W), */joules_per_*"
    )
    drawn: DrawnErrors | None = Field(default=None, description="null where no shapes were drawn")


class Cards(Record):
    """All known runs of one model of card."""

    name: str = Field(description="the exact name of the device")
    runs: list[CardRun]

    @property
    def keys(self) -> set[str]:
        """The keys of the values that some run has."""
        return {key for run in self.runs for key in run.values}


class OtherModel(Cards):
    """Another model of card than a run's, with what its datasheet promises."""

    promised_tflops: dict[str, Rate] = Field(description="by compute ceiling")
    promised_gb_per_s: Rate = Field(description="of its main memory")


class KnownCards(RunRecord):
    """results/known_cards.json: known runs, as they were when this run was made, by device of this run.

    Their values are ceilings, and the times of cells that this run has too.
    """

    kind: Literal["known_cards"] = "known_cards"
    devices: dict[str, Cards] = Field(default={}, description="of the model of the device")
    other_models: dict[str, OtherModel] = Field(default={}, description="of the other model with most of the cells")


def comparable_values(run: CardRun, method: int) -> dict[str, float]:
    """Return the values of a run that those of a run by `method` may be compared with, by their keys."""
    return {key: value for key, value in run.values.items() if is_comparable(key, {run.method, method})}


def is_comparable(key: str, methods: Collection[int]) -> bool:
    """Return whether these measuring methods of GPUs give a figure alike; with one method or none, they do."""
    family = key.partition("/")[0]
    changed = family in CHANGED_FAMILIES or family.startswith("l2")
    return len({*methods}) <= 1 or ({*methods} <= LIKE_METHODS and not changed)


def card_id(uuid: str) -> str:
    """Return the first 16 digits of the SHA-256 of a card's UUID, by which it is published."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def cards_path(model: str) -> Path:
    """Return the path of the file of a model of card, by its exact name; it need not exist."""
    return CARDS / f"{re.sub(r'[^a-z0-9]+', '-', model.lower())}.json"


def read_cards(model: str) -> Cards | None:
    """Return all known runs of a model of card, by its exact name; None if there are none.

    Raises UserError if the file is not readable as such.
    """
    path = cards_path(model)
    return read(Cards, path) if path.is_file() else None


def read_all_cards() -> list[Cards]:
    """Return all known runs of each model of card, by name. Raises UserError as read_cards does."""
    return [read(Cards, path) for path in sorted(CARDS.glob("*.json"))]


def keep_values(cards: Cards, times: Collection[str], method: int) -> Cards:
    """Return the same runs with the values of ceilings, and those of `times` that compare with a run by `method`."""
    runs = []
    for run in cards.runs:
        kept = {key: value for key, value in run.values.items() if "/" not in key.removesuffix("/sustained")}
        kept |= {key: value for key, value in comparable_values(run, method).items() if key in times}
        runs.append(run.model_copy(update={"values": kept}))
    return cards.model_copy(update={"runs": runs})


def write_cards(cards: Cards, path: Path) -> None:
    """Write the runs of a model of card as JSON, one line per run."""
    runs = ",\n".join(json.dumps(run.model_dump(), allow_nan=False) for run in cards.runs)
    write_text(f'{{"name": {json.dumps(cards.name)}, "runs": [\n{runs}\n]}}\n', path)
