"""The lab's stop conditions as a checklist, for each device: pass, fail, or not_applicable with the reason."""

import re
from pathlib import Path
from xml.etree import ElementTree

from roofline.records import (
    Acceptance,
    ComputeCeiling,
    Criterion,
    DeviceRecord,
    MemoryCeiling,
    Operator,
    Roofline,
)
from roofline.reporting import percent

AWAY = 0.30
ENOUGH_DTYPES = 3
ENOUGH_SEQ_LENS = 4
SVG = "{http://www.w3.org/2000/svg}"


def accept(
    roofline: Roofline, devices: dict[str, DeviceRecord], svg: str, interpretation: str, expected: list[str]
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
        ]
    return Acceptance(criteria=[*criteria, _questions(interpretation, devices), _listed(expected)])


def _dtypes(device: str, record: DeviceRecord, ceilings: list[ComputeCeiling]) -> Criterion:
    what = f"{ENOUGH_DTYPES} or more dtypes, each within 30 % of the vendor's peak"
    if record.device_kind == "cpu":
        reason = "a CPU has a formula here, no vendor's peak, and NumPy computes in fp32 and fp64 alone"
        return Criterion(device=device, criterion=what, result="not_applicable", reason=reason)
    judged = [ceiling for ceiling in ceilings if ceiling.fraction_of_vendor]
    shares = ", ".join(f"{ceiling.name} {percent(ceiling.fraction_of_vendor)}" for ceiling in judged)
    far = [ceiling.name for ceiling in judged if not 1 - AWAY <= ceiling.fraction_of_vendor <= 1 + AWAY]
    if len(judged) < ENOUGH_DTYPES:
        supported = sum(name in record.vendor.peaks for name in ("fp64", "fp32", "fp16", "bf16"))
        result = "not_applicable" if supported < ENOUGH_DTYPES else "fail"
        reason = f"{len(judged)} dtypes were measured against a vendor's peak ({shares or 'none'})"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    reason = f"{shares}" + (f"; further away: {', '.join(far)}" if far else "")
    if record.vendor.match == "formula":
        reason += "; the peaks are by formula"
    return Criterion(device=device, criterion=what, result="fail" if far else "pass", reason=reason)


def _seq_lens(device: str, operators: list) -> Criterion:
    found = sorted({o.shape["seq_len"] for o in operators if o.operator == "decode_attention" and o.latency_s})
    return Criterion(
        device=device,
        criterion=f"decode attention at {ENOUGH_SEQ_LENS} or more S",
        result="pass" if len(found) >= ENOUGH_SEQ_LENS else "fail",
        reason=f"S = {', '.join(map(str, found)) or 'none'}",
    )


def _plotted(device: str, compute: list, memory: list, operators: list, svg: str) -> Criterion:
    """What the picture's own text shows of this device: each ceiling with its value, and a label a dot."""
    what = "the plot with all ceilings and dots"
    if not compute or not memory:
        reason = f"{len(compute)} compute and {len(memory)} memory ceilings were measured"
        return Criterion(device=device, criterion=what, result="fail", reason=reason)
    texts = _texts_of_panel(svg, device)
    missing = [c.name for c in compute if not _is_shown(c.name, c.tflops, "TFLOPS", texts)]
    missing += [c.name for c in memory if not _is_shown(c.name, c.gb_per_s, "GB/s", texts)]
    dots = sum(_has_place(operator) for operator in operators)
    labels = sum(_dots_labelled(text) for text in texts)
    reason = f"{len(compute) + len(memory)} ceilings, {dots} dots"
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
    """Of how many dots a text tells the fraction of the roof, or that there is none. Ceilings and notes are no dots."""
    if "TFLOPS" in text or "GB/s" in text or text.endswith("."):
        return 0
    return len(re.findall(r"[\d.]+ %|not measured", text))


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
