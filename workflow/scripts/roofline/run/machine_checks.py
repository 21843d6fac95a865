"""The configuration, held against the devices of this machine: all errors at once, before anything is measured."""

import math
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from roofline.core.terms import UnsupportedError, UserError, select_accelerators
from roofline.core.units import MIB
from roofline.devices.base import Identity
from roofline.devices.discovery import level_name, memory_levels
from roofline.devices.levels import ARRAYS_NEEDED, TRANSFER_LEVELS
from roofline.measure import hardware_counters, ncu
from roofline.operators.base import Case, Operator
from roofline.run.settings import Checked

LEAST_CACHES = 2  # an array of fewer last-level caches is partly read from them


def choose_devices(checked: Checked, present: Mapping) -> list[str]:
    """Names of the devices to measure. Raises UserError with all that this machine cannot do of the configuration."""
    config, wanted = checked.config, checked.config.devices
    gpus = select_accelerators(present, lambda name: present[name].kind)
    host = [] if gpus and config.effort == "quick" else ["cpu"]
    chosen = {"auto": [*gpus[:1], *host], "all": [*gpus, "cpu"]}[wanted] if isinstance(wanted, str) else wanted
    faults = [
        f"devices: {name} is not on this machine; here: {', '.join(present)}" for name in chosen if name not in present
    ]
    here = [present[name] for name in chosen if name in present]
    faults += [
        f"operations: {one.name}: {one.device} is not measured; known: {', '.join(chosen)}"
        for one in config.operations
        if one.device and one.device not in chosen
    ]
    faults += [f"devices: {fault}" for fault in sorted({identity.fault for identity in here if identity.fault})]
    for operator in checked.operators.values():
        faults += operator_faults(operator, config, here)
    for identity in here:
        faults += _level_faults(config, identity, chosen) + _stream_faults(config, identity, chosen)
    if faults:
        raise UserError(faults)
    return list(chosen)


def profiler(config: BaseModel) -> Path | None:
    """Nsight Compute's program, if counters are wanted. Raises UserError if NCU names none, or if it is required."""
    if config.counters == "off":
        return None
    found = ncu.find_ncu()
    if found is None and config.counters == "required":
        raise UserError(f"counters: required, and {ncu.NOT_FOUND_REASON}")
    return found


def require_counters(program: Path, chosen: Iterable[str]) -> None:
    """Raises UserError with the devices whose counters may not be read."""
    faults = []
    for device in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                hardware_counters.count_cells(program, device, [], Path(folder, "kernels.ncu-rep"))
            except UnsupportedError as error:
                faults.append(f"counters: required, and refused on {device}: {error}")
    if faults:
        raise UserError(faults)


def _level_faults(config: BaseModel, identity, chosen) -> list[str]:
    if _levels_of(config, identity, chosen):
        return []
    wanted, levels = config.bandwidth.levels, memory_levels(identity.device)
    return [f"bandwidth.levels: {identity.device} has none of {', '.join(wanted)}; it has {', '.join(levels)}"]


def _levels_of(config: BaseModel, identity, chosen) -> set[str]:
    return {level_name(name) for name in memory_levels(identity.device, chosen)} & set(config.bandwidth.levels)


def _stream_faults(config: BaseModel, identity, chosen) -> list[str]:
    """Arrays that a cache would keep, or that do not fit the device."""
    levels, settings, free = _levels_of(config, identity, chosen), config.bandwidth, identity.memory_free_bytes
    size, cache = settings.size_mib, identity.last_level_cache_bytes
    arrays = max((ARRAYS_NEEDED[level] for level in levels.intersection(ARRAYS_NEEDED)), default=0)
    least_mib = math.ceil(LEAST_CACHES * cache / MIB)
    needs = {f"bandwidth.size_mib: {size or 'null'}": arrays * (size or least_mib) * MIB}
    if levels.intersection(TRANSFER_LEVELS):
        needs[f"bandwidth.transfer_size_mib: {settings.transfer_size_mib}"] = settings.transfer_size_mib * MIB
    faults = [
        f"{what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"
        for what, needed in needs.items()
        if needed > free
    ]
    if arrays and size and size < least_mib:
        faults.append(
            f"bandwidth.size_mib: {size} is too small for {identity.device}, whose last-level cache would keep much of "
            f"it; it should be {least_mib} or more, or null"
        )
    return faults


# ---------------------------------------------------------------- operators


def operator_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    """Its own, implementations that no device has, jobs that cannot be, cases that do not fit; one line each. The later
    ones are looked for if the earlier are right. An exception in the user's code is one too."""
    try:
        faults = operator.faults(config, here)
        if operator.measured_with_ceilings or faults:
            return faults
        faults = _implementation_faults(operator, config, here) or _job_faults(operator, config)
        return faults or [line for identity in here for line in _memory_faults(operator, config, identity)]
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [one.lineno for one in frames if operator.path and Path(one.filename).name == Path(operator.path).name]
        if not lines:
            raise
        return [f"operators: {operator.path}, line {lines[-1]}: {type(error).__name__}: {error}"]


def _job_faults(operator: Operator, config: BaseModel) -> list[str]:
    """Declarations by which no job can be measured."""
    jobs = list(operator.jobs(config))
    paths = [job.path for job in jobs]
    faults = [f"jobs: two have the path {path!r}" for path in paths if paths.count(path) > 1]
    faults += [fault for job in jobs for case in job.cases for fault in _case_faults(operator, case)]
    return [f"operators: {operator.path or operator.name}: {fault}" for fault in dict.fromkeys(faults)]


def _case_faults(operator: Operator, case: Case) -> Iterator[str]:
    if case.dtype not in operator.tolerance:
        yield f"no tolerance for dtype {case.dtype!r}; there is one for {', '.join(operator.tolerance)}"
    for scope in dict.fromkeys(scope for one in operator.implementations for scope in one.scopes):
        for what in (operator.flops, operator.bytes):
            if type(count := what(case, scope)) is not int or count < 0:
                yield f"{what.__name__}: {count!r} should be a whole number, 0 or more"


def _implementation_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    """Implementations that no device here has, and devices that none of those named is left for."""
    wanted, key = getattr(config, operator.rule).implementations, f"{operator.rule}.implementations"
    on = {identity.device: [one.name for one in operator.implementations_on(identity.kind)] for identity in here}
    theirs = list(dict.fromkeys(name for names in on.values() for name in names))
    if here and not theirs:  # of the library's own it is not an error
        return [f"operators: {operator.name} has no implementation for {', '.join(on)}"] if operator.path else []
    faults = [
        f"{key}: {device} has none of {', '.join(wanted)}; it has {', '.join(names)}"
        for device, names in on.items()
        if wanted and names and not set(names) & set(wanted)
    ]
    unknown = [name for name in wanted or () if here and name not in theirs]
    return faults or [f"{key}: {name} is not on {', '.join(on)}; known: {', '.join(theirs)}" for name in unknown]


def _memory_faults(operator: Operator, config: BaseModel, identity: Identity) -> list[str]:
    """The largest case, if it does not fit the device. Warm inputs do not rotate."""
    cold = getattr(config, operator.rule).cache == "cold"
    cache, free = identity.last_level_cache_bytes if cold else 0, identity.memory_free_bytes
    needs = [(operator.memory_needed(case, cache), case) for job in operator.jobs(config) for case in job.cases]
    needed, case = max(needs, key=lambda need: need[0], default=(0, None))
    if needed <= free:
        return []
    return [f"{operator.rule}: {case} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"]
