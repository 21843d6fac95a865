"""What is wrong with an operator's settings and declarations, found before anything is measured."""

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from roofline.core.terms import ComputeUnit, Mix
from roofline.devices.base import Identity
from roofline.operators import registry
from roofline.operators.base import Case, Operator


def operator_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    """Its own, implementations that no device has, libraries that are missing, jobs that cannot be, cases that do not
    fit; one line each. The later ones are looked for if the earlier are right."""
    faults = operator.faults(config, here)
    if operator.measured_with_ceilings or faults:
        return faults
    faults = _implementation_faults(operator, config, here)
    if any(identity.kind == "gpu" for identity in here):
        faults += [
            f"operators: {operator.name} needs {library}, which is not installed; do without it, or install it"
            for library in registry.missing_cuda_libraries(operator)
        ]
    faults = faults or _job_faults(operator, config)
    return faults or [line for identity in here for line in _memory_faults(operator, config, identity)]


def _job_faults(operator: Operator, config: BaseModel) -> list[str]:
    """Declarations by which no job can be measured."""
    jobs = list(operator.jobs(config))
    paths = [job.path for job in jobs]
    faults = [f"jobs: {path!r} is the path of two" for path in paths if paths.count(path) > 1]
    faults += [fault for job in jobs for case in job.cases for fault in _case_faults(operator, case)]
    return [f"operators: {operator.path or operator.name}: {fault}" for fault in dict.fromkeys(faults)]


def _case_faults(operator: Operator, case: Case) -> Iterator[str]:
    if case.dtype not in operator.tolerance:
        yield f"no tolerance for dtype {case.dtype!r}; there is one for {', '.join(operator.tolerance)}"
    for scope in dict.fromkeys(scope for one in operator.implementations for scope in one.scopes):
        for what in (operator.flops, operator.bytes):
            if type(count := what(case, scope)) is not int or count < 0:
                yield f"{what.__name__}: {count!r} should be a whole number, 0 or more"
        for what, found, known in (
            ("mix", operator.mix_of(case, scope), get_args(Mix)),
            ("unit", operator.unit_of(case, scope), get_args(ComputeUnit)),
        ):
            if found not in known:
                yield f"{what}: {found!r} should be one of {', '.join(known)}"


def _implementation_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    """Implementations that no device here has, and devices that none of those named is left for."""
    wanted, key = getattr(config, operator.rule).implementations, f"{operator.rule}.implementations"
    on = {identity.device: [one.name for one in operator.implementations_on(identity.kind)] for identity in here}
    theirs = list(dict.fromkeys(name for names in on.values() for name in names))
    if here and not theirs:  # of the library's own it is no fault: roofline.json lists it as skipped
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
