"""The records that a configuration asks for. A cell is one of them: its path below results/, without .json."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from roofline import devices
from roofline.core.device_kinds import accelerators
from roofline.devices.base import Identity
from roofline.operators.base import Operator
from roofline.run.paths import RESULTS
from roofline.run.settings import Checked, Faults, choose_devices, devices_with

NEAREST = 3
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
    """All that is measured but calibrations. Raises Faults, as choosing devices does."""
    chosen = choose_devices(checked, present)
    ceilings = peaks(checked, present, chosen) + bandwidths(checked, chosen) + instructions(checked, chosen)
    return ceilings + operators(checked, chosen)


def find(text: str, known: Sequence[str]) -> str:
    """The cell that a text names, by its path with or without results/ and .json. Raises Faults."""
    cell = text.strip().removeprefix(f"{RESULTS}/").removesuffix(".json")
    if cell not in known:
        near = difflib.get_close_matches(cell, known, NEAREST)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise Faults([f"CELL: {text!r} is unknown{hint} (`make plan ARGS=--forceall` lists every record)"])
    return cell
