"""What cards of one model reach, from runs of several of them."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from roofline.analysis.quantities import TIMES, Quantity, Run
from roofline.analysis.table import Roofline
from roofline.core.device_kinds import KINDS
from roofline.core.run_spread import between, pooled, within
from roofline.core.statistics import few, median
from roofline.core.terms import QuantityKind
from roofline.records.base import read
from roofline.records.device import DeviceRecord
from roofline.records.distribution import Distribution, KindSpread, MeasuredRun, QuantityDistribution

REFERENCE = Path(__file__).parents[4] / "reference"
OF_CARD = ("burst", "sustained", "issue", "memory", "cache", "link")  # kinds of quantities; the rest has a host's part
PAUSE = timedelta(hours=1)  # after which a card's temperature and its host are no longer those of the run before
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
    quantities = [_quantity(told[key], key, runs) for key in keys]
    kinds = dict.fromkeys(one.kind for one in quantities if one.kind not in TIMES)
    spreads = [_spread(kind, [one.key for one in quantities if one.kind == kind], runs) for kind in kinds]
    return Distribution(card=card, runs=list(runs), quantities=quantities, spreads=spreads)


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


def _spread(kind: QuantityKind, keys: Sequence[str], runs: Sequence[MeasuredRun]) -> KindSpread:
    (close, close_cards), (apart, apart_cards) = (_pooled(groups, keys) for groups in _sittings(runs))
    return KindSpread(
        kind=kind,
        back_to_back=close,
        back_to_back_cards=close_cards,
        hours_apart=apart,
        hours_apart_cards=apart_cards,
    )


def _pooled(groups: Sequence[Sequence[MeasuredRun]], keys: Sequence[str]) -> tuple[float | None, int]:
    """The standard deviation within groups of runs of one card, and of how many cards."""
    values = {key: [[run.values[key] for run in group if key in run.values] for group in groups] for key in keys}
    found = pooled(filter(None, map(within, values.values())))
    several = (group for of in values.values() for group, each in zip(groups, of, strict=True) if len(each) > 1)
    return found and found.sd, len({group[0].card_id for group in several})


def _sittings(runs: Iterable[MeasuredRun]) -> tuple[list[list[MeasuredRun]], list[list[MeasuredRun]]]:
    """Runs of one card without a pause between them; and of each card the first after every pause."""
    cards: dict[str, list[list[MeasuredRun]]] = {}
    for run in sorted(runs, key=_moment):
        sittings = cards.setdefault(run.card_id, [])
        if not sittings or _moment(run) - _moment(sittings[-1][-1]) >= PAUSE:
            sittings.append([])
        sittings[-1].append(run)
    close = [sitting for sittings in cards.values() for sitting in sittings]
    return close, [[sitting[0] for sitting in sittings] for sittings in cards.values()]


def _moment(run: MeasuredRun) -> datetime:
    return datetime.fromisoformat(run.queried_at)


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
