"""The lab's stop conditions as a checklist, for each device: pass, fail, or not_applicable with the reason."""

import re
from pathlib import Path
from xml.etree import ElementTree

from roofline import guard
from roofline.datasheets import DTYPES
from roofline.records import (
    Acceptance,
    ComputeCeiling,
    Criterion,
    DeviceRecord,
    MemoryCeiling,
    Operator,
    Roofline,
    Verification,
)
from roofline.reporting import number, percent

AWAY = 0.30
ENOUGH_DTYPES = 3
ENOUGH_SEQ_LENS = 4
ENOUGH_EVIDENCE = 3
HBM_MIXES = ("hbm_read", "hbm_write", "hbm_copy", "hbm_triad")
SVG = "{http://www.w3.org/2000/svg}"


def accept(
    roofline: Roofline,
    devices: dict[str, DeviceRecord],
    svg: str,
    interpretation: str,
    verification: Verification,
    expected: list[str],
) -> Acceptance:
    """Judge one run. `svg` is the plot's text, `expected` the paths that the manifest is going to list."""
    criteria = []
    for name, record in devices.items():
        compute = [c for c in roofline.ceilings if c.device == name and isinstance(c, ComputeCeiling)]
        memory = [c for c in roofline.ceilings if c.device == name and isinstance(c, MemoryCeiling)]
        operators = [operator for operator in roofline.operators if operator.device == name]
        criteria += [
            _dtypes(name, record, compute),
            _seq_lens(name, operators),
            _plotted(name, compute, memory, operators, svg),
            _below_roofs(name, roofline, operators),
            _unthrottled(name, record, [*compute, *memory]),
            _verified(name, verification),
        ]
        if record.device_kind == "gpu":
            criteria.append(_envelope(name, memory))
    return Acceptance(criteria=[*criteria, _questions(interpretation, devices), _listed(expected)])


def _dtypes(device: str, record: DeviceRecord, ceilings: list[ComputeCeiling]) -> Criterion:
    what = f"{ENOUGH_DTYPES} or more dtypes, each within 30 % of the vendor's peak"
    if record.device_kind == "cpu":
        reason = "a CPU has a formula here, no vendor's peak, and NumPy computes in fp32 and fp64 alone"
        return Criterion(device=device, criterion=what, result="not_applicable", reason=reason)
    known = [ceiling for ceiling in ceilings if ceiling.fraction_of_vendor]
    judged = [ceiling for ceiling in known if ceiling.method == "gemm"]
    shares, apart = _shares(judged), _shares([ceiling for ceiling in known if ceiling.method == "fma"])
    far = [ceiling.name for ceiling in judged if not 1 - AWAY <= ceiling.fraction_of_vendor <= 1 + AWAY]
    if len(judged) < ENOUGH_DTYPES:
        supported = sum(name in record.vendor.peaks for name in DTYPES)
        result = "not_applicable" if supported < ENOUGH_DTYPES else "fail"
        reason = f"{len(judged)} dtypes were measured against a vendor's peak ({shares or 'none'})"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    reason = f"{shares}" + (f"; further away: {', '.join(far)}" if far else "")
    if record.vendor.match == "formula":
        reason += "; the peaks are by formula"
    if apart:
        reason += f"; apart from these, in registers: {apart}"
    return Criterion(device=device, criterion=what, result="fail" if far else "pass", reason=reason)


def _shares(ceilings: list[ComputeCeiling]) -> str:
    return ", ".join(f"{ceiling.name} {percent(ceiling.fraction_of_vendor)}" for ceiling in ceilings)


def _seq_lens(device: str, operators: list) -> Criterion:
    found = sorted({o.shape["seq_len"] for o in operators if o.operator == "decode_attention" and o.latency_s})
    return Criterion(
        device=device,
        criterion=f"decode attention at {ENOUGH_SEQ_LENS} or more S",
        result="pass" if len(found) >= ENOUGH_SEQ_LENS else "fail",
        reason=f"S = {', '.join(map(str, found)) or 'none'}",
    )


def _plotted(device: str, compute: list, memory: list, operators: list, svg: str) -> Criterion:
    """What the picture's own text shows of this device: ceilings with their values, and a label a dot.

    The picture keeps the roofs that matter to its dots: those that an operator stands under, and the GEMM peaks.
    """
    what = "the plot with all dots and their ceilings"
    if not compute or not memory:
        reason = f"{len(compute)} compute and {len(memory)} memory ceilings were measured"
        return Criterion(device=device, criterion=what, result="fail", reason=reason)
    texts = _texts_of_panel(svg, device)
    roofs = {name for operator in operators for name in (operator.compute_ceiling, operator.memory_ceiling)}
    peaks = [c for c in compute if c.method == "gemm" or c.name in roofs]
    slopes = [c for c in memory if c.name in roofs]
    missing = [c.name for c in peaks if not _is_shown(c.name, c.tflops, "TFLOPS", texts)]
    missing += [c.name for c in slopes if not _is_shown(c.name, c.gb_per_s, "GB/s", texts)]
    dots = sum(_has_place(operator) for operator in operators)
    labels = sum(_dots_labelled(text) for text in texts)
    reason = f"{len(peaks) + len(slopes)} ceilings, {dots} dots"
    if missing:
        reason += f"; not in the plot: {', '.join(missing)}"
    if labels < dots:
        reason += f"; {dots - labels} dots have no label in the plot"
    return Criterion(
        device=device, criterion=what, result="fail" if missing or labels < dots else "pass", reason=reason
    )


def _texts_of_panel(svg: str, device: str) -> list[str]:
    """The words in the panel of a device, whose subtitle begins with the device's name."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if group.get("id", "").startswith("axes_"):
            texts = ["".join(text.itertext()).strip() for text in group.iter(f"{SVG}text")]
            if any(text.split(" ")[0] == device for text in texts):
                return texts
    return []


def _is_shown(name: str, value: float, unit: str, texts: list[str]) -> bool:
    """Whether a text says the name and the value, rounded to three digits."""
    pattern = re.compile(rf"(?<!\w){re.escape(name)} (?:[A-Za-z ]+ )?([\d.]+) {unit}")
    shown = [float(number) for text in texts for number in pattern.findall(text)]
    return any(abs(number / value - 1) < 0.006 for number in shown)


def _has_place(operator: Operator) -> bool:
    """Zero has no place on a logarithmic axis."""
    height = operator.attained_tflops if operator.attained_tflops is not None else operator.roof_tflops
    return bool(height) and (operator.no_traffic or bool(operator.intensity_flops_per_byte))


def _dots_labelled(text: str) -> int:
    """Of how many dots a text tells the fraction of the roof, or that there is none. Ceilings and notes are no dots.

    Dots that are joined share a list, "5.8, 21 %", of which a line may end with a comma.
    """
    if "TFLOPS" in text or "GB/s" in text or text.endswith("."):
        return 0
    if re.fullmatch(r"(?:[\d.]+, )*[\d.]+(?: %|,)", text):
        return text.count(", ") + 1
    return len(re.findall(r"[\d.]+ %|not measured", text))


def _below_roofs(device: str, roofline: Roofline, operators: list[Operator]) -> Criterion:
    what = "no operator above its roof"
    above = [entry for entry in roofline.above_roof if entry.device == device]
    if not above:
        judged = sum(operator.fraction_of_roof is not None for operator in operators)
        reason = f"{judged} operators were held against a roof, which one without an interval may pass by "
        reason += percent(guard.WITHOUT_INTERVAL - 1)
        result = "pass" if judged else "not_applicable"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    told = "; ".join(f"{entry.operator}: {entry.evidence}" for entry in above[:ENOUGH_EVIDENCE])
    more = f"; and {len(above) - ENOUGH_EVIDENCE} more" if len(above) > ENOUGH_EVIDENCE else ""
    return Criterion(device=device, criterion=what, result="fail", reason=told + more)


def _unthrottled(device: str, record: DeviceRecord, ceilings: list) -> Criterion:
    what = "no ceiling taken under thermal throttling alone"
    throttled = [ceiling.name for ceiling in ceilings if ceiling.throttled]
    untold = [ceiling.name for ceiling in ceilings if ceiling.throttled is None]
    if throttled:
        result, reason = "fail", f"of {len(ceilings)} ceilings, every sample was throttled of {', '.join(throttled)}"
    elif record.device_kind == "cpu":
        result, reason = "not_applicable", "a CPU does not tell when it throttles"
    elif len(untold) == len(ceilings):
        result, reason = "not_applicable", "the device does not tell when it throttles"
    else:
        result, reason = "pass", f"{len(ceilings) - len(untold)} ceilings"
        reason += f"; of {', '.join(untold)} the device does not tell" if untold else ""
    return Criterion(device=device, criterion=what, result=result, reason=reason)


def _envelope(device: str, memory: list[MemoryCeiling]) -> Criterion:
    what = "the HBM envelope is complete"
    measured = {ceiling.name: ceiling.gb_per_s for ceiling in memory if ceiling.name in HBM_MIXES}
    missing = [name for name in HBM_MIXES if name not in measured]
    if not measured:
        result, reason = "not_applicable", "none of its mixes was asked for"
    elif missing:
        result, reason = "fail", f"missing: {', '.join(missing)}"
    else:
        highest = max(measured, key=measured.get)
        result, reason = "pass", f"{', '.join(measured)}; the highest: {highest}, {number(measured[highest])} GB/s"
    return Criterion(device=device, criterion=what, result=result, reason=reason)


def _verified(device: str, verification: Verification) -> Criterion:
    """Of each cell a time and a regime were found, and what was predicted of them is what was sealed before."""
    what = "every prediction has its measured counterpart, sealed before it"
    entries = [entry for entry in verification.entries if entry.device == device]
    faults = [line for seal in verification.seals if seal.device == device for line in seal.violations]
    lacking = {
        "no sealed prediction": sum(entry.sealed is None for entry in entries),
        "no measured time": sum(not entry.latency_s for entry in entries),
        "no regime found, for want of a ceiling": sum(entry.regime is None for entry in entries),
    }
    faults += [f"of {len(entries)} cells {count} have {which}" for which, count in lacking.items() if count]
    sealed = next((seal for seal in verification.seals if seal.device == device), None)
    if not entries:
        result, reason = "not_applicable", "nothing was predicted"
    elif sealed is None or faults:
        result, reason = "fail", "; ".join(faults) or "no seal was found"
    else:
        began = sealed.first_measurement_at or "no time"
        result, reason = "pass", f"{len(entries)} cells, sealed at {sealed.sealed_at}, first measured at {began}"
    return Criterion(device=device, criterion=what, result=result, reason=reason)


def _questions(interpretation: str, devices: dict[str, DeviceRecord]) -> Criterion:
    """Each of the three headings with a paragraph below it."""
    answered = len(re.findall(r"^## [123]\. .+\n\n\w", interpretation, re.MULTILINE))
    reason = f"{answered} of 3 in interpretation.md"
    if len({record.device_kind for record in devices.values()}) < 2:
        reason += f"; the third needs a GPU and the CPU, and only {', '.join(devices)} was measured"
    return Criterion(
        device=None,
        criterion="the three questions answered",
        result="pass" if answered == 3 else "fail",
        reason=reason,
    )


def _listed(expected: list[str]) -> Criterion:
    missing = [path for path in expected if not Path(path).exists()]
    return Criterion(
        device=None,
        criterion="everything there that the manifest lists",
        result="fail" if missing else "pass",
        reason=f"missing: {', '.join(missing)}" if missing else f"{len(expected)} files",
    )
