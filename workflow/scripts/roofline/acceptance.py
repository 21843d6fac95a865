"""The lab's stop conditions as a checklist, for each device: pass, fail, or not_applicable with the reason."""

from pathlib import Path

from roofline.records import Acceptance, ComputeCeiling, Criterion, DeviceRecord, MemoryCeiling, Roofline
from roofline.reporting import percent

NEAR_VENDOR = 0.70
ENOUGH_DTYPES = 3
ENOUGH_SEQ_LENS = 4


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
    far = [ceiling.name for ceiling in judged if ceiling.fraction_of_vendor < NEAR_VENDOR]
    if len(judged) < ENOUGH_DTYPES:
        supported = sum(name in record.vendor.peaks for name in ("fp64", "fp32", "fp16", "bf16"))
        result = "not_applicable" if supported < ENOUGH_DTYPES else "fail"
        reason = f"{len(judged)} dtypes were measured against a vendor's peak ({shares or 'none'})"
        return Criterion(device=device, criterion=what, result=result, reason=reason)
    reason = f"{shares}" + (f"; under 70 %: {', '.join(far)}" if far else "")
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
    what = "the plot with all ceilings and dots"
    missing = [ceiling.name for ceiling in compute + memory if ceiling.name not in svg]
    dots = [operator for operator in operators if operator.fraction_of_roof is not None]
    if not compute or not memory:
        reason = f"{len(compute)} compute and {len(memory)} memory ceilings were measured"
        return Criterion(device=device, criterion=what, result="fail", reason=reason)
    reason = f"{len(compute) + len(memory)} ceilings, {len(dots)} dots"
    if missing:
        reason += f"; not in the plot: {', '.join(missing)}"
    return Criterion(device=device, criterion=what, result="fail" if missing else "pass", reason=reason)


def _questions(interpretation: str, devices: dict) -> Criterion:
    answered = sum(f"\n## {number}." in f"\n{interpretation}" for number in (1, 2, 3))
    return Criterion(
        device=None,
        criterion="the three questions answered",
        result="pass" if answered == 3 else "fail",
        reason=f"{answered} of 3 in interpretation.md",
    )


def _listed(expected: list[str]) -> Criterion:
    missing = [path for path in expected if not Path(path).exists()]
    return Criterion(
        device=None,
        criterion="everything there that the manifest lists",
        result="fail" if missing else "pass",
        reason=f"missing: {', '.join(missing)}" if missing else f"{len(expected)} files",
    )
