"""What cards of one model reach, from runs of several of them."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from roofline.analysis.quantities import Quantity, Run
from roofline.analysis.table import Roofline
from roofline.core.device_kinds import KINDS
from roofline.core.run_spread import between, within
from roofline.core.statistics import few, median
from roofline.records.base import read
from roofline.records.device import DeviceRecord
from roofline.records.distribution import Distribution, MeasuredRun, QuantityDistribution

REFERENCE = Path(__file__).parents[4] / "reference"
OF_CARD = ("burst", "sustained", "issue", "memory", "cache", "link")  # kinds of quantities; the rest has a host's part
BETWEEN_CARDS = "p2p_"  # begins the keys of what is no single card's


# ---------------------------------------------------------------- made from runs


def card_id(uuid: str) -> str:
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def measured_runs(run: Run) -> Iterable[tuple[str, MeasuredRun, list[Quantity]]]:
    """(card, run, quantities) of every whole GPU of a run, without what was disturbed or is of few samples."""
    for device, record in run.devices.items():
        if not KINDS[record.device_kind].accelerator or record.hardware.get("mig_slice") or record.uuid == "unknown":
            continue
        kept = [one for one in sound(run.quantities, run.roofline, device) if not one.key.startswith(BETWEEN_CARDS)]
        yield record.name, measured(record, kept, run.fingerprint, run.commit, run.effort), kept


def measured(
    card: DeviceRecord,
    figures: Iterable[Quantity],
    fingerprint: str = "",
    commit: str | None = None,
    effort: str | None = None,
) -> MeasuredRun:
    """What one run found of one card."""
    return MeasuredRun(
        card_id=card_id(card.uuid),
        fingerprint=fingerprint,
        queried_at=card.queried_at,
        commit=commit,
        effort=effort,
        driver=card.software.get("driver"),
        software=card.software,
        power_limit_w=card.hardware.get("power_limit_w"),
        values={one.key: one.value for one in figures},
    )


def sound(figures: Iterable[Quantity], roofline: Roofline, device: str) -> list[Quantity]:
    """Of one device, those of enough samples whose records nothing disturbed."""
    disturbed = {record for fault in roofline.faults if fault.device == device for record in fault.records}
    mine = [one for one in figures if one.device == device and one.record not in disturbed]
    return [one for one in mine if not few(one.samples)]


def distribution(card: str, runs: Sequence[MeasuredRun], told: Mapping[str, Quantity | QuantityDistribution]):
    """Of runs on cards of one model; `told` has what each key means."""
    keys = dict.fromkeys(key for run in runs for key in run.values)
    return Distribution(card=card, runs=list(runs), quantities=[_quantity(told[key], key, runs) for key in keys])


def _quantity(told: Quantity | QuantityDistribution, key: str, runs: Sequence[MeasuredRun]) -> QuantityDistribution:
    groups = by_card(runs, key)
    run_spread, card_spread = within(groups), between(groups)
    return QuantityDistribution(
        key=key,
        name=told.name,
        kind=told.kind,
        unit=told.unit,
        higher_is_better=told.higher_is_better,
        median=median([median(group) for group in groups]),
        cards=len(groups),
        runs=sum(map(len, groups)),
        run_spread=run_spread and run_spread.sd,
        run_spread_df=run_spread.df if run_spread else 0,
        card_spread=card_spread and card_spread.sd,
        card_spread_df=card_spread.df if card_spread else 0,
    )


def by_card(runs: Iterable[MeasuredRun], key: str) -> list[list[float]]:
    groups: dict[str, list[float]] = {}
    for run in runs:
        if key in run.values:
            groups.setdefault(run.card_id, []).append(run.values[key])
    return list(groups.values())


# ---------------------------------------------------------------- known ones


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
