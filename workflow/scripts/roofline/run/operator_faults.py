"""What is wrong with an operator's settings and declarations, found before anything is measured."""

import inspect
import re
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from roofline.core.dtypes import ITEM_BYTES
from roofline.core.terms import MIXES, ComputeUnit
from roofline.devices.base import Identity
from roofline.operators import registry
from roofline.operators.base import Case, Operator

JOB_PATH = re.compile(r"[\w.=+-]+(/[\w.=+-]+)*")
SEAL = "prediction"  # {device}/{rule}/prediction.json


def operator_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    """Its own, implementations that no device has, libraries that are missing, jobs that cannot be, cases that do not
    fit; one line each. The later ones are looked for where the earlier are right."""
    try:
        return _declared_faults(operator, config, here)
    except Exception as error:
        shown = registry.traceback_of(error, inspect.getfile(type(operator)))
        return [f"operators: {operator.path or operator.name}: its declarations failed\n{shown}"]


def _declared_faults(operator: Operator, config: BaseModel, here: list[Identity]) -> list[str]:
    faults = operator.faults(config, here)
    if operator.measured_with_ceilings or faults:
        return faults
    faults = _implementation_faults(operator, config, here)
    if any(identity.kind == "gpu" for identity in here):
        faults += [
            f"operators: {operator.name} needs {library}, which is not installed: its code must do without, or install "
            "the library beside CuPy"
            for library in registry.missing_cuda_libraries(operator)
        ]
    faults = faults or _job_faults(operator, config)
    return faults or [line for identity in here for line in _memory_faults(operator, config, identity)]


def _job_faults(operator: Operator, config: BaseModel) -> list[str]:
    """What an operator declares that no job could be measured by."""
    where = f"operators: {operator.path or operator.name}"
    jobs = list(operator.jobs(config))
    paths = [job.path for job in jobs]
    faults = [f"jobs: {path!r} is the path of two" for path in dict.fromkeys(paths) if paths.count(path) > 1]
    faults += [
        f"jobs: {path!r} is no path; allowed: a relative one within the operator's folder, and not 'prediction'"
        for path in paths
        if not JOB_PATH.fullmatch(path) or ".." in path.split("/") or path == SEAL
    ]
    faults += [f"jobs: {job.path!r} has no cases" for job in jobs if not job.cases]
    for case in (case for job in jobs for case in job.cases):
        faults += _case_faults(operator, case)
    return [f"{where}: {fault}" for fault in dict.fromkeys(faults)]


def _case_faults(operator: Operator, case: Case) -> Iterator[str]:
    scopes = dict.fromkeys(scope for one in operator.implementations for scope in one.scopes)
    if case.dtype not in ITEM_BYTES or case.dtype not in operator.tolerance:
        yield f"no tolerance for dtype {case.dtype!r}; there is one for {', '.join(operator.tolerance)}"
    for scope in scopes:
        for what in (operator.flops, operator.bytes):
            count = what(case, scope)
            if type(count) is not int or count < 0:
                yield f"{what.__name__}: {count!r}; allowed: a whole number from 0"
        if (mix := operator.mix_of(case, scope)) not in MIXES:
            yield f"mix: {mix!r}; allowed: {', '.join(MIXES)}"
        if (unit := operator.unit_of(case, scope)) not in get_args(ComputeUnit):
            yield f"unit: {unit!r}; allowed: {', '.join(get_args(ComputeUnit))}"


def _implementation_faults(operator: Operator, config: BaseModel, here: list) -> list[str]:
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
    if here and not faults:
        faults = [
            f"{key}: no {name} on {', '.join(on)}; allowed: {', '.join(theirs)}, or null for all of them"
            for name in wanted or ()
            if name not in theirs
        ]
    return faults


def _memory_faults(operator: Operator, config: BaseModel, identity) -> list[str]:
    """The largest case, where it does not fit the device. Warm inputs do not rotate."""
    cold = getattr(config, operator.rule).cache == "cold"
    cache, free = identity.last_level_cache_bytes if cold else 0, identity.memory_free_bytes
    needs = [(operator.memory_needed(case, cache), case) for job in operator.jobs(config) for case in job.cases]
    needed, case = max(needs, key=lambda need: need[0], default=(0, None))
    if needed <= free:
        return []
    what = str(case)
    return [f"{operator.rule}: {what} needs {needed:,} bytes on {identity.device}, and {free:,} are free there"]
