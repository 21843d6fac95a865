"""Where one card stands among others of its model: which of its figures are low, and by how much."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofline.analysis.distribution import OF_CARD, by_card, card_id, sound
from roofline.analysis.quantities import Quantity, quantities
from roofline.analysis.results import Results
from roofline.analysis.table import Roofline
from roofline.core.formatting import counted, listed, percent
from roofline.core.run_spread import between, within
from roofline.core.statistics import median
from roofline.records.device import DeviceRecord
from roofline.records.distribution import Distribution


class Bound(NamedTuple):
    """How far below the others' median: the larger of a share and so many standard deviations, of runs and cards."""

    share: float
    deviations: float


NOTE, FAIL = Bound(0.005, 4), Bound(0.02, 8)
NOTE_BESIDE_FEW = Bound(0.03, 4)
FEWEST = 3  # other cards: with fewer, neither is the spread known nor does a figure fail
LIBRARY = "cublas_loaded"  # whose version matrix products must share, by the records' `software`
BY_LIBRARY = ("burst", "sustained")
NAMED = 3  # figures in a sentence
WORDS = {"pass": "normal", "note": "note", "fail": "ask for another card"}


class Graded(NamedTuple):
    """One figure of a card beside those of others."""

    name: str
    short: float  # of the others' median, as a share of it; negative where the card is faster
    note: float  # what it is a note from
    fail: float | None  # None where it fails by no value
    of_host: bool  # whether the host has the other half of it, as of a link
    cards: int  # other cards whose figures it stands beside

    @property
    def result(self) -> str:
        return "fail" if self.fail and self.short > self.fail else "note" if self.short > self.note else "pass"

    @property
    def wide(self) -> bool:
        return self.note > NOTE_BESIDE_FEW.share

    @property
    def words(self) -> str:
        told = WORDS[self.result]
        return told.replace("card", "host") if self.of_host else told


class Standing(NamedTuple):
    cards: int  # that it is compared with
    graded: list[Graded]
    why: str = ""  # there is nothing to compare with

    @property
    def result(self) -> str:
        return next((one for one in ("fail", "note") if one in {figure.result for figure in self.graded}), "pass")


def standings(found: Results, roofline: Roofline, effort: str | None = None) -> dict[str, Standing]:
    """Of every device of a run of whose model a distribution was known when the run was made."""
    devices, figures = found.device_records(), quantities(roofline)
    return {
        name: standing(others, devices[name], sound(figures, roofline, name), effort)
        for name, others in found.distributions.items()
        if name in devices
    }


def standing(
    found: Distribution,
    device: DeviceRecord,
    figures: Iterable[Quantity],
    effort: str | None = None,
) -> Standing:
    """A card among the others of the same effort: never beside earlier runs of itself. Matrix products are compared
    where the library has the same version."""
    if device.hardware.get("mig_slice"):
        return Standing(0, [], "a MIG slice is compared with no whole card")
    limit, mine = device.hardware.get("power_limit_w"), card_id(device.uuid)
    others = [run for run in found.runs if run.card_id != mine and run.power_limit_w == limit]
    others = [run for run in others if effort is None or run.effort in (None, effort)]
    if not others:
        at = f" at a power limit of {limit:.0f} W" if limit else ""
        return Standing(0, [], f"no other {short_name(found.card)}{at} was measured yet")
    alike = [run for run in others if run.software.get(LIBRARY) == device.software.get(LIBRARY)]
    graded = []
    for one in figures:
        beside = alike if one.kind in BY_LIBRARY else others
        if one.kind in OF_CARD and (groups := by_card(beside, one.key)):
            graded.append(grade(one, groups))
    cards = len({run.card_id for run in others})
    why = "" if graded else f"none of this run's figures is sound and known of the {counted(cards, 'other')}"
    return Standing(cards, graded, why)


def grade(one: Quantity, groups: Sequence[Sequence[float]]) -> Graded:
    """A figure beside those of other cards, each with its runs."""
    middle = median([median(group) for group in groups])
    ratio = one.value / middle if one.higher_is_better else middle / one.value
    deviation = math.hypot(*(found.sd for found in (within(groups), between(groups)) if found))
    enough = len(groups) >= FEWEST
    note = NOTE if enough else NOTE_BESIDE_FEW
    return Graded(
        name=one.name,
        short=1 - ratio,
        note=_bound(note, deviation),
        fail=_bound(FAIL, deviation) if enough else None,
        of_host=one.kind == "link",
        cards=len(groups),
    )


def _bound(bound: Bound, deviation: float) -> float:
    return max(bound.share, bound.deviations * deviation)


def short_name(card: str) -> str:
    return card.removeprefix("NVIDIA ")


def sentence(card: str, found: Standing) -> str:
    """This H200 is within 1 % of 6 others; or what is low, by how much, and what that means."""
    if found.why:
        return found.why
    name, others = f"This {short_name(card)}", counted(found.cards, "other")
    return below(name, others, found) or near(f"{name} is", others, found)


def below(name: str, others: str, found: Standing) -> str:
    """What is low of a card, the furthest first, by how many others have the figure; empty where nothing is."""
    low = sorted((one for one in found.graded if one.result != "pass"), key=lambda one: (-one.cards, -one.short))
    parts = []
    for cards, group in itertools.groupby(low, key=lambda one: one.cards):
        figures = list(group)
        told = ", ".join(f"{one.name} by {percent(one.short)} ({one.words})" for one in figures)
        parts.append(f"below {others if cards == found.cards else _some(cards, len(figures))}: {told}")
    return f"{name} is {'; '.join(parts)}" if parts else ""


def _some(cards: int, figures: int) -> str:
    """The others that have what the rest lacks, which has it by another rule, with another library or not at all."""
    whose = "this figure" if figures == 1 else "these figures"
    return f"the one other with {whose}" if cards == 1 else f"the {cards} others with {whose}"


def near(cards: str, others: str, found: Standing) -> str:
    """How near figures are of which none is low, which of them say little, and how many not all others have."""
    steady = [abs(one.short) for one in found.graded if not one.wide]
    varying = list(dict.fromkeys(one.name for one in found.graded if one.wide))
    share = max(1, math.ceil(round(100 * max(steady), 6))) if steady else 0
    told = f"{cards} within {share} % of {others}" if steady else f"{cards} like {others}"
    if varying:
        of = f" in {len(steady)} of {counted(len(found.graded), 'figure')}" if steady else ""
        more = [f"{len(varying) - NAMED} more"] if len(varying) > NAMED else []
        verb = "varies" if len(varying) == 1 else "vary"
        told += f"{of}; {listed([*varying[:NAMED], *more])} {verb} by more from card to card"
    fewer = sum(one.cards < found.cards for one in found.graded)
    return told + (f"; {counted(fewer, 'figure')} beside fewer of them" if fewer else "")
