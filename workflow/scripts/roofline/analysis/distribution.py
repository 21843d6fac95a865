"""What cards of one model reach, from runs of several of them, and where one card stands among the others."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofline.analysis.quantities import Quantity, Run, quantities
from roofline.analysis.results import Results
from roofline.analysis.table import Roofline
from roofline.core.device_kinds import KINDS
from roofline.core.formatting import counted, listed, percent
from roofline.core.run_spread import between, within
from roofline.core.statistics import few, median
from roofline.records.base import read
from roofline.records.device import DeviceRecord
from roofline.records.distribution import Distribution, MeasuredRun, QuantityDistribution

REFERENCE = Path(__file__).parents[4] / "reference"
OF_CARD = ("burst", "sustained", "issue", "memory", "cache", "link")  # kinds of quantities; the rest has a host's part
BETWEEN_CARDS = "p2p_"  # begins the keys of what is no single card's
# How far below the others' median: docs/health.md has where the bands come from.
BANDS = (0.03, 0.08, 0.22)
WORDS = ("normal", "note", "slow, but seen in fleets", "ask for another card")
SPREADS = 3  # a band is at least so many of the quantity's spread wide
NAMED = 3  # figures in a sentence


class Graded(NamedTuple):
    """One figure of a card beside those of others."""

    name: str
    short: float  # of the others' median, as a share of it; negative where the card is faster
    band: int  # place in WORDS
    wide: bool  # whether its spread is wider than the first band
    of_host: bool  # whether the host has the other half of it, as of a link

    @property
    def words(self) -> str:
        told = WORDS[self.band]
        return told.replace("card", "host") if self.of_host else told


class Standing(NamedTuple):
    cards: int  # that it is compared with
    graded: list[Graded]
    why: str = ""  # there is nothing to compare with

    @property
    def band(self) -> int:
        return max((one.band for one in self.graded), default=0)


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


# ---------------------------------------------------------------- one card among others


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


def standings(found: Results, roofline: Roofline) -> dict[str, Standing]:
    """Of every device of a run of whose model a distribution was known when the run was made."""
    devices, figures = found.device_records(), quantities(roofline)
    return {
        name: standing(others, devices[name], sound(figures, roofline, name))
        for name, others in found.distributions.items()
        if name in devices
    }


def standing(
    found: Distribution, device: DeviceRecord, figures: Iterable[Quantity], known: Distribution | None = None
) -> Standing:
    """A card among the others: never beside earlier runs of itself. Spreads are of `known`, else of the others."""
    if device.hardware.get("mig_slice"):
        return Standing(0, [], "a MIG slice is compared with no whole card")
    limit, mine = device.hardware.get("power_limit_w"), card_id(device.uuid)
    others = [run for run in found.runs if run.card_id != mine and run.power_limit_w == limit]
    if not others:
        at = f" at a power limit of {limit:.0f} W" if limit else ""
        return Standing(0, [], f"no other {short_name(found.card)}{at} was measured yet")
    runs = known.runs if known else others
    graded = [
        _graded(one, groups, by_card(runs, one.key))
        for one in figures
        if one.kind in OF_CARD and (groups := by_card(others, one.key))
    ]
    cards = len({run.card_id for run in others})
    why = "" if graded else f"none of this run's figures is sound and known of the {counted(cards, 'other')}"
    return Standing(cards, graded, why)


def _graded(one: Quantity, groups: Sequence[Sequence[float]], known: Sequence[Sequence[float]]) -> Graded:
    middle = median([median(group) for group in groups])
    ratio = one.value / middle if one.higher_is_better else middle / one.value
    spread = SPREADS * math.hypot(*(found.sd for found in (within(known), between(known)) if found))
    band = sum(1 - ratio > max(bound, spread) for bound in BANDS)
    return Graded(one.name, 1 - ratio, band, spread > BANDS[0], one.kind == "link")


def short_name(card: str) -> str:
    return card.removeprefix("NVIDIA ")


def sentence(card: str, found: Standing) -> str:
    """This H200 is within 1 % of 6 others; or what is low, by how much, and what that means."""
    if found.why:
        return found.why
    name, others = f"This {short_name(card)}", counted(found.cards, "other")
    return below(name, others, found) or near(f"{name} is", others, found)


def below(name: str, others: str, found: Standing) -> str:
    """What is low of a card, the furthest first; empty where nothing is."""
    low = sorted((one for one in found.graded if one.band), key=lambda one: -one.short)
    figures = [f"{one.name} by {percent(one.short)} ({one.words})" for one in low]
    return f"{name} is below {others}: {', '.join(figures)}" if low else ""


def near(cards: str, others: str, found: Standing) -> str:
    """How near figures are of which none is low, and which of them say little."""
    steady = [abs(one.short) for one in found.graded if not one.wide]
    varying = list(dict.fromkeys(one.name for one in found.graded if one.wide))
    share = max(1, math.ceil(round(100 * max(steady), 6))) if steady else 0
    told = f"{cards} within {share} % of {others}" if steady else f"{cards} like {others}"
    if not varying:
        return told
    of = f" in {len(steady)} of {counted(len(found.graded), 'figure')}" if steady else ""
    more = [f"{len(varying) - NAMED} more"] if len(varying) > NAMED else []
    verb = "varies" if len(varying) == 1 else "vary"
    return f"{told}{of}; {listed([*varying[:NAMED], *more])} {verb} by more from card to card"
