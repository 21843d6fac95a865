"""The records that a configuration asks for. A cell is one of them: its path below results/, without .json."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence

from roofline import devices
from roofline.core.device_kinds import accelerators
from roofline.devices import datasheets
from roofline.devices.base import Identity
from roofline.operators.base import Operator
from roofline.run.settings import Checked, choose_devices, devices_with

NEAREST = 3
EXAMPLES = 4  # that a message names


class Unknown(Exception):
    """Why a text names no cell, in one line."""


COMPARED = ("fp32", "fp32_fma", "dram")  # of a CPU: what comparing it with a GPU needs


def wanted(checked: Checked, device: str, chosen: Iterable[str], what: str) -> bool:
    """Whether a dtype or a level is measured: on a CPU beside a GPU, or by effort quick, only what both are compared
    by."""
    config = checked.config
    alone = not accelerators(chosen, devices.kind_of)
    return (
        config.cpu == "all"
        or (alone and config.effort != "quick")
        or bool(accelerators([device], devices.kind_of))
        or what in COMPARED
    )


def jobs(checked: Checked, operator: Operator, device: str, chosen: Iterable[str]) -> list[str]:
    """The cases of an operator's jobs on a device, each once."""
    found = operator.jobs(checked.config)
    return list(dict.fromkeys(j.path for j in found if any(wanted(checked, device, chosen, c.dtype) for c in j.cases)))


def devices_of(checked: Checked, operator: Operator, chosen: Sequence[str]) -> list[str]:
    """Those that an operator is measured on."""
    return [
        device for device in devices_with(operator, checked.config, chosen) if jobs(checked, operator, device, chosen)
    ]


def peaks(checked: Checked, present: Mapping[str, Identity], chosen: Sequence[str]) -> list[str]:
    """The compute ceilings that the chosen devices have; the others are told by their device records."""
    return [
        f"{device}/peak_flops/{dtype}"
        for device in chosen
        for dtype in checked.config.peak_flops.dtypes
        if wanted(checked, device, chosen, dtype) and not devices.unsupported(present[device], dtype)
    ]


def bandwidths(checked: Checked, chosen: Sequence[str]) -> list[str]:
    return [
        f"{device}/bandwidth/{level}"
        for device in chosen
        for level in devices.memory_levels(device, chosen)
        if devices.level_of(level) in checked.config.bandwidth.levels and wanted(checked, device, chosen, level)
    ]


def operators(checked: Checked, chosen: Sequence[str]) -> list[str]:
    """Of the operators with rules of their own, on the devices that have an implementation."""
    return [
        f"{device}/{rule}/{case}"
        for rule, operator in checked.operators.items()
        if not operator.measured_with_ceilings
        for device in devices_with(operator, checked.config, chosen)
        for case in jobs(checked, operator, device, chosen)
    ]


def instructions(checked: Checked, chosen: Iterable[str]) -> list[str]:
    """Of the instruction roofline, which is a GPU's."""
    gpus = [device for device in chosen if devices.kind_of(device) == "gpu" and checked.config.effort != "quick"]
    return [f"{device}/instructions/rates" for device in gpus]


def every(checked: Checked, present: Mapping[str, Identity]) -> list[str]:
    """All that is measured, calibrations included. Raises Faults, as choosing devices does."""
    chosen = choose_devices(checked, present)
    ceilings = peaks(checked, present, chosen) + bandwidths(checked, chosen) + instructions(checked, chosen)
    return [f"{device}/calibration" for device in chosen] + ceilings + operators(checked, chosen)


def find(text: str, known: Sequence[str], missing: Callable[[str], str | None]) -> tuple[str, str | None]:
    """The cell that a text names, and the one ceiling of it: cpu/bandwidth/dram_read is of cpu/bandwidth/dram.

    Folders before it and .json after it do not matter. `missing` says why there is no such cell, where that is known.
    Raises Unknown.
    """
    parts = [part for part in text.strip().removesuffix(".json").split("/") if part not in ("", ".")]
    if not parts:
        raise Unknown(f"CELL names the record to measure: {_examples(known)}. Any other name is answered with all.")
    for start in range(len(parts)):
        named = "/".join(parts[start:])
        if named in known:
            return named, None
        of = next((cell for cell in known if "/bandwidth/" in cell and named.startswith(f"{cell}_")), None)
        if of:
            return of, named.rpartition("/")[2]
    first = next((place for place, part in enumerate(parts) if devices.kind_of(part) in devices.KINDS), 0)
    named = "/".join(parts[first:])
    near = difflib.get_close_matches(named, known, NEAREST)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise Unknown(f"CELL: {text!r} {missing(named) or 'is unknown'}; {hint}allowed: {listed(known)}")


def missing(checked: Checked, present: Mapping[str, Identity], named: str) -> str | None:
    """Why a machine has no such cell, whatever the settings ask for; None where nothing is wrong with that."""
    device, _, rest = named.partition("/")
    if devices.kind_of(device) in devices.KINDS and device not in present:
        return f"is on {device}, which is not on this machine (here: {', '.join(present)})"
    rule, _, ceiling = rest.partition("/")
    if device in present and rule == "peak_flops" and ceiling in datasheets.CEILINGS:
        reason = devices.unsupported(present[device], ceiling)
        return f"cannot be measured ({reason})" if reason else None
    return None


def _examples(known: Iterable[str]) -> str:
    """The last cell of each rule."""
    of_rules = {cell.split("/", 2)[1]: cell for cell in known}
    return ", ".join(f"CELL={cell}" for cell in list(of_rules.values())[:EXAMPLES])


def listed(known: Iterable[str]) -> str:
    """Every cell in few words: cpu/peak_flops/{fp64,fp32} cpu/bandwidth/{dram,sweep}."""
    folders: dict[str, list[str]] = {}
    for cell in known:
        folder, _, name = cell.rpartition("/")
        folders.setdefault(folder, []).append(name)
    shown = {folder: names[0] if len(names) == 1 else f"{{{','.join(names)}}}" for folder, names in folders.items()}
    return " ".join(f"{folder}/{names}" for folder, names in shown.items())
