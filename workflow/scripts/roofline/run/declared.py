"""Whether the records of a run hold the cells that their jobs declare, each with its counts."""

from collections.abc import Iterator

from pydantic import BaseModel

from roofline.analysis.results import Results
from roofline.operators import registry
from roofline.operators.base import Case, Operator
from roofline.operators.gemm import products
from roofline.records.operator import Measurement, OperatorRecord
from roofline.run import settings

OUTPUTS = (None, "fp64", "fp32", "fp16", "bf16", "int32")


def contradictions(found: Results, config: dict) -> list[str]:
    """A line for each record of the library's operators that lacks a cell of its job, or counts another way.

    `config` is the run's. Operators of the user's own are left out: an archive is checked without running their code.
    """
    told = []
    try:
        checked = settings.complete(config | {"operators": []})
    except settings.Faults:  # of an earlier version
        return []
    for path, record in found.measured:
        told += [f"{path}: {line}" for one in record.measurements for line in _counts(one)]
        rule = path.split("/")[1]
        if isinstance(record, OperatorRecord) and rule in checked.operators:
            told += [f"{path}: {line}" for line in _cells(record, checked.operators[rule], checked.config)]
    return told


def _counts(one: Measurement) -> Iterator[str]:
    """FLOPs and bytes that are not those of the operator and shape."""
    operator = next((operator for operator in registry.builtin() if operator.name == one.operator), None)
    if operator is None:
        return
    case = Case(one.shape, one.dtype, one.preset)
    flops, moved = operator.flops(case, one.scope), {operator.bytes(case, one.scope)}
    if operator.name == "gemm":
        moved = {products.traffic_bytes(*(one.shape[key] for key in "mnk"), one.dtype, output) for output in OUTPUTS}
    if one.flops != flops:
        yield f"{one.implementation} counts {one.flops} FLOPs, and its shape gives {flops}"
    if one.bytes not in moved:
        yield f"{one.implementation} counts {one.bytes} bytes, and its shape gives {', '.join(map(str, sorted(moved)))}"


def _cells(record: OperatorRecord, operator: Operator, config: BaseModel) -> Iterator[str]:
    """Cases of the job that were not measured, where no note says why, and others that were."""
    job = next((job for job in operator.jobs(config) if job.path == record.case), None)
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
