"""Which devices of two lists of runs belong together, and what else differs between the lists."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from roofline.api import Run, UserError

HARDWARE = ["multiprocessors", "mig_slice", "power_limit_w", "sm_clock_max_mhz", "memory_clock_max_mhz", "ecc_enabled"]
BLOCKING = ("multiprocessors", "mig_slice")  # devices that differ in one of them are as good as other models
SHOWN_ELSEWHERE = ("cost", "devices", "plot", "effort")  # keys of the config that change no figure, or have a line


class DeviceOfRun(NamedTuple):
    """A device in one run."""

    run: Run
    key: str  # such as gpu0
    record: Any
    card: str  # the same for one card in several runs
    figures: dict  # Quantities by their keys


class ComparedPair(NamedTuple):
    """One card on both sides, or cards of A and other cards of B."""

    name: str
    a: list[DeviceOfRun]
    b: list[DeviceOfRun]

    @property
    def same_card(self) -> bool:
        return self.a[0].card == self.b[0].card


def paired(a: Sequence[Run], b: Sequence[Run], force: bool = False) -> tuple[list[ComparedPair], list[str]]:
    """The pairs, and a line per device that is left out. A card is compared with itself if both lists have it, else
    with others of its model. `force` compares other models of one kind too. Raises UserError."""
    sides = [[_device(run, key) for run in side for key in run.devices] for side in (a, b)]
    cards = [dict.fromkeys(one.card for one in side) for side in sides]
    common = [card for card in cards[0] if card in cards[1]]
    groups = [[[one for one in side if one.card == card] for side in sides] for card in common]
    rest = [[one for one in side if one.card not in common] for side in sides]
    for trait in ("name", "device_kind") if force else ("name",):
        for value in dict.fromkeys(getattr(one.record, trait) for one in rest[0]):
            group = [[one for one in side if getattr(one.record, trait) == value] for side in rest]
            if all(group):
                groups.append(group)
                rest = [[one for one in side if one not in mine] for side, mine in zip(rest, group, strict=True)]
    left_out = [f"{one.record.name} ({one.key}): only in {'AB'[side]}" for side in (0, 1) for one in rest[side]]
    pairs, forcible = [], all(rest)
    for mine, other in sorted(groups, key=lambda group: sides[0].index(group[0][0])):
        pair = ComparedPair(_listed([one.record.name for one in (*mine, *other)], " and "), mine, other)
        blocking = [line for line in differences(*pair[1:]) if line.startswith(BLOCKING)]
        if blocking and not force:
            left_out.append(f"{pair.name}: {blocking[0]}")
            forcible = True
        else:
            pairs.append(pair)
    hint = "; FORCE=1 compares other models of card" if forcible and not force else ""
    if hint or not pairs:
        raise UserError(f"cannot be compared: {'; '.join(left_out)}{hint}")
    names = [one.name for one in pairs]
    pairs = [one._replace(name=f"{one.name}, {one.a[0].card}") if names.count(one.name) > 1 else one for one in pairs]
    return pairs, list(dict.fromkeys(left_out))


def _device(run: Run, key: str) -> DeviceOfRun:
    """A CPU has no UUID, so hosts are distinguished by their GPUs."""
    record = run.devices[key]
    gpus = sorted(one.uuid for one in run.devices.values() if one.device_kind == "gpu")
    uuid = record.uuid if record.uuid != "unknown" else f"unknown, of {run.source}"
    card = uuid if record.device_kind == "gpu" else " next to ".join([uuid, *gpus])
    return DeviceOfRun(run, key, record, card, run.of_device(key))


# ---------------------------------------------------------------- what else differs


def differences(a: Iterable[DeviceOfRun], b: Iterable[DeviceOfRun]) -> list[str]:
    """A line for each fact of hardware and software that differs."""
    return _lines(lambda one: {key: one.record.hardware.get(key) for key in HARDWARE} | one.record.software, a, b)


def differences_of_runs(a: Iterable[Run], b: Iterable[Run]) -> list[str]:
    """The same for effort, commit, method and failed checks; of settings only the names of the sections that differ."""
    configs = [one.manifest.config for side in (a, b) for one in side]
    keys = dict.fromkeys(key for config in configs for key in config if key not in SHOWN_ELSEWHERE)
    differing = [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]
    return _lines(_facts, a, b) + ([f"settings: {', '.join(differing)}"] if differing else [])


def _facts(run: Run) -> dict:
    faults = _listed(f"{one.device} {one.check}" for one in run.roofline.doubting_failures) or "none"
    method = _listed(one.method for one in run.devices.values())
    return {"effort": run.effort, "commit": run.commit and run.commit[:8], "method": method, "failed checks": faults}


def _lines(facts: Callable[[Any], dict], *sides: Iterable) -> list[str]:
    found = [[facts(one) for one in side] for side in sides]
    names = dict.fromkeys(name for side in found for one in side for name in one)
    both = {name: [_listed(one.get(name) for one in side) for side in found] for name in names}
    return [f"{name}: {one} in A, {other} in B" for name, (one, other) in both.items() if one != other]


def _listed(values: Iterable[Any], separator: str = ", ") -> str:
    """Each value once, in order."""
    return separator.join(dict.fromkeys("not reported" if value is None else str(value) for value in values))
