"""A trace's operators under measured ceilings: one row per operator and shape, one section per GPU."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from formulas.base import Work
from placing import Ceiling, Placed, Roof, device_of, mix_of, regime_of, roof_of
from trace_calls import Label, labelled
from trace_events import GpuEvent, Trace
from trace_steps import Step, overlaps, step_of

from roofline.api import Run, memory_ceilings

START_S = 2.5e-6  # of each kernel of a call: what is half of the time of a kernel of 5 us
LINKS = {"HtoD": "h2d", "DtoH": "d2h"}


@dataclass(frozen=True, kw_only=True)
class Operation(Placed):
    """The calls of one operator with one shape. `launches` are calls; a call may launch several kernels."""

    shape: str
    kernels: list[str]  # names, by time
    kind: str  # operator, collective, copy
    inferred: bool  # of a CUDA graph: the shape is that of the same kernel outside
    lacking: str | None  # what has no formula
    product: bool
    least_bytes: float | None
    sustained_share: float | None  # of the sustained compute ceiling
    overlapped: float  # share of its time in which other streams ran too
    saving_s: tuple[float, float] | None  # at its roof, of memory and of the L2 if the data fit there


@dataclass(frozen=True)
class Section:
    """One GPU of a trace: its step, and operators by what they would save."""

    report: str
    device: str
    card: str
    gpu: int
    step: Step
    roofs_s: float  # the step at the roofs, without gaps; what has no roof counts as it is
    model_share: float  # MFU: products at the ceilings of their dtypes, over the step
    kernels: list[Operation]


def sections(trace: Trace, run: Run) -> list[Section]:
    """Raises UserError for cards that the run did not measure."""
    found = []
    for gpu in sorted({one.device for one in trace.gpu}):
        card = trace.cards.get(gpu) or next(iter(trace.cards.values()), "") or "a GPU that the trace does not name"
        device = device_of(trace.path, card, run)
        ceilings = [one for one in run.roofline.ceilings if one.device == device]
        events = sorted(one for one in trace.gpu if one.device == gpu)
        step, labels = step_of(trace, events), labelled(trace, events)
        mine = [(events[place], *labels[place]) for place in step.places]
        rows = operations(mine, ceilings, run.devices[device].hardware.get("l2_bytes") or 0, step.seconds)
        saved_s = fsum(one.saving_s[0] for one in rows if one.saving_s)
        products = (one.total_s * (one.roof_at("compute").share or 0.0) for one in rows if one.product)
        share = fsum(products) / step.seconds if step.seconds else 0.0
        found.append(Section(trace.path, device, card, gpu, step, max(0.0, step.busy_s - saved_s), share, rows))
    return found


def operations(
    events: Sequence[tuple[GpuEvent, Label, bool]], ceilings: Sequence[Ceiling], l2_bytes: int, whole_s: float
) -> list[Operation]:
    """Of events with their labels, and whether each counts as a call."""
    groups: dict[Label, list[tuple]] = {}
    for (event, label, counts), with_others in zip(events, overlaps([one for one, *_ in events]), strict=True):
        groups.setdefault(label, []).append((event, counts, with_others))
    rows = [_operation(label, mine, ceilings, l2_bytes, whole_s) for label, mine in groups.items()]
    return sorted(rows, key=lambda one: (-(one.saving_s or (0.0,))[0], -one.total_s))


def _operation(label: Label, mine: list[tuple], ceilings, l2_bytes: int, whole_s: float) -> Operation:
    total_s = fsum(event.end - event.start for event, *_ in mine) / 1e6
    calls = sum(counts for _, counts, _ in mine) or 1
    overlapped = min(1.0, fsum(shared for *_, shared in mine) / 1e6 / total_s) if total_s else 0.0
    mean_s, work, names = total_s / calls, label.work, {}
    for event, *_ in mine:
        names[event.name] = names.get(event.name, 0.0) + event.end - event.start
    roofs = list(roofs_of(work, label, ceilings, l2_bytes, mean_s)) if work and mean_s else []
    least = {one.level: one.least_s for one in roofs}
    compute_s, memory_s = (least.get(level, 0.0) if work else None for level in ("compute", "memory"))
    known = bool(roofs) and None not in least.values()
    levels = [level for level in ("memory", "l2") if least.get(level)]
    level = next((one for one in levels if least[one] <= mean_s), levels[-1] if levels else None)
    regime = saving_s = limit = None
    if known:
        regime = regime_of(mean_s, START_S * len(mine) / calls, compute_s, least.get(level) or memory_s, known)
        limit = {"compute": "compute", "memory": level}.get(regime)
        bounds = [max(compute_s, least[one]) for one in levels] or [compute_s]
        saved = [max(0.0, total_s - calls * bound) * (1 - overlapped) for bound in bounds]
        saving_s = saved[0], saved[-1]
    elif label.kind == "operator":
        regime = "overhead" if mean_s <= 2 * START_S * len(mine) / calls else None
    flops, rate = work and work.flops, work and mean_s and work.flops / mean_s / 1e12
    compute = next((one for one in roofs if one.level == "compute" and one.share), None)
    ceiling = compute and next(one for one in ceilings if one.name == compute.ceiling)
    sustained = ceiling and ceiling.sustained_tflops
    return Operation(
        name=label.name,
        signature=label.name,
        grid=(),
        block=(),
        launches=calls,
        total_s=total_s,
        share_of_time=total_s / whole_s if whole_s else None,
        mean_s=mean_s,
        sm_clock_mhz=None,
        flops=flops,
        attained_tflops=rate,
        intensities={one.level: flops / one.amount for one in roofs if flops and one.amount and one.level != "compute"},
        roofs=roofs,
        issued_share=None,
        regime=regime,
        limited_by=next((one.ceiling for one in roofs if one.level == limit), None),
        limited_at=limit,
        tma_instructions=None,
        missing=[],
        missing_flops={},
        shape=label.shape,
        kernels=sorted(names, key=names.get, reverse=True),
        kind=label.kind,
        inferred=label.inferred,
        lacking=label.lacking,
        product=bool(work and work.product and rate),
        least_bytes=work and work.read_bytes + work.write_bytes,
        sustained_share=compute.share * ceiling.tflops / sustained if sustained else None,
        overlapped=overlapped,
        saving_s=saving_s,
    )


def roofs_of(work: Work, label: Label, ceilings: Sequence[Ceiling], l2_bytes: int, mean_s: float) -> Iterable[Roof]:
    """Least bytes that fit in the L2 stand under its roof too: they may have been there already."""
    by_name = {one.name: one for one in ceilings}
    if work.flops:
        fit = [one for one in ceilings if one.kind == "compute" and one.dtype == work.dtype]
        best = max(fit, key=lambda one: one.tflops, default=None)
        yield roof_of("compute", best, work.flops, None, mean_s, best and best.unit, work.dtype)
    moved = work.read_bytes + work.write_bytes
    names = memory_ceilings("gpu", mix_of(work.read_bytes, work.write_bytes))
    if label.kind == "copy":
        link = next(name for way, name in LINKS.items() if way in label.name)
        names = [f"{link}_pageable"] if "Pageable" in label.name else [link]
    yield roof_of("memory", next((by_name[name] for name in names if name in by_name), None), moved, None, mean_s)
    if moved < l2_bytes and label.kind != "copy":
        yield roof_of("l2", by_name.get("l2"), moved, None, mean_s)
