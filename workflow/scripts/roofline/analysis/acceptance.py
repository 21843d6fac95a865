"""The stop conditions as a checklist, for each device: pass, fail, or not_applicable with the reason."""

from collections.abc import Iterable, Mapping

from roofline.analysis import above_roof, counted, distribution, health, host_cards, peer_paths
from roofline.analysis.results import Results
from roofline.analysis.table import (
    About,
    Acceptance,
    ComputeCeiling,
    Criterion,
    InstructionRoofline,
    MemoryCeiling,
    Operator,
    Roofline,
)
from roofline.core.formatting import counted as count
from roofline.core.formatting import listed, number, percent, place_words
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.core.terms import MIXES
from roofline.devices.datasheets import DTYPES
from roofline.records.device import DeviceRecord

AWAY = 0.30
ENOUGH_DTYPES = 3
ISSUED, OF_WALL = 0.97, 0.05
ENOUGH_EVIDENCE = 3
HBM_MIXES = tuple(f"hbm_{mix}" for mix in MIXES)


def accept(
    roofline: Roofline,
    found: Results,
    verification: Roofline,
    expected: list[str],
    missing: list[str],
    standings: Mapping[str, distribution.Standing] | None = None,
) -> Acceptance:
    """Judge one run. `expected` are the paths that the manifest is going to list, and of these some are missing;
    `standings` are the devices' among others of their models, where those are known."""
    criteria, devices = [], found.device_records()
    beside = host_cards.criteria(host_cards.groups(found, roofline))
    for name, record in devices.items():
        compute = [c for c in roofline.ceilings if c.device == name and isinstance(c, ComputeCeiling)]
        memory = [c for c in roofline.ceilings if c.device == name and isinstance(c, MemoryCeiling)]
        operators = [operator for operator in roofline.operators if operator.device == name]
        criteria += [
            _dtypes(name, record, compute),
            *(_swept(name, info, operators) for info in roofline.operator_info.values() if info.axis),
            _placed(name, compute, memory, operators),
            _below_roofs(name, roofline, operators),
            _verified(name, verification),
            *health.criteria(record, found.measured_on(name)),
            *(distribution.criterion(name, record.name, one) for one in [(standings or {}).get(name)] if one),
            *(one for one in beside if one.device == name),
            *peer_paths.criterion(name, roofline),
            *([_counted(record, found, verification)] if found.profilers else []),  # else they were not wanted
        ]
        if record.device_kind == "gpu":
            criteria.append(_envelope(name, memory))
            criteria += [one for own in roofline.instructions if own.device == name for one in _instructions(own)]
    return Acceptance(criteria=[*criteria, _questions(roofline, devices, missing), _listed(expected, missing)])


def _dtypes(device: str, record: DeviceRecord, ceilings: list[ComputeCeiling]) -> Criterion:
    what = f"{ENOUGH_DTYPES} or more dtypes, the burst of each within {percent(AWAY)} of the vendor's peak"
    if record.device_kind == "cpu":
        reason = "a CPU has no vendor's peak, only a formula, and NumPy computes in fp32 and fp64 alone"
        return Criterion(device=device, criterion=what, result="not_applicable", reason=reason)
    known = [ceiling for ceiling in ceilings if ceiling.fraction_of_vendor and not few(ceiling.samples)]
    judged = [ceiling for ceiling in known if ceiling.method == "gemm"]
    shares, apart = _shares(judged), _shares([ceiling for ceiling in known if ceiling.method == "fma"])
    far = [ceiling.name for ceiling in judged if not 1 - AWAY <= _burst(ceiling) / ceiling.vendor_tflops <= 1 + AWAY]
    if len(judged) < ENOUGH_DTYPES:
        supported = sum(name in record.vendor.peaks for name in DTYPES)
        result = "not_applicable" if supported < ENOUGH_DTYPES else "fail"
        reason = f"{len(judged)} dtypes were measured against a vendor's peak ({shares or 'none'})"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    reason = f"{shares}" + (f"; further away: {', '.join(far)}" if far else "")
    if record.vendor.match == "formula":
        reason += "; the peaks are by formula"
    if apart:
        reason += f"; register-only kernels: {apart}"
    return Criterion(device=device, criterion=what, result="fail" if far else "pass", reason=reason)


def _shares(ceilings: list[ComputeCeiling]) -> str:
    """Of burst and, where it was measured, sustained load."""
    return ", ".join(
        f"{c.name} {percent(_burst(c) / c.vendor_tflops)}"
        + (f" (sustained {percent(c.sustained_tflops / c.vendor_tflops)})" if c.sustained_tflops else "")
        for c in ceilings
    )


def _burst(ceiling: ComputeCeiling) -> float:
    return ceiling.burst_tflops or ceiling.tflops


def _swept(device: str, info: About, operators: Iterable[Operator]) -> Criterion:
    """An operator at as many values of its axis as it asks for."""
    mine = [o for o in operators if o.operator == info.name and o.latency_s]
    found = sorted({place for o in mine if (place := o.along(info.axis)) is not None})
    wanted = info.axis.at_least or 1
    result = "pass" if len(found) >= wanted else "fail" if mine else "not_applicable"
    return Criterion(
        device=device,
        criterion=f"{info.title} at {wanted} or more {info.axis.symbol}",
        result=result,
        reason=f"{info.axis.symbol} = {', '.join(place_words(info.axis, place) for place in found)}"
        if found
        else f"not measured on {device}",
    )


def _placed(device: str, compute: list, memory: list, operators: list[Operator]) -> Criterion:
    """Both kinds of ceiling were measured, and every operator has the roof that was declared for it: then the picture
    shows all of them."""
    what = "every operator under measured ceilings in the plot"
    if not compute or not memory:
        reason = f"{len(compute)} compute and {len(memory)} memory ceilings were measured"
        return Criterion(device=device, criterion=what, result="fail", reason=reason)
    declared = [o for o in operators if not o.no_roof]
    lost = [o.full_name for o in declared if o.compute_ceiling is None or o.memory_ceiling is None]
    reason = f"{len(compute)} compute and {len(memory)} memory ceilings, {len(operators)} operators"
    if len(declared) < len(operators):
        reason += f"; of these {len(operators) - len(declared)} warm ones have no roof"
    if lost:
        more = f" and {len(lost) - ENOUGH_EVIDENCE} more" if len(lost) > ENOUGH_EVIDENCE else ""
        reason += f"; a ceiling is missing for {', '.join(lost[:ENOUGH_EVIDENCE])}{more}"
    return Criterion(device=device, criterion=what, result="fail" if lost else "pass", reason=reason)


def _below_roofs(device: str, roofline: Roofline, operators: list[Operator]) -> Criterion:
    what = "no operator above its roof"
    above = [entry for entry in roofline.above_roof if entry.device == device]
    if not above:
        judged = sum(operator.fraction_of_roof is not None for operator in operators)
        reason = f"{judged} cells checked against their roofs; "
        reason += f"tolerance {percent(above_roof.WITHOUT_INTERVAL - 1)} where there is no interval"
        result = "pass" if judged else "not_applicable"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    reason = _first([f"{entry.operator}: {entry.evidence}" for entry in above])
    return Criterion(device=device, criterion=what, result="fail", reason=reason)


def _first(evidence: list[str]) -> str:
    more = [f"and {len(evidence) - ENOUGH_EVIDENCE} more"] if len(evidence) > ENOUGH_EVIDENCE else []
    return "; ".join(evidence[:ENOUGH_EVIDENCE] + more)


def _envelope(device: str, memory: list[MemoryCeiling]) -> Criterion:
    what = "the HBM envelope is complete"
    measured = {ceiling.name: ceiling.gb_per_s for ceiling in memory if ceiling.name in HBM_MIXES}
    missing = [name for name in HBM_MIXES if name not in measured]
    if not measured:
        result, reason = "not_applicable", "none of its mixes was requested"
    elif missing:
        result, reason = "fail", f"missing: {', '.join(missing)}"
    else:
        highest = max(measured, key=measured.get)
        result, reason = "pass", f"{', '.join(measured)}; the highest: {highest}, {number(measured[highest])} GB/s"
    return Criterion(device=device, criterion=what, result=result, reason=reason)


def _instructions(own: InstructionRoofline) -> Iterable[Criterion]:
    """The issue rate against the clock that was counted, and the walls against what ncu counted."""
    share = own.fraction_of_peak
    judged = share is not None and not few(own.samples)
    result = "not_applicable" if not judged else "pass" if share >= ISSUED else "fail"
    reason = "the clock was not counted" if share is None else f"{percent(share)} of 4 per multiprocessor and cycle"
    if few(own.samples):
        reason += f", of {count(own.samples, 'sample')}: fewer than {FEWEST_SAMPLES}"
    what = f"warp instructions are issued at {percent(ISSUED)} or more of what the schedulers can"
    yield Criterion(device=own.device, criterion=what, result=result, reason=reason)
    # Of a predicated loop the counter and the branch run on all lanes: what is counted there is shown, not judged.
    walls = [wall for wall in own.walls if wall.pattern != "predication"]
    counted = [wall for wall in walls if wall.counted is not None]
    far = [wall for wall in counted if abs(wall.counted / (wall.transactions_per_request or wall.of) - 1) > OF_WALL]
    reason = f"{len(counted)} of {len(walls)} were counted"
    if far:
        reason += f"; further away: {', '.join(f'{wall.pattern} {wall.of}' for wall in far)}"
    yield Criterion(
        device=own.device,
        criterion=f"strided and conflicting kernels within {percent(OF_WALL)} of their walls",
        result="fail" if far else "pass" if counted else "not_applicable",
        reason=reason if counted else own.not_counted or "nothing was counted",
    )


def _verified(device: str, verification: Roofline) -> Criterion:
    """Of each cell a time and a regime were found, and what was predicted of them is what was sealed before."""
    what = "every prediction has its measured counterpart, sealed before it"
    entries = [entry for entry in verification.entries if entry.device == device]
    faults = [line for seal in verification.seals if seal.device == device for line in seal.violations]
    lacking = {
        "no sealed prediction": sum(entry.sealed is None for entry in entries),
        "no measured time": sum(not entry.latency_s for entry in entries),
        "no regime, since a ceiling was not measured": sum(not (entry.regime or entry.no_roof) for entry in entries),
    }
    faults += [f"{count} of {len(entries)} cells have {which}" for which, count in lacking.items() if count]
    check = next((seal for seal in verification.seals if seal.device == device), None)
    if not entries:
        result, reason = "not_applicable", "nothing was predicted"
    elif check is None or faults:
        result, reason = "fail", _first(faults) or "no seal was found"
    else:
        result, reason = "pass", f"{len(entries)} cells; every record began after its seals were written"
    return Criterion(device=device, criterion=what, result=result, reason=reason)


def _counted(record: DeviceRecord, found: Results, verification: Roofline) -> Criterion:
    """Of every cold memory-bound cell what was read from memory and written to it, of every kernel of ours the FLOPs,
    and tensor cores that are busy in the products that are to fill them. What was not counted contradicts nothing."""
    name = record.device
    entries = [entry for entry in verification.counted if entry.device == name]
    refused = [one for one in verification.not_counted if one.device == name]
    wrong = []
    for entry in entries:
        cell = " ".join(filter(None, (entry.operator, entry.implementation, entry.dtype, entry.label)))
        wrong += [f"{cell}: {part}" for part in counted.contradictions(entry)]
    reasons = list(dict.fromkeys(one.reason for one in refused))
    if record.device_kind == "cpu":
        reason = "Nsight Compute counts on GPUs"
    elif not entries:
        reason = _first(reasons) or "no cell was profiled"
    else:
        told = [f"{count(len(refused), 'record')} not counted: {_first(reasons)}"] if refused else []
        reason = "; ".join([*([_first(wrong)] if wrong else []), counted.summary(entries), *told])
    judged = any(map(counted.is_judged, entries))
    return Criterion(
        device=name,
        criterion="the hardware's counters confirm the declared bytes and FLOPs",
        result="fail" if wrong else "pass" if judged else "not_applicable",
        reason=reason,
    )


def _questions(roofline: Roofline, devices: dict[str, DeviceRecord], missing: list[str]) -> Criterion:
    """What the answers of interpretation.md rest on: ceilings, operators under them, and a GPU beside the CPU."""
    what = "the three questions answered"
    lacking = []
    if not roofline.ceilings:
        lacking.append("no ceiling was measured")
    if not any(operator.fraction_of_roof for operator in roofline.operators):
        lacking.append("no operator was placed under a roof")
    if any(path.endswith("interpretation.md") for path in missing):
        lacking.append("interpretation.md is missing")
    if lacking:
        return Criterion(device=None, criterion=what, result="fail", reason=listed(lacking))
    if len({record.device_kind for record in devices.values()}) < 2:
        reason = f"the third needs a GPU and the CPU; measured: {', '.join(devices)}"
        return Criterion(device=None, criterion=what, result="not_applicable", reason=reason)
    reason = "ceilings, operators under them, and a GPU beside the CPU"
    return Criterion(device=None, criterion=what, result="pass", reason=reason)


def _listed(expected: list[str], missing: list[str]) -> Criterion:
    return Criterion(
        device=None,
        criterion="every file that the manifest lists exists",
        result="fail" if missing else "pass",
        reason=f"missing: {', '.join(missing)}" if missing else f"{len(expected)} files",
    )
