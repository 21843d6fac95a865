"""What cards of one model reach, from runs of several of them."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from roofline.analysis.quantities import Quantity
from roofline.analysis.table import Roofline
from roofline.core.statistics import few
from roofline.records.base import read
from roofline.records.distribution import Distribution, MeasuredRun

REFERENCE = Path(__file__).parents[4] / "reference"
OF_CARD = ("burst", "sustained", "issue", "memory", "cache", "link")  # kinds of quantities; the rest has a host's part
BETWEEN_CARDS = "p2p_"  # begins the keys of what is no single card's


def card_id(uuid: str) -> str:
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def sound(figures: Iterable[Quantity], roofline: Roofline, device: str) -> list[Quantity]:
    """Of one device, those of enough samples whose records nothing disturbed."""
    disturbed = {record for fault in roofline.faults if fault.device == device for record in fault.records}
    mine = [one for one in figures if one.device == device and one.record not in disturbed]
    return [one for one in mine if not few(one.samples)]


def by_card(runs: Iterable[MeasuredRun], key: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for run in runs:
        if key in run.values:
            groups.setdefault(run.card_id, []).append(run.values[key])
    return list(groups.values())


def reference_of(card: str) -> Path:
    """Where the results of a card by its name are committed, if there are any: reference/nvidia-h200."""
    return REFERENCE / re.sub(r"\W+", "-", card.lower())


def path_of(card: str) -> Path:
    return reference_of(card) / "distribution.json"


def known(card: str) -> Distribution | None:
    """Of the cards of this name, where the repository has one. Raises CorruptRecord."""
    path = path_of(card)
    found = read(Distribution, path) if path.is_file() else None
    return found if found and found.card == card else None


def of_card(found: Distribution) -> Distribution:
    """Without what a card is not graded by."""
    kept = [one for one in found.quantities if one.kind in OF_CARD]
    keys = {one.key for one in kept}
    runs = [
        run.model_copy(update={"values": {key: value for key, value in run.values.items() if key in keys}})
        for run in found.runs
    ]
    return found.model_copy(update={"quantities": kept, "runs": runs})
