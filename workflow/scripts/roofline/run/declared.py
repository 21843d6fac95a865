"""Whether the records of a run hold the cells that their jobs declare, each with its counts."""

from collections.abc import Iterator, Mapping, Sequence

from roofline.analysis.results import Results
from roofline.core.dtypes import ITEM_BYTES
from roofline.models.config_file import BadModel
from roofline.operators import registry
from roofline.operators.base import Case, Job, Operator
from roofline.operators.gemm import products
from roofline.records.counters import CountersRecord
from roofline.records.operator import Cell, Measurement, OperatorRecord
from roofline.run import settings

PRODUCTS = {"cupy.matmul", "numpy.matmul", "cuBLASLt", "nvmath", "tensor_matmul"}
OUTPUTS = (None, "fp64", "fp32", "fp16", "bf16", "int32")


def contradictions(found: Results, config: dict, models: Sequence[Mapping]) -> list[str]:
    """A line for each record of the library's operators that lacks a cell of its job, or counts another way.

    `config` is the run's, and `models` are as it found them: their files may lie elsewhere, or be others by now.
    Operators of the user's own are left out: an archive is checked without running their code; and so are reports of
    their programs.
    """
    told = []
    try:
        checked = settings.complete(config | {"operators": [], "profiles": [], "models": []})
    except settings.Faults:  # of an earlier version
        return []
    asked = checked.config.model_copy(update={"models": models})
    try:
        jobs = {operator.rule: operator.jobs(asked) for operator in checked.operators.values()}
    except (BadModel, LookupError, TypeError) as error:
        return [f"the models of the settings are none: {error}"]
    cases = {
        (checked.operators[rule].name, *_key(case)): case
        for rule, of_rule in jobs.items()
        for job in of_rule
        for case in job.cases
    }
    for path, record in [*found.measured, *found.counters]:
        kind = found.kind_of(record.device) if record.device in found.devices else ""
        counted = isinstance(record, CountersRecord)
        rule = path.split("/")[2 if counted else 1]
        own = next((operator.name for operator in registry.builtin() if operator.rule == rule), None)
        for one in record.cells if counted else record.measurements:
            if own and one.operator != own:
                told.append(f"{path}: {one.operator} is another operator than {own}")
            elif kind and _builtin(one.operator):
                wrong = _unknown(one, kind)
                told += [
                    f"{path}: {line}" for line in ([wrong] if wrong else () if counted else _counts(one, kind, cases))
                ]
        if isinstance(record, OperatorRecord) and rule in checked.operators:
            told += [f"{path}: {line}" for line in _cells(record, jobs[rule])]
    return told


def _unknown(one: Cell, kind: str) -> str | None:
    """Of a cell of the library's: which of its names nothing has."""
    operator = _builtin(one.operator)
    if operator.name == "gemm":
        names, scopes = PRODUCTS, {None}
    else:
        ways = operator.implementations_on(kind)
        names, scopes = {way.name for way in ways}, {scope for way in ways for scope in way.scopes}
    if one.implementation not in names:
        return f"{one.implementation} is no implementation of {one.operator} on {kind}"
    if one.scope not in scopes:
        return f"{one.scope} is no scope of {one.operator}"
    return None if one.dtype in ITEM_BYTES else f"{one.dtype} is no dtype"


def _builtin(name: str) -> Operator | None:
    return next((operator for operator in registry.builtin() if operator.name == name), None)


def _counts(one: Measurement, kind: str, cases: Mapping[tuple, Case]) -> Iterator[str]:
    """Counts and tolerance that are not those of the operator, implementation and shape; a case of the settings may
    say more than its shape does: which model it is of."""
    operator = _builtin(one.operator)
    ways = [way for way in operator.implementations_on(kind) if way.name == one.implementation]
    allowed = [of.tolerance.get(one.dtype) for of in (operator, *ways) if getattr(of, "tolerance", None)]
    if one.check.tolerance not in allowed:
        yield f"{one.implementation}: tolerance is {one.check.tolerance:g}; allowed: {', '.join(map(str, allowed))}"
    case = cases.get((one.operator, *_key(one)), Case(one.shape, one.dtype, one.preset))
    try:
        flops, moved = operator.flops(case, one.scope), {operator.bytes(case, one.scope)}
        if operator.name == "gemm":
            sizes = [one.shape[key] for key in "mnk"]
            moved = {products.traffic_bytes(*sizes, one.dtype, output) for output in OUTPUTS}
    except KeyError as error:
        yield f"{one.implementation} is of no shape or dtype of {one.operator}: {error}"
        return
    if one.flops != flops:
        yield f"{one.implementation} counts {one.flops} FLOPs, and its shape gives {flops}"
    if one.bytes not in moved:
        yield f"{one.implementation} counts {one.bytes} bytes, and its shape gives {', '.join(map(str, sorted(moved)))}"


def _cells(record: OperatorRecord, jobs: Sequence[Job]) -> Iterator[str]:
    """Cases of the job that were not measured, where no note says why, and others that were."""
    job = next((job for job in jobs if job.path == record.case), None)
    if job is None:
        yield f"the settings have no job {record.case}"
        return
    wanted = {_key(case) for case in job.cases}
    measured: dict[tuple, set] = {}
    for one in record.measurements:
        measured.setdefault(_key(one), set()).add((one.implementation, one.scope))
    if measured.keys() - wanted:
        yield "it holds a cell that its job does not have"
    if not record.notes and (measured.keys() != wanted or len(set(map(frozenset, measured.values()))) > 1):
        yield "it lacks a cell of its job"


def _key(one: Case | Measurement) -> tuple:
    return one.preset, one.dtype, *sorted(one.shape.items())
