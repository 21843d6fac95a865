"""Every prediction beside its measured counterpart: errors, regimes, and what explains the gap."""

from collections.abc import Iterable, Mapping

from roofline.analysis import prediction_error
from roofline.analysis.collect import Cell, Collected
from roofline.analysis.counted import counted_cells, not_counted
from roofline.analysis.results import Results
from roofline.analysis.score import score, time_right
from roofline.analysis.seals import violations
from roofline.analysis.table import (
    Call,
    Operator,
    Roofline,
    SealCheck,
)
from roofline.records.compute import PeakFlopsRecord
from roofline.records.operator import Measurement
from roofline.records.prediction import CellPrediction


def verify(collected: Collected, found: Results, sha256: Mapping[str, str]) -> Roofline:
    """The table with each cell's error and its cause, seals, and what the hardware counted.

    `found` holds the records that were collected; `sha256` is of their files, by their paths below results/.
    """
    table = collected.roofline
    for cell in collected.cells:
        _judge(cell, _evidence(cell, collected, found))
    table.seals = [_seal_check(found, device, sha256) for device in found.devices]
    table.score = score(table.entries)
    table.calls = calls(collected.cells)
    table.counted = counted_cells(found, table.entries)
    table.not_counted = not_counted(found)
    return table.described(found.abouts)


def _seal_check(found: Results, device: str, sha256: Mapping[str, str]) -> SealCheck:
    starts = [record.started_at for _, record in found.measured if record.device == device]
    return SealCheck(
        device=device,
        seals={path: seal.sealed_at for path, seal in found.seals.items() if seal.device == device},
        first_measurement_at=min(starts, default=None),
        violations=violations(found, device, sha256),
    )


def error(predicted: float | None, measured: float | None) -> float | None:
    """(predicted - measured) / measured; None where either is not known."""
    return (predicted - measured) / measured if predicted is not None and measured else None


# ---------------------------------------------------------------- entries


def _evidence(cell: Cell, collected: Collected, found: Results) -> prediction_error.Evidence | None:
    """None where the cell's seals are not among what was found."""
    operator, seal = cell.operator, found.device_seal(cell.operator.device)
    constants = found.constants(operator.device, operator.operator)
    if seal is None or constants is None or not operator.latency_s:
        return None
    ceilings = {c.name: c for c in collected.roofline.ceilings if c.device == operator.device}
    peaks = {
        record.dtype: record.peak
        for _, record in found.of_kind(PeakFlopsRecord)
        if record.device == operator.device and record.peak
    }
    return prediction_error.Evidence(
        operator=operator,
        measured=cell.measured,
        seal=seal,
        constants=constants,
        compute=ceilings.get(operator.compute_ceiling),
        memory=ceilings.get(operator.memory_ceiling),
        peak=peaks.get(operator.compute_ceiling),
    )


def _judge(cell: Cell, evidence: prediction_error.Evidence | None) -> None:
    """Fill in what the predictions of a cell missed, and why."""
    row = cell.operator
    sealed = row.sealed
    row.sealed_error = _of_time(sealed, row)
    row.sealed_device_error = _of_device_time(sealed, row)
    row.sealed_regime_correct = _regime_correct(sealed, row)
    row.sealed_time_right = time_right(sealed and sealed.latency_s, row.latency_s)
    explains = evidence is not None and sealed is not None and sealed.latency_s is not None
    row.parts = prediction_error.parts(evidence) if explains else []
    row.cause = prediction_error.cause_of(evidence, row.parts) if explains else "unexplained"
    row.explanation = prediction_error.sentence(evidence, row.cause) if evidence else prediction_error.UNEXPLAINED


def _of_time(predicted: CellPrediction | None, row: Operator) -> float | None:
    return error(predicted and predicted.latency_s, row.latency_s)


def _of_device_time(predicted: CellPrediction | None, row: Operator) -> float | None:
    return error(predicted and predicted.device_latency_s, row.device_latency_s)


def _regime_correct(predicted: CellPrediction | None, row: Operator) -> bool | None:
    return predicted.regime == row.regime if predicted is not None and row.regime is not None else None


# What a call costs: the field of the table by the field of the measurements.
OF_CALLS = {
    "smallest_s": "overhead_s",
    "smallest_device_s": "device_overhead_s",
    "empty_kernel_s": "empty_kernel_s",
    "empty_kernel_device_s": "empty_kernel_device_s",
}


def calls(cells: list[Cell]) -> list[Call]:
    """By device, operator, implementation and scope, of which each record has measured one: all its cells hold it."""
    found: dict[tuple, dict[int, Measurement]] = {}
    for cell in cells:
        one = cell.measured
        if one.overhead_s:
            key = (cell.record.device, one.operator, one.implementation, one.scope)
            found.setdefault(key, {})[id(cell.record)] = one
    return [
        Call(
            device=device,
            operator=operator,
            implementation=implementation,
            scope=scope,
            records=len(ones),
            **{name: _least(getattr(one, field) for one in ones.values()) for name, field in OF_CALLS.items()},
        )
        for (device, operator, implementation, scope), ones in found.items()
    ]


def _least(values: Iterable[float | None]) -> float | None:
    """Noise of the host only adds to it."""
    return min((value for value in values if value is not None), default=None)
