"""Checks of a run's results: operators under their roofs, predictions sealed before, counters that agree."""

from collections.abc import Iterable

from roofline.core.device_kinds import KINDS
from roofline.core.formatting import counted as count
from roofline.core.formatting import listed, percent, place_words
from roofline.table.checks.registry import Evidence, Outcome, check
from roofline.table.rows import CheckResult, Counted, Roofline

ENOUGH_EVIDENCE = 3
BUSY = 0.5  # of the cycles, tensor cores in a product that is to fill them
FILLED = "gemm"  # the operator whose reference product fills tensor cores

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
            found = sorted({place for o in mine if o.cpu_time_s and (place := o.along(info.axis)) is not None})
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
    lost = [known.table.full_name(o) for o in declared if o.compute_ceiling is None or o.memory_ceiling is None]
    reason = f"{compute} compute and {memory} memory ceilings, {len(operators)} operators"
    if len(declared) < len(operators):
        reason += f"; of these {len(operators) - len(declared)} warm ones have no roof"
    if lost:
        more = f" and {len(lost) - ENOUGH_EVIDENCE} more" if len(lost) > ENOUGH_EVIDENCE else ""
        reason += f"; a ceiling is missing for {', '.join(lost[:ENOUGH_EVIDENCE])}{more}"
    return Outcome("fail" if lost else "pass", reason, len(lost), 0)


@check(BELOW, looks_at="table", of_cpus=True)
def below_roofs(known: Evidence) -> Outcome | None:
    mine = [o for o in known.table.operators if o.device == known.device]
    above = {known.table.full_name(o): o.above_roof for o in mine if o.above_roof}
    if above:
        return Outcome(
            "fail", _first([f"{name} {percent(share)}" for name, share in above.items()]), max(above.values()), 1
        )
    shares = [o.fraction_of_roof for o in mine if o.share is not None]
    reason = f"{len(shares)} cells checked against their roofs"
    return Outcome("pass" if shares else "not_applicable", reason, max(shares, default=None), 1)


def _first(evidence: list[str]) -> str:
    more = [f"and {len(evidence) - ENOUGH_EVIDENCE} more"] if len(evidence) > ENOUGH_EVIDENCE else []
    return "; ".join(evidence[:ENOUGH_EVIDENCE] + more)


@check(VERIFIED, looks_at="table", of_cpus=True)
def verified(known: Evidence) -> Outcome | None:
    """Of each cell a time and a regime were found, and what was predicted of them is what was sealed before."""
    entries = [entry for entry in known.table.entries if entry.device == known.device]
    seal = known.table.devices[known.device]
    lacking = {
        "no sealed prediction": sum(entry.sealed is None for entry in entries),
        "no measured time": sum(not entry.cpu_time_s for entry in entries),
        "no regime, since a ceiling was not measured": sum(not (entry.regime or entry.no_roof) for entry in entries),
    }
    faults = list(seal.violations)
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
    refused = [one.reason for one in known.table.not_counted if one.device == known.device]
    why = _first(list(dict.fromkeys(refused)))
    if not entries:
        return Outcome("not_applicable", why or "no cell was profiled")
    wrong = [known.table.full_name(entry) for entry in entries if False in _judged(entry)]
    judged = sum(bool(_judged(entry)) for entry in entries)
    parts = [f"differ: {_first(wrong)}"] if wrong else []
    parts += [f"{judged} of {len(entries)} profiled cells judged"]
    parts += [f"{count(len(refused), 'record')} not counted: {why}"] if refused else []
    return Outcome("fail" if wrong else "pass" if judged else "not_applicable", "; ".join(parts), len(wrong), 0)


def _judged(entry: Counted) -> list[bool]:
    """Traffic of cold cells that memory limits, FLOPs of kernels with a FLOP formula, and tensor cores in products."""
    found = [entry.reads_agree, entry.writes_agree] if entry.limited_by_memory else []
    found += [entry.flops_agree] if entry.kernel_flops is not None else []
    busy = entry.tensor_pipe_active_fraction
    found += [busy > BUSY] if (entry.operator, entry.regime) == (FILLED, "compute") and busy is not None else []
    return [one for one in found if one is not None]


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
