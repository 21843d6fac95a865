"""What differs between runs beside their figures: it makes them incomparable, or may be the cause of a change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roofline.analysis.quantities import Run
from roofline.core.device_kinds import KINDS
from roofline.core.formatting import capacity
from roofline.records.comparison import Condition
from roofline.records.device import DeviceRecord

HARDWARE = {  # of a device record's `hardware`, in words
    "multiprocessors": "multiprocessors",
    "mig_slice": "MIG slice",
    "mig_enabled": "MIG enabled",
    "power_limit_w": "power limit, W",
    "sm_clock_max_mhz": "highest clock, MHz",
    "memory_clock_max_mhz": "highest memory clock, MHz",
    "ecc_enabled": "ECC",
    "pcie_generation_max": "PCIe generation",
    "pcie_width_max": "PCIe lanes",
}
INCOMPARABLE = ("model", "multiprocessors", "MIG slice")
NO_MATTER = {"cost", "devices", "plot"}  # sections of the config from which no figure follows
NAMED = 4  # settings in a line
UNKNOWN = "not reported"


def of_devices(subject: str, a: Sequence[DeviceRecord], b: Sequence[DeviceRecord]) -> list[Condition]:
    """Of the cards of a subject. What is the same on both sides is left out."""
    sides = [[_told(record) for record in side] for side in (a, b)]
    names = dict.fromkeys(name for side in sides for told in side for name in told)
    found = [(name, *(_joined(told.get(name) for told in side) for side in sides)) for name in names]
    return [Condition(subject=subject, what=name, a=one, b=other) for name, one, other in found if one != other]


def of_runs(a: Sequence[Run], b: Sequence[Run]) -> list[Condition]:
    """Effort, settings, commit and failed checks."""
    effort, commit = ([_joined(getattr(run, what) for run in side) for side in (a, b)] for what in ("effort", "commit"))
    faults = [_joined(sorted({_fault(one) for run in side for one in run.roofline.faults}), "none") for side in (a, b)]
    told = [("effort", *effort), ("settings", *_settings(a, b)), ("commit", *commit), ("failed checks", *faults)]
    return [Condition(subject=None, what=what, a=one, b=other) for what, one, other in told if one != other]


def blocking(conditions: Iterable[Condition]) -> list[Condition]:
    """Those that make two devices no like pair."""
    return [one for one in conditions if one.what in INCOMPARABLE]


def _told(record: DeviceRecord) -> dict[str, Any]:
    hardware = {words: record.hardware.get(key) for key, words in HARDWARE.items() if key in record.hardware}
    software = {name: version for name, version in record.software.items() if version is not None}
    host = {"host CPU": record.host.get("cpu"), "host cores": record.host.get("cores_usable")}
    host |= {"operating system": record.host.get("os"), "Python": record.host.get("python")}
    memory = {"memory": capacity(record.memory_total_bytes)} if KINDS[record.device_kind].accelerator else {}
    return {"model": record.name, **hardware, **memory, **software, **host, "card": record.uuid}


def _fault(fault) -> str:
    return f"{fault.device}, {fault.check}: {fault.reason}"


def _settings(a: Sequence[Run], b: Sequence[Run]) -> tuple[str, str]:
    """The settings that differ between the sides, each side's values."""
    sides = [[dict(_flat(run.manifest.config)) for run in side] for side in (a, b)]
    keys = dict.fromkeys(key for side in sides for flat in side for key in flat)
    values = {key: tuple(_joined(flat.get(key) for flat in side) for side in sides) for key in keys if key != "effort"}
    differing = [(key, *both) for key, both in values.items() if both[0] != both[1]]
    more = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    told = [", ".join(f"{one[0]} {one[side]}" for one in differing[:NAMED]) + more for side in (1, 2)]
    return told[0], told[1]


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if above or key not in NO_MATTER:
            if isinstance(value, Mapping):
                yield from _flat(value, f"{above}{key}.")
            else:
                yield f"{above}{key}", value


def _joined(values: Iterable[Any], none: str = UNKNOWN) -> str:
    """Each value once, in order."""
    return ", ".join(dict.fromkeys(none if value is None else _word(value) for value in values)) or none


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        more = f" and {len(value) - NAMED} more" if len(value) > NAMED else ""
        return " ".join(map(_word, value[:NAMED])) + more if value else "none"
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
