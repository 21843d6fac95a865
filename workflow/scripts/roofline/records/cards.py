"""reference/cards/NAME.json: every known run of a model of card, one line each."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from roofline.records.base import Positive, Record, RunRecord, read
from roofline.records.files import write_text

CARDS = Path(__file__).parents[4] / "reference" / "cards"
METHOD = 3  # of the present measuring protocol: figures of different methods are not compared


class CardRun(Record):
    queried_at: str = Field(description="when the card was queried, ISO 8601, UTC")
    commit: str | None
    method: int
    card_id: str = Field(description="the first 16 digits of the SHA-256 of the card's UUID")
    effort: str | None
    driver: str | None
    cublas_loaded: str | None = Field(description="the version that was loaded")
    power_limit_w: Positive | None
    values: dict[str, Positive] = Field(description="undisturbed, by the keys of Run.quantities; watts by */power_w")


class Cards(Record):
    name: str = Field(description="the exact name of the device")
    runs: list[CardRun]


class KnownCards(RunRecord):
    """results/known_cards.json: the ceilings of known cards, as they were when this run was made, by device."""

    kind: Literal["known_cards"] = "known_cards"
    devices: dict[str, Cards]


def card_id(uuid: str) -> str:
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def path_of(card: str) -> Path:
    return CARDS / f"{re.sub(r'[^a-z0-9]+', '-', card.lower())}.json"


def cards(card: str) -> Cards | None:
    """All known runs of a model of card, by its exact name; None if there are none. Raises UserError."""
    path = path_of(card)
    return read(Cards, path) if path.is_file() else None


def known_cards(names: Mapping[str, str]) -> KnownCards:
    """The ceilings of all known cards of these models, by device. Raises UserError."""
    found = {device: known for device, name in names.items() if (known := cards(name))}
    return KnownCards(devices={device: _ceilings_alone(known) for device, known in found.items()})


def _ceilings_alone(known: Cards) -> Cards:
    values = [{key: value for key, value in run.values.items() if "/" not in key} for run in known.runs]
    runs = [run.model_copy(update={"values": own}) for run, own in zip(known.runs, values, strict=True)]
    return known.model_copy(update={"runs": runs})


def write_cards(known: Cards, path: Path) -> None:
    """One line per run."""
    runs = ",\n".join(json.dumps(run.model_dump(), allow_nan=False) for run in known.runs)
    write_text(f'{{"name": {json.dumps(known.name)}, "runs": [\n{runs}\n]}}\n', path)
