"""The configuration, held against the devices of this machine: all errors at once, before anything is measured."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from roofline.core.dtypes import COMPUTE_CEILINGS
from roofline.core.levels import ALL_REDUCE, ARRAYS_NEEDED, PEER, TRANSFER_TARGETS
from roofline.core.terms import UserError, select_accelerators
from roofline.core.units import MIB
from roofline.devices.base import Identity
from roofline.devices.discovery import kind_from_name, level_name, memory_levels, unsupported_reason
from roofline.measure import ncu
from roofline.operators.operator_checks import check_operator
from roofline.plan.config import Config
from roofline.plan.own_predictions import read_own_predictions
from roofline.plan.settings import Checked
from roofline.plan.targets import RunPlan, measures_all

MIN_CACHES = 2  # an array of fewer last-level caches is partly read from them


def plan_run(checked: Checked, present: Mapping[str, Identity]) -> RunPlan:
    """Return what a configuration measures on a machine with these devices. Raises UserError if it cannot."""
    plan = RunPlan(checked, present, choose_devices(checked, present), find_profiler(checked.config))
    plan.own_predictions = read_own_predictions(plan)
    return plan


def choose_devices(checked: Checked, present: Mapping[str, Identity]) -> list[str]:
    """Return the names of the devices to measure. Raises UserError with all that this machine cannot measure."""
    config, setting = checked.config, checked.config.devices
    gpus = select_accelerators(present, lambda name: present[name].kind)
    host = [] if gpus and config.effort == "quick" else ["cpu"]
    devices = {"auto": [*gpus[:1], *host], "all": [*gpus, "cpu"]}[setting] if isinstance(setting, str) else setting
    machine = ", ".join(present)
    faults = [f"devices: {name} is not on this machine; here: {machine}" for name in devices if name not in present]
    identities = [present[name] for name in devices if name in present]
    for operation in config.operations:
        if operation.device and operation.device not in devices:
            measured = ", ".join(devices)
            faults.append(f"operations: {operation.name}: {operation.device} is not measured; known: {measured}")
    faults += [f"devices: {fault}" for fault in sorted({identity.fault for identity in identities if identity.fault})]
    measured_gpus = select_accelerators(devices, kind_from_name)
    compared_only = [name for name in devices if not measures_all(config, measured_gpus, name)]
    for operator in checked.operators.values():
        faults += check_operator(operator, config, identities, compared_only)
    faults += _check_ceilings(config, [identity for identity in identities if not identity.fault])
    for identity in identities:
        needs_level = not measured_gpus or identity.device not in compared_only
        faults += _check_bandwidth(config, identity, devices, needs_level=needs_level)
    if faults:
        raise UserError(faults)
    return list(devices)


def find_profiler(config: Config) -> Path | None:
    """Return the program of Nsight Compute; None without it, or if counters are off. Raises UserError if NCU names
    none, or if counters are required and there is none."""
    if config.counters == "off":
        return None
    program = ncu.find_ncu()
    if program is None and config.counters == "required":
        raise UserError(f"counters: required, and {ncu.NOT_FOUND_REASON}")
    return program


def _check_ceilings(config: Config, identities: Sequence[Identity]) -> list[str]:
    """Return a line for each device if not one of them has any of the compute ceilings."""
    asked, faults = config.peak_flops.dtypes or [], []
    for identity in identities:
        known = [name for name in COMPUTE_CEILINGS if not unsupported_reason(identity, name)]
        if set(asked).intersection(known):
            return []
        faults.append(f"peak_flops.dtypes: {identity.device} has none of {', '.join(asked)}; it has {', '.join(known)}")
    return faults


def _check_bandwidth(config: Config, identity: Identity, devices: Sequence[str], *, needs_level: bool) -> list[str]:
    """Return a line if the device has none of the levels and needs one, for arrays that a cache would keep, and for
    those that do not fit the device."""
    settings, size, free = config.bandwidth, config.bandwidth.size_mib, identity.memory_free_bytes
    levels = {level_name(name) for name in memory_levels(identity.device, devices)}.intersection(settings.levels)
    if not levels:
        if not needs_level:
            return []
        asked, known = ", ".join(settings.levels), ", ".join(memory_levels(identity.device))
        return [f"bandwidth.levels: {identity.device} has none of {asked}; it has {known}"]
    if ALL_REDUCE in levels and PEER not in levels:
        return [f"bandwidth.levels: {ALL_REDUCE} follows from the record of {PEER}, which is missing"]
    arrays = max((ARRAYS_NEEDED[level] for level in levels.intersection(ARRAYS_NEEDED)), default=0)
    min_mib = math.ceil(MIN_CACHES * identity.last_level_cache_bytes / MIB)
    needs = {f"bandwidth.size_mib: {size or 'null'}": arrays * (size or min_mib) * MIB}
    if levels.intersection(TRANSFER_TARGETS):
        needs[f"bandwidth.transfer_size_mib: {settings.transfer_size_mib}"] = settings.transfer_size_mib * MIB
    faults = [
        f"{setting} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for setting, needed in needs.items()
        if needed > free
    ]
    if arrays and size and size < min_mib:
        reason = f"{size} is too small for {identity.device}, whose last-level cache would keep much of it"
        faults.append(f"bandwidth.size_mib: {reason}; it should be {min_mib} or more, or null")
    return faults
