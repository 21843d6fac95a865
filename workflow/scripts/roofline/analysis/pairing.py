"""Which devices of two sides of runs are compared with which."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roofline.analysis import conditions
from roofline.analysis.quantities import Quantity, Run
from roofline.core.device_kinds import KINDS, accelerators
from roofline.records.comparison import Condition
from roofline.records.device import DeviceRecord


class Incomparable(Exception):
    """Why two sides are not compared: a line per reason."""


class Measured(NamedTuple):
    """A device in one run."""

    run: Run
    device: DeviceRecord
    card: str  # the same for one card in several runs
    figures: Mapping[str, Quantity]


class Pair(NamedTuple):
    """What is compared with what: one card with itself, or cards of one side with cards of the other."""

    name: str
    a: list[Measured]
    b: list[Measured]

    @property
    def same_cards(self) -> bool:
        return {one.card for one in self.a} == {one.card for one in self.b}

    @property
    def kind(self) -> str:
        return self.a[0].device.device_kind


def paired(a: Sequence[Run], b: Sequence[Run], force: bool) -> tuple[list[Pair], list[str], list[Condition]]:
    """Devices of one model, or where forced of one kind; what is left out and why; and the conditions that differ.

    A card that is on both sides is compared with itself; of the others those of one side with those of the other.
    Raises Incomparable.
    """
    sides = [_by_name(runs) for runs in (a, b)]
    matches = [(name, name) for name in sides[0] if name in sides[1]]
    rest = [[name for name in side if (name, name) not in matches] for side in sides]
    others = [(one, other) for one in rest[0] for other in rest[1] if _kind(sides[0][one]) == _kind(sides[1][other])]
    matches += others if force else []
    pairs, left_out, told = [], [], []
    forcible: set[str] = set()
    for one, other in matches:
        cards = _by_card(Pair(one if one == other else f"{one} and {other}", sides[0][one], sides[1][other]))
        left_out += [f"{m.device.device}, {m.card}: only in A" for pair in cards if not pair.b for m in pair.a]
        left_out += [f"{m.device.device}, {m.card}: only in B" for pair in cards if not pair.a for m in pair.b]
        for pair in (pair for pair in cards if pair.a and pair.b):
            differing = conditions.of_devices(pair.name, *([m.device for m in side] for side in (pair.a, pair.b)))
            reasons = [f"{pair.name}: {c.what} {c.a} in A, {c.b} in B" for c in conditions.blocking(differing)]
            if reasons and not force:
                left_out += reasons
                forcible |= set(reasons)
            else:
                pairs.append(pair)
                told += differing
    if not force:
        of_others = [f"{one} in A, {other} in B: another model" for one, other in others]
        left_out += of_others
        forcible |= set(of_others)
    alone = [set(rest[side]) - {names[side] for names in others} for side in (0, 1)]
    left_out += [f"{name}: only in {'AB'[side]}" for side in (0, 1) for name in rest[side] if name in alone[side]]
    if not pairs:
        hints = dict.fromkeys(forcible, "; FORCE=1 compares them all the same")
        raise Incomparable("\n".join(f"not compared: {line}{hints.get(line, '')}" for line in left_out))
    return pairs, left_out, told


def _by_name(runs: Sequence[Run]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for run in runs:
        gpus = sorted(one.uuid for one in accelerators(run.devices.values(), lambda one: one.device_kind))
        for record in run.devices.values():
            # What a CPU reports does not tell one host from another; the cards beside it do.
            beside = f" beside {', '.join(gpus)}" if gpus and not KINDS[record.device_kind].accelerator else ""
            card = record.uuid if record.uuid != "unknown" else f"unknown, of {run.source}"
            found.setdefault(record.name, []).append(
                Measured(run, record, f"{card}{beside}", run.of_device(record.device))
            )
    return found


def _kind(measured: Sequence[Measured]) -> str:
    return measured[0].device.device_kind


def _by_card(pair: Pair) -> list[Pair]:
    """A pair for each card that is on both sides, and one of all others, of which a side may have none."""
    a, b = ({one.card for one in side} for side in (pair.a, pair.b))
    common = [card for card in dict.fromkeys(one.card for one in pair.a) if card in b]
    alone = len(common) == 1 and a == b
    found = []
    for card in common:
        mine, other = ([one for one in side if one.card == card] for side in (pair.a, pair.b))
        found.append(Pair(pair.name if alone else f"{pair.name}, {card}", mine, other))
    rest = [[one for one in side if one.card not in common] for side in (pair.a, pair.b)]
    return [*found, Pair(f"other cards, {pair.name}" if common else pair.name, *rest)] if any(rest) else found
