"""Whether an operator can be measured on the devices of a machine: what a user's own file may get wrong."""

import traceback
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from roofline.core.dtypes import COMMON_DTYPE
from roofline.devices.base import Identity
from roofline.operators.base import Case, CompletedConfig, Operator
from roofline.operators.drawing import DRAWN


def check_operator(
    operator: Operator, config: CompletedConfig, identities: list[Identity], compared_only: Collection[str] = ()
) -> list[str]:
    """Return a line for each fault of an operator on these devices: those that it finds itself, implementations that no
    device has, jobs that cannot be measured, cases that do not fit. Each kind is looked for if the earlier ones are
    absent. An exception in the user's code is a fault too. Devices that are `compared_only` measure fp32 alone."""
    try:
        if operator.measured_with_ceilings:
            return _check_ceilings(operator, config, identities, compared_only)
        if faults := operator.faults(config, identities):
            return faults
        cases = [case for job in operator.jobs(config) for case in job.cases]
        compared = [case for case in cases if case.dtype == COMMON_DTYPE] if operator.compared else []
        cases_on = {one.device: compared if one.device in compared_only else cases for one in identities}
        measured_on = [identity for identity in identities if cases_on[identity.device]]
        faults = _check_implementations(operator, config, measured_on) or _check_scopes(operator, config, measured_on)
        faults = faults or _check_jobs(operator, config)
        return faults or [
            line for one in measured_on for line in _check_memory(operator, config, one, cases_on[one.device])
        ]
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        file_name = Path(operator.path).name if operator.path else None
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == file_name]
        if not lines:
            raise
        return [f"operators: {operator.path}, line {lines[-1]}: {type(error).__name__}: {error}"]


def _check_ceilings(
    operator: Operator, config: CompletedConfig, identities: Iterable[Identity], compared_only: Collection[str]
) -> list[str]:
    """Return a line for each fault of an operator measured with the ceilings, in their dtypes on each device."""
    dtypes, faults = config.peak_flops.dtypes, []
    for identity in identities:
        on_it = [dtype for dtype in dtypes if dtype == COMMON_DTYPE or identity.device not in compared_only]
        peak_flops = config.peak_flops.model_copy(update={"dtypes": on_it})
        faults += operator.faults(config.model_copy(update={"peak_flops": peak_flops}), [identity])
    return faults


def _check_jobs(operator: Operator, config: CompletedConfig) -> list[str]:
    """Return a line for each declaration that makes a job impossible to measure."""
    jobs = list(operator.jobs(config))
    paths = [job.path for job in jobs]
    faults = [f"jobs: two have the path {path!r}" for path in paths if paths.count(path) > 1]
    faults += [f"jobs: the path {DRAWN!r} is taken" for path in paths if path == DRAWN]
    faults += [fault for job in jobs for case in job.cases for fault in _check_case(operator, case)]
    return [f"operators: {operator.path or operator.name}: {fault}" for fault in dict.fromkeys(faults)]


def _check_case(operator: Operator, case: Case) -> Iterator[str]:
    yield from operator.case_faults(case)
    for scope in dict.fromkeys(scope for implementation in operator.implementations for scope in implementation.scopes):
        for count_of, least in ((operator.flops, 0), (operator.bytes, 1)):  # inputs repeat by their bytes
            if type(count := count_of(case, scope)) is not int or count < least:
                yield f"{count_of.__name__}: {count!r} should be a whole number, {least} or more"


def _check_implementations(operator: Operator, config: CompletedConfig, identities: list[Identity]) -> list[str]:
    """Return a line for each device that has none of the configured implementations; without such a device, a line for
    each implementation that no device has."""
    setting, key = getattr(config, operator.rule).implementations, f"{operator.rule}.implementations"
    names_by_device = {
        identity.device: [implementation.name for implementation in operator.implementations_on(identity.kind)]
        for identity in identities
    }
    devices = ", ".join(names_by_device)
    available = list(dict.fromkeys(name for names in names_by_device.values() for name in names))
    if identities and not available:  # no error for an operator of the library
        return [f"operators: {operator.name} has no implementation for {devices}"] if operator.path else []
    faults = [
        f"{key}: {device} has none of {', '.join(setting)}; it has {', '.join(names)}"
        for device, names in names_by_device.items()
        if setting and names and not set(names) & set(setting)
    ]
    unknown = [name for name in setting or () if identities and name not in available]
    return faults or [f"{key}: {name} is not on {devices}; known: {', '.join(available)}" for name in unknown]


def _check_scopes(operator: Operator, config: CompletedConfig, identities: list[Identity]) -> list[str]:
    """Return a line for each device on which no configured implementation is timed in a configured scope."""
    settings = getattr(config, operator.rule)
    scopes = getattr(settings, "scopes", None)  # of operators that have several
    faults = []
    for identity in identities:
        variants = operator.implementations_on(identity.kind, settings.implementations)
        offered = list(dict.fromkeys(scope for variant in variants for scope in variant.scopes if scope))
        if scopes and offered and not set(scopes) & set(offered):
            names = ", ".join(variant.name for variant in variants)
            faults.append(f"{operator.rule}.scopes: {names} on {identity.device}: only {', '.join(offered)} is timed")
    return faults


def _check_memory(operator: Operator, config: CompletedConfig, identity: Identity, cases: Iterable[Case]) -> list[str]:
    """Return a line for the largest case if it does not fit a device that computes it. Warm inputs do not rotate."""
    settings = getattr(config, operator.rule)
    if not operator.implementations_on(identity.kind, settings.implementations):
        return []
    cold = settings.cache == "cold"
    cache, free = identity.last_level_cache_bytes if cold else 0, identity.memory_free_bytes
    needs = [(operator.memory_needed(case, cache), case) for case in cases]
    needed, case = max(needs, key=lambda need: need[0], default=(0, None))
    if needed <= free:
        return []
    return [f"{operator.rule}: {case} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"]
