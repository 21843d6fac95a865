"""Checks of a run's results: operators under their roofs, predictions sealed before, counters that agree."""

from collections.abc import Iterable

from roofline.analysis import above_roof, counted
from roofline.analysis.checks.registry import Evidence, Outcome, check
from roofline.analysis.table import Roofline
from roofline.core.formatting import listed, percent, place_words
from roofline.core.terms import KINDS
from roofline.records.check import CheckResult

ENOUGH_EVIDENCE = 3

PLACED = "every operator under measured ceilings in the plot"
BELOW = "no operator above its roof"
VERIFIED = "every prediction has its measured counterpart, sealed before it"
COUNTED = "the hardware's counters confirm the declared bytes and FLOPs"
QUESTIONS = "the three questions answered"


@check("the operators at enough values of their axes", looks_at="table", of_cpus=True)
def axes(known: Evidence) -> Iterable[Outcome]:
    """Each operator at as many values of its axis as it asks for."""
    for info in known.table.operator_info.values():
        if info.axis:
            mine = [o for o in known.table.operators if (o.device, o.operator) == (known.device, info.name)]
            found = sorted({place for o in mine if o.latency_s and (place := o.along(info.axis)) is not None})
            wanted = info.axis.at_least or 1
            places = ", ".join(place_words(info.axis, place) for place in found)
            reason = f"{info.axis.symbol} = {places}" if found else f"not measured on {known.device}"
            result = "pass" if len(found) >= wanted else "fail" if mine else "not_applicable"
            values = f" at {wanted} or more values of {info.axis.symbol}" if wanted > 1 else ""
            yield Outcome(result, reason, len(found), wanted, name=f"{info.title} measured{values}")


@check(PLACED, looks_at="table", of_cpus=True)
def placed(known: Evidence) -> Outcome | None:
    """Both kinds of ceiling were measured, and every operator has the roof that was declared for it: then the picture
    shows all of them."""
    ceilings = [c.kind for c in known.table.ceilings if c.device == known.device]
    compute, memory = ceilings.count("compute"), ceilings.count("memory")
    if not compute or not memory:
        return Outcome("fail", f"{compute} compute and {memory} memory ceilings were measured")
    operators = [o for o in known.table.operators if o.device == known.device]
    declared = [o for o in operators if not o.no_roof]
    lost = [o.full_name for o in declared if o.compute_ceiling is None or o.memory_ceiling is None]
    reason = f"{compute} compute and {memory} memory ceilings, {len(operators)} operators"
    if len(declared) < len(operators):
        reason += f"; of these {len(operators) - len(declared)} warm ones have no roof"
    if lost:
        more = f" and {len(lost) - ENOUGH_EVIDENCE} more" if len(lost) > ENOUGH_EVIDENCE else ""
        reason += f"; a ceiling is missing for {', '.join(lost[:ENOUGH_EVIDENCE])}{more}"
    return Outcome("fail" if lost else "pass", reason, len(lost), 0)


@check(BELOW, looks_at="table", of_cpus=True)
def below_roofs(known: Evidence) -> Outcome | None:
    above = [entry for entry in known.table.above_roof if entry.device == known.device]
    if above:
        reason = _first([f"{entry.operator}: {entry.evidence}" for entry in above])
        return Outcome("fail", reason, max(entry.fraction_of_roof for entry in above), 1)
    shown = known.table.shown().operators
    cells = [o for o in shown if o.device == known.device and o.fraction_of_roof is not None]
    shares = [o.fraction_of_roof for o in cells]
    reason = f"{len(shares)} cells checked against their roofs; "
    reason += f"tolerance {percent(above_roof.WITHOUT_INTERVAL - 1)} where there is no interval"
    over = [o for o in cells if o.fraction_of_roof > 1 + above_roof.ROUNDING]
    unsure = [f"{o.full_name} {100 * o.fraction_of_roof:.1f} %" for o in over]
    reason += f"; above by the median, but not beyond what its samples leave open: {_first(unsure)}" if unsure else ""
    return Outcome("pass" if shares else "not_applicable", reason, max(shares, default=None), 1)


def _first(evidence: list[str]) -> str:
    more = [f"and {len(evidence) - ENOUGH_EVIDENCE} more"] if len(evidence) > ENOUGH_EVIDENCE else []
    return "; ".join(evidence[:ENOUGH_EVIDENCE] + more)


@check(VERIFIED, looks_at="table", of_cpus=True)
def verified(known: Evidence) -> Outcome | None:
    """Of each cell a time and a regime were found, and what was predicted of them is what was sealed before."""
    if not known.table.seals:
        return None
    entries = [entry for entry in known.table.entries if entry.device == known.device]
    seal = next((seal for seal in known.table.seals if seal.device == known.device), None)
    lacking = {
        "no sealed prediction": sum(entry.sealed is None for entry in entries),
        "no measured time": sum(not entry.latency_s for entry in entries),
        "no regime, since a ceiling was not measured": sum(not (entry.regime or entry.no_roof) for entry in entries),
    }
    faults = list(seal.violations) if seal else ["no seal was found"]
    faults += [f"{number} of {len(entries)} cells have {which}" for which, number in lacking.items() if number]
    if not entries:
        return Outcome("not_applicable", "nothing was predicted")
    if faults:
        return Outcome("fail", _first(faults))
    return Outcome("pass", f"{len(entries)} cells; every record began after its seals were written")


@check(COUNTED, looks_at="table", of_cpus=True)
def counters(known: Evidence) -> Outcome | None:
    """Of every cold memory-bound cell what was read from memory and written to it, of every kernel of ours the FLOPs,
    and tensor cores that are busy in the products that are to fill them. What was not counted contradicts nothing."""
    if not known.profiled:
        return None
    if not KINDS[known.record.device_kind].accelerator:
        return Outcome("not_applicable", "Nsight Compute counts on GPUs")
    entries = [entry for entry in known.table.counted if entry.device == known.device]
    if not entries:
        refused = [one.reason for one in known.table.not_counted if one.device == known.device]
        return Outcome("not_applicable", refused[0] if refused else "no cell was profiled")
    wrong = [f"{entry.full_name}: {part}" for entry in entries for part in counted.contradictions(entry)]
    parts = [_first(wrong)] if wrong else []
    parts += [counted.summary(entries)]
    judged = any(map(counted.is_judged, entries))
    return Outcome("fail" if wrong else "pass" if judged else "not_applicable", "; ".join(parts), len(wrong), 0)


def questions(table: Roofline) -> CheckResult:
    """What the answers of interpretation.md rest on: ceilings, operators under them, and a GPU beside the CPU."""
    lacking = [] if table.ceilings else ["no ceiling was measured"]
    if not any(operator.fraction_of_roof for operator in table.operators):
        lacking.append("no operator was placed under a roof")
    if lacking:
        result, reason = "fail", listed(lacking)
    elif len({device.kind for device in table.devices.values()}) < 2:
        result, reason = "not_applicable", f"the third needs a GPU and the CPU; measured: {', '.join(table.devices)}"
    else:
        result, reason = "pass", "ceilings, operators under them, and a GPU beside the CPU"
    return CheckResult(device=None, check=QUESTIONS, result=result, reason=reason)
