"""Every prediction beside its measured counterpart: errors, regimes, and what explains the gap."""

from collections.abc import Callable, Iterable

from roofline import gap
from roofline.provenance import RESULTS, Results, describe_seal
from roofline.records import (
    Accuracy,
    Call,
    ComputeCeiling,
    DecodeAttnRecord,
    ErrorStatistics,
    Measurement,
    Operator,
    PeakFlopsRecord,
    Roofline,
    SealCheck,
    Verification,
    VerificationEntry,
    VerificationGroup,
)
from roofline.remedy import FUSED, remedies
from roofline.statistics import median

TOLD_APART_BY = ("implementation", "scope", "dtype", "shape")  # the cells of one record
REGIMES = ("compute", "memory", "overhead", "shared_memory")


def verify(roofline: Roofline, found: Results, sha256: dict[str, str]) -> Verification:
    """`found` holds the records behind the roofline, by paths that begin with results/; `sha256` is of their files."""
    entries = [
        _entry(operator, roofline.devices[operator.device].kind, _evidence(operator, roofline, found))
        for operator in roofline.operators
        if operator.predicted.sealed or operator.predicted.from_ceilings
    ]
    checks = [describe_seal(found, device, sha256) for device in found.seals]
    return Verification(
        seals=[SealCheck(**check.model_dump(include=set(SealCheck.model_fields))) for check in checks],
        summary=summarise(entries),
        calls=calls([record for _, record in found.of_kind(DecodeAttnRecord)]),
        entries=entries,
    )


def error(predicted: float | None, measured: float | None) -> float | None:
    """(predicted - measured) / measured; None where either is not known."""
    return (predicted - measured) / measured if predicted is not None and measured else None


# ---------------------------------------------------------------- entries


def _evidence(operator: Operator, roofline: Roofline, found: Results) -> gap.Evidence | None:
    """None where the record behind an operator, or its seal, is not among what was found."""
    measured = _measurement(operator, found)
    if measured is None or operator.device not in found.seals or not operator.latency_s:
        return None
    ceilings = {c.name: c for c in roofline.ceilings if c.device == operator.device}
    peaks = {
        record.dtype: record.peak
        for _, record in found.of_kind(PeakFlopsRecord)
        if record.device == operator.device and record.peak
    }
    return gap.Evidence(
        operator=operator,
        measured=measured,
        seal=found.seals[operator.device][1],
        compute=ceilings.get(operator.compute_ceiling),
        memory=ceilings.get(operator.memory_ceiling),
        peak=peaks.get(operator.compute_ceiling),
    )


def _measurement(operator: Operator, found: Results) -> Measurement | None:
    """The timed cell that an operator was made from."""
    for path, record in found.measured:
        if path.removeprefix(f"{RESULTS}/") != operator.record:
            continue
        for one in _cells(record):
            if all(getattr(one, key) == getattr(operator, key) for key in TOLD_APART_BY):
                return one
    return None


def _cells(record) -> list[Measurement]:
    if isinstance(record, PeakFlopsRecord):
        return [record.peak.lab] if record.peak and record.peak.lab else []
    return record.measurements if isinstance(record, DecodeAttnRecord) else []


def _entry(operator: Operator, kind: str, evidence: gap.Evidence | None) -> VerificationEntry:
    sealed, from_ceilings = operator.predicted.sealed, operator.predicted.from_ceilings
    explains = evidence is not None and sealed is not None and sealed.latency_s is not None
    parts = gap.parts(evidence) if explains else []
    cause = gap.cause_of(evidence, parts) if explains else "unexplained"
    compute: ComputeCeiling | None = evidence.compute if evidence else None
    return VerificationEntry(
        **{key: getattr(operator, key) for key in set(VerificationEntry.model_fields) & set(Operator.model_fields)},
        sealed=sealed,
        from_ceilings=from_ceilings,
        **_errors("sealed", sealed, operator),
        **_errors("from_ceilings", from_ceilings, operator),
        cause=cause,
        parts=parts,
        gap=gap.sentence(evidence, cause) if evidence else "nothing that was measured explains it",
        remedies=remedies(operator, kind, compute),
    )


def _errors(way: str, predicted, operator: Operator) -> dict:
    judged = predicted is not None and operator.regime is not None
    return {
        f"{way}_error": error(predicted and predicted.latency_s, operator.latency_s),
        f"{way}_device_error": error(predicted and predicted.device_latency_s, operator.device_latency_s),
        f"{way}_named_rightly": predicted.regime == operator.regime if judged else None,
    }


# ---------------------------------------------------------------- summary


def summarise(entries: list[VerificationEntry]) -> list[VerificationGroup]:
    """By device, implementation and regime found; then, of a device, all that is fused as one."""
    groups = []
    for device in dict.fromkeys(entry.device for entry in entries):
        mine = [entry for entry in entries if entry.device == device]
        for implementation in dict.fromkeys(entry.implementation for entry in mine):
            for regime in (*REGIMES, None):
                cells = [e for e in mine if e.implementation == implementation and e.regime == regime]
                groups += _group(device, [implementation], regime or "not_found", cells)
        groups += _group(device, list(FUSED), "all", [entry for entry in mine if entry.implementation in FUSED])
    return groups


# What a call takes at least: the field of the summary by the field of the cells.
OF_CALLS = {
    "smallest_s": "overhead_s",
    "smallest_device_s": "device_overhead_s",
    "empty_kernel_s": "empty_kernel_s",
    "empty_kernel_device_s": "empty_kernel_device_s",
}


def calls(records: list[DecodeAttnRecord]) -> list[Call]:
    """By device, implementation and scope, of which each record has measured one: all its cells hold the same."""
    found: dict[tuple[str, str, str], dict[int, Measurement]] = {}
    for number, record in enumerate(records):
        for one in record.measurements:
            if one.overhead_s:
                found.setdefault((record.device, one.implementation, one.scope), {})[number] = one
    return [
        Call(
            device=device,
            implementation=implementation,
            scope=scope,
            records=len(cells),
            **{name: _median(getattr(one, field) for one in cells.values()) for name, field in OF_CALLS.items()},
        )
        for (device, implementation, scope), cells in found.items()
    ]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _group(device: str, implementations: list[str], regime: str, cells: list) -> list[VerificationGroup]:
    if not cells:
        return []
    return [
        VerificationGroup(
            device=device,
            implementations=implementations,
            regime=regime,
            cells=len(cells),
            sealed=_accuracy(cells, "sealed"),
            from_ceilings=_accuracy(cells, "from_ceilings"),
        )
    ]


def _accuracy(cells: list[VerificationEntry], way: str) -> Accuracy:
    named = _known(cells, lambda entry: getattr(entry, f"{way}_named_rightly"))
    return Accuracy(
        regimes=len(named),
        named_rightly=sum(named),
        share_named_rightly=sum(named) / len(named) if named else None,
        latency=error_statistics(_known(cells, lambda entry: getattr(entry, f"{way}_error"))),
        device_latency=error_statistics(_known(cells, lambda entry: getattr(entry, f"{way}_device_error"))),
    )


def error_statistics(errors: Iterable[float]) -> ErrorStatistics | None:
    """Median and worst of absolute errors; None of none."""
    sizes = [abs(one) for one in errors]
    return ErrorStatistics(cells=len(sizes), median=median(sizes), worst=max(sizes)) if sizes else None


def _known(cells: list[VerificationEntry], value: Callable) -> list:
    return [one for one in map(value, cells) if one is not None]
