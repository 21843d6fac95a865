"""Which devices of two lists of runs belong together, and what else differs between the lists."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from roofline.api import DeviceRecord, Quantity, Run, UserError, group_by, is_comparable, join_words

HARDWARE = ["multiprocessors", "mig_slice", "power_limit_w", "sm_clock_max_mhz", "memory_clock_max_mhz", "ecc_enabled"]
BLOCKING = ("multiprocessors", "mig_slice")  # devices that differ in one of them are as good as other models
SHOWN_ELSEWHERE = ("cost", "devices", "plot", "effort")  # keys of the config that change no figure, or have a line


class DeviceOfRun(NamedTuple):
    """A device in one run."""

    record: DeviceRecord
    card: str  # the same for one card in several runs
    figures: dict[str, Quantity]  # by their keys


Devices = list[DeviceOfRun]
DeviceGroup = tuple[Devices, Devices]  # of A and of B


class ComparedPair(NamedTuple):
    """One card on both sides, or cards of A and other cards of B."""

    name: str
    a: list[DeviceOfRun]
    b: list[DeviceOfRun]

    @property
    def same_card(self) -> bool:
        return self.a[0].card == self.b[0].card

    @property
    def other_models(self) -> bool:
        return self.a[0].record.name != self.b[0].record.name


def pair_devices(a: Sequence[Run], b: Sequence[Run], force: bool = False) -> tuple[list[ComparedPair], list[str]]:
    """Return the pairs, and a line per device or set of ceilings that is left out.

    A card is compared with itself if both lists have it, else with others of its model. `force` compares other models
    of one kind too. Raises UserError if nothing can be compared, or only by force.
    """
    methods = {record.method for run in (*a, *b) for record in run.devices.values() if record.device_kind == "gpu"}
    a_devices, b_devices = ([_device(run, key, methods) for run in side for key in run.devices] for side in (a, b))
    traits = ["card", "record.name", "record.device_kind"] if force else ["card", "record.name"]
    groups, a_rest, b_rest = _group_devices(a_devices, b_devices, traits)
    left_out = [f"{device.record.name} ({device.record.device}): only in A" for device in a_rest]
    left_out += [f"{device.record.name} ({device.record.device}): only in B" for device in b_rest]
    pairs, needs_force = [], bool(a_rest and b_rest)
    for a_group, b_group in sorted(groups, key=lambda group: a_devices.index(group[0][0])):
        name = _listed([device.record.name for device in (*a_group, *b_group)], " and ")
        blocking = [line for line in device_differences(a_group, b_group) if line.startswith(BLOCKING)]
        if blocking and not force:
            left_out.append(f"{name}: {blocking[0]}")
            needs_force = True
        else:
            pairs.append(ComparedPair(name, a_group, b_group))
    hint = "; FORCE=1 compares other models of card" if needs_force and not force else ""
    if hint or not pairs:
        raise UserError(f"cannot be compared: {'; '.join(left_out)}{hint}")
    return _with_unique_names(pairs), [*dict.fromkeys(left_out), *_other_methods(a, b, methods)]


def _other_methods(a: Iterable[Run], b: Iterable[Run], methods: Collection[int]) -> list[str]:
    """Return a line that names the ceilings of GPUs that both sides have, but not by a like method; [] without any."""
    a_names, b_names = ([name for run in side for name in _list_unlike(run, methods)] for side in (a, b))
    names = [name for name in dict.fromkeys(a_names) if name in b_names]
    return [f"{join_words(names)}: other measuring method"] if names else []


def _list_unlike(run: Run, methods: Collection[int]) -> list[str]:
    """Return the names of the ceilings of a run's GPUs that these measuring methods do not give alike."""
    unlike = [figure for figure in run.quantities if not is_comparable(figure.key, methods)]
    ceilings = [figure for figure in unlike if not figure.kind.endswith("_time")]
    return [figure.name for figure in ceilings if run.devices[figure.device].device_kind == "gpu"]


def _group_devices(a: Devices, b: Devices, traits: Iterable[str]) -> tuple[list[DeviceGroup], Devices, Devices]:
    """Return the devices of A and B that belong together, and those of A and of B that belong to none.

    First those that have the first trait in common, then of the others those that have the second, and so on.
    """
    groups = []
    for trait in map(attrgetter, traits):
        a_groups, b_groups = group_by(a, trait), group_by(b, trait)
        common = [value for value in a_groups if value in b_groups]
        groups += [(a_groups[value], b_groups[value]) for value in common]
        a, b = ([device for device in side if trait(device) not in common] for side in (a, b))
    return groups, a, b


def _with_unique_names(pairs: list[ComparedPair]) -> list[ComparedPair]:
    """Return the pairs, those with the same name named after their card too."""
    names = [pair.name for pair in pairs]
    repeated = {name for name in names if names.count(name) > 1}
    return [pair._replace(name=f"{pair.name}, {pair.a[0].card}") if pair.name in repeated else pair for pair in pairs]


def _device(run: Run, key: str, methods: Collection[int]) -> DeviceOfRun:
    """Return a device of a run, with the figures of a GPU alone that these measuring methods give alike.

    A CPU has no UUID, so hosts are distinguished by their GPUs.
    """
    record = run.devices[key]
    gpus = sorted(device.uuid for device in run.devices.values() if device.device_kind == "gpu")
    uuid = record.uuid if record.uuid != "unknown" else f"unknown, of {run.source}"
    card = uuid if record.device_kind == "gpu" else " next to ".join([uuid, *gpus])
    own = methods if record.device_kind == "gpu" else ()
    return DeviceOfRun(record, card, {name: it for name, it in run.of_device(key).items() if is_comparable(name, own)})


# ---------------------------------------------------------------- other differences


def device_differences(a_devices: Iterable[DeviceOfRun], b_devices: Iterable[DeviceOfRun]) -> list[str]:
    """Return a line for each fact of hardware and software that differs."""
    return _differing_facts(list(map(_device_facts, a_devices)), list(map(_device_facts, b_devices)))


def run_differences(a_runs: Sequence[Run], b_runs: Sequence[Run]) -> list[str]:
    """Return a line for each of effort, commit, method and failed checks that differs.

    A last line names the sections of the settings that differ.
    """
    configs = [run.manifest.config for run in (*a_runs, *b_runs)]
    keys = dict.fromkeys(key for config in configs for key in config if key not in SHOWN_ELSEWHERE)
    differing = [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]
    lines = _differing_facts([_run_facts(run) for run in a_runs], [_run_facts(run) for run in b_runs])
    return [*lines, f"settings: {', '.join(differing)}"] if differing else lines


def _device_facts(device: DeviceOfRun) -> dict[str, Any]:
    return {key: device.record.hardware.get(key) for key in HARDWARE} | device.record.software


def _run_facts(run: Run) -> dict[str, Any]:
    faults = _listed(f"{check.device} {check.check}" for check in run.roofline.doubting_failures) or "none"
    method = _listed(device.method for device in run.devices.values())
    return {"effort": run.effort, "commit": run.commit and run.commit[:8], "method": method, "failed checks": faults}


def _differing_facts(a_facts: Sequence[Mapping[str, Any]], b_facts: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for name in dict.fromkeys(name for facts in (*a_facts, *b_facts) for name in facts):
        a_values, b_values = (_listed(facts.get(name) for facts in side) for side in (a_facts, b_facts))
        if a_values != b_values:
            lines.append(f"{name}: {a_values} in A, {b_values} in B")
    return lines


def _listed(values: Iterable[Any], separator: str = ", ") -> str:
    """Return each value once, in order."""
    return separator.join(dict.fromkeys("not reported" if value is None else str(value) for value in values))
