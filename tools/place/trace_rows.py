"""A trace's operators under measured ceilings: a row per operator and shape, a section per GPU."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from placing import Ceiling, Placed, Roof, device_of, mix_of, rated, roof_of
from trace_calls import Label, labelled
from trace_events import Trace
from trace_steps import TraceSteps, shared_s, step_of

from roofline.api import Run, UserError, memory_ceilings

START_S = 2.5e-6  # of each kernel of a call: half of the time of a kernel of 5 us
PARTLY = 0.05  # overlapped: less is a kernel that starts as the one before it ends


@dataclass(frozen=True, kw_only=True)
class TracedOperation(Placed):
    """The calls of an operator with one shape, as launches; a call may launch several kernels."""

    label: Label
    overlapped: float  # share of its time in which another kernel ran too


@dataclass(frozen=True)
class Section:
    """One GPU of a trace: its step; operators and gaps by what they would save, or by their time."""

    report: str
    device: str
    card: str
    gpu: int
    step: TraceSteps
    roofs_s: float  # the step at the roofs, without gaps; what has no roof counts as it is
    mfu: float  # products at the ceilings of their dtypes, over the step
    kernels: list[TracedOperation]


def sections(trace: Trace, run: Run) -> list[Section]:
    """Raises UserError for cards that the run did not measure, and for a step_s that cannot be."""
    found = []
    for gpu in sorted({one.args.get("device", 0) for one in trace.gpu}):
        card = trace.cards.get(gpu) or next(iter(trace.cards.values()), "") or "a GPU without a name"
        device = device_of(trace.path, card, run)
        ceilings = [one for one in run.roofline.ceilings if one.device == device]
        events = sorted((one for one in trace.gpu if one.args.get("device", 0) == gpu), key=lambda one: one[:2])
        step, labels, groups = step_of(trace, events), labelled(trace, events), {}
        if step.name and trace.step_s and not step.busy_s / 2 < trace.step_s < 2 * step.profiled_s:
            raise UserError(f"{trace.path}: step_s is {trace.step_s:g} s; its steps take {step.profiled_s:.3g} s")
        for place, shared in zip(step.places, shared_s([events[place] for place in step.places]), strict=True):
            (label, counts), seconds = labels[place], (events[place].end - events[place].start) / 1e6
            groups.setdefault(label, []).append((seconds, counts, shared))
        l2_bytes = run.devices[device].hardware.get("l2_bytes") or 0
        rows = [_operation(*group, ceilings, l2_bytes, step.seconds) for group in groups.items()]
        busy_s = step.busy_s - fsum(one.saving_s[0] for one in rows if one.saving_s)
        products = [(one.total_s, one.roof_at("compute")) for one in rows if one.label.work and one.label.work.product]
        needed_s = fsum(seconds * min(1.0, roof.share) for seconds, roof in products if roof and roof.share)
        rows += [_idle(*gap, step.seconds) for gap in step.gaps.items() if gap[1] > 1e-8]
        rows.sort(key=lambda one: -(one.saving_s or (one.total_s,))[0])
        found.append(Section(trace.path, device, card, gpu, step, max(0.0, busy_s), needed_s / step.seconds, rows))
    return found


def _idle(kind: str, seconds: float, whole_s: float) -> TracedOperation:
    fields = rated(1, seconds, whole_s, None, [], None, True) | {"regime": "idle", "saving_s": (seconds,)}
    return TracedOperation(
        name="idle", signature=f"idle: {kind}", label=Label(kind, kind="idle"), overlapped=0.0, **fields
    )


def _operation(label: Label, mine: list[tuple], ceilings, l2_bytes: int, whole_s: float) -> TracedOperation:
    """Of its events: seconds, whether each counts as a call, and seconds in which others ran too."""
    total_s, calls, shared = map(fsum, zip(*mine, strict=True))
    calls, overlapped, work = max(1, round(calls)), min(1.0, shared / total_s) if total_s else 0.0, label.work
    name = label.name.replace("(anonymous namespace)::", "").replace("void ", "")
    name = name if label.kind == "copy" else name.partition("(")[0].strip()[: None if label.work else 60]
    roofs = list(roofs_of(label, ceilings, l2_bytes, total_s / calls)) if work and total_s else []
    compute_s = max((one.least_s or 0.0 for one in roofs if one.level == "compute"), default=0.0)
    known = bool(roofs) and all(one.ceiling for one in roofs)
    bounds = [max(compute_s, one.least_s) for one in roofs if one.level != "compute"] if known else []
    return TracedOperation(
        name=label.name,
        signature=f"{name}{'*' * label.inferred}{'+' * (overlapped > PARTLY)} {label.shape}",
        label=label,
        overlapped=overlapped,
        least_bytes=work and work.read_bytes + work.write_bytes,
        saving_s=tuple(max(0.0, total_s - calls * bound) * (1 - overlapped) for bound in bounds),
        **rated(calls, total_s, whole_s, work and work.flops, roofs, START_S * len(mine) / calls, known),
    )


def roofs_of(label: Label, ceilings: Sequence[Ceiling], l2_bytes: int, mean_s: float) -> Iterable[Roof]:
    """Least bytes that fit in the L2 stand under its roof too: they may have been there already."""
    by_name, work = {one.name: one for one in ceilings}, label.work
    if work.flops:
        fit = [one for one in ceilings if one.kind == "compute" and one.dtype == work.dtype]
        best = max(fit, key=lambda one: one.tflops, default=None)
        yield roof_of("compute", best, work.flops, None, mean_s, best and best.compute_unit, work.dtype)
    moved, names = work.read_bytes + work.write_bytes, memory_ceilings("gpu", mix_of(work.read_bytes, work.write_bytes))
    if label.kind == "copy":
        names = [("h2d" if "HtoD" in label.name else "d2h") + "_pageable" * ("Pageable" in label.name)]
    yield roof_of("memory", next((by_name[name] for name in names if name in by_name), None), moved, None, mean_s)
    if moved < l2_bytes and label.kind != "copy" and "l2" in by_name:
        yield roof_of("l2", by_name["l2"], moved, None, mean_s)
